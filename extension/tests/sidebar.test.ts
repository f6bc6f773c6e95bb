import { Widget } from '@lumino/widgets';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';

import type { Action, Service } from '../src/lab/client';
import type { Desk } from '../src/lab/desk';
import { Model, type Asking } from '../src/lab/model';
import { runGlyph } from '../src/lab/icons';
import { endWord, runWord } from '../src/lab/sidebar/runs';
import { Sidebar } from '../src/lab/sidebar/sidebar';
import { date } from '../src/shared/format';
import type { Snapshot } from '../src/shared/snapshot';
import { answers, asked } from './host/dialogs';
import { goldenHistory, goldenSnapshot, service } from './golden';

let services: Service[];
let shown: Snapshot;
let acted: Action[];
let inserted: string[][];
let model: Model;
let sidebar: Sidebar;
let desk: Desk;
let client: Asking;

// Elements have no size here: what the keys move among is all that is not hidden.
Element.prototype.getClientRects = function (this: Element) {
  return (this.closest('[hidden]') ? [] : [{}]) as unknown as DOMRectList;
};

beforeEach(async () => {
  vi.useFakeTimers({ now: goldenSnapshot().at * 1000 });
  services = [service(), service({ id: 'old', name: 'old', state: 'gone', store: 'runs/old' })];
  shown = goldenSnapshot();
  acted = [];
  inserted = [];
  asked.length = answers.length = 0;
  client = {
    services: () => Promise.resolve(services),
    snapshot: (_: string) => Promise.resolve(shown),
    history: () => Promise.resolve(goldenHistory()),
    panels: () => Promise.resolve([{ path: 'dq', name: 'All six', ours: true }, { path: 'individual-dq-failures', name: 'Failures', ours: true }, { path: 'individual-cpu', name: 'Cpu', ours: false }]),
    forget: () => Promise.resolve(),
    act: (_: string, action: Action) => {
      acted.push(action);
      return Promise.resolve({ count: 1, text: 'done', snapshot: shown });
    }
  };
  model = new Model({ client, isHidden: () => false });
  desk = {
    model,
    openPanel: vi.fn(),
    openFailures: vi.fn(),
    insert: (...cells) => inserted.push(cells),
    connectToAddress: vi.fn(),
    openLayout: vi.fn()
  };
  sidebar = new Sidebar(desk);
  Widget.attach(sidebar, document.body);
  await vi.advanceTimersByTimeAsync(1_100);
});

afterEach(() => {
  sidebar.dispose();
  model.dispose();
  vi.useRealTimers();
});

const row = (key: string): HTMLElement => sidebar.node.querySelector<HTMLElement>(`[data-row="${key}"]`)!;
const words = (element: Element, selector: string): string => element.querySelector(selector)?.textContent ?? '';
const ended = (): HTMLButtonElement => sidebar.node.querySelector<HTMLButtonElement>('.dq-folded[aria-controls=dq-ended]')!;
const tick = (): Promise<unknown> => vi.advanceTimersByTimeAsync(1_100);

test('runs and queues stand there with their figures', () => {
  const run = row('run pages parse-invoices');
  expect(words(run, '.dq-share')).toBe('65.4 %');
  expect(words(run, '.dq-badge')).toBe('✕ 212');
  expect(words(row('queue pages'), '.dq-amount')).toBe('16,057');
  expect(run.getAttribute('aria-label')).toContain('running');
  expect(words(row('service papers'), '.dq-count')).toBe('3 need you');
});

test('consumers are told by the processes that somebody asked for', async () => {
  const [one] = goldenSnapshot().consumers;
  const say = async (amount: number, total = amount): Promise<string> => {
    const consumers = Array.from({ length: amount }, (_, at) => ({ ...one!, name: `c${at}`, worker: String(at % 4) }));
    shown = { ...goldenSnapshot(), workers: 5, consumers, consumers_total: total };
    await tick();
    return words(row('service papers'), '.dq-s2');
  };
  services = [service({ embedded: true })];
  await vi.advanceTimersByTimeAsync(5_100);
  expect(await say(4)).toContain('4 consumer processes');
  expect(await say(8)).toContain('8 consumers on 4 processes');
  expect(await say(8, 300)).toContain('5 workers · 300 consumers');
  expect(await say(0)).toContain('5 workers · no consumers yet');
  services = [service({ embedded: false })];
  await vi.advanceTimersByTimeAsync(5_100);
  expect(await say(8)).toContain('8 consumers on 4 workers');
});

