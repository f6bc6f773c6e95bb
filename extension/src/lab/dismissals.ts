// Which lines the user has dismissed, by what they are about, in the browser's own storage. A line comes back with news
// about it. What is about a run is kept for the run, so it outlives its cluster; the rest for the cluster alone.

import { identity, type Service } from './client';
import { about, ENDED, type Need } from './needs';
import type { Snapshot } from '../shared/snapshot';

/** Subjects, most of them runs, and lines about each of them. */
const MOST_SUBJECTS = 1_000;
const MOST = 200;

type Kept = [state: string, amount: number];
type Book = Record<string, Record<string, Kept>>;

export type Memory = Pick<Storage, 'getItem' | 'setItem'>;

export class Dismissals {
  /** Without a memory, as where a browser forbids it, dismissals last as long as the page. */
  constructor(
    private memory: Memory | null,
    private readonly name = 'dqlab:dismissed'
  ) {}

  has(service: Service, need: Need): boolean {
    const kept = this.read()[subjectOf(service, need.of)]?.[need.key];
    if (!kept || kept[0] !== need.state) return false;
    return need.amount === kept[1] || need.amount < 2 * kept[1]; // a small growth is not shown again
  }

  add(service: Service, needs: readonly Need[]): void {
    const book = { ...this.read() };
    for (const need of needs) {
      const subject = subjectOf(service, need.of);
      const old = Object.entries(book[subject] ?? {}).filter(([key]) => key !== need.key);
      const added: [string, Kept] = [need.key, [need.state, need.amount]];
      delete book[subject]; // the newest stand last
      book[subject] = Object.fromEntries([...old, added].slice(-MOST));
    }
    this.write(book);
  }

  /** Bring these lines back. */
  remove(service: Service, needs: readonly Need[]): void {
    this.keep(new Set(needs.map((need) => subjectOf(service, need.of))), (subject, key) =>
      needs.every((need) => need.key !== key || subjectOf(service, need.of) !== subject)
    );
  }

  /**
   * Forget what is over, so that it is news when it happens again: of the cluster, and of the runs that are listed.
   * Call only where nothing is left out of `needs`.
   */
  settle(service: Service, snapshot: Snapshot, needs: readonly Need[]): void {
    const there = new Set(needs.map((need) => `${subjectOf(service, need.of)} ${need.key}`));
    const seen = [null, ...snapshot.runs.map(about)].map((of) => subjectOf(service, of));
    this.keep(new Set(seen), (subject, key) => key.startsWith(`${ENDED} `) || there.has(`${subject} ${key}`));
  }

  /** Keep of some subjects only the lines that a test is true of. */
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
      const text = this.memory.getItem(this.name) ?? ''; // another tab may have written it
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

/** Names what a line is about: a run by its store, its queue, its name and when it began; else the cluster. */
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
