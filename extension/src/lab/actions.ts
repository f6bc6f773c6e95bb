// Actions on a queue, a run or a class of failures: the words, the question before, the Python twin. Pure.

import type { Action } from './client';
import { count, many, size } from '../shared/format';
import { quoted } from './python';
import { allFailed, failsThroughout, finished, left, waiting, type Queue, type Run, type Snapshot } from '../shared/snapshot';

/** The question before something is destroyed; `accept` repeats the count. */
export interface Question {
  title: string;
  body: string;
  accept: string;
}

export interface Entry {
  label: string;
  /** Shown beside the label; single keys work on a row of the sidebar. */
  key?: string;
  action: Action;
  python: string;
  question?: Question;
  /** Asks for a number of consumers first. */
  asksNumber?: boolean;
}

/** Documents of a first, small retry; above `MANY` it is the one that is offered first. dqlab/live/next_lines.py has the same number. */
export const CANARY = 100;
export const MANY = 1_000;

const pool = (name: string): string => `lab.queue(${quoted(name)})`;
const handle = (name: string): string => `lab.attach(${quoted(name)})`;

export function pauseEntry(of: { queue: string; run?: string; state: string }): Entry {
  const stopped = ['paused', 'stopped', 'draining'].includes(of.state);
  const verb = stopped ? 'resume' : 'pause';
  const target = of.run === undefined ? pool(of.queue) : handle(of.run);
  const action: Action = { action: verb, queue: of.queue, ...(of.run === undefined ? {} : { run: of.run }) };
  return { label: stopped ? 'Resume' : 'Pause', key: 'P', action, python: `${target}.${verb}()` };
}

/** Pause or resume a run; where it paused itself because all failed, the label warns what resuming means. */
export function pauseRun(run: Run): Entry {
  const entry = pauseEntry({ queue: run.queue, run: run.name, state: run.state });
  return failsThroughout(run) ? { ...entry, label: 'Resume with the same code' } : entry;
}

export function drainEntry(queue: Queue): Entry {
  return { label: 'Drain', action: { action: 'drain', queue: queue.name }, python: `${pool(queue.name)}.drain()` };
}

export function queueEntries(queue: Queue, frees: number | null = null): Entry[] {
  const name = queue.name;
  const entries = [pauseEntry({ queue: name, state: queue.state }), drainEntry(queue)];
  entries.push({
    label: 'Scale…',
    action: { action: 'scale', queue: name, n: Math.max(1, queue.consumers) },
    python: `${pool(name)}.scale(${Math.max(1, queue.consumers)})`,
    asksNumber: true
  });
  if (queue.disk !== null) {
    const label = frees ? `Compact, frees ${size(frees)}` : 'Compact';
    entries.push({ label, action: { action: 'compact', queue: name }, python: `${pool(name)}.compact()` });
  }
  return entries;
}

/** Actions that destroy messages of a queue, apart from the others. */
export function queueDangers(queue: Queue): Entry[] {
  const name = queue.name;
  const { dead, ready, delayed } = queue.counts;
  const entries: Entry[] = [];
  const purge = (state: 'dead' | 'ready' | 'delayed', amount: number, words: string): void => {
    if (!amount) return;
    const what = many(amount, 'message');
    entries.push({
      label: `Discard ${words}…`,
      action: { action: 'purge', queue: name, state },
      python: `${pool(name)}.purge(state=${quoted(state)})`,
      question: {
        title: `Discard ${amount === 1 ? 'a' : count(amount)} ${state} ${amount === 1 ? 'message' : 'messages'} of ${name}?`,
        body: `${what} will be removed for good and count as cancelled. This cannot be undone.`,
        accept: `Discard ${count(amount)}`
      }
    });
  };
  purge('dead', dead, `${count(dead)} dead`);
  purge('ready', ready, `${count(ready)} ready`);
  purge('delayed', delayed, `${count(delayed)} delayed`);
  return entries;
}

