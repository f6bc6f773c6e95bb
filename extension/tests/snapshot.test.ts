import { expect, test } from 'vitest';

import every from '../../tests/golden/every_field.json';
import shares from '../../tests/golden/shares.json';
import { historyReader, settledShare, snapshotReader, troubled, waiting } from '../src/shared/snapshot';
import { runWord } from '../src/lab/sidebar/runs';
import { share } from '../src/shared/format';
import { goldenHistory, goldenSnapshot } from './golden';

/** Paths of the fields that are read and that data with every field does not have. */
function missing(read: unknown, data: unknown, path: string): string[] {
  if (Array.isArray(read)) return read.flatMap((each, place) => missing(each, (data as unknown[])[place], `${path}.${place}`));
  if (read === null || typeof read !== 'object') return [];
  const given = data as Record<string, unknown>;
  return Object.entries(read).flatMap(([name, each]) => (name in given ? missing(each, given[name], `${path}.${name}`) : [`${path}.${name}`]));
}

test('every field that is read is one that the scheduler sends', () => {
  expect(missing(snapshotReader.read(every.snapshot), every.snapshot, 'snapshot')).toEqual([]);
  expect(missing(historyReader.read(every.history), every.history, 'history')).toEqual([]);
});

test('fields that were left out are at their default', () => {
  const empty = snapshotReader.read({ at: 1, seq: 2 });
  expect(empty.queues).toEqual([]);
  expect(empty.totals.counts.ready).toBe(0);
  expect(empty.failures.classes).toEqual([]);
  expect(empty.units).toBe('documents');
  expect(snapshotReader.read({ at: 1, seq: 2, queues: [{ name: 'q', state: 'empty' }] }).queues[0]!.consumers).toBe(0);
});

test.each(shares as [string, object, number | null][])('the share of a run is the one that Python shows: %s', (_, run, expected) => {
  const [read] = snapshotReader.read({ at: 0, seq: 0, runs: [{ name: 'r', queue: 'q', ...run }] }).runs;
  const found = settledShare(read!);
  if (expected === null) expect(found).toBeNull();
  else expect(found).toBeCloseTo(expected);
});

test('the sidebar shows the figures that Python counted', () => {
  const snapshot = goldenSnapshot();
  const [run] = snapshot.runs;
  expect(snapshot.runs.map((each) => share(settledShare(each)))).toEqual(['65.4 %', '58.0 %', '–', '12.0 %', '100 %']);
  expect(snapshot.queues.map((each) => waiting(each.counts))).toEqual([16057, 2916, 41200, 18, 0, 0]);
  expect(snapshot.queues.map(troubled)).toEqual([true, false, false, false, false, false]);
  expect(snapshot.runs.map((each) => settledShare(each) === null)).toEqual([false, false, true, false, false]);
  expect(snapshot.attention_total).toBe(3);
  expect(snapshot.failures.classes.map((each) => each.dead)).toEqual([128, 61, 17, 6]);
  expect(runWord(run!, true, snapshot.at)).toMatch(/^ends \d\d:\d\d$/);
  expect(runWord(run!, false, snapshot.at)).toBe('–');
  const counts = { ...run!.counts, ready: 0, delayed: 12 };
  expect(runWord({ ...run!, eta: null, retrying: 0, counts }, true, snapshot.at)).toBe('12 put off');
  expect(runWord({ ...run!, eta: null, retrying: 12, counts }, true, snapshot.at)).toBe('running');
});

test('a history keeps what was not known apart from zero', () => {
  const history = goldenHistory();
  expect(history.ready[0]).toBeNull();
  expect(history.ready.at(-1)).toBe(15846);
  expect(history.classes['d2c81e07']).toHaveLength(30);
});
