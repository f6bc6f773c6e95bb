// What needs the user: lines of the Snapshot, and dead documents of runs that have ended, each with actions. Pure.

import { heldEntries, pauseEntry, queueEntries, retryEntries, type Entry } from './actions';
import type { Scope } from './client';
import { quoted } from './python';
import { count, many, moment } from '../shared/format';
import { allFailed, finished, type Attention, type Run, type Snapshot } from '../shared/snapshot';

/** One step for a line: an action of the service, or a place that shows more. */
export type Step = { id: string; label: string } & ({ entry: Entry } | { failures: Scope } | { panel: string } | { code: string });

export interface Need {
  /** Identifies the line in every snapshot, so that a dismissal finds it again. */
  key: string;
  /** Its run as `about` names it, empty for all runs of a store, null for a line of the cluster. */
  of: readonly (string | number)[] | null;
  /** The state of the thing: another value is news, and ends a dismissal. */
  state: string;
  /** Number of documents, leases or puts; 0 where that has no meaning. */
  amount: number;
  severity: string;
  subject: string;
  text: string;
  detail: string;
  scope: Scope;
  steps: Step[];
  /** Number of runs that it counts. */
  runs: number;
  /** One for each listed run, and one for the rest. */
  parts: Need[];
}

/** Identifies a run, also where an earlier run had the same name. */
export const about = (run: Run): [queue: string, name: string, started: number] => [run.queue, run.name, run.started];

export const ENDED = 'ended';
const PANELS: Record<string, string> = { 'lease-ends': 'unacked', slow: 'throughput' };

/** All lines of a Snapshot, worst first, then a line for each ended run, and one for runs that it only counts. */
export function needsOf(snapshot: Snapshot): Need[] {
  const lines = snapshot.attention.map((each) => lineOf(each, snapshot));
  const ended = snapshot.runs.filter((run) => finished(run) && run.counts.dead > 0).map((run) => endedOf(run, snapshot.at));
  return [...lines, ...ended, ...earlier(snapshot, ended)];
}

/** Dead documents of ended runs that are not listed. */
function earlier(snapshot: Snapshot, listed: readonly Need[]): Need[] {
  const { failed_runs: failed, dead_at_rest: dead } = snapshot.totals;
  const [runs, amount] = [failed - listed.length, dead - listed.reduce((sum, each) => sum + each.amount, 0)];
  if (runs <= 0 || amount <= 0) return [];
  return [
    {
      key: `${ENDED}  `, // no name of a run is empty, so no run has this key
      of: [],
      state: '',
      amount,
      severity: 'problem',
      subject: `${count(amount)} dead`,
      text: `in ${many(runs, 'run')} that ${listed.length ? 'ended earlier' : 'have ended'}`,
      detail: '',
      scope: {},
      steps: [{ id: 'runs', label: 'List runs', code: '%dq runs' }],
      runs,
      parts: []
    }
  ];
}

/** The same lines, with several ended runs as one line. */
export function grouped(needs: readonly Need[]): Need[] {
  const ended = needs.filter((each) => each.key.startsWith(`${ENDED} `));
  if (ended.length < 2) return [...needs];
  const amount = ended.reduce((sum, each) => sum + each.amount, 0);
  const runs = ended.reduce((sum, each) => sum + each.runs, 0);
  const whole: Need = {
    key: ENDED,
    of: null,
    state: '',
    amount,
    severity: 'problem',
    subject: `${count(amount)} dead`,
    text: `in ${many(runs, 'run')} that have ended`,
    detail: '',
    scope: {},
    steps: [],
    runs,
    parts: ended
  };
  return [...needs.filter((each) => !ended.includes(each)), whole];
}

