// What is read of the Snapshot and the History that the scheduler sends: names as in dqlab/stats. Times are seconds since 1970.

import { flag, list, mapping, maybe, number, optional, plain, record, text, type Read } from './reader';

export const STATES = ['acked', 'dead', 'lost', 'leased', 'ready', 'delayed', 'cancelled'] as const;
/** A state of messages, in the order in which bars draw them. */
export type State = (typeof STATES)[number];

const counts = record({
  ready: number(),
  delayed: number(),
  leased: number(),
  acked: number(),
  dead: number(),
  cancelled: number(),
  lost: number()
});
const attention = record({
  severity: text('warning'),
  kind: text(),
  subject: text(),
  text: text(),
  detail: text(),
  action: text(),
  queue: text(),
  run: text(),
  target: text(),
  amount: number()
});
const mark = record({ at: number(), text: text(), cell: maybe<number>(), queue: text() });
const queue = record({
  name: text(),
  state: text(),
  counts,
  why: text(),
  retrying: number(),
  lag: number(),
  in_rate: maybe<number>(),
  out_rate: maybe<number>(),
  units_rate: maybe<number>(),
  consumers: number(),
  empty_in: maybe<number>(),
  disk: maybe<number>(),
  runs: number(),
  failed_runs: number(),
  dead_at_rest: number()
});
const failureClass = record({
  fingerprint: text(),
  error: text(),
  message: text(),
  at: text(),
  dead: number(),
  retrying: number(),
  first: number(),
  last: number(),
  key: maybe<string>(),
  failed: number(),
  versions: list(text())
});
const run = record({
  name: text(),
  queue: text(),
  state: text(),
  counts,
  units: optional(counts),
  why: text(),
  code: record({ name: text('?'), short: text(), version: number(1), cell: maybe<number>(), rest: list(number()), did: list(number()), note: text() }),
  total: maybe<number>(),
  retrying: number(),
  started: number(),
  ended: maybe<number>(),
  idle: number(),
  at: number(),
  rate: maybe<number>(),
  units_rate: maybe<number>(),
  consumers: number(),
  classes: list(failureClass),
  classes_total: number(),
  stop: maybe<string>(),
  blocked: maybe<string>(),
  stuck: flag(),
  paused: number(),
  eta: optional(record({ p10: number(), p50: number(), p90: number() }))
});
const consumer = record({
  name: text(),
  queue: text(),
  worker: text(),
  leased: number(),
  done: number(),
  rate: maybe<number>(),
  units_rate: maybe<number>(),
  oldest_age: maybe<number>(),
  document: maybe<string>(),
  step: text(),
  peak: maybe<number>(),
  slow: flag(),
  run: text(),
  silent: maybe<number>(),
  stuck: flag()
});
const held = record({
  consumer: text(),
  held: number(),
  ends_in: number(),
  messages: number(1),
  document: maybe<string>(),
  renewals: number(),
  delivery: number(1),
  running: maybe<number>()
});

export const snapshotReader = record({
  at: number(),
  seq: number(),
  lab: text(),
  store: text(),
  workers: number(),
  of_queue: text(),
  units: text('documents'),
  attention: list(attention),
  attention_total: number(),
  marks: list(mark),
  queues: list(queue),
  totals: queue,
  runs: list(run),
  consumers: list(consumer),
  unacked: record({
    total: number(),
    past: number(),
    timeout: maybe<number>(),
    oldest: list(held)
  }),
  failures: record({
    dead: number(),
    retrying: number(),
    classes_total: number(),
    classes: list(failureClass),
    documents: list(
      record({
        key: text(),
        error: text(),
        deliveries: number(),
        limit: number(),
        pages: maybe<number>(),
        run: text()
      })
    )
  }),
  storage: record({
    live: number(),
    garbage: number()
  }),
  queues_total: number(),
  runs_total: number(),
  consumers_total: number()
});

const series = plain<(number | null)[]>([]);

const figures = record({
  waiting: maybe<number>(),
  unacked: maybe<number>(),
  in_rate: maybe<number>(),
  out_rate: maybe<number>(),
  failure_rate: maybe<number>()
});

