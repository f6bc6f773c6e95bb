import { afterEach, beforeEach, expect, test, vi } from 'vitest';

import widget from '../src/widget/index';
import { FIELDS } from '../src/widget/parts';

const plain = { text: '', tone: 'plain', buttons: [] };
const button = { command: 'retry', label: 'Retry 3', primary: false, n: 0, hint: '', target: '' };
const ended = {
  kind: 'run',
  answered: 0,
  beats: 1,
  over: false,
  twin: {},
  head: { name: 'invoices', face: 'done with dead', chip: 'Done, 3 dead', stale: false, notice: plain, buttons: [button] },
  bars: { percent: '100 %', unit: 'documents', bars: [], label: '', milestone: '' },
  numbers: { subtitle: 'ended 14:22:07', live: 'ended 14:22:07', figures: [], counters: [], lines: [], ask: null }
};

/** A widget in the page, and the kernel's side of it. */
function shown(state: object) {
  const now: Record<string, unknown> = { ...state };
  const listeners = new Map<string, () => void>();
  const sent: object[] = [];
  const el = document.createElement('div');
  document.body.append(el);
  const model = {
    get: (name: string) => now[name],
    send: (message: object) => void sent.push(message),
    on: (name: string, listener: () => void) => void listeners.set(name, listener),
    off: (name: string) => void listeners.delete(name)
  };
  const end = widget.render({ el, model });
  const set = (name: string, value: unknown): void => {
    now[name] = value;
    listeners.get(`change:${name}`)?.();
  };
  const root = (): HTMLElement => el.querySelector<HTMLElement>('.dqlab')!;
  const tool = (): HTMLElement => el.querySelector<HTMLElement>('[data-command="retry"]')!;
  return { root, tool, set, sent, end };
}

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

test('a run that has ended is grey, and holds its buttons, once its kernel gives no sign of life', async () => {
  const view = shown(ended);
  for (let beat = 2; beat < 12; beat++) {
    await vi.advanceTimersByTimeAsync(3_000);
    view.set('beats', beat);
  }
  expect(view.root().dataset.stale).toBe('false');
  await vi.advanceTimersByTimeAsync(11_000);
  expect(view.root().dataset.stale).toBe('true');
  expect(view.root().textContent).toContain('No answer since');
  expect(view.root().textContent).toContain('ended 14:22:07');
  expect(view.tool().getAttribute('aria-disabled')).toBe('true');
  view.set('beats', 12);
  await vi.advanceTimersByTimeAsync(0);
  expect(view.root().dataset.stale).toBe('false');
  expect(view.tool().getAttribute('aria-disabled')).not.toBe('true');
  view.end();
});

test('a picture that is final needs no kernel', async () => {
  const view = shown({ ...ended, beats: 0 });
  await vi.advanceTimersByTimeAsync(60_000);
  expect(view.root().dataset.stale).toBe('false');
  view.end();
});

const needs = {
  total: 1,
  rows: [{ key: 'k', tone: 'bad', icon: 'dead', subject: '3 dead', text: 'x', detail: '', action: 'show', label: 'Fix & retry…', pane: 'failures', queue: 'q', run: 'r', target: 'f1', ready: false, line: '' }]
};
const again = { ...button, command: 'ask', label: 'Retry now' };
const figure = { label: 'Done at', value: '14:34', unit: 'in 12 min', second: '80 % sure: 14:32–14:38', extra: '', tone: 'plain', live: true };
const speed = { ...figure, label: 'Speed', value: '451', unit: 'pages/s', second: '' };
const hung = {
  ...ended,
  head: { ...ended.head, face: 'no answer', chip: 'No answer', stale: true, notice: { ...plain, text: 'No answer since 14:21:29.' }, buttons: [again] },
  numbers: { ...ended.numbers, live: 'as of 14:22:07', figures: [figure, speed] },
  chart: { title: '', label: '', empty: 'nothing', step: 1, now: 0, end: 0, values: [], fan: [], due: '', band: '', ticks: [], marks: [] },
  needs
};

