import { beforeEach, expect, test } from 'vitest';

import type { Service } from '../src/lab/client';
import { Dismissals, type Memory } from '../src/lab/dismissals';
import { grouped, needsOf, type Need } from '../src/lab/needs';
import type { Attention, Run, Snapshot } from '../src/shared/snapshot';
import { goldenSnapshot, service } from './golden';

let snapshot: Snapshot;
let stored: Record<string, string>;
let memory: Memory;
const papers = service();

beforeEach(() => {
  snapshot = goldenSnapshot();
  stored = {};
  memory = {
    getItem: (name) => stored[name] ?? null,
    setItem: (name, text) => {
      stored[name] = text;
    }
  };
});

const line = (changes: Partial<Attention>): Need => {
  const plain = { severity: 'warning', kind: '', subject: 's', text: 't', detail: '', action: '', queue: 'pages', run: '', target: '', amount: 0 };
  snapshot.attention = [{ ...plain, ...changes }];
  return needsOf(snapshot)[0]!;
};
const labels = (need: Need): string[] => need.steps.map((step) => step.label);
const end = (run: Run, ended: number): void => {
  Object.assign(run, { state: 'done', ended, counts: { ...run.counts, ready: 0, delayed: 0, leased: 0 } });
};
const endedRun = (): Need => needsOf(snapshot).find((need) => need.key === 'ended pages parse-invoices')!;

test.each([
  [{ kind: 'failing', action: 'retry', run: 'parse-invoices', target: '7b', amount: 61 }, ['Retry 61', 'Failures']],
  [{ kind: 'failing', action: 'retry', run: 'parse-invoices', target: '7b', amount: 5_000 }, ['Retry 100 first', 'Failures']],
  [{ kind: 'failing', action: 'show', run: 'parse-invoices', target: '7b', amount: 4 }, ['Failures']],
  [{ kind: 'no-consumer', action: 'scale' }, ['Scale…']],
  [{ kind: 'stopped', action: 'retry', run: 'parse-invoices' }, ['Failures', 'Retry 212']],
  [{ kind: 'held', action: 'show', target: 'c5', detail: 'inv-7.pdf' }, ['Replace c5', 'Give up this document', 'Show']],
  [{ kind: 'held', action: 'show', target: 'c5', detail: '' }, ['Replace c5', 'Show']],
  [{ kind: 'slow', action: 'show', target: 'c5' }, ['Show']],
  [{ kind: 'puts-wait', action: 'show', queue: 'embed' }, ['Resume']],
  [{ kind: 'store', action: 'doctor' }, ['Examine']],
  [{ kind: 'lost', run: 'parse-invoices' }, ['Insert the line']],
  [{ kind: 'leaving', queue: '' }, []],
  [{ kind: 'of a newer scheduler', action: 'unheard of' }, []]
] as [Partial<Attention>, string[]][])('%j offers %j', (given, expected) => {
  expect(labels(line(given))).toEqual(expected);
});

test('a run that paused itself is resumed', () => {
  snapshot.runs[0]!.state = 'stopped';
  expect(labels(line({ kind: 'stopped', action: 'resume', run: 'parse-invoices' }))).toEqual(['Resume']);
});

test('where everything failed the failures come before a retry with the same code', () => {
  const run = { ...goldenSnapshot().runs[0]!, state: 'stopped', stop: 'all-failed' };
  const labels = needsOf({ ...goldenSnapshot(), runs: [run] }).map((each) => each.steps.map((step) => step.label));
  expect(labels[0]).toEqual(['Failures', 'Retry 61 with the same code']);
  const ended = { ...run, state: 'done', stop: null, ended: 1, counts: { ...run.counts, acked: 0, dead: 60, ready: 0, delayed: 0, leased: 0 } };
  const last = needsOf({ ...goldenSnapshot(), attention: [], runs: [ended] }).map((each) => each.steps.map((step) => step.label));
  expect(last).toEqual([['Failures', 'Retry 60 with the same code']]);
});

test('runs that ended with dead documents are one line, a single one its own', () => {
  end(snapshot.runs[0]!, 10);
  expect(grouped(needsOf(snapshot)).at(-1)).toMatchObject({ key: 'ended pages parse-invoices', parts: [] });
  end(snapshot.runs[1]!, 11);
  const last = grouped(needsOf(snapshot)).at(-1)!;
  expect(last).toMatchObject({ key: 'ended', subject: '215 dead', text: 'in 2 runs that have ended' });
  expect(last.parts.map((part) => part.amount)).toEqual([212, 3]);
});

test('a dismissal outlives the page and the cluster, and is of its run alone', () => {
  end(snapshot.runs[0]!, 10);
  const failing = (): Need => line({ kind: 'failing', run: 'ocr-scans', queue: 'ocr', target: '7b', amount: 61 });
  new Dismissals(memory).add(papers, [endedRun(), failing()]);
  const dismissed = (of: Service): boolean[] => [endedRun(), failing()].map((need) => new Dismissals(memory).has(of, need));
  const restarted = service({ id: 'papers-2', started: papers.started + 99, pid: 8, host: 'there' });

  expect(dismissed(papers)).toEqual([true, true]);
  expect(dismissed(restarted)).toEqual([true, true]);
  expect(dismissed(service({ store: 'elsewhere/' }))).toEqual([false, false]);

  for (const run of snapshot.runs) run.started += 1; // their names were used again
  expect(dismissed(restarted)).toEqual([false, false]);
});

