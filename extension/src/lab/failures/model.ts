// Hold the failures of one run or queue: classes, the selection, and the page of documents on view.

import type { IDisposable } from '@lumino/disposable';
import { Poll } from '@lumino/polling';
import { Signal, type ISignal } from '@lumino/signaling';

import { retryCode, type Selection } from '../actions';
import { Refusal, type Client, type Failure, type Scope } from '../client';
import { UNKNOWN } from '../../shared/format';
import { LATE_MS, sentence } from '../model';
import { allFailed, finished, type FailureClass, type History, type Run, type Snapshot } from '../../shared/snapshot';

const INTERVAL_MS = 2_000;
const HISTORY_MS = 15_000;
const LONGEST_MS = 30_000;
export const SPAN = 1_800;
export const PAGE = 50;
/** In place of one class: all dead documents, also those of classes that are not listed. */
export const ALL = '';

export type Asking = Pick<Client, 'snapshot' | 'history' | 'failures'>;

export interface Page {
  fingerprint: string;
  rows: Failure[];
  total: number;
  /** Number of the first row, from 1. */
  first: number;
  next: string | null;
  at: number;
}

export class FailuresModel implements IDisposable {
  snapshot: Snapshot | null = null;
  history: History | null = null;
  failure: Refusal | null = null;
  /** Selected fingerprints; empty means all that match. */
  readonly selected = new Set<string>();
  /** The class whose documents are on view, or ALL. */
  looked: string | null = null;
  page: Page | null = null;
  pageError = '';

  constructor(
    private client: Asking,
    readonly service: string,
    private asked: Scope,
    isResting: () => boolean
  ) {
    const frequency = { backoff: true, max: LONGEST_MS };
    this.numbers = new Poll({
      name: 'dqlab:failures',
      factory: () => this.readNumbers(),
      frequency: { interval: INTERVAL_MS, ...frequency },
      standby: isResting
    });
    this.past = new Poll({
      name: 'dqlab:failures-history',
      factory: () => this.readHistory(),
      frequency: { interval: HISTORY_MS, ...frequency },
      standby: isResting
    });
  }

  get changed(): ISignal<this, void> {
    return this.change;
  }

  get isDisposed(): boolean {
    return this.numbers.isDisposed;
  }

  /** The run of the request, or the only run of the queue with failures. */
  get scope(): Scope {
    if (this.asked.run || !this.snapshot) return this.asked;
    const failed = this.runs;
    return failed.length === 1 && !this.unlisted ? { queue: failed[0]!.queue, run: failed[0]!.name } : this.asked;
  }

  /** Number of ended runs with dead documents that are older than the listed ones. */
  get unlisted(): number {
    const { queue } = this.asked;
    const of = queue ? this.snapshot?.queues.find((each) => each.name === queue) : this.snapshot?.totals;
    return Math.max(0, (of?.failed_runs ?? 0) - this.runs.filter(finished).length);
  }

  /** Runs of the queue with documents that failed. */
  get runs(): Run[] {
    const { queue } = this.asked;
    return (this.snapshot?.runs ?? []).filter((each) => (!queue || each.queue === queue) && each.counts.dead > 0);
  }

  get run(): Run | null {
    const { run, queue } = this.scope;
    return this.snapshot?.runs.find((each) => each.name === run && (!queue || each.queue === queue)) ?? null;
  }

  get classes(): FailureClass[] {
    return this.snapshot?.failures.classes ?? [];
  }

  /** The documents that the buttons act on: a filter, and not the rows on view. */
  get selection(): Selection {
    const chosen = this.classes.filter((each) => this.selected.has(each.fingerprint));
    const { queue = '', run = '' } = this.scope;
    const whole = !chosen.length || chosen.length === this.snapshot!.failures.classes_total;
    const dead = whole ? (this.snapshot?.failures.dead ?? 0) : chosen.reduce((sum, each) => sum + each.dead, 0);
    const same = this.run !== null && allFailed(this.run);
    return { queue, run, dead, ...(same ? { same } : {}), fingerprints: whole ? [] : chosen.map((each) => each.fingerprint) };
  }

  get python(): string {
    return retryCode(this.selection);
  }

  /** The code of a document in words: `v4` where its number is known, else the start of its hash. */
  versionOf({ version, fingerprint }: Pick<Failure, 'version' | 'fingerprint'>): string {
    if (version === null || version === '') return UNKNOWN;
    const code = this.run?.code;
    if (code?.short && String(version).startsWith(code.short)) return `v${code.version}`;
    // An older version: its number is clear where the class failed with only one other version.
    const failed = this.classes.find((each) => each.fingerprint === fingerprint)?.versions ?? [];
    const others = failed.filter((each) => each !== `${code?.name} v${code?.version}`);
    return typeof version === 'string' && others.length === 1 ? others[0]!.split(' ').at(-1)! : versionWord(version);
  }

