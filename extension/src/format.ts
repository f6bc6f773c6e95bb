// Numbers as people read them. The same spelling as dqlab/numbers.py, so that a number looks the same everywhere.

export const UNKNOWN = '–';

const MONTHS = ['Jan', 'Feb', 'Mar', 'Apr', 'May', 'Jun', 'Jul', 'Aug', 'Sep', 'Oct', 'Nov', 'Dec'];
const LENGTHS: [number, string][] = [[86_400, 'd'], [3_600, 'h'], [60, 'min'], [1, 's']];

export type Maybe = number | null | undefined;

/** Grouped thousands: `16,121`. */
export function count(value: Maybe): string {
  return value === null || value === undefined ? UNKNOWN : value.toLocaleString('en-US');
}

/** A count with its noun: `1 document`, `16,121 documents`. */
export function many(amount: number, noun: string): string {
  const plural = noun.endsWith('s') ? `${noun}es` : `${noun}s`;
  return `${count(amount)} ${amount === 1 ? noun : plural}`;
}

/** A share, 0 to 1, as a percentage: `65.5 %`. `100 %` for exactly 1 only, `0 %` for exactly 0 only. */
export function share(value: Maybe, places = 1): string {
  if (value === null || value === undefined || Number.isNaN(value)) return UNKNOWN;
  if (value <= 0) return '0 %';
  if (value >= 1) return '100 %';
  if (value < 0.001) return '<0.1 %';
  return `${Math.min(value * 100, 100 - 10 ** -places).toFixed(places)} %`;
}

/** A rate in three digits: `451`, `23.9`, `0.70`. */
export function rate(value: Maybe): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return UNKNOWN;
  if (value <= 0) return '0';
  if (value < 0.005) return '<0.01';
  if (value < 9.995) return value.toFixed(2);
  return value < 99.95 ? value.toFixed(1) : count(Math.round(value));
}

/** Bytes in decimal units, two or three digits: `1.8 GB`. */
export function size(value: Maybe): string {
  if (value === null || value === undefined) return UNKNOWN;
  if (value < 1000) return `${value} B`;
  const units = ['kB', 'MB', 'GB', 'TB'];
  let amount = value / 1000;
  let at = 0;
  while (amount >= 999.5 && at < units.length - 1) {
    amount /= 1000;
    at += 1;
  }
  return `${amount < 9.95 ? amount.toFixed(1) : count(Math.round(amount))} ${units[at]}`;
}

/** A duration in at most `units` units, cut and not rounded: `4 min 12 s`. */
export function duration(seconds: Maybe, units = 2): string {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return UNKNOWN;
  if (seconds <= 0) return '0 s';
  if (seconds < 9.95) return `${Math.max(seconds, 0.1).toFixed(1)} s`;
  let rest = Math.floor(seconds);
  const parts: string[] = [];
  for (const [length, name] of LENGTHS) {
    const amount = Math.floor(rest / length);
    rest %= length;
    if (amount || parts.length) parts.push(`${amount} ${name}`);
    if (parts.length === units) break;
  }
  while (parts.length > 1 && parts[parts.length - 1]!.startsWith('0 ')) parts.pop();
  return parts.join(' ');
}

const two = (value: number): string => String(value).padStart(2, '0');

/** The time of day, `14:22:07`, of seconds since 1970. */
export function clock(at: number): string {
  return `${minute(at)}:${two(new Date(at * 1000).getSeconds())}`;
}

/** The time of day without seconds, `14:22`. */
export function minute(at: number): string {
  const moment = new Date(at * 1000);
  return `${two(moment.getHours())}:${two(moment.getMinutes())}`;
}

/** The date, `21 Nov 2026`. */
export function date(at: number): string {
  const moment = new Date(at * 1000);
  return `${moment.getDate()} ${MONTHS[moment.getMonth()]} ${moment.getFullYear()}`;
}

/** The nearest minute at which something will be: `14:34`; on another day, `22 Nov 14:34`. */
export function due(at: number, now: number): string {
  const rounded = at + 30;
  const moment = new Date(rounded * 1000);
  if (date(rounded) === date(now)) return minute(rounded);
  return `${moment.getDate()} ${MONTHS[moment.getMonth()]} ${minute(rounded)}`;
}

/** When something was: `5 s ago` within a minute, then `14:03`, then the date. */
export function age(at: number, now: number): string {
  const past = now - at;
  if (past < 60) return `${Math.floor(Math.max(past, 0))} s ago`;
  return date(at) === date(now) ? minute(at) : date(at);
}

/** One line of at most `limit` characters. */
export function oneLine(text: string, limit = 200): string {
  const flat = text.replace(/\s+/g, ' ').trim();
  return flat.length > limit ? `${flat.slice(0, limit - 1)}…` : flat;
}

/** A string as Python spells it. */
export function quoted(text: string): string {
  return JSON.stringify(text);
}
