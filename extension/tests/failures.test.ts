import { Widget } from '@lumino/widgets';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';

import type { FailurePage } from '../src/lab/client';
import { headOf, titleOf } from '../src/lab/failures/chart';
import { ceiling } from '../src/shared/plot';
import { lastMinutes, minutesOf } from '../src/lab/failures/minutes';
import { ALL, FailuresModel, PAGE, versionWord, type Asking } from '../src/lab/failures/model';
import { classPane } from '../src/lab/failures/pane';
import { classesTable } from '../src/lab/failures/table';
import { FailuresView, summary } from '../src/lab/failures/view';
import { Model } from '../src/lab/model';
import { make } from '../src/shared/dom';
import { minute } from '../src/shared/format';
import type { Snapshot } from '../src/shared/snapshot';
import { goldenHistory, goldenSnapshot, service } from './golden';

const TOTAL = 120;
let queries: any[];
let snapshot: Snapshot;
let model: FailuresModel;

function page(query: any): FailurePage {
  queries.push(query);
  const from = Number(query.after ?? 0);
  const amount = Math.min(query.limit, TOTAL - from);
  const rows = Array.from({ length: amount }, (_, at) => ({
    id: from + at,
    key: `${query.fingerprint}/${from + at}`,
    error: 'KeyError',
    message: '',
    at: '',
    traceback: '',
    fingerprint: query.fingerprint,
    deliveries: 4,
    version: 3 + ((from + at) % 2),
    consumer: 'c1',
    when: 0,
    reason: ''
  }));
  return { run: query.run, queue: query.queue, total: TOTAL, rows, next: from + amount < TOTAL ? String(from + amount) : null };
}

function open(scope: { queue?: string; run?: string }): void {
  const client: Asking = {
    snapshot: () => Promise.resolve(snapshot),
    history: () => Promise.resolve(goldenHistory()),
    failures: (_, query) => Promise.resolve(page(query))
  };
  model = new FailuresModel(client, 'papers', scope, () => false);
}

beforeEach(() => {
  vi.useFakeTimers();
  queries = [];
  snapshot = goldenSnapshot();
});
afterEach(() => {
  model.dispose();
  vi.useRealTimers();
});

test('documents come fifty at a time, and back again', async () => {
  open({ queue: 'pages', run: 'parse-invoices' });
  await vi.advanceTimersByTimeAsync(200);
  expect(model.looked).toBe('d2c81e07');
  expect([model.page!.first, model.page!.rows.length, model.page!.total]).toEqual([1, PAGE, TOTAL]);
  await model.nextPage();
  await model.nextPage();
  expect([model.page!.first, model.page!.rows.length, model.page!.next]).toEqual([101, 20, null]);
  await model.nextPage();
  expect(model.page!.first).toBe(101);
  await model.previousPage();
  expect([model.page!.first, model.page!.rows[0]!.id]).toEqual([51, 50]);
  expect(queries.every((query) => query.limit <= PAGE && query.run === 'parse-invoices')).toBe(true);
});

test('documents of one class never stand under another', async () => {
  open({ queue: 'pages', run: 'parse-invoices' });
  await vi.advanceTimersByTimeAsync(200);
  const looking = model.look('7b0f44a1');
  expect(model.page).toBeNull();
  await looking;
  expect(model.page!.rows[0]!.key).toBe('7b0f44a1/0');
});

test('what the document printed stands below its traceback, where it printed anything', async () => {
  open({ queue: 'pages', run: 'parse-invoices' });
  const pane = classPane(model, { insert: () => undefined, cells: () => [] });
  await vi.advanceTimersByTimeAsync(200);
  pane.draw();
  const printed = pane.element.querySelector<HTMLElement>('[aria-label="What it printed"]')!;
  expect(printed.hidden).toBe(true);
  model.page!.rows[0]!.logs = 'page 12\n<b>done</b>';
  pane.draw();
  expect([printed.hidden, printed.textContent]).toEqual([false, 'page 12\n<b>done</b>']);
});

test('a class whose documents were retried and failed again is looked at again by itself', async () => {
  const shown = make('div');
  open({ queue: 'pages', run: 'parse-invoices' });
  const pane = classPane(model, { insert: () => undefined, cells: () => [] });
  model.changed.connect(() => model.snapshot && pane.draw());
  shown.append(pane.element);
  await vi.advanceTimersByTimeAsync(200);
  const [there, some] = [TOTAL, { ...model.page!, rows: [], total: 0, next: null }];
  model.page = some; // while all of them ran again
  pane.draw();
  expect(shown.textContent).toContain('None of these documents is dead now.');
  expect(shown.textContent).not.toContain('Asking for the documents');
  await vi.advanceTimersByTimeAsync(2_100);
  expect(model.page!.total).toBe(there);
  expect(shown.textContent).not.toContain('None of these documents is dead now.');

  const asked = queries.length;
  await vi.advanceTimersByTimeAsync(10_000);
  expect(queries.length).toBe(asked);
});