export const historyReader = record({
  t0: number(),
  step: number(),
  queue: text(),
  run: text(),
  ready: series,
  delayed: series,
  leased: series,
  dead: series,
  in_rate: series,
  out_rate: series,
  failure_rate: series,
  live: series,
  garbage: series,
  consumers: mapping(series),
  idle: mapping(series),
  classes: mapping(plain<number[]>([])),
  depths: mapping(series),
  marks: list(mark),
  now: figures,
  most: figures
});

export type Snapshot = Read<typeof snapshotReader>;
export type History = Read<typeof historyReader>;
export type Counts = Read<typeof counts>;
export type Queue = Read<typeof queue>;
export type Run = Read<typeof run>;
export type Consumer = Read<typeof consumer>;
export type FailureClass = Read<typeof failureClass>;
export type Attention = Read<typeof attention>;
export type Mark = Read<typeof mark>;

/** Acked, dead, cancelled or lost: nothing more happens to them by itself. */
export const settled = (of: Counts): number => of.acked + of.dead + of.cancelled + of.lost;
/** Documents that ran to their end: settled, and not cancelled; as in `RunStats.dead_share` in dqlab/stats/runs.py. */
export const ran = (of: Counts): number => settled(of) - of.cancelled;
/** Ready, delayed or leased. */
export const left = (of: Counts): number => of.ready + of.delayed + of.leased;
/** Ready or delayed. */
export const waiting = (of: Counts): number => of.ready + of.delayed;
export const all = (of: Counts): number => settled(of) + left(of);
/** The counts of progress: pages where they are known, else bytes, else documents. */
export const progress = (of: Run): Counts => of.units ?? of.counts;

/**
 * The settled share, 0 to 1; null before the total is known; 1 only at the true end. Cancelled documents never count;
 * as `RunStats.share` in dqlab/stats/runs.py.
 */
export function settledShare(of: Run): number | null {
  if (of.total === null) return null;
  if (left(of.counts) === 0 && !of.counts.cancelled) return 1;
  const measured = progress(of);
  return all(measured) ? Math.min(ran(measured) / all(measured), 0.999999) : 0;
}

/** Nothing more will happen by itself. */
export const finished = (of: Run): boolean =>
  of.state === 'done' || of.state === 'cancelled' || (of.state === 'incomplete' && left(of.counts) === 0);

/** Documents that their function put off with `dq.Later`; as `RunStats.put_off` in dqlab/stats/runs.py. */
export const putOff = (of: Run): number => Math.max(0, of.counts.delayed - of.retrying);

/** It paused itself because its first documents all failed. */
export const failsThroughout = (of: Run): boolean => of.stop === 'all-failed';

/** Everything that it settled failed, so its code has to change; as `RunStats.all_failed` in dqlab/stats/runs.py. */
export const allFailed = (of: Run): boolean => failsThroughout(of) || (finished(of) && of.counts.dead > 0 && !of.counts.acked);

/** The worst trouble of a consumer in one word; as `ConsumerStats.trouble` in dqlab/stats/queues.py. */
export const troubleOf = (of: Consumer): string => (of.silent !== null ? 'silent' : of.stuck ? 'stuck' : of.slow ? 'slow' : '');

/** A sample of it was submitted, and the rest waits for its user; as `RunStats.rehearsed` in dqlab/stats/runs.py. */
const rehearsed = (of: Run): boolean => of.state === 'incomplete' && of.why.startsWith('rehearsed ');

/** The state of a run, "waiting" where only a stuck document is left; as `run_word` in dqlab/live/run_rows.py. */
export const stateOf = (of: Run): string => (rehearsed(of) ? 'rehearsed' : of.stuck ? 'waiting' : of.state);

/** The input had no documents; as `RunStats.empty` in dqlab/stats/runs.py. */
export const hadNothing = (of: Run): boolean => of.total === 0 && of.state !== 'incomplete';

const AT_REST = new Set(['paused', 'draining', 'empty']);
/** `why` names a fault, and not who stopped the queue on purpose. */
export const troubled = (of: Queue): boolean => of.why !== '' && !AT_REST.has(of.state);