test('a run that has nothing left but a stuck document, and its consumer, are amber', async () => {
  shown = goldenSnapshot();
  shown.at += 1;
  shown.seq += 1;
  const [run, consumer] = [shown.runs[0]!, shown.consumers[0]!];
  Object.assign(run, { stuck: true, eta: null, counts: { ...run.counts, ready: 0, delayed: 0, leased: 1 } });
  Object.assign(consumer, { slow: false, stuck: true, oldest_age: 246, document: 'inv-7.pdf' });
  Object.assign(shown.consumers[1]!, { silent: 40 });
  await tick();
  const line = row('run pages parse-invoices');
  expect(line.querySelector<HTMLElement>('.dq-slot')!.dataset.glyph).toBe('warning');
  expect(words(line, '.dq-when')).toBe('waiting for 1');
  expect(line.getAttribute('aria-label')).toContain('Run parse-invoices, waiting,');
  const head = sidebar.node.querySelector<HTMLElement>('[aria-controls=dq-consumers]')!;
  expect(head.textContent).toContain('1 silent, 1 stuck');
  head.click();
  const [stuck, silent] = [consumer, shown.consumers[1]!].map(({ name }) => row(`consumer pages ${name}`));
  expect([stuck!.dataset.slow, stuck!.querySelector<HTMLElement>('.dq-slot')!.dataset.glyph]).toEqual(['true', 'slow']);
  expect(words(stuck!, '.dq-s2')).toContain('stuck 4 min 6 s on inv-7.pdf');
  expect(words(silent!, '.dq-s2')).toContain('no answer for 40 s');
  expect(words(silent!, '.dq-s2')).toContain(`worker ${shown.consumers[1]!.worker} · `);
});

test('consumers of one name in two queues are two rows, with their queues', async () => {
  shown = goldenSnapshot();
  shown.at += 1;
  shown.seq += 1;
  const [one] = shown.consumers;
  shown.consumers = ['pages', 'ocr'].map((queue) => ({ ...one!, queue }));
  shown.consumers_total = 2;
  await tick();
  sidebar.node.querySelector<HTMLElement>('[aria-controls=dq-consumers]')!.click();
  const rows = ['pages', 'ocr'].map((queue) => row(`consumer ${queue} ${one!.name}`));
  expect(rows.map((each) => words(each, '.dq-s2').split(' · ')[0])).toEqual(['pages', 'ocr']);
});

test.each([
  ['no consumer serves queue pages', 'no consumer'],
  ['its rows cannot be written: the bucket refuses', 'waiting']
])('a run that waits because %s is said to wait for that: %s', async (why, word) => {
  shown = goldenSnapshot();
  shown.at += 1;
  shown.seq += 1;
  Object.assign(shown.runs[0]!, { state: 'waiting', why });
  await tick();
  expect(words(row('run pages parse-invoices'), '.dq-when')).toBe(word);
});

test('rows of a service that does not answer hold their buttons', async () => {
  const toggles = (): (string | null)[] => ['run pages parse-invoices', 'queue pages'].map((key) => row(key).querySelector('.dq-toggle')!.getAttribute('aria-disabled'));
  expect(toggles()).toEqual(['false', 'false']);
  const answers = client.snapshot;
  client.snapshot = () => new Promise(() => undefined);
  await vi.advanceTimersByTimeAsync(5_000);
  expect(toggles()).toEqual(['true', 'true']);

  row('run pages parse-invoices').querySelector<HTMLButtonElement>('.dq-toggle')!.click();
  expect(words(row('run pages parse-invoices'), '.dq-refusal')).toContain('nothing was sent');
  client.snapshot = answers;
  model.wake();
  await vi.advanceTimersByTimeAsync(5_000);
  expect(toggles()).toEqual(['false', 'false']);
  expect(words(row('run pages parse-invoices'), '.dq-refusal')).toBe('');
});

