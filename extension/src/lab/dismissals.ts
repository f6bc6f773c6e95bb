// Which lines the user has dismissed, by service, in the browser's own storage. A line comes back with news about it.

import { ENDED, type Need } from './needs';

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

  has(service: string, need: Need): boolean {
    const kept = this.read()[service]?.[need.key];
    if (!kept || kept[0] !== need.state) return false;
    return need.amount === kept[1] || need.amount < 2 * kept[1]; // a small growth is not shown again
  }

  add(service: string, needs: readonly Need[]): void {
    const book = this.read();
    const old = Object.entries(book[service] ?? {}).filter(([key]) => !needs.some((need) => need.key === key));
    const added = needs.map((need): [string, Kept] => [need.key, [need.state, need.amount]]);
    const { [service]: _, ...others } = book;
    this.write({ ...others, [service]: Object.fromEntries([...old, ...added].slice(-MOST)) });
  }

  /** Bring back all lines of a service. */
  clear(service: string): void {
    const { [service]: _, ...others } = this.read();
    this.write(others);
  }

  /** Forget what is over, so that it is news when it happens again. Call only where nothing is left out of `needs`. */
  settle(service: string, needs: readonly Need[]): void {
    const kept = this.read()[service];
    if (!kept) return;
    const there = new Set(needs.map((need) => need.key));
    const rest = Object.entries(kept).filter(([key]) => key.startsWith(`${ENDED} `) || there.has(key));
    if (rest.length < Object.keys(kept).length) this.write({ ...this.read(), [service]: Object.fromEntries(rest) });
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
    this.book = Object.fromEntries(Object.entries(book).slice(-MOST));
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