test('documents of classes that are not listed are among all that are dead', async () => {
  snapshot = { ...snapshot, failures: { ...snapshot.failures, classes_total: 9, dead: 240 } };
  const shown = make('div');
  open({ queue: 'pages', run: 'parse-invoices' });
  const [rows, pane] = [classesTable(model), classPane(model, { insert: () => undefined, cells: () => [] })];
  model.changed.connect(() => [rows, pane].forEach((each) => model.snapshot && each.draw()));
  shown.append(rows.element, pane.element);
  await vi.advanceTimersByTimeAsync(200);
  const rest = shown.querySelector<HTMLElement>('.dq-rest button')!;
  expect(rest.textContent).toBe('5 more classes, 28 dead documents: show all 240');
  rest.click();
  await vi.advanceTimersByTimeAsync(200);
  expect([model.looked, queries.at(-1).fingerprint]).toEqual([ALL, '']);
  expect(shown.querySelector('.dq-pane h2')!.textContent).toBe('All dead documents');
  expect(shown.querySelector('.dq-documents tbody tr')!.textContent).toContain('KeyError');
  model.wake();
  await vi.advanceTimersByTimeAsync(200);
  expect(model.page!.fingerprint).toBe(ALL);
});

test('a selection is a filter with its exact number', async () => {
  open({ queue: 'pages', run: 'parse-invoices' });
  await vi.advanceTimersByTimeAsync(200);
  expect(model.selection).toMatchObject({ fingerprints: [], dead: 212 });
  model.toggle('7b0f44a1');
  expect(model.selection).toMatchObject({ fingerprints: ['7b0f44a1'], dead: 61 });
  expect(model.python).toBe('lab.attach("parse-invoices").retry(fingerprint="7b0f44a1")');
  model.toggleAll();
  expect(model.selection).toMatchObject({ fingerprints: [], dead: 212 });
  snapshot = { ...snapshot, failures: { ...snapshot.failures, classes_total: 9 } };
  await vi.advanceTimersByTimeAsync(2_100);
  expect(model.selection.fingerprints).toHaveLength(4);
});

test('a queue in which one run failed is that run', async () => {
  open({ queue: 'pages' });
  await vi.advanceTimersByTimeAsync(200);
  expect(model.scope).toEqual({ queue: 'pages', run: 'parse-invoices' });
  expect(summary(model).join('')).toBe('parse-invoices · 212 dead in 4 classes · 0.66 % of 32,089 that ran · 211 more waiting to retry');
  const [run, ...others] = snapshot.runs;
  const runs = [{ ...run!, counts: { ...run!.counts, ready: 0, cancelled: run!.counts.cancelled + run!.counts.ready } }, ...others];
  expect(run!.name).toBe('parse-invoices');
  model.snapshot = { ...snapshot, runs };
  expect(summary(model).join('')).toContain('0.66 % of 32,089 that ran'); // what is cancelled has not
});

test('a queue in which older runs failed too is not taken for the one that is listed', async () => {
  const queues = snapshot.queues.map((each) => (each.name === 'pages' ? { ...each, runs: 38, failed_runs: 9, dead_at_rest: 403 } : each));
  snapshot = { ...snapshot, queues };
  open({ queue: 'pages' });
  await vi.advanceTimersByTimeAsync(200);
  expect(model.scope).toEqual({ queue: 'pages' }); // it was the failures of parse-invoices, and nothing named the other 403
  expect(model.unlisted).toBe(9);
});

test('code is called as everywhere else, a hash where its number is not known', async () => {
  const { name, short, version } = snapshot.runs.find((each) => each.name === 'parse-invoices')!.code;
  const newest = `${name} v${version}`;
  const versions = [[`${name} v1`], [`${name} v1`, newest], [`${name} v1`, `${name} v2`], []];
  const classes = snapshot.failures.classes.map((each, place) => ({ ...each, versions: versions[place] ?? [] }));
  snapshot = { ...snapshot, failures: { ...snapshot.failures, classes } };
  open({ queue: 'pages', run: 'parse-invoices' });
  await vi.advanceTimersByTimeAsync(200);
  const wordsOf = (hash: string): string[] => classes.map(({ fingerprint }) => model.versionOf({ version: hash, fingerprint }));
  expect(wordsOf('6e96ae5f')).toEqual(['v1', 'v1', '6e96ae', '6e96ae']);
  expect(wordsOf(`${short}77`)).toEqual(Array(4).fill(`v${version}`));
  const table = classesTable(model);
  document.body.append(table.element);
  table.draw();
  expect([...table.element.querySelectorAll('.dq-versions')].map((each) => each.textContent)).toEqual(versions.map((each) => each.join(', ') || '–'));
  expect([versionWord(4), versionWord('4'), versionWord('a41f9c22')]).toEqual(['v4', 'v4', 'a41f9c']);
});