test('an action that gets no answer says so within five seconds, and no longer once it is carried out', async () => {
  let answer: (value: Awaited<ReturnType<Asking['act']>>) => void = () => undefined;
  client.act = () => new Promise((resolve) => (answer = resolve));
  const run = row('run pages parse-invoices');
  run.querySelector<HTMLButtonElement>('.dq-toggle')!.click();
  await vi.advanceTimersByTimeAsync(5_000);
  expect(words(run, '.dq-refusal')).toBe('“pause” is not answered yet, and may still be carried out.');
  answer({ count: 1, text: 'done', snapshot: shown });
  await tick();
  expect(words(run, '.dq-refusal')).toBe('');
});

test('a tick changes numbers in the rows that are there, and the focus stays', async () => {
  const before = row('queue pages');
  before.focus();
  shown = goldenSnapshot();
  shown.at += 1;
  shown.seq += 1;
  shown.queues[0]!.counts.ready = 5;
  shown.queues.push({ ...shown.queues[0]!, name: 'new' });
  await tick();
  expect(row('queue pages')).toBe(before);
  expect(words(before, '.dq-amount')).toBe('216');
  expect(document.activeElement).toBe(before);
  expect(row('queue new')).not.toBeNull();
});

test('a name from a user is text, whatever it contains', async () => {
  shown = goldenSnapshot();
  shown.at += 1;
  shown.seq += 1;
  shown.runs[0]!.name = '<img src=x onerror=alert(1)>';
  await tick();
  expect(sidebar.node.querySelector('img')).toBeNull();
  expect(sidebar.node.textContent).toContain('<img src=x onerror=alert(1)>');
});

test('P on a row pauses it, arrows move, and no key destroys', async () => {
  row('queue pages').focus();
  row('queue pages').dispatchEvent(new KeyboardEvent('keydown', { key: 'p', bubbles: true, cancelable: true }));
  await vi.advanceTimersByTimeAsync(0);
  expect(acted).toEqual([{ action: 'pause', queue: 'pages' }]);
  row('queue pages').dispatchEvent(new KeyboardEvent('keydown', { key: 'ArrowDown', bubbles: true, cancelable: true }));
  expect(document.activeElement).toBe(row('queue ocr'));
  for (const key of ['d', 'x', 'Delete', 'Backspace']) {
    row('queue ocr').dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true, cancelable: true }));
  }
  await vi.advanceTimersByTimeAsync(0);
  expect(acted).toHaveLength(1);
  expect(asked).toEqual([]);
});

test('P on a run in which everything failed shows why, and goes on with nothing', async () => {
  shown = goldenSnapshot();
  shown.seq += 1;
  shown.runs[0] = { ...shown.runs[0]!, state: 'stopped', stop: 'all-failed', counts: { ...shown.runs[0]!.counts, acked: 0 } };
  await tick();
  const run = row('run pages parse-invoices');
  run.focus();
  run.dispatchEvent(new KeyboardEvent('keydown', { key: 'p', bubbles: true }));
  await tick();
  expect(acted).toEqual([]);
  expect(desk.openFailures).toHaveBeenCalledWith('papers', { queue: 'pages', run: 'parse-invoices' });
  expect(run.querySelector<HTMLElement>('.dq-toggle')!.hidden).toBe(true);
});