test('while a cluster does not answer, only the button that asks again can be pressed', async () => {
  const view = shown(hung);
  const [ask] = [...view.root().querySelectorAll<HTMLElement>('[data-command="ask"]')];
  expect(ask!.getAttribute('aria-disabled')).toBe('false');
  const fix = [...view.root().querySelectorAll('button')].find((each) => each.textContent === 'Fix & retry…')!;
  expect(fix.getAttribute('aria-disabled')).toBe('true');
  ask!.click();
  expect(view.sent).toContainEqual({ command: 'ask' });
  view.end();
});

test('a press by a key while a cluster does not answer is not sent', async () => {
  const view = shown({ ...hung, kind: 'queue', head: { ...hung.head, icon: 'no answer', buttons: [{ ...button, command: 'pause', label: 'Pause' }] } });
  view.root().querySelector('header')!.dispatchEvent(new KeyboardEvent('keydown', { key: 'p', bubbles: true }));
  expect(view.sent.filter((each: any) => each.command === 'pause')).toEqual([]);
  view.end();
});

test('of an end nothing is left once the kernel is silent, of a speed its unit', async () => {
  const view = shown({ ...ended, numbers: { ...ended.numbers, live: 'live 14:22:07', figures: [figure, { ...figure, label: 'Done in', value: '10 to 30', unit: 's' }, speed] } });
  await vi.advanceTimersByTimeAsync(5_000);
  const shownFigures = [...view.root().querySelectorAll('.dq-stat')].map((each) => each.textContent);
  expect(shownFigures).toEqual(['Done at–', 'Done at–', 'Speed–pages/s']);
  view.end();
});

test('a chart promises no end once the kernel is silent', async () => {
  const chart = { ...hung.chart, empty: '', end: 20, now: 10, label: 'Left over time: 5 now, zero expected at 14:34', values: [9, 5], step: 10, fan: [12, 14, 16], due: '14:34', band: '14:32–14:38' };
  const view = shown({ ...ended, numbers: { ...ended.numbers, live: 'live 14:22:07' }, chart });
  vi.spyOn(view.root().querySelector('.dq-chart')!, 'getBoundingClientRect').mockReturnValue({ width: 500 } as DOMRect);
  view.set('chart', { ...chart });
  await vi.advanceTimersByTimeAsync(0);
  expect(view.root().querySelector('.dq-chart')!.textContent).toContain('14:34');
  await vi.advanceTimersByTimeAsync(5_000);
  expect(view.root().querySelector('.dq-chart')!.innerHTML).not.toContain('14:3');
  view.end();
});

test('rows of a lab promise nothing once the kernel is silent', async () => {
  const of = { name: 'pages', icon: 'running', tone: '', state: 'Running', waiting: '7', ready: '7', in_rate: '451', out_rate: '23.9', empty_in: '55 s', purge: [], retries: [] };
  const row = FIELDS.map((field) => (of as Record<string, unknown>)[field] ?? '');
  const run = { key: 'k', name: 'parse', queue: 'pages', state: 'Running', tone: '', share: '55 %', left: '7 documents', done: '14:34', dead: '0' };
  const over = { ...run, key: 'l', name: 'read', state: 'Some dead', done: '14:02' };
  const state = {
    ...ended,
    kind: 'lab',
    head: { name: 'local', icon: 'running', tone: '', stale: false, notice: plain, buttons: [], dashboard: '' },
    numbers: { ...ended.numbers, live: 'live 14:22:07' },
    rows: { rows: [row], toggles: [], more: '' },
    runs: { title: 'Runs 2', rows: [run, over], more: '' }
  };
  const view = shown(state);
  const cells = (): string => [...view.root().querySelectorAll('tbody td')].map((each) => each.textContent).join(' ');
  expect(cells()).toContain('23.9');
  await vi.advanceTimersByTimeAsync(5_000);
  for (const words of ['Was running', 'Some dead', '14:02']) expect(cells()).toContain(words);
  for (const words of ['451', '23.9', '55 s', '14:34']) expect(cells()).not.toContain(words);
  view.end();
});

