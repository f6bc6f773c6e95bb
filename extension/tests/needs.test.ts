import { beforeEach, expect, test } from 'vitest';

import { Dismissals, type Memory } from '../src/lab/dismissals';
import { grouped, needsOf, type Need } from '../src/lab/needs';
import type { Attention, Run, Snapshot } from '../src/shared/snapshot';
import { goldenSnapshot } from './golden';

let snapshot: Snapshot;
let stored: Record<string, string>;
let memory: Memory;

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

test('a dismissal outlives the page, of its service alone', () => {
  end(snapshot.runs[0]!, 10);
  new Dismissals(memory).add('papers', [endedRun()]);
  expect(new Dismissals(memory).has('papers', endedRun())).toBe(true);
  expect(new Dismissals(memory).has('other', endedRun())).toBe(false);
});

test('a run that was retried and ended again with dead documents is news', () => {
  end(snapshot.runs[0]!, 10);
  const dismissals = new Dismissals(memory);
  dismissals.add('papers', [endedRun()]);
  end(snapshot.runs[0]!, 99);
  expect(dismissals.has('papers', endedRun())).toBe(false);
});

test('a class that failed twice as often is news, a few more are not', () => {
  const dismissals = new Dismissals(memory);
  const failing = { kind: 'failing', run: 'parse-invoices', target: '7b' };
  dismissals.add('papers', [line({ ...failing, amount: 61 })]);
  expect(dismissals.has('papers', line({ ...failing, amount: 121 }))).toBe(true);
  expect(dismissals.has('papers', line({ ...failing, amount: 122 }))).toBe(false);
  expect(dismissals.has('papers', line({ ...failing, amount: 61, severity: 'problem' }))).toBe(false);
});

test('another stuck document of the same consumer is news, the same one held for longer is not', () => {
  const dismissals = new Dismissals(memory);
  const held = { kind: 'held', target: 'c5' };
  dismissals.add('papers', [line({ ...held, detail: 'a.pdf', text: 'held one document for 1 min' })]);
  expect(dismissals.has('papers', line({ ...held, detail: 'a.pdf', text: 'held one document for 2 min' }))).toBe(true);
  expect(dismissals.has('papers', line({ ...held, detail: 'b.pdf' }))).toBe(false);
});

test('what was over and happens again is news; dismissed ends of runs are kept', () => {
  end(snapshot.runs[0]!, 10);
  const dismissals = new Dismissals(memory);
  const growing = line({ kind: 'growing' });
  dismissals.add('papers', [growing, endedRun()]);
  dismissals.settle('papers', []);
  expect(dismissals.has('papers', growing)).toBe(false);
  expect(dismissals.has('papers', endedRun())).toBe(true);
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
    dismissals.add('papers', [growing]);
    expect(dismissals.has('papers', growing)).toBe(true);
    dismissals.clear('papers');
    expect(dismissals.has('papers', growing)).toBe(false);
  }
});