test('the button of failures opens all of them with their tracebacks, of the run that is meant', async () => {
  const press = (): void => [...sidebar.node.querySelectorAll<HTMLElement>('.dq-pan button')].find((each) => each.textContent === 'Failures')!.click();
  press();
  await tick();
  expect([...document.querySelectorAll('.lm-Menu-itemLabel')].map((each) => each.textContent)).toEqual(['parse-invoices: 212 dead', 'ocr-scans: 3 dead']);
  expect(desk.openPanel).not.toHaveBeenCalled();
  shown = goldenSnapshot();
  shown.seq += 1;
  shown.runs[1] = { ...shown.runs[1]!, counts: { ...shown.runs[1]!.counts, dead: 0 } };
  shown.queues[1] = { ...shown.queues[1]!, counts: { ...shown.queues[1]!.counts, dead: 0 } };
  await tick();
  press();
  expect(desk.openFailures).toHaveBeenCalledWith('papers', { queue: 'pages', run: 'parse-invoices' });
});

test('only one row is reached by Tab, and arrows stop at rows alone', () => {
  const stops = [...sidebar.node.querySelectorAll<HTMLElement>('.dq-tree [data-row]')].filter((each) => each.getAttribute('tabindex') === '0');
  expect(stops).toHaveLength(1);
  row('run pages parse-invoices').focus();
  row('run pages parse-invoices').dispatchEvent(new KeyboardEvent('keydown', { key: 'ArrowDown', bubbles: true, cancelable: true }));
  expect(document.activeElement).toBe(row('run ocr ocr-scans'));
});

test('runs of a service that has ended are active no more', async () => {
  const head = (): string => words(row('run pages parse-invoices').closest('.dq-live')!, '.dq-sec .dq-c');
  expect(head()).toBe('4 active');
  services = [service({ state: 'gone' })];
  await vi.advanceTimersByTimeAsync(6_000);

  expect(head()).toMatch(/^4 active at \d\d:\d\d$/);
  const run = row('run pages parse-invoices');
  expect(run.getAttribute('aria-label')).toMatch(/running at \d\d:\d\d/);
  expect(run.querySelector<HTMLElement>('.dq-toggle')!.hidden).toBe(true);
});

test('a slash filters by name and Escape ends it', async () => {
  sidebar.node.dispatchEvent(new KeyboardEvent('keydown', { key: '/', bubbles: true, cancelable: true }));
  const filter = sidebar.node.querySelector<HTMLInputElement>('.dq-filter')!;
  expect(document.activeElement).toBe(filter);
  filter.value = 'EMB';
  filter.dispatchEvent(new Event('input'));
  expect(row('queue pages')).toBeNull();
  expect(row('queue embed')).not.toBeNull();
  filter.dispatchEvent(new KeyboardEvent('keydown', { key: 'Escape', bubbles: true }));
  expect(row('queue pages')).not.toBeNull();
});

test('the icon says how many lines need somebody', () => {
  expect(sidebar.title.dataset).toMatchObject({ 'dq-needs': '3', 'dq-dead': 'true' });
});

test('services of one name are told apart', async () => {
  services = [service(), service({ id: 'papers-2' })];
  await vi.advanceTimersByTimeAsync(5_100);
  expect([...sidebar.node.querySelectorAll('.dq-service .dq-name')].map((each) => each.textContent)).toEqual(['papers', 'papers-2']);
});

test('a service that has ended can be reopened where it has a store', () => {
  ended().click();
  row('service old').querySelector<HTMLButtonElement>('.dq-reopen')!.click();
  expect(inserted).toEqual([['import dqlab as dq\nlab = dq.connect(store="runs/old")']]);
});

test('services that do not answer share one line above those that have ended, and unfold', async () => {
  const silent = ['a', 'b'].map((id) => service({ id, name: id, state: 'silent' }));
  services = [...services, ...silent, service({ id: 'far', name: 'far', state: 'unreachable', why: 'its address is on another machine' })];
  await vi.advanceTimersByTimeAsync(5_100);
  const folds = [...sidebar.node.querySelectorAll<HTMLButtonElement>('.dq-folded')].filter((each) => !each.hidden);
  expect(folds.map((each) => each.textContent)).toEqual(['3 services do not answer', '1 service has ended']);
  expect(row('service a')).toBeNull();
  expect(words(folds[0]!.parentElement!, '.dq-sec')).toBe('Services1');

  folds[0]!.click();
  expect(folds.map((each) => each.getAttribute('aria-expanded'))).toEqual(['true', 'false']);
  expect([words(row('service a'), '.dq-s2').startsWith('no answer since'), words(row('service far'), '.dq-s2')]).toEqual([true, 'its address is on another machine']);
  row('service a').click();
  folds[0]!.click();
  expect(folds[0]!.textContent).toBe('2 services do not answer');
  expect(row('service a').closest('[role=tree]')!.getAttribute('aria-label')).toBe('Services');
});