test('who confirms a question keeps the focus in the view', async () => {
  const cancel = { ...button, command: 'cancel', label: 'Cancel run…' };
  const asked = { question: 'Cancel 18 documents?', detail: '', keep: 'Keep running', go: 'Cancel 18' };
  const view = shown({ ...ended, head: { ...ended.head, face: 'running', buttons: [cancel] }, numbers: { ...ended.numbers, live: 'live 14:22:07', ask: asked } });
  const named = (label: string): HTMLElement => [...view.root().querySelectorAll('button')].find((each) => each.textContent === label)!;
  named('Cancel run…').click();
  named('Cancel 18').focus();
  named('Cancel 18').click();
  expect(view.sent).toContainEqual({ command: 'cancel' });
  expect(view.root().contains(document.activeElement)).toBe(true);
  view.set('head', { ...ended.head, face: 'cancelled', chip: 'Cancelled', buttons: [] });
  await vi.advanceTimersByTimeAsync(0);
  expect(view.root().contains(document.activeElement)).toBe(true);
  view.end();
});

test('Enter in the number of consumers answers, and does not press the button that takes the focus', async () => {
  const offers = { cluster: '', label: '', code: '', results: '', open: '', queue: 'pages', run: 'invoices', python: [] };
  const rects = vi.spyOn(Element.prototype, 'getClientRects').mockReturnValue([{}] as unknown as DOMRectList);
  const view = shown({ ...ended, offers });
  view.root().querySelector<HTMLElement>('.dq-more')!.click();
  [...view.root().querySelectorAll<HTMLElement>('[role=menuitem]')].find((each) => each.textContent!.startsWith('Scale'))!.click();
  const input = view.root().querySelector<HTMLInputElement>('input[type=number]')!;
  input.value = '3';
  const enter = new KeyboardEvent('keydown', { key: 'Enter', bubbles: true, cancelable: true });
  input.dispatchEvent(enter);
  expect(view.sent).toEqual([expect.objectContaining({ command: 'scale', n: 3 })]);
  expect(enter.defaultPrevented).toBe(true);
  rects.mockRestore();
});

test.each(['', '0', '-1', '1.5', '1000000000'])('what is not a number of consumers, such as "%s", is refused in words', (wrong) => {
  const offers = { cluster: '', label: '', code: '', results: '', open: '', queue: 'pages', run: 'invoices', python: [] };
  const rects = vi.spyOn(Element.prototype, 'getClientRects').mockReturnValue([{}] as unknown as DOMRectList);
  const words = vi.spyOn(HTMLInputElement.prototype, 'reportValidity');
  const view = shown({ ...ended, offers });
  view.root().querySelector<HTMLElement>('.dq-more')!.click();
  [...view.root().querySelectorAll<HTMLElement>('[role=menuitem]')].find((each) => each.textContent!.startsWith('Scale'))!.click();
  const input = view.root().querySelector<HTMLInputElement>('input[type=number]')!;
  input.value = wrong;
  input.dispatchEvent(new KeyboardEvent('keydown', { key: 'Enter', bubbles: true, cancelable: true }));
  [...view.root().querySelectorAll<HTMLElement>('button')].find((each) => each.textContent === 'Set')!.click();
  expect(view.sent).toEqual([]);
  expect(words.mock.results.map((each) => each.value)).toEqual([false, false]);
  expect(input.isConnected).toBe(true);
  rects.mockRestore();
  words.mockRestore();
});

test('a view that was silent over midnight names the day', async () => {
  vi.setSystemTime(new Date(2026, 10, 20, 23, 50, 0));
  const view = shown(ended);
  view.set('beats', 2);
  vi.setSystemTime(new Date(2026, 10, 21, 8, 0, 0));
  await vi.advanceTimersByTimeAsync(11_000);
  expect(view.root().textContent).toContain('No answer since 20 Nov, 23:50:');
});

test('numbers that waited while the page was asleep do not move the moment since which nothing comes', async () => {
  vi.setSystemTime(new Date(2026, 10, 20, 14, 22, 7));
  const view = shown({ ...ended, numbers: { ...ended.numbers, subtitle: 'live 14:22:07', live: 'live 14:22:07' } });
  vi.setSystemTime(new Date(2026, 10, 20, 15, 0, 0));
  view.set('numbers', { ...ended.numbers, subtitle: 'live 14:22:09', live: 'live 14:22:09' });
  await vi.advanceTimersByTimeAsync(5_000);
  expect(view.root().textContent).toContain('No answer since 14:22:09.');
  view.end();
});
