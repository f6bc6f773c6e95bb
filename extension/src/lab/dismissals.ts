// Remember which lines the user has dismissed, in the browser's own storage. News about a line shows it again. Lines
// about a run are kept for the run, and so outlive its cluster; other lines are kept for the cluster alone.

import { identity, type Service } from './client';
import { about, ENDED, type Need } from './needs';
import type { Snapshot } from '../shared/snapshot';

/** Most subjects, which are mostly runs, and most lines about each of them. */
const MOST_SUBJECTS = 1_000;
const MOST = 200;

type Kept = [state: string, amount: number];
type Book = Record<string, Record<string, Kept>>;

export type Memory = Pick<Storage, 'getItem' | 'setItem'>;

export class Dismissals {
  /** Without a memory, where a browser forbids it, dismissals last as long as the page. */
  constructor(
    private memory: Memory | null,
    private readonly name = 'dqlab:dismissed'
  ) {}

  has(service: Service, need: Need): boolean {
    const kept = this.read()[subjectOf(service, need.of)]?.[need.key];
    if (!kept || kept[0] !== need.state) return false;
    return need.amount === kept[1] || need.amount < 2 * kept[1]; // a small growth is no news
  }

  add(service: Service, needs: readonly Need[]): void {
    const book = { ...this.read() };
    for (const need of needs) {
      const subject = subjectOf(service, need.of);
      const old = Object.entries(book[subject] ?? {}).filter(([key]) => key !== need.key);
      const added: [string, Kept] = [need.key, [need.state, need.amount]];
      delete book[subject]; // insert again at the end: `write` drops the oldest entries from the front
      book[subject] = Object.fromEntries([...old, added].slice(-MOST));
    }
    this.write(book);
  }

  /** Show these lines again. */
  remove(service: Service, needs: readonly Need[]): void {
    this.keep(new Set(needs.map((need) => subjectOf(service, need.of))), (subject, key) =>
      needs.every((need) => need.key !== key || subjectOf(service, need.of) !== subject)
    );
  }

  /**
   * Forget lines of the cluster and of listed runs that are over, so that they are news when they happen again.
   * Call this only with complete `needs`: a line that was left out would be forgotten too.
   */
  settle(service: Service, snapshot: Snapshot, needs: readonly Need[]): void {
    const there = new Set(needs.map((need) => `${subjectOf(service, need.of)} ${need.key}`));
    const seen = [null, ...snapshot.runs.map(about)].map((of) => subjectOf(service, of));
    this.keep(new Set(seen), (subject, key) => key.startsWith(`${ENDED} `) || there.has(`${subject} ${key}`));
  }

  /** Keep only the lines of some subjects that pass a test. */
  private keep(subjects: ReadonlySet<string>, test: (subject: string, key: string) => boolean): void {
    const book = { ...this.read() };
    let changed = false;
    for (const subject of subjects) {
      const kept = Object.entries(book[subject] ?? {});
      const rest = kept.filter(([key]) => test(subject, key));
      if (rest.length === kept.length) continue;
      changed = true;
      if (rest.length) book[subject] = Object.fromEntries(rest);
      else delete book[subject];
    }
    if (changed) this.write(book);
  }

  private read(): Book {
    if (!this.memory) return this.book;
    try {
      const text = this.memory.getItem(this.name) ?? ''; // another tab may have written since
      if (text !== this.last) [this.last, this.book] = [text, parsed(text)];
    } catch {
      this.memory = null;
    }
    return this.book;
  }

  private write(book: Book): void {
    this.book = Object.fromEntries(Object.entries(book).slice(-MOST_SUBJECTS));
    this.last = JSON.stringify(this.book);
    try {
      this.memory?.setItem(this.name, this.last);
    } catch {
      this.memory = null; // full or forbidden: the page goes on with what it knows
    }
  }

  private book: Book = {};
  private last = '';
}

/** The subject of a line: a run by its store, its queue, its name and its start; else the cluster. */
function subjectOf(service: Service, of: Need['of']): string {
  if (of === null) return identity(service);
  return JSON.stringify([service.store ?? identity(service), ...of]);
}

/** The browser's own storage, or null where it is forbidden. */
export function browserMemory(): Memory | null {
  try {
    return window.localStorage;
  } catch {
    return null;
  }
}

function parsed(text: string): Book {
  try {
    const value: unknown = JSON.parse(text);
    return value && typeof value === 'object' ? (value as Book) : {};
  } catch {
    return {};
  }
}
