// The parts of a picture as Python sends them: dqlab/live/views.py, field for field.
// Every string in them is finished; a view formats nothing.

export interface Notice {
  text: string;
  tone: string;
  /** Commands that act on it. */
  buttons: Button[];
}
export interface Button {
  command: string;
  label: string;
  primary: boolean;
  n: number;
  hint: string;
  /** The consumer, document or failure class that it acts on. */
  target: string;
}
export interface Figure {
  label: string;
  value: string;
  unit: string;
  second: string;
  extra: string;
  tone: string;
  /** A speed or a forecast: unknown once the kernel is silent. */
  live: boolean;
}
export interface Ask {
  question: string;
  detail: string;
  keep: string;
  go: string;
}

/** The head of a run. */
export interface RunHead {
  name: string;
  face: string;
  chip: string;
  stale: boolean;
  notice: Notice;
  buttons: Button[];
}
/** The head of a lab, or of a queue. */
export interface QueuesHead {
  name: string;
  icon: string;
  chip: string;
  tone: string;
  dashboard: string;
  /** Address of its scheduler. */
  cluster: string;
  stale: boolean;
  notice: Notice;
  buttons: Button[];
}
export interface Bars {
  percent: string;
  unit: string;
  bars: { state: string; fraction: number }[];
  label: string;
  milestone: string;
}
export interface Numbers {
  subtitle: string;
  live: string;
  figures: Figure[];
}
/** State, word, number of documents, and whether that is zero. */
export type Counter = [state: string, word: string, documents: string, zero: boolean];
export interface RunNumbers extends Numbers {
  counters: Counter[];
  lines: string[];
  ask: Ask | null;
}

export interface FailureRow {
  fingerprint: string;
  error: string;
  message: string;
  at: string;
  dead: string;
  retrying: string;
  document: string;
  /** The code that failed so: "parse v1". */
  code: string;
  seen: string;
  retry: string;
  /** The code that a retry takes, and how to make it take other code. */
  hint: string;
  /** How many are retried first; 0 where there are few. */
  first: number;
  /** What to do first: until then, a retry is of no use. Empty where a retry may help at once. */
  mend: string;
}
export interface Failures {
  title: string;
  rows: FailureRow[];
  more: string;
}
export interface Example {
  document: string;
  deliveries: string;
  version: string;
  traceback: string;
  /** Python that opens the document and calls the function with it. */
  cell: string;
}
/** Cells to insert, and lines to copy. */
export interface Offers {
  /** Address of the run's scheduler. */
  cluster: string;
  queue: string;
  run: string;
  results: string;
  code: string;
  label: string;
  open: string;
}
export interface Need {
  key: string;
  tone: string;
  icon: string;
  subject: string;
  text: string;
  detail: string;
  action: string;
  label: string;
  pane: string;
  queue: string;
  run: string;
  target: string;
  /** Its button acts at once. */
  ready: boolean;
  /** What to type where there are no buttons. */
  line: string;
}
export interface ConsumerRow {
  name: string;
  worker: string;
  fraction: number;
  units_rate: string;
  rate: string;
  idle: string;
  leased: string;
  oldest: string;
  memory: string;
  error: string;
  /** Its worst trouble: "silent", "stuck", "slow" or "". */
  trouble: string;
  document: string;
}
export interface Consumers {
  title: string;
  troubles: string;
  caption: string;
  unit: string;
  rows: ConsumerRow[];
  more: string;
}
export interface HeldRow {
  document: string;
  consumer: string;
  held: string;
  ends_in: string;
  renewals: string;
  delivery: string;
  late: boolean;
}
export interface Leases {
  title: string;
  summary: string;
  bins: [age: string, messages: number, late: boolean][];
  rows: HeldRow[];
}
export interface CodePane {
  title: string;
  caption: string;
  text: string;
}
/** `at` and ticks are seconds after the first value. */
export interface Chart {
  title: string;
  label: string;
  empty: string;
  step: number;
  now: number;
  end: number;
  values: (number | null)[];
  fan: number[];
  due: string;
  band: string;
  ticks: [at: number, word: string][];
  marks: { at: number; cell: string; text: string }[];
}
export interface RunLine {
  key: string;
  name: string;
  queue: string;
  state: string;
  tone: string;
  share: string;
  left: string;
  done: string;
  dead: string;
}
export interface Runs {
  /** How many there are. */
  title: string;
  rows: RunLine[];
  more: string;
}
export interface Rows {
  /** Each a `QueueRow`, its fields in the order of `FIELDS`. */
  rows: unknown[][];
  more: string;
}
export interface QueueRow {
  name: string;
  icon: string;
  tone: string;
  state: string;
  why: string;
  leased_part: number;
  ready_part: number;
  delayed_part: number;
  waiting: string;
  ready: string;
  delayed: string;
  unacked: string;
  dead: string;
  in_rate: string;
  out_rate: string;
  lag: string;
  empty_in: string;
  disk: string;
  paused: boolean;
  durable: boolean;
  consumers: number;
  /** Question, detail, safe answer, other answer; or empty. */
  purge: string[];
  /** Names of runs, and the labels of their buttons. */
  retries: [run: string, label: string][];
}
// The order of `QueueRow` in dqlab/live/views.py: Python sends a row as a list of its values.
export const FIELDS: readonly (keyof QueueRow)[] = [
  'name', 'icon', 'tone', 'state', 'why', 'leased_part', 'ready_part', 'delayed_part', 'waiting', 'ready',
  'delayed', 'unacked', 'dead', 'in_rate', 'out_rate', 'lag', 'empty_in', 'disk', 'paused', 'durable', 'consumers',
  'purge', 'retries'
];

export function queueRows(part: Rows | null): QueueRow[] {
  const named = (row: unknown[]): object => Object.fromEntries(FIELDS.map((field, place) => [field, row[place]]));
  return (part?.rows ?? []).map((row) => named(row) as QueueRow);
}

/** The head of either kind. */
export type Head = RunHead | QueuesHead;

/** Parts that every kind of widget may have; null before they are sent. */
export interface Parts {
  head: Head | null;
  numbers: Numbers;
  failures: Failures | null;
  chart: Chart | null;
  needs: { total: number; rows: Need[] } | null;
  consumers: Consumers | null;
  leases: Leases | null;
  code: CodePane | null;
  examples: [fingerprint: string, letters: Example[]] | null;
}
export interface RunParts extends Parts {
  head: RunHead | null;
  bars: Bars;
  numbers: RunNumbers;
  offers: Offers | null;
}
export interface QueuesParts extends Parts {
  head: QueuesHead | null;
  numbers: Numbers;
  rows: Rows | null;
  sparks: Record<string, (number | null)[]> | null;
  runs: Runs | null;
}
export type AnyParts = RunParts | QueuesParts;
/** Every part that some kind of widget has. */
export type AnyPart = Omit<Parts, 'head'> & Pick<QueuesParts, 'rows' | 'runs'> & { head: Head | null };

export const NAMES: readonly (keyof RunParts | keyof QueuesParts)[] = [
  'head', 'bars', 'numbers', 'failures', 'chart', 'needs', 'consumers', 'leases', 'code', 'examples', 'rows', 'sparks', 'runs', 'offers'
];

/** The message for a pressed button. */
export interface Press {
  command: string;
  queue?: string;
  run?: string;
  target?: string;
  n?: number;
}