test('services that have ended share one line, and unfold', async () => {
  const more = ['older', 'oldest'].map((id) => service({ id, name: id, state: 'gone' }));
  services = [...services, ...more];
  await vi.advanceTimersByTimeAsync(5_100);
  const fold = ended();
  expect(fold.textContent).toBe('3 services have ended');
  expect([...sidebar.node.querySelectorAll('.dq-service .dq-name')].map((each) => each.textContent)).toEqual(['papers']);
  fold.click();
  expect(fold.getAttribute('aria-expanded')).toBe('true');
  expect(sidebar.node.querySelectorAll('.dq-service')).toHaveLength(4);
});

test('a chosen service that has ended stands below no count of those that run', async () => {
  services = [service({ state: 'gone' })];
  await vi.advanceTimersByTimeAsync(5_100);
  expect(row('service papers').dataset.state).toBe('gone');
  expect(words(row('service papers').closest('[role=tree]')!.parentElement!, '.dq-sec')).toBe('Servicesnone running');
});

test('a chosen service that does not answer is not called ended', async () => {
  services = [service({ state: 'silent' })];
  await vi.advanceTimersByTimeAsync(5_100);
  expect(words(row('service papers').closest('[role=tree]')!.parentElement!, '.dq-sec')).toBe('Servicesnone answers');
});

test('what needs somebody is the first section, with what can be done', async () => {
  expect(sidebar.node.querySelector('.dq-sec')!.textContent).toBe('Needs you3');
  const lines = [...sidebar.node.querySelectorAll<HTMLElement>('.dq-need')];
  expect(lines.map((each) => words(each, '.dq-words'))).toEqual([
    "61 dead KeyError 'total'",
    'c5 held one document for 4 min 12 s',
    '128 dead PdfError invalid xref table'
  ]);
  const [retry, failures] = [...lines[0]!.querySelectorAll<HTMLButtonElement>('.dq-steps button')];
  expect(retry!.textContent).toBe('Retry 61');
  retry!.click();
  await vi.advanceTimersByTimeAsync(0);
  expect(acted).toEqual([{ action: 'retry', queue: 'pages', run: 'parse-invoices', fingerprints: ['7b0f44a1'] }]);
  failures!.click();
  expect(model.chosen).toBe('papers');
});

test('a button that is gone leaves the focus to its section, and never to another button', async () => {
  const retry = sidebar.node.querySelector<HTMLButtonElement>('.dq-need .dq-steps button')!;
  retry.focus();
  shown = goldenSnapshot();
  shown.at += 1;
  shown.seq += 1;
  shown.attention = shown.attention.slice(1);
  shown.attention_total -= 1;
  await tick();
  expect(retry.isConnected).toBe(false);
  expect(document.activeElement).toBe(sidebar.node.querySelector('.dq-needs'));
});

test('a first hundred and all of them are different buttons', async () => {
  const dead = (amount: number): void => {
    const at = shown.at;
    shown = goldenSnapshot();
    Object.assign(shown, { at: at + 1, seq: shown.seq + at, attention: [], attention_total: 0 });
    const counts = { ...shown.runs[0]!.counts, ready: 0, delayed: 0, leased: 0, dead: amount };
    shown.runs = [{ ...shown.runs[0]!, state: 'done', ended: at, counts }];
  };
  dead(1_234);
  await tick();
  const first = sidebar.node.querySelector<HTMLButtonElement>('.dq-need .dq-steps button')!;
  expect(first.textContent).toBe('Retry 100 first');
  first.focus();
  dead(234);
  await tick();
  expect(sidebar.node.querySelector('.dq-need .dq-steps button')!.textContent).toBe('Retry 234');
  expect(document.activeElement).toBe(sidebar.node.querySelector('.dq-needs'));
});