function lineOf(line: Attention, snapshot: Snapshot): Need {
  const { kind, queue, run, target, severity, subject, text, amount } = line;
  const its = snapshot.runs.find((each) => each.name === run && each.queue === queue);
  const where = [...new Set([queue, run])].filter((each) => each && each !== subject && !text.includes(each));
  return {
    // Another document that the same consumer holds is another thing.
    key: [kind, queue, run, target, kind === 'held' ? line.detail : ''].join(' '),
    of: its ? about(its) : null,
    state: kind === 'stopped' ? line.detail : severity,
    amount,
    severity,
    subject,
    text,
    detail: [...where, line.detail].filter(Boolean).join(' · '),
    scope: scopeOf(queue, run),
    steps: stepsOf(line, snapshot),
    runs: 1,
    parts: []
  };
}

function endedOf(run: Run, now: number): Need {
  const when = run.ended === null ? '' : ` ${moment(run.ended, now)}`;
  return {
    key: `${ENDED} ${run.queue} ${run.name}`,
    of: about(run),
    state: `${run.counts.dead} ${run.ended ?? 0}`,
    amount: run.counts.dead,
    severity: 'problem',
    subject: `${count(run.counts.dead)} dead`,
    text: `in ${run.name}, ${run.state}${when}`,
    detail: '',
    scope: scopeOf(run.queue, run.name),
    steps: allFailed(run)
      ? [failuresOf(run.queue, run.name), ...retries(retryEntries(run))]
      : [...retries(retryEntries(run)), failuresOf(run.queue, run.name)],
    runs: 1,
    parts: []
  };
}

function stepsOf(line: Attention, snapshot: Snapshot): Step[] {
  const queue = snapshot.queues.find((each) => each.name === line.queue);
  const run = snapshot.runs.find((each) => each.name === line.run && each.queue === line.queue);
  const listed = queue ? queueEntries(queue) : [];
  const scale = listed.filter((each) => each.asksNumber).map(did);
  const show = PANELS[line.kind];
  const failures = failuresOf(line.queue, line.run);
  switch (line.kind) {
    case 'failing': {
      const selected = { run: line.run, queue: line.queue, fingerprints: line.target ? [line.target] : [], dead: line.amount, same: run !== undefined && allFailed(run) };
      if (line.action !== 'retry') return [failures];
      return selected.same ? [failures, ...retries(retryEntries(selected))] : [...retries(retryEntries(selected)), failures];
    }
    case 'stopped':
      // To resume the run would fail its other documents too.
      if (line.action === 'retry') return [failures, ...(run ? retries(retryEntries(run)) : [])];
      return run ? [did(pauseEntry({ queue: run.queue, run: run.name, state: run.state }))] : [];
    case 'puts-wait':
      return queue && pauseEntry({ queue: queue.name, state: queue.state }).label === 'Resume'
        ? [did(pauseEntry({ queue: queue.name, state: queue.state }))]
        : scale;
    case 'held':
      return [...heldEntries(line).map(did), { id: 'show', label: 'Show', panel: 'unacked' }];
    case 'no-room':
      return [...listed.filter((each) => each.action.action === 'compact').map(did), doctor];
    case 'lost':
      return [{ id: 'wait', label: 'Insert the line', code: `lab.attach(${quoted(line.run)}).wait()` }];
  }
  if (show) return [{ id: 'show', label: 'Show', panel: show }];
  if (line.action === 'scale') return scale;
  return line.action === 'doctor' ? [doctor] : [];
}

const doctor: Step = { id: 'doctor', label: 'Examine', code: '%dq doctor' };
const scopeOf = (queue: string, run: string): Scope => ({ ...(queue ? { queue } : {}), ...(run ? { run } : {}) });
const failuresOf = (queue: string, run: string): Step => ({ id: 'failures', label: 'Failures', failures: scopeOf(queue, run) });
const did = (entry: Entry): Step => ({ id: [entry.action.action, entry.action.limit ?? ''].join(' ').trim(), label: entry.label, entry });
/** Only the recommended retry; the failures offer the others. */
const retries = (entries: Entry[]): Step[] => entries.slice(0, 1).map(did);
