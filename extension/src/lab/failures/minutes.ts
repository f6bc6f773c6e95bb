// Failed deliveries per minute, from a history. Pure.

import type { History } from '../../shared/snapshot';

export interface Minute {
  /** Seconds since 1970 at which it begins. */
  at: number;
  /** Deliveries that failed, and how many of their documents are dead since. */
  failed: number;
  dead: number;
}

/** Whole minutes of a history, the last one ending at its last point; none before anything is known. */
export function minutesOf(history: History): Minute[] {
  const { dead, failure_rate: rates, step, t0 } = history;
  const points = rates.length;
  if (points < 2 || step <= 0) return [];
  const each = Math.max(1, Math.round(60 / step));
  const minutes: Minute[] = [];
  for (let end = points - 1; end - each >= 0; end -= each) {
    const from = end - each;
    const known = rates.slice(from + 1, end + 1).filter((rate): rate is number => rate !== null);
    if (!known.length) break;
    const failed = known.reduce((sum, rate) => sum + rate, 0) * step;
    // What was dead when a queue was first heard of has failed just before, as far as failures are known.
    const first = dead.slice(from, end + 1).find((value, at) => value !== null && at > 0 && dead[from + at - 1] === null);
    const grown = growth(dead.slice(from, end + 1));
    const died = grown + Math.min(first ?? 0, Math.max(0, Math.round(failed) - grown));
    minutes.unshift({ at: t0 + from * step, failed: Math.max(failed, died), dead: died });
  }
  return minutes;
}

/** How much a series grew; it shrinks when documents are retried, and what was not known before did not grow. */
function growth(values: readonly (number | null)[]): number {
  return values.reduce<number>((sum, value, at) => {
    const before = values[at - 1] ?? null;
    return at === 0 || value === null || before === null ? sum : sum + Math.max(0, value - before);
  }, 0);
}

/** The last `limit` minutes of a class, padded at the front. */
export function lastMinutes(values: readonly number[] | undefined, limit = 30): number[] {
  const known = (values ?? []).slice(-limit);
  return [...new Array<number>(limit - known.length).fill(0), ...known];
}