  /** The number of a function's cell, if the newest code of the run is that function in this version. */
  cellOf(version: Failure['version'], name: string): number | null {
    const code = this.run?.code;
    return code?.short && code.name === name && String(version ?? '').startsWith(code.short) ? code.cell : null;
  }

  toggle(fingerprint: string): void {
    if (!this.selected.delete(fingerprint)) this.selected.add(fingerprint);
    this.change.emit();
  }

  toggleAll(): void {
    const all = this.classes.every((each) => this.selected.has(each.fingerprint));
    this.selected.clear();
    if (!all) for (const each of this.classes) this.selected.add(each.fingerprint);
    this.change.emit();
  }

  /** Show the documents of a class from the first one. */
  async look(fingerprint: string): Promise<void> {
    this.looked = fingerprint;
    this.before.length = 0;
    await this.turn(null, 1);
  }

  async nextPage(): Promise<void> {
    const page = this.page;
    if (!page?.next) return;
    this.before.push(this.cursor);
    await this.turn(page.next, page.first + page.rows.length);
  }

  async previousPage(): Promise<void> {
    if (!this.page || !this.before.length) return;
    const cursor = this.before.pop()!;
    await this.turn(cursor, Math.max(1, this.page.first - PAGE));
  }

  get hasPrevious(): boolean {
    return this.before.length > 0;
  }

  /** Poll for everything now. */
  wake(): void {
    void this.numbers.refresh();
    void this.past.refresh();
    if (this.looked !== null) void this.look(this.looked);
  }

  dispose(): void {
    if (this.isDisposed) return;
    this.numbers.dispose();
    this.past.dispose();
    Signal.clearData(this);
  }

  /** No document was dead at the last look, because all ran again, and some are dead by now. */
  private get isOutrun(): boolean {
    if (this.page?.rows.length !== 0 || this.page.fingerprint !== this.looked) return false;
    const { classes, dead } = this.snapshot!.failures;
    return (this.looked === ALL ? dead : (classes.find((each) => each.fingerprint === this.looked)?.dead ?? 0)) > 0;
  }

  private async turn(cursor: string | null, first: number): Promise<void> {
    const fingerprint = this.looked!;
    this.cursor = cursor;
    this.pageError = '';
    // Old rows must not stand under the name of another class.
    if (this.page?.fingerprint !== fingerprint) this.page = null;
    this.change.emit();
    try {
      const scope = { ...this.scope, fingerprint, after: cursor, limit: PAGE };
      const { next, rows, total } = await this.client.failures(this.service, scope);
      if (this.looked !== fingerprint || this.cursor !== cursor) return;
      this.page = { fingerprint, rows, total, first, next, at: this.snapshot?.at ?? Date.now() / 1000 };
    } catch (error) {
      this.pageError = sentence(error);
    }
    this.change.emit();
  }

  private async readNumbers(): Promise<void> {
    const late = setTimeout(() => {
      this.failure ??= new Refusal(0, 'Late', 'No answer yet.');
      this.change.emit();
    }, LATE_MS);
    try {
      let snapshot = await this.client.snapshot(this.service, this.asked);
      this.snapshot = snapshot;
      const { run } = this.scope;
      if (run !== this.asked.run) {
        snapshot = await this.client.snapshot(this.service, this.scope);
        this.asked = this.scope;
        this.snapshot = snapshot;
      }
      this.failure = null;
      if (this.looked === null && this.classes.length) void this.look(this.classes[0]!.fingerprint);
      else if (this.isOutrun) void this.look(this.looked!);
    } catch (error) {
      this.failure = error instanceof Refusal ? error : new Refusal(0, '', sentence(error));
      throw error;
    } finally {
      clearTimeout(late);
      if (!this.isDisposed) this.change.emit();
    }
  }

  private async readHistory(): Promise<void> {
    this.history = await this.client.history(this.service, SPAN, this.scope);
    this.change.emit();
  }

  private readonly numbers: Poll;
  private readonly past: Poll;
  private readonly before: (string | null)[] = [];
  private cursor: string | null = null;
  private readonly change = new Signal<this, void>(this);
}

export function versionWord(version: number | string): string {
  return typeof version === 'number' || /^\d+$/.test(version) ? `v${version}` : version.slice(0, 6);
}