test('what is of a cluster, or of one in memory, is forgotten with it', () => {
  end(snapshot.runs[0]!, 10);
  const memoryOnly = service({ store: null });
  const dismissals = new Dismissals(memory);
  dismissals.add(memoryOnly, [endedRun()]);
  dismissals.add(papers, [line({ kind: 'slow', target: 'c5' })]);
  expect(dismissals.has(memoryOnly, endedRun())).toBe(true);
  expect(dismissals.has(service({ store: null, pid: 8 }), endedRun())).toBe(false);
  expect(dismissals.has(papers, line({ kind: 'slow', target: 'c5' }))).toBe(true);
  expect(dismissals.has(service({ pid: 8 }), line({ kind: 'slow', target: 'c5' }))).toBe(false);
});

test('while a queue of a store is not open yet, nothing about its runs is taken for over', () => {
  const dismissals = new Dismissals(memory);
  const failing = line({ kind: 'failing', run: 'parse-invoices', target: '7b', amount: 61 });
  dismissals.add(papers, [failing]);
  dismissals.settle(papers, { ...snapshot, runs: [] }, []);
  expect(dismissals.has(papers, failing)).toBe(true);
  dismissals.settle(papers, snapshot, []);
  expect(dismissals.has(papers, failing)).toBe(false);
});

test('dead documents of runs that are not listed are counted with those that are', () => {
  end(snapshot.runs[0]!, 10);
  Object.assign(snapshot.totals, { failed_runs: 1, dead_at_rest: 212 });
  expect(grouped(needsOf(snapshot)).at(-1)!.key).toBe('ended pages parse-invoices');
  Object.assign(snapshot.totals, { failed_runs: 5, dead_at_rest: 585 });
  const last = grouped(needsOf(snapshot)).at(-1)!;
  expect(last).toMatchObject({ subject: '585 dead', text: 'in 5 runs that have ended' });
  expect(last.parts.map((part) => [part.subject, part.text, labels(part).at(-1)])).toEqual([
    ['212 dead', expect.stringContaining('in parse-invoices, done'), 'Failures'],
    ['373 dead', 'in 4 runs that ended earlier', 'List runs']
  ]);
  snapshot.runs = [];
  expect(grouped(needsOf(snapshot)).at(-1)).toMatchObject({ subject: '585 dead', text: 'in 5 runs that have ended' });
});

test('a run that was retried and ended again with dead documents is news', () => {
  end(snapshot.runs[0]!, 10);
  const dismissals = new Dismissals(memory);
  dismissals.add(papers, [endedRun()]);
  end(snapshot.runs[0]!, 99);
  expect(dismissals.has(papers, endedRun())).toBe(false);
});

test('a class that failed twice as often is news, a few more are not', () => {
  const dismissals = new Dismissals(memory);
  const failing = { kind: 'failing', run: 'parse-invoices', target: '7b' };
  dismissals.add(papers, [line({ ...failing, amount: 61 })]);
  expect(dismissals.has(papers, line({ ...failing, amount: 121 }))).toBe(true);
  expect(dismissals.has(papers, line({ ...failing, amount: 122 }))).toBe(false);
  expect(dismissals.has(papers, line({ ...failing, amount: 61, severity: 'problem' }))).toBe(false);
});

test('another stuck document of the same consumer is news, the same one held for longer is not', () => {
  const dismissals = new Dismissals(memory);
  const held = { kind: 'held', target: 'c5' };
  dismissals.add(papers, [line({ ...held, detail: 'a.pdf', text: 'held one document for 1 min' })]);
  expect(dismissals.has(papers, line({ ...held, detail: 'a.pdf', text: 'held one document for 2 min' }))).toBe(true);
  expect(dismissals.has(papers, line({ ...held, detail: 'b.pdf' }))).toBe(false);
});

test('what was over and happens again is news; dismissed ends of runs are kept', () => {
  end(snapshot.runs[0]!, 10);
  const dismissals = new Dismissals(memory);
  const growing = line({ kind: 'growing' });
  dismissals.add(papers, [growing, endedRun()]);
  dismissals.settle(papers, snapshot, []);
  expect(dismissals.has(papers, growing)).toBe(false);
  expect(dismissals.has(papers, endedRun())).toBe(true);
});

test('a browser that stores nothing, or something else, still dismisses for as long as the page is there', () => {
  const full: Memory = {
    getItem: () => 'not JSON',
    setItem: () => {
      throw new Error('QuotaExceededError');
    }
  };
  for (const each of [null, full]) {
    const dismissals = new Dismissals(each);
    const growing = line({ kind: 'growing' });
    dismissals.add(papers, [growing]);
    expect(dismissals.has(papers, growing)).toBe(true);
    dismissals.remove(papers, [growing]);
    expect(dismissals.has(papers, growing)).toBe(false);
  }
});
