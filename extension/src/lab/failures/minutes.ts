// Compute failed deliveries per minute from a history. Pure.

import type { History } from '../../shared/snapshot';

export interface Minute {
  /** Seconds since 1970 at which it begins. */
  at: number;
  /** Deliveries that failed, and how many of their documents became dead. */
  failed: number;
  dead: number;
}

/** The minutes of the clock that a history covers from their start, the last one up to its last point. */
export function minutesOf(history: History): Minute[] {
  const { dead, failure_rate: rates, step, t0 } = history;
  const points = rates.length;
  if (points < 2 || step <= 0) return [];
  const seconds = Math.max(60, step);
  const minutes: Minute[] = [];
  for (let end = points - 1, from = end; end > 0; end = from) {
    const at = (Math.ceil((t0 + end * step) / seconds) - 1) * seconds;
    from = Math.round((at - t0) / step);
    if (from < 0) break;
    const known = rates.slice(from + 1, end + 1).filter((rate): rate is number => rate !== null);
    if (!known.length) break;
    const failed = known.reduce((sum, rate) => sum + rate, 0) * step;
    // Documents that were dead when a queue was first known failed just before, as far as failures are known.
    const first = dead.slice(from, end + 1).find((value, at) => value !== null && at > 0 && dead[from + at - 1] === null);
    const grown = deaths(history, from, end);
    const died = grown + Math.min(first ?? 0, Math.max(0, Math.round(failed) - grown));
    minutes.unshift({ at, failed: Math.max(failed, died), dead: died });
  }
  return minutes;
}

/** Documents that died after one point and up to another, without those that were dead when first known. */
function deaths(history: History, from: number, end: number): number {
  let sum = 0;
  for (let at = from + 1; at <= end; at += 1) {
    const [before, now] = [history.dead[at - 1] ?? null, history.dead[at] ?? null];
    if (before === null || now === null) continue;
    const grown = Math.max(0, now - before);
    sum += isRetried(history, at) ? Math.max(grown, diedAgain(history, at, before, now)) : grown;
  }
  return sum;
}

/** Whether dead documents were retried in the step up to a point, or so late in the one before that it shows here. */
function isRetried({ dead, marks, step, t0 }: History, at: number): boolean {
  const [since, until] = [t0 + (at - 2) * step, t0 + at * step];
  const marked = marks.some((each) => each.text.startsWith('retry') && each.at > since && each.at <= until);
  return marked || (dead[at] ?? 0) < (dead[at - 1] ?? 0);
}

/**
 * Documents that died in a step in which dead documents were retried, so that their number fell and grew between two
 * points. While others wait, these are the settled documents that are not done. At rest every failed document is dead or
 * done, and the history may not show that the number of dead documents fell.
 */
function diedAgain(history: History, at: number, before: number, now: number): number {
  const { delayed, failure_rate: failed, in_rate: put, leased, out_rate: settled, ready, step } = history;
  const left = (point: number): number => (ready[point] ?? NaN) + (delayed[point] ?? NaN) + (leased[point] ?? NaN);
  if (Number.isNaN(left(at) + left(at - 1))) return 0;
  const most = Math.min(Math.round((failed[at] ?? 0) * step), now);
  if (left(at) === 0) return most;
  const done = (put[at] ?? 0) * step - (left(at) - left(at - 1)) - (now - before);
  return Math.min(most, Math.max(0, Math.round((settled[at] ?? 0) * step - done)));
}

/** The last `limit` minutes of a class, padded at the front. */
export function lastMinutes(values: readonly number[] | undefined, limit = 30): number[] {
  const known = (values ?? []).slice(-limit);
  return [...new Array<number>(limit - known.length).fill(0), ...known];
}