/** Actions on a document that a consumer has held for long: consumer `target` runs document `detail`. */
export function heldEntries({ queue, target, detail }: { queue: string; target: string; detail: string }): Entry[] {
  const replace: Entry = {
    label: `Replace ${target}`,
    action: { action: 'replace', queue, consumer: target },
    python: `${pool(queue)}.replace(${quoted(target)})`
  };
  if (!detail) return [replace];
  return [
    replace,
    { label: 'Give up this document', action: { action: 'give_up', queue, consumer: target, document: detail }, python: `${pool(queue)}.give_up(${quoted(detail)})` }
  ];
}

export function runEntries(run: Run): Entry[] {
  const toggle = finished(run) ? [] : [pauseRun(run)];
  const retries = run.counts.dead ? retryEntries(run) : [];
  return failsThroughout(run) ? [...retries, ...toggle] : [...toggle, ...retries];
}

export function runDangers(run: Run): Entry[] {
  const open = left(run.counts);
  if (finished(run) || !open) return [];
  return [
    {
      label: `Cancel ${count(open)}…`,
      action: { action: 'cancel', queue: run.queue, run: run.name },
      python: `${handle(run.name)}.cancel()`,
      question: {
        title: `Cancel what is left of ${run.name}?`,
        body: `${many(open, 'document')} will not be processed. What is settled stays, with its results.`,
        accept: `Cancel ${count(open)}`
      }
    }
  ];
}

/** Dead documents of a run: all, or those of some classes. */
export interface Selection {
  run: string;
  queue: string;
  /** Empty means all classes. */
  fingerprints: string[];
  dead: number;
  /** Everything failed with the newest code that the run has. */
  same?: boolean;
}

/** Ways to retry the selected documents, the recommended one first: a canary where there are many. */
export function retryEntries(of: Run | Selection): Entry[] {
  const chosen: Selection =
    'counts' in of ? { run: of.name, queue: of.queue, fingerprints: [], dead: of.counts.dead, same: allFailed(of) } : of;
  const { dead, fingerprints, queue, run } = chosen;
  const code = chosen.same ? ' with the same code' : '';
  if (!dead) return [];
  const action: Action = { action: 'retry', queue, run, ...(fingerprints.length ? { fingerprints } : {}) };
  const python = retryCode(chosen);
  const question: Question = {
    title: `Retry ${many(dead, 'document')} of ${run}?`,
    body: 'They run again with the newest code of the run; their deliveries are counted from zero.',
    accept: `Retry ${count(dead)}`
  };
  const whole: Entry = { label: `Retry ${count(dead)}${code}…`, action, python, question };
  if (dead <= MANY) return [{ label: `Retry ${count(dead)}${code}`, action, python }];
  const canary: Entry = { label: `Retry ${CANARY} first${code}`, action: { ...action, limit: CANARY }, python };
  return [canary, whole];
}

export function retryCode({ run, fingerprints }: Pick<Selection, 'run' | 'fingerprints'>): string {
  const target = handle(run);
  if (!fingerprints.length) return `${target}.retry()`;
  if (fingerprints.length === 1) return `${target}.retry(fingerprint=${quoted(fingerprints[0]!)})`;
  const names = fingerprints.map((each) => `'${each}'`).join(', ');
  return `${target}.retry(where=${quoted(`fingerprint in [${names}]`)})`;
}

/** The line of a queue as a screen reader reads it. */
export function queueSentence(queue: Queue): string {
  const words = [`Queue ${queue.name}`, queue.state];
  if (queue.why) words.push(queue.why);
  words.push(`${many(waiting(queue.counts), 'message')} waiting`);
  if (queue.counts.leased) words.push(`${count(queue.counts.leased)} unacked`);
  if (queue.counts.dead) words.push(`${count(queue.counts.dead)} dead`);
  return words.join(', ');
}

/** Bytes that compacting this queue would free; known for the queue of the snapshot's request, or the only durable one. */
export function freesOf(snapshot: Snapshot, queue: Queue): number | null {
  const durable = snapshot.queues.filter((each) => each.disk !== null);
  const its = snapshot.of_queue === queue.name || (durable.length === 1 && durable[0]!.name === queue.name);
  return its && snapshot.storage.garbage > 0 ? snapshot.storage.garbage : null;
}
