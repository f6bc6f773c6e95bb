// Format numbers for people, where Python does not send finished strings. The rules are those of dqlab/numbers.py:
// tests/golden/numbers.json holds both to the same results, so that a number looks the same everywhere.

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
  const plural = noun.endsWith('ry') ? `${noun.slice(0, -1)}ies` : noun.endsWith('s') ? `${noun}es` : `${noun}s`;
  return `${count(amount)} ${amount === 1 ? noun : plural}`;
}

/** A number with `places` digits after the point. A half is rounded to the even digit, as in Python; `toFixed` rounds it up. */
function fixed(value: number, places: number): string {
  const digits = value.toFixed(50);
  const cut = digits.slice(0, digits.length - 50 + places).replace(/\.$/, '');
  const half = /^50*$/.test(digits.slice(digits.length - 50 + places));
  return half && '02468'.includes(cut[cut.length - 1]!) ? cut : value.toFixed(places);
}

/** Text without characters that hide or reorder the text beside them, as `one_line` of dqlab/texts.py writes it. */
export function printable(value: string): string {
  return value.replace(/[\u0000-\u0008\u000e-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, '\ufffd');
}

const whole = (value: number): string => count(Number(fixed(value, 0)));

/** A share, 0 to 1, as a percentage: `65.5 %`. `100 %` for exactly 1 only, `0 %` for exactly 0 only. */
export function share(value: Maybe, places = 1): string {
  if (value === null || value === undefined || Number.isNaN(value)) return UNKNOWN;
  if (value <= 0) return '0 %';
  if (value >= 1) return '100 %';
  if (value < 0.001) return '<0.1 %';
  return `${fixed(Math.min(value * 100, 100 - 10 ** -places), places)} %`;
}

/** A rate in three digits: `451`, `23.9`, `0.70`. */
export function rate(value: Maybe): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return UNKNOWN;
  if (value <= 0) return '0';
  if (value < 0.005) return '<0.01';
  if (value < 9.995) return fixed(value, 2);
  return value < 99.95 ? fixed(value, 1) : whole(value);
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
  return `${amount < 9.95 ? fixed(amount, 1) : whole(amount)} ${units[at]}`;
}

/** A duration in at most `units` units, cut and not rounded: `4 min 12 s`. */
export function duration(seconds: Maybe, units = 2): string {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return UNKNOWN;
  if (seconds <= 0) return '0 s';
  if (seconds < 0.05) return '<0.1 s';
  if (seconds < 9.95) return `${fixed(seconds, 1)} s`;
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

/** The nearest minute of a time to come: `14:34`; on another day, `22 Nov 14:34`. */
export function due(at: number, now: number): string {
  const rounded = at + 30;
  const moment = new Date(rounded * 1000);
  if (date(rounded) === date(now)) return minute(rounded);
  return `${moment.getDate()} ${MONTHS[moment.getMonth()]} ${minute(rounded)}`;
}

/** A past time: `14:03`, on another day the date, so that it stays true in a picture that is not updated. */
export const moment = (at: number, now: number): string => (date(at) === date(now) ? minute(at) : date(at));

/** A past time to the second: `14:22:07`; on another day, `20 Nov, 14:22:07`. */
export function instant(at: number, now: number): string {
  const moment = new Date(at * 1000);
  return date(at) === date(now) ? clock(at) : `${moment.getDate()} ${MONTHS[moment.getMonth()]}, ${clock(at)}`;
}

/** The first and the last time: `first 13:59, last 14:22`, `at 14:03`. */
export function seen(first: number, last: number, now: number): string {
  const [began, ended] = [moment(first, now), moment(last, now)];
  return began === ended ? `at ${ended}` : `first ${began}, last ${ended}`;
}

/** A figure beside an axis, where room is short: `1.2k`, `50M`. */
export function short(value: number): string {
  const spelt = (figure: number): string => String(Math.round(figure * 10) / 10);
  for (const [unit, name] of [[1e12, 'T'], [1e9, 'G'], [1e6, 'M'], [1e3, 'k']] as const) if (value >= unit) return `${spelt(value / unit)}${name}`;
  return spelt(value);
}
