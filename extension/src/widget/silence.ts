// What is shown once nothing has come from the kernel for a while: it may be gone, hung, or this page was asleep.
// The kernel dates its numbers every second, and sends signs of life of a view at rest, so only the browser can notice
// that it has stopped.

import { instant, UNKNOWN } from '../shared/format';
import { FIELDS, type AnyPart, type Chart, type Figure, type Head, type Numbers, type QueueRow, type Rows, type Runs } from './parts';

export const SILENT_MS = 4_000;
/** For a view at rest: signs of life come every three seconds (BEAT in dqlab/live/outputs/widget.py). */
export const RESTING_MS = 10_000;

/** How long nothing may come: for ever where the view is final, and no kernel need be there. */
export const patience = (numbers: Numbers | null, beats: number): number =>
  isLive(numbers) ? SILENT_MS : beats > 0 ? RESTING_MS : Infinity;

/** Whether the numbers claim to be from now, so that newer ones must come. */
export const isLive = (numbers: Numbers | null): boolean => numbers?.live.startsWith('live') ?? false;

/** What is said of a press that was not answered, and of one that was not sent, as no kernel would have taken it. */
export const unanswered = (press: string): string => `“${press}” was not answered, and may not have been carried out.`;
export const unsent = (press: string): string => `“${press}” was not sent.`;

/** Return the head with the notice of what became of a press. */
export function warning(head: Head | null, text: string): Head | null {
  return head && { ...head, notice: { text, tone: 'warn', buttons: [] } };
}

/** Return the head with something to know about what was just asked for. */
export function telling(head: Head | null, text: string): Head | null {
  return head && { ...head, notice: { text, tone: 'quiet', buttons: [] } };
}

/** Return a figure without its value; of an end nothing is left, of a speed its unit. */
function unknown(figure: Figure): Figure {
  const unit = figure.unit.endsWith('/s') ? figure.unit : '';
  return { ...figure, label: figure.label.replace('Done in', 'Done at'), value: UNKNOWN, unit, second: '', extra: '' };
}

/** When the last live numbers were made; else when something came last. What waited while the page was asleep came long after that. */
export function silentSince(numbers: Numbers | null, came: number): string {
  const made = /^live (\d\d:\d\d:\d\d)/.exec(numbers?.live ?? '')?.[1];
  const at = instant(came / 1000, Date.now() / 1000);
  return made ? at.replace(/[\d:]+$/, made) : at;
}

/** Return a part as it is shown while nothing comes: dated, without speeds and forecasts. */
export function silenced<K extends keyof AnyPart>(name: K, part: AnyPart[K], since: string, missed: string): AnyPart[K] {
  if (part === null) return part;
  if (name === 'head') {
    const why = "The notebook's kernel has ended, was restarted, or is held up.";
    const fate = 'If it has ended, so has a cluster that it had started; any other goes on.';
    const text = `No answer since ${since}. ${why} ${missed ? `${missed} ` : ''}${fate}`;
    const head: Head = { ...(part as Head), notice: { text, tone: 'warn', buttons: [] }, chip: 'No answer', stale: true };
    return { ...head, ...('face' in head ? { face: 'no answer' } : { icon: 'no answer', tone: 'warn' }) } as AnyPart[K];
  }
  if (name === 'numbers') {
    const numbers = part as Numbers;
    const live = numbers.live.replace('live', 'as of');
    const figures = numbers.figures.map((each) => (each.live ? unknown(each) : each));
    return { ...numbers, live, subtitle: numbers.subtitle.replace(numbers.live, live), figures } as AnyPart[K];
  }
  if (name === 'chart') {
    const { label, ...rest } = part as Chart;
    const chart: Chart = { ...rest, label: label.replace(/, zero expected.*/, ''), fan: [], due: '', band: '' };
    return chart as AnyPart[K];
  }
  if (name === 'rows') {
    const rows = part as Rows;
    return { ...rows, rows: rows.rows.map((row) => row.map((value, place) => asKnown(FIELDS[place]!, value))) } as AnyPart[K];
  }
  if (name === 'runs') {
    const runs = part as Runs;
    return { ...runs, rows: runs.rows.map((run) => (run.state.startsWith(RUNNING) ? { ...run, state: was(run.state), done: UNKNOWN } : run)) } as AnyPart[K];
  }
  return part;
}

/** How the state of a run begins that has an end ahead of it. */
const RUNNING = 'Running';
const was = (state: string): string => `Was ${state.charAt(0).toLowerCase()}${state.slice(1)}`;
const AHEAD: ReadonlySet<keyof QueueRow> = new Set(['in_rate', 'out_rate', 'empty_in']);

/** Return a field of a queue's row without what only holds while numbers come; as `_as_known` in dqlab/live/lab_picture.py. */
function asKnown(field: keyof QueueRow, value: unknown): unknown {
  if (AHEAD.has(field)) return UNKNOWN;
  return field === 'state' ? was(value as string) : value;
}