test('nothing is sent to a service that does not answer', async () => {
  const retry = sidebar.node.querySelector<HTMLButtonElement>('.dq-need .dq-steps button')!;
  expect(retry.getAttribute('aria-disabled')).toBe('false');
  vi.spyOn(client, 'snapshot').mockReturnValue(new Promise(() => undefined));
  await vi.advanceTimersByTimeAsync(5_000);
  expect(words(row('run pages parse-invoices'), '.dq-when')).toBe('–');
  expect(words(sidebar.node, '.dq-note')).toContain('Shown as of');
  expect(retry.getAttribute('aria-disabled')).toBe('true');
  retry.click();
  row('run pages parse-invoices').querySelector<HTMLButtonElement>('.dq-toggle')!.click();
  await vi.advanceTimersByTimeAsync(0);
  expect(acted).toEqual([]);
  expect(words(row('run pages parse-invoices'), '.dq-refusal')).toBe('papers does not answer now, so nothing was sent. Try it again once it does.');
});

test('a service that is not shown has its marks, and a line below what needs somebody here', async () => {
  const other = service({ id: 'other', name: 'other', kernels: ['k-2'] });
  services = [...services, other];
  await vi.advanceTimersByTimeAsync(6_000);
  expect(words(row('service other'), '.dq-count')).toBe('3 need you');
  expect(sidebar.title.dataset).toMatchObject({ 'dq-needs': '6', 'dq-dead': 'true' });
  expect(words(sidebar.node, '.dq-elsewhere')).toBe('3 in other');

  const answers = vi.spyOn(client, 'snapshot');
  answers.mockImplementation((id) => (id === 'other' ? Promise.reject(new Error('no')) : Promise.resolve(shown)));
  await vi.advanceTimersByTimeAsync(16_000);
  expect(words(row('service other'), '.dq-s2')).toMatch(/ · as of \d\d:\d\d:\d\d$/);
  expect(sidebar.node.querySelector<HTMLElement>('.dq-elsewhere')!.hidden).toBe(true);

  answers.mockImplementation(() => Promise.resolve(shown));
  await vi.advanceTimersByTimeAsync(16_000);
  sidebar.node.querySelector<HTMLButtonElement>('.dq-elsewhere button')!.click();
  expect(model.chosen).toBe('other');
});

test('a dismissed line is gone from list and icon, the focus stays in the section, and it can be brought back', () => {
  const dismiss = sidebar.node.querySelector<HTMLButtonElement>('.dq-need .dq-dismiss')!;
  dismiss.focus();
  dismiss.click();
  expect(sidebar.node.querySelectorAll('.dq-need')).toHaveLength(2);
  expect(sidebar.title.dataset['dq-needs']).toBe('2');
  expect(words(row('service papers'), '.dq-count')).toBe('2 need you');
  expect(sidebar.node.querySelector('.dq-needs')!.contains(document.activeElement)).toBe(true);
  expect(words(sidebar.node, '.dq-foot')).toContain('1 dismissed');
  sidebar.node.querySelector<HTMLButtonElement>('.dq-foot button')!.click();
  expect(sidebar.node.querySelectorAll('.dq-need')).toHaveLength(3);
});