test('what is dead in the first minute of a queue is not drawn as failed and not dead', () => {
  open({});
  // 25 were dead when the queue was first heard of; an old queue that is opened again has its old dead, too.
  const history = { ...goldenHistory(), t0: 0, step: 20, dead: [null, 25, 90, 135], failure_rate: [null, 1.25, 3.25, 2.25] };
  expect(minutesOf(history)).toEqual([{ at: 0, failed: 135, dead: 135 }]);
  expect(minutesOf({ ...history, dead: [null, 900, 900, 900], failure_rate: [null, 0, 1, 0] })).toEqual([{ at: 0, failed: 20, dead: 20 }]);
});

test('what died again after a retry is not drawn as not dead', () => {
  open({});
  const flat = { ready: [0, 0, 0, 0], delayed: [0, 0, 0, 0], leased: [0, 0, 0, 0], in_rate: [0, 0, 0, 0], out_rate: [0, 0, 0, 0] };
  const history = { ...goldenHistory(), ...flat, t0: 0, step: 20, marks: [] };
  const retry = [{ at: 30, text: 'retry, parse v2', cell: 3, queue: 'pages' }];
  // 20 were sent again, and died before anything was reported between: the count of dead stood still.
  const again = { ...history, dead: [20, 20, 20, 20], failure_rate: [0, 0, 1, 0] };
  expect(minutesOf({ ...again, marks: retry })).toEqual([{ at: 0, failed: 20, dead: 20 }]);
  expect(minutesOf({ ...again, marks: [{ ...retry[0]!, at: 19 }] })).toEqual([{ at: 0, failed: 20, dead: 20 }]);
  // Without a retry they are deliveries of documents that are tried again.
  expect(minutesOf(again)).toEqual([{ at: 0, failed: 20, dead: 0 }]);
  // 5 of 20 died again, the others are done.
  expect(minutesOf({ ...history, dead: [20, 20, 5, 5], failure_rate: [0, 0, 0.25, 0] })).toEqual([{ at: 0, failed: 5, dead: 5 }]);
  // Each of 20 was tried four times.
  expect(minutesOf({ ...again, failure_rate: [0, 0, 4, 0], marks: retry })).toEqual([{ at: 0, failed: 80, dead: 20 }]);
});

test('in mid-run what died after a retry is what was settled and not done', () => {
  open({});
  // 20 dead were sent again at 25 s and 3 of them died; 40 others were done, and 8 deliveries are tried again.
  const history = {
    ...goldenHistory(), t0: 0, step: 20, marks: [{ at: 25, text: 'retry', cell: null, queue: 'pages' }],
    ready: [100, 100, 77, 77], delayed: [0, 0, 0, 0], leased: [0, 0, 0, 0], in_rate: [0, 0, 0, 0],
    dead: [20, 20, 3, 3], out_rate: [0, 0, 43 / 20, 0], failure_rate: [0, 0, 11 / 20, 0]
  };
  expect(minutesOf(history).map((each) => [Math.round(each.failed), each.dead])).toEqual([[11, 3]]);
});

test('failures are drawn in the minute of the clock in which they came, whenever one looks', () => {
  open({});
  // 5,000 failed 18 s after a full minute; drawn in minutes that end now, they began before they were submitted.
  for (const end of [90, 120, 150, 180]) {
    const points = Array.from({ length: 19 }, (_, at) => end - 180 + 10 * at);
    const history = { ...goldenHistory(), t0: points[0]!, step: 10, dead: points.map((at) => (at > 78 ? 5000 : 0)), failure_rate: points.map((at) => (at === 80 ? 500 : 0)) };
    const minutes = minutesOf(history);
    expect(minutes.filter((each) => each.failed > 0)).toEqual([{ at: 60, failed: 5000, dead: 5000 }]);
    expect(minutes.every((each) => each.at % 60 === 0 && each.at < end)).toBe(true);
  }
});

