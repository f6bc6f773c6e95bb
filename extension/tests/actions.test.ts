import { expect, test } from 'vitest';

import { queueDangers, queueEntries, retryEntries, runDangers, runEntries } from '../src/lab/actions';
import { goldenSnapshot } from './golden';

const snapshot = goldenSnapshot();
const [pages, , embed] = snapshot.queues;
const [invoices] = snapshot.runs;

test('what destroys asks, and its button repeats the count', () => {
  const [dead] = queueDangers(pages!);
  expect(dead!.question!.title).toBe('Discard 212 dead messages of pages?');
  expect(dead!.question!.accept).toBe('Discard 212');
  expect(runDangers(invoices!)[0]!.question!.accept).toBe('Cancel 16,121');
  expect([...queueDangers(pages!), ...runDangers(invoices!)].every((each) => each.question)).toBe(true);
});

test('what destroys has no key', () => {
  expect([...queueDangers(pages!), ...runDangers(invoices!)].filter((each) => each.key)).toEqual([]);
});

test('a paused queue offers to go on, a running one to pause', () => {
  expect(queueEntries(embed!)[0]!.action).toEqual({ action: 'resume', queue: 'embed' });
  expect(queueEntries(pages!)[0]!.action).toEqual({ action: 'pause', queue: 'pages' });
  expect(runEntries(invoices!)[0]!.action).toEqual({ action: 'pause', queue: 'pages', run: 'parse-invoices' });
});

test('a run in which everything failed says with which code it would be retried or go on', () => {
  const stopped = { ...invoices!, state: 'stopped', stop: 'all-failed' };
  expect(runEntries(stopped).map((each) => each.label)).toEqual(['Retry 212 with the same code', 'Resume with the same code']);
  expect(runEntries({ ...stopped, stop: 'results-full' }).map((each) => each.label)).toEqual(['Resume', 'Retry 212']);
  const ended = { ...invoices!, state: 'done', ended: 1, counts: { ...invoices!.counts, acked: 0, dead: 60, ready: 0, delayed: 0, leased: 0 } };
  expect(runEntries(ended).map((each) => each.label)).toEqual(['Retry 60 with the same code']);
});

test('a finished run can be neither paused nor cancelled', () => {
  const done = snapshot.runs.find((each) => each.state === 'done')!;
  expect([...runEntries(done), ...runDangers(done)]).toEqual([]);
});

test('many dead documents are tried with a hundred first', () => {
  const selection = { run: 'crawl', queue: 'pages', fingerprints: ['77c0de'], dead: 151_220 };
  const [canary, whole] = retryEntries(selection);
  expect(canary!.label).toBe('Retry 100 first');
  expect(canary!.action).toEqual({ action: 'retry', queue: 'pages', run: 'crawl', fingerprints: ['77c0de'], limit: 100 });
  expect(whole!.label).toBe('Retry 151,220…');
  expect(whole!.question!.accept).toBe('Retry 151,220');
  expect(whole!.action.limit).toBeUndefined();
});

test('few dead documents are retried at once, and all of a run without naming its classes', () => {
  const [entry, ...others] = retryEntries(invoices!);
  expect(entry!.label).toBe('Retry 212');
  expect(entry!.action).toEqual({ action: 'retry', queue: 'pages', run: 'parse-invoices' });
  expect(others).toEqual([]);
  expect(retryEntries({ run: 'a', queue: 'b', fingerprints: [], dead: 0 })).toEqual([]);
});

test('every action has its Python twin, with names as Python spells them', () => {
  expect(queueDangers({ ...pages!, name: 'a"b' })[0]!.python).toBe('lab.queue("a\\"b").purge(state="dead")');
  expect(retryEntries({ run: 'r', queue: 'q', fingerprints: ['a', 'b'], dead: 3 })[0]!.python).toBe(
    'lab.attach("r").retry(where="fingerprint in [\'a\', \'b\']")'
  );
});