test('dead documents of runs that have ended stay until somebody dismisses them', async () => {
  shown = goldenSnapshot();
  shown.at += 1;
  shown.seq += 1;
  shown.attention = [];
  shown.attention_total = 0;
  for (const run of shown.runs.slice(0, 2)) Object.assign(run, { state: 'done', ended: shown.at, counts: { ...run.counts, ready: 0, delayed: 0, leased: 0 } });
  await tick();
  const line = row('ended');
  expect(words(line, '.dq-words')).toBe('215 dead in 2 runs that have ended');
  expect(sidebar.title.dataset).toMatchObject({ 'dq-needs': '1', 'dq-dead': 'true' });
  line.querySelector<HTMLButtonElement>('.dq-fold')!.click();
  expect(words(row('ended ocr ocr-scans'), '.dq-steps')).toBe('Retry 3Failures');
  row('ended ocr ocr-scans').querySelector<HTMLButtonElement>('.dq-dismiss')!.click();
  expect(words(row('ended pages parse-invoices'), '.dq-words')).toContain('212 dead in parse-invoices, done ');
  row('ended pages parse-invoices').querySelector<HTMLButtonElement>('.dq-dismiss')!.click();
  expect(words(sidebar.node, '.dq-sec')).toBe('Needs younothing now');
});

test('rows stand in trees that hold nothing but rows', () => {
  for (const tree of sidebar.node.querySelectorAll('[role="tree"]')) {
    for (const child of tree.children) expect(child.getAttribute('role')).toBe('treeitem');
  }
  for (const item of sidebar.node.querySelectorAll('[role="treeitem"]')) expect(item.parentElement!.getAttribute('role')).toBe('tree');
});

test('without a service there are the two lines that start one', async () => {
  services = [];
  await vi.advanceTimersByTimeAsync(5_100);
  const empty = sidebar.node.querySelector<HTMLElement>('.dq-empty')!;
  expect(empty.hidden).toBe(false);
  expect(words(empty, 'pre')).toBe('import dqlab as dq\nlab = dq.connect()');
  [...empty.querySelectorAll('button')][0]!.click();
  expect(inserted).toEqual([['import dqlab as dq\nlab = dq.connect()']]);
});

test('a run over no documents is empty, and not done', () => {
  const [run] = goldenSnapshot().runs;
  const counts = Object.fromEntries(Object.keys(run!.counts).map((state) => [state, 0])) as unknown as NonNullable<typeof run>['counts'];
  const none = { ...run!, state: 'done', ended: run!.started, total: 0, counts, eta: null };
  expect(endWord(none)).toBe('empty'); // it was a green tick and "done", where the run's own view has "Nothing to do"
  expect(runGlyph(none)).toBe('dash');
  expect(endWord({ ...none, total: 5 })).toBe('done');
  expect(endWord({ ...none, state: 'incomplete' })).toBe('incomplete');
});

test('a rehearsed run and a following run have their own glyphs', () => {
  const [run] = goldenSnapshot().runs;
  const tried = { ...run!, state: 'incomplete', why: 'rehearsed 30 of 2,000 documents' };
  expect([endWord(tried), runGlyph(tried)]).toEqual(['rehearsed', 'halt']);
  const follows = { ...run!, state: 'following', why: 'following inbox/**, 3 taken, next look in 40 s', stuck: false };
  expect([runWord(follows, true, follows.at), runGlyph(follows)]).toEqual(['following', 'later']);
});

test('a run that ended on another day has its date, in its row and in what needs you', async () => {
  const run = { ...shown.runs[0]!, state: 'done', ended: shown.at - 86_400 };
  shown = { ...shown, seq: shown.seq + 1, at: shown.at + 1, attention: [], attention_total: 0, runs: [run] };
  await tick();
  const day = date(run.ended);
  expect(words(sidebar.node, '[data-row^="run "] .dq-when')).toBe(`some dead ${day}`);
  expect(words(sidebar.node, '.dq-needs')).toContain(`done ${day}`);
});

test('runs that a store keeps, of which none is open, are not said to be missing', async () => {
  services[0] = service({ store: 'runs/' });
  shown = { ...shown, seq: shown.seq + 1, at: shown.at + 1, attention: [], attention_total: 0, runs: [], runs_total: 0, queues: [], queues_total: 0 };
  await vi.advanceTimersByTimeAsync(6_000);
  const said = sidebar.node.textContent!;
  expect(said).not.toContain('No run yet');
  expect(said).toContain('No run is open. %dq runs lists those in the store');
});
