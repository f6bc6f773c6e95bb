// The picture when the kernel has sent nothing for a while: it may be gone or hung, or this page was asleep. The kernel
// dates its numbers every second, and sends signs of life for a view at rest: only the browser can notice their end.

import { instant, UNKNOWN } from '../shared/format';
import { FIELDS, type AnyPart, type Chart, type Figure, type Head, type Numbers, type QueueRow, type Rows, type Runs } from './parts';

export const SILENT_MS = 4_000;
/** For a view at rest, whose signs of life are three seconds apart (BEAT in dqlab/live/widget.py). */
export const RESTING_MS = 10_000;

/** Milliseconds without a message that are normal: without limit for a final view, which needs no kernel. */
export const patience = (numbers: Numbers | null, beats: number): number =>
  isLive(numbers) ? SILENT_MS : beats > 0 ? RESTING_MS : Infinity;

/** Whether the numbers claim to be from now, so that newer ones must follow. */
export const isLive = (numbers: Numbers | null): boolean => numbers?.live.startsWith('live') ?? false;

/** Notices about a press without an answer, and about a press that was not sent because no kernel would receive it. */
export const unanswered = (press: string): string => `“${press}” was not answered, and may not have been carried out.`;
export const unsent = (press: string): string => `“${press}” was not sent.`;

/** Return the head with a warning about a press. */
export function warning(head: Head | null, text: string): Head | null {
  return head && { ...head, notice: { text, tone: 'warn', buttons: [] } };
}

/** Return the head with a quiet notice about the last act. */
export function telling(head: Head | null, text: string): Head | null {
  return head && { ...head, notice: { text, tone: 'quiet', buttons: [] } };
}

/** Return a figure without its value: a speed keeps its unit, an end keeps nothing. */
function unknown(figure: Figure): Figure {
  const unit = figure.unit.endsWith('/s') ? figure.unit : '';
  return { ...figure, label: figure.label.replace('Done in', 'Done at'), value: UNKNOWN, unit, second: '', extra: '' };
}

/** When the last live numbers were made, or else when the last message arrived: a page that was asleep gets old messages late. */
export function silentSince(numbers: Numbers | null, came: number): string {
  const made = /^live (\d\d:\d\d:\d\d)/.exec(numbers?.live ?? '')?.[1];
  const at = instant(came / 1000, Date.now() / 1000);
  return made ? at.replace(/[\d:]+$/, made) : at;
}

/** Return a part for a silent kernel: dated, without speeds and forecasts. */
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

/** First word of the state of a run that has not ended. */
const RUNNING = 'Running';
const was = (state: string): string => `Was ${state.charAt(0).toLowerCase()}${state.slice(1)}`;
const AHEAD: ReadonlySet<keyof QueueRow> = new Set(['in_rate', 'out_rate', 'empty_in']);

/** Return a field of a queue's row without speeds and forecasts; as `_as_known` in dqlab/live/lab_picture.py. */
function asKnown(field: keyof QueueRow, value: unknown): unknown {
  if (AHEAD.has(field)) return UNKNOWN;
  return field === 'state' ? was(value as string) : value;
}