test('minutes of a history add up to its rate, and what is not known is not drawn', () => {
  open({});
  const history = { ...goldenHistory(), t0: 0, step: 20, dead: [null, 0, 0, 1, 2, 2, 2, 1], failure_rate: [null, null, 0.1, 0.1, 0.2, 0.2, 0.2, 0.2] };
  expect(minutesOf(history).map((each) => [each.at, Math.round(each.failed), each.dead])).toEqual([
    [0, 4, 1],
    [60, 12, 1],
    [120, 4, 0]
  ]);
  expect(minutesOf({ ...history, dead: [], failure_rate: [] })).toEqual([]);
  expect(lastMinutes([1, 2], 4)).toEqual([0, 0, 1, 2]);
  expect([0, 1, 24, 60, 2000].map(ceiling)).toEqual([1, 1, 50, 100, 2000]);
});

test('numbers that do not come are old within five seconds, so that no retry is offered', async () => {
  let answers = true;
  const client: Asking = {
    snapshot: () => (answers ? Promise.resolve(snapshot) : new Promise(() => undefined)),
    history: () => Promise.resolve(goldenHistory()),
    failures: (_, query) => Promise.resolve(page(query))
  };
  model = new FailuresModel(client, 'papers', { queue: 'pages', run: 'parse-invoices' }, () => false);
  await vi.advanceTimersByTimeAsync(100);
  expect(model.failure).toBeNull();
  answers = false;
  await vi.advanceTimersByTimeAsync(5_100);
  expect(model.failure?.message).toBe('No answer yet.');
});

test('the chart names the queue whose deliveries it counts where the classes are of one run', () => {
  expect(titleOf({})).toBe('failed deliveries per minute');
  expect(titleOf({ queue: 'pages' })).toBe('failed deliveries per minute');
  expect(titleOf({ queue: 'pages', run: 'odd-keys' })).toBe('failed deliveries per minute, all runs of queue pages');
  expect(titleOf({ queue: 'q'.repeat(60), run: 'odd-keys' })).toBe(`failed deliveries per minute, all runs of queue ${'q'.repeat(23)}…`);
});

test('the title of the chart is shortened before it is cut', () => {
  const title = titleOf({ queue: 'q'.repeat(60), run: 'odd-keys' });
  expect(headOf(title, 900)).toBe(`${title}: `);
  expect(headOf(title, 540)).toBe(`all runs of queue ${'q'.repeat(23)}…: `);
  expect(headOf(title, 300)).toBe('');
  expect(headOf(titleOf({}), 420)).toBe('failed deliveries per minute: ');
});

test('documents have the times of their service, whatever the clock of the browser is', async () => {
  vi.setSystemTime((snapshot.at + 57_600) * 1000);
  open({ queue: 'pages', run: 'parse-invoices' });
  await vi.advanceTimersByTimeAsync(1_100);
  expect(model.page!.at).toBe(snapshot.at);
  model.page!.rows[0]!.when = snapshot.at - 60;
  const pane = classPane(model, { insert: () => undefined, cells: () => [] } as never);
  pane.draw();
  expect(pane.element.querySelector('.dq-documents tbody td.dq-at')!.textContent).toBe(minute(snapshot.at - 60));
});

test('a button that is held or gone leaves the focus in the tab, and never to another button', async () => {
  const history = goldenHistory();
  const client = {
    services: () => Promise.resolve([service()]),
    snapshot: () => Promise.resolve(snapshot),
    history: () => Promise.resolve(history),
    failures: (_: string, query: object) => Promise.resolve(page(query)),
    act: () => Promise.resolve({ count: 1, text: 'done', snapshot })
  } as never;
  open({});
  const numbers = new Model({ client, isHidden: () => false });
  const view = new FailuresView({ client, model: numbers, service: 'papers', scope: { queue: 'pages', run: 'parse-invoices' }, insert: vi.fn(), cells: () => [], open: vi.fn() });
  Widget.attach(view, document.body);
  await vi.advanceTimersByTimeAsync(3_000);
  const retry = view.node.querySelector<HTMLButtonElement>('.dq-buttons button')!;
  retry.focus();
  numbers.busy.add('run pages parse-invoices');
  await vi.advanceTimersByTimeAsync(1_100);
  expect(retry.getAttribute('aria-disabled')).toBe('true');
  expect(document.activeElement).toBe(retry);

  const none = { ...snapshot.failures, dead: 0, classes: [], classes_total: 0 };
  const runs = snapshot.runs.map((run) => ({ ...run, counts: { ...run.counts, dead: 0 } }));
  snapshot = { ...snapshot, seq: snapshot.seq + 1, at: snapshot.at + 1, runs, failures: none };
  await vi.advanceTimersByTimeAsync(2_100);
  expect(retry.isConnected).toBe(false);
  expect(document.activeElement).toBe(view.node.querySelector('h1'));
  view.dispose();
  numbers.dispose();
});
