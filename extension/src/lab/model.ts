// Hold what is known about services, and poll for it. Views draw this model and send it actions; nothing else polls services.

import { DisposableDelegate, type IDisposable } from '@lumino/disposable';
import { Poll } from '@lumino/polling';
import { Signal, type ISignal } from '@lumino/signaling';

import { identity, Refusal, type Action, type Answer, type Client, type Panel, type Service } from './client';
import { Dismissals } from './dismissals';
import { grouped, needsOf, type Need } from './needs';
import type { History, Snapshot } from '../shared/snapshot';

const SERVICES_MS = 5_000;
const LONGEST_MS = 30_000;
const HISTORY_MS = 60_000;
/** Period of a closed sidebar, for the number on its icon, and of every sidebar for services that are not chosen. */
const GLANCE_MS = 15_000;
/** Without an answer for so long, numbers are old. The server itself waits three times as long for a service. */
export const LATE_MS = 3_000;
/** Without an answer for so long, a notice shows that an action is not answered yet. */
const UNANSWERED_MS = 4_000;
const SAID_MS = 12_000;
const REFUSED_MS = 60_000;
const SPAN = 1_800;

export type Asking = Pick<Client, 'services' | 'snapshot' | 'history' | 'panels' | 'act' | 'forget'>;

export interface ModelOptions {
  client: Asking;
  /** Milliseconds between two snapshots. */
  interval?: number;
  /** Whether the page itself is hidden. */
  isHidden?: () => boolean;
  /** Id of the kernel of the notebook in front; empty where there is none. */
  front?: () => string;
  now?: () => number;
  dismissals?: Dismissals;
}

/** The last numbers of a service; `on` is the number of workers with consumers, where all consumers are listed. */
export interface Glance {
  /** Identity of the service: another one may have the same id by now. */
  of: string;
  /** Seconds since 1970, by the service; 0 where it has never answered. */
  at: number;
  /** A later poll had no answer. */
  old: boolean;
  needs: number;
  problem: boolean;
  workers: number;
  consumers: number;
  on: number | null;
}

/** The key of a queue or a run that actions change. */
export function subjectKey(of: { queue: string; run?: string }): string {
  return of.run === undefined ? `queue ${of.queue}` : `run ${of.queue} ${of.run}`;
}

export class Model implements IDisposable {
  services: Service[] | null = null;
  /** Why the list of services could not be read; empty when it could. */
  servicesError = '';
  chosen: string | null = null;
  /** A service that the user chose although it had ended: no other one takes its place. */
  private kept: string | null = null;
  /** The kernel whose service was shown because its notebook came to the front, and that service. */
  private followed = '';
  snapshot: Snapshot | null = null;
  history: History | null = null;
  /** Why the chosen service gave no snapshot; null when it did. */
  failure: Refusal | null = null;
  /** The effect of the last action, for a while. */
  said = '';
  readonly refusals = new Map<string, string>();
  readonly busy = new Set<string>();

  constructor(options: ModelOptions) {
    this.client = options.client;
    this.isHidden = options.isHidden ?? (() => document.hidden);
    this.now = options.now ?? (() => Date.now());
    this.front = options.front ?? (() => '');
    this.dismissals = options.dismissals ?? new Dismissals(null);
    const interval = options.interval ?? 1_000;
    this.servicesPoll = this.poll('services', SERVICES_MS, () => this.readServices());
    this.snapshotPoll = this.poll('snapshot', interval, () => this.readSnapshot());
    this.historyPoll = this.poll('history', HISTORY_MS, () => this.readHistory());
    this.othersPoll = new Poll({
      name: 'dqlab:others',
      factory: () => this.readOthers(),
      frequency: { interval: GLANCE_MS, backoff: false, max: GLANCE_MS },
      standby: () => this.isHidden()
    });
  }

  get changed(): ISignal<this, void> {
    return this.change;
  }

  /** A service is up again, or was restarted: tabs with its pages have to load them again. */
  get returned(): ISignal<this, string> {
    return this.coming;
  }

  get isDisposed(): boolean {
    return this.servicesPoll.isDisposed;
  }

  /** Show the service of the notebook in front; a choice of the user stays until another notebook comes to the front. */
  follow(): void {
    const kernel = this.front();
    const service = kernel && this.services?.find((each) => each.kernels.includes(kernel) && each.state === 'up');
    const followed = service ? `${kernel} ${service.id}` : '';
    if (!service || followed === this.followed) return;
    this.followed = followed;
    this.take(service.id);
  }

  /** Poll while a view is visible, for numbers or for services alone, until the returned object is disposed. */
  watch(what: 'numbers' | 'services' = 'numbers'): IDisposable {
    const watchers = this.watchers;
    watchers[what] += 1;
    if (watchers[what] === 1) this.wake();
    return new DisposableDelegate(() => {
      watchers[what] -= 1;
    });
  }

  /** Poll for the services now, visible or not, and return the known ones where that fails. */
  async list(): Promise<readonly Service[]> {
    await this.readServices().catch(() => undefined);
    return this.services ?? [];
  }

  /** Poll for the chosen service's numbers now, visible or not; null without an answer. */
  async look(): Promise<Snapshot | null> {
    if (this.services === null) await this.list();
    await this.readSnapshot().catch(() => undefined);
    return this.fresh ? this.snapshot : null;
  }

  service(id: string | null = this.chosen): Service | null {
    return this.services?.find((each) => each.id === id) ?? null;
  }

  /** Numbers are from now, not from before the service fell silent. */
  get fresh(): boolean {
    return this.snapshot !== null && this.failure === null && this.service()?.state !== 'gone';
  }

  /** The last numbers of a service; null without any, or where they are of an earlier service with the same id. */
  seen(service: Service): Glance | null {
    const glance = this.glances.get(service.id);
    return glance && glance.of === identity(service) ? glance : null;
  }

  /** Services besides the chosen one that need the user, with their last numbers. */
  get elsewhere(): { service: Service; glance: Glance }[] {
    const up = (this.services ?? []).filter((each) => each.state === 'up' && each.id !== this.chosen);
    const found = up.flatMap((service) => {
      const glance = this.seen(service);
      return glance ? [{ service, glance }] : [];
    });
    return found.filter(({ glance }) => glance.needs > 0 && !glance.old);
  }

  /** Lines that need the user in all services, without those that were dismissed. */
  get needs(): number {
    const here = this.fresh ? this.open.length + this.unlisted : 0;
    return this.elsewhere.reduce((sum, { glance }) => sum + glance.needs, here);
  }

  /** One of them is a problem. */
  get problem(): boolean {
    const here = this.fresh && this.open.some((each) => each.severity === 'problem');
    return here || this.elsewhere.some(({ glance }) => glance.problem);
  }

  /** What needs the user in the chosen service, worst first, as last seen. */
  get open(): Need[] {
    return this.openIn(this.service(), this.undone);
  }

  /** Number of lines that still apply and were dismissed. */
  get dismissed(): number {
    const service = this.service();
    return this.undone.filter((need) => service !== null && this.dismissals.has(service, need)).length;
  }

  /** Lines beyond those that a snapshot lists. */
  get unlisted(): number {
    return this.snapshot ? unlistedIn(this.snapshot) : 0;
  }

  /** Hide a line until there is news about it. */
  dismiss(need: Need): void {
    const service = this.service();
    if (service === null) return;
    this.dismissals.add(service, need.parts.length ? need.parts : [need]);
    this.glance();
    this.change.emit();
  }

  /** Show dismissed lines again. */
  recall(): void {
    const service = this.service();
    if (service === null) return;
    this.dismissals.remove(service, this.undone);
    this.glance();
    this.change.emit();
  }

  /** Milliseconds since 1970 of the next try; null when none is due. */
  get nextTry(): number | null {
    const { phase, timestamp, interval } = this.snapshotPoll.state;
    return phase === 'rejected' ? timestamp + interval : null;
  }

  /** Show a service that the user chose, even one that has ended. */
  choose(id: string): void {
    this.kept = this.service(id)?.state === 'gone' ? id : null;
    this.take(id);
  }

  private take(id: string): void {
    if (id === this.chosen) return;
    this.chosen = id;
    this.clear();
    this.refusals.clear();
    this.change.emit();
    this.wake();
  }

  /** Forget the numbers of the service that was shown. */
  private clear(): void {
    this.snapshot = this.history = this.failure = null;
    this.undone = [];
  }

  /** Poll for everything now. */
  wake(): void {
    for (const each of [this.servicesPoll, this.snapshotPoll, this.historyPoll]) void each.refresh();
  }

  setInterval(interval: number): void {
    this.snapshotPoll.frequency = { interval, backoff: true, max: LONGEST_MS };
  }

  async panels(service: string): Promise<Panel[]> {
    return this.client.panels(service);
  }

  /** Act on a queue or run; the result is in `said` or `refusals`, and the answer brings new numbers. */
  async act(service: string, action: Action): Promise<Answer | null> {
    const subject = subjectKey(action);
    this.busy.add(subject);
    this.refusals.delete(subject);
    this.unsent.delete(subject);
    this.change.emit();
    const words = `“${action.action}” is not answered yet, and may still be carried out.`;
    const waiting = setTimeout(() => this.refuse(subject, words), UNANSWERED_MS);
    try {
      const answer = await this.client.act(service, action);
      // The user may have chosen another service since.
      if (service === this.chosen) this.accept(answer.snapshot);
      this.refusals.delete(subject);
      this.say(answer.text);
      return answer;
    } catch (error) {
      this.refuse(subject, sentence(error));
      return null;
    } finally {
      clearTimeout(waiting);
      this.busy.delete(subject);
      this.change.emit();
    }
  }

  async forget(service: string): Promise<void> {
    try {
      await this.client.forget(service).catch((error: unknown) => {
        if (!(error instanceof Refusal && error.status === 404)) throw error; // it had removed its file itself
      });
      if (service === this.chosen) {
        this.chosen = null;
        this.clear();
      }
      this.services = this.services?.filter((each) => each.id !== service) ?? null;
    } catch (error) {
      this.say(sentence(error));
    }
    this.change.emit();
    void this.servicesPoll.refresh();
  }

  dispose(): void {
    if (this.isDisposed) return;
    for (const each of [this.servicesPoll, this.snapshotPoll, this.historyPoll, this.othersPoll]) each.dispose();
    clearTimeout(this.saying);
    clearTimeout(this.late);
    Signal.clearData(this);
  }

  private poll(name: string, interval: number, read: () => Promise<void>): Poll {
    let last = -Infinity;
    const rests = (): boolean => {
      if (this.isHidden()) return true;
      const { numbers, services } = this.watchers;
      if (numbers || (name === 'services' && services)) return false;
      return name === 'history' || this.now() - last < GLANCE_MS;
    };
    return new Poll({
      name: `dqlab:${name}`,
      factory: () => {
        last = this.now();
        return read();
      },
      frequency: { interval, backoff: true, max: LONGEST_MS },
      standby: rests
    });
  }

  private async readServices(): Promise<void> {
    try {
      const before = new Map((this.services ?? []).map((each) => [each.id, each]));
      const found = await this.client.services();
      // Services that answer come first: others are often of another user, or of last week.
      this.services = [...found].sort((a, b) => Number(b.state === 'up') - Number(a.state === 'up'));
      this.servicesError = '';
      const shown = before.get(this.chosen ?? '');
      // Its kernel was restarted or ended. Another kernel's service in its place would have its buttons under the mouse.
      if (shown && !this.service()) this.services.push({ ...shown, state: 'gone' });
      const chosen = this.service();
      if (!chosen) {
        const first = this.services.find((each) => each.state === 'up') ?? this.services[0];
        if (first) this.take(first.id);
        else {
          this.chosen = null;
          this.clear();
        }
      } else if (identity(chosen) !== identity(before.get(chosen.id) ?? chosen)) {
        // Another cluster has the same id now: the numbers shown are not its own.
        this.clear();
        for (const each of [this.snapshotPoll, this.historyPoll]) void each.refresh();
      } else if (chosen.state === 'gone' && chosen.id !== this.kept) {
        // The same notebook or kernel has connected again.
        const later = this.services.filter((each) => each.state === 'up' && each.started > chosen.started);
        const successor = later.find((each) => each.name === chosen.name || each.kernels.some((kernel) => chosen.kernels.includes(kernel)));
        if (successor) this.take(successor.id);
      }
      this.follow();
      for (const each of this.services) {
        const old = before.get(each.id);
        const back = old && (old.state !== 'up' || old.started !== each.started);
        if (back && each.state === 'up') this.welcome(each);
      }
      const fresh = this.services.some((each) => each.state === 'up' && each.id !== this.chosen && !this.seen(each));
      if (fresh) void this.othersPoll.refresh();
    } catch (error) {
      this.servicesError = sentence(error);
      throw error;
    } finally {
      this.change.emit();
    }
  }

  private welcome(service: Service): void {
    if (service.id === this.chosen && this.failure) void this.snapshotPoll.refresh();
    this.coming.emit(service.id);
  }

  private async readSnapshot(): Promise<void> {
    const asked = this.chosen;
    if (asked === null || this.service()?.state === 'gone') return;
    const of = this.service();
    clearTimeout(this.late);
    this.late = setTimeout(() => {
      if (asked !== this.chosen) return;
      this.failure ??= new Refusal(0, 'Late', 'no answer yet');
      this.change.emit();
    }, LATE_MS);
    // The user may have chosen another service during the poll, or another cluster may have taken its id.
    const stale = (): boolean => asked !== this.chosen || (of !== null && this.service() !== null && identity(of) !== identity(this.service()!));
    try {
      const snapshot = await this.client.snapshot(asked);
      if (stale()) return;
      this.failure = null;
      for (const subject of this.unsent) this.refusals.delete(subject);
      this.unsent.clear();
      this.accept(snapshot);
    } catch (error) {
      if (asked !== this.chosen) return;
      this.failure = error instanceof Refusal ? error : new Refusal(0, '', sentence(error));
      throw error;
    } finally {
      clearTimeout(this.late);
      this.change.emit();
    }
  }

  /** Poll the services that are not chosen: whether they need the user, and their workers. */
  private async readOthers(): Promise<void> {
    const others = (this.services ?? []).filter((each) => each.state === 'up' && each.id !== this.chosen);
    await Promise.all(
      others.map(async (service) => {
        const before = this.seen(service);
        try {
          this.see(service, await this.client.snapshot(service.id));
        } catch {
          const nothing = { of: identity(service), at: 0, needs: 0, problem: false, workers: 0, consumers: 0, on: null };
          if (service.id !== this.chosen) this.glances.set(service.id, { ...(before ?? nothing), old: true });
        }
      })
    );
    if (others.length && !this.isDisposed) this.change.emit();
  }

  private async readHistory(): Promise<void> {
    const asked = this.chosen;
    if (asked === null || this.service()?.state !== 'up') return;
    const history = await this.client.history(asked, SPAN);
    if (asked !== this.chosen) return;
    this.history = history;
    this.change.emit();
  }

  /** Take newer numbers, and drop an answer that a newer one has overtaken. */
  private accept(snapshot: Snapshot): void {
    // Both: after a restart `seq` begins again, and a clock that was set back makes `at` smaller.
    if (this.snapshot !== null && snapshot.at < this.snapshot.at && snapshot.seq < this.snapshot.seq) return;
    this.snapshot = snapshot;
    this.undone = needsOf(snapshot);
    const service = this.service();
    if (service !== null && !this.unlisted) this.dismissals.settle(service, snapshot, this.undone);
    this.glance();
  }

  private glance(): void {
    const service = this.service();
    if (service && this.snapshot) this.see(service, this.snapshot);
  }

  private see(service: Service, snapshot: Snapshot): void {
    const { at, workers, consumers: listed, consumers_total: consumers } = snapshot;
    const on = listed.length < consumers ? null : new Set(listed.map((each) => each.worker)).size;
    const open = this.openIn(service, needsOf(snapshot));
    const needs = open.length + unlistedIn(snapshot);
    const problem = open.some((each) => each.severity === 'problem');
    this.glances.set(service.id, { of: identity(service), at, old: false, needs, problem, workers, consumers, on });
  }

  private openIn(service: Service | null, needs: Need[]): Need[] {
    return grouped(needs.filter((need) => service === null || !this.dismissals.has(service, need)));
  }

  /** Show for a while why something was not done. */
  refuse(subject: string, text: string): void {
    this.refusals.set(subject, text);
    this.change.emit();
    setTimeout(() => {
      if (this.isDisposed || this.refusals.get(subject) !== text) return;
      this.refusals.delete(subject);
      this.change.emit();
    }, REFUSED_MS);
  }

  /** Show that nothing was sent, until the chosen service answers again. */
  refuseUnsent(subject: string): void {
    const name = this.service()?.name ?? this.chosen;
    this.unsent.add(subject);
    this.refuse(subject, `${name} does not answer now, so nothing was sent. Try it again once it does.`);
  }

  private say(text: string): void {
    this.said = text;
    clearTimeout(this.saying);
    this.saying = setTimeout(() => {
      this.said = '';
      this.change.emit();
    }, SAID_MS);
  }

  private undone: Need[] = [];
  /** Subjects with a notice that nothing was sent. */
  private readonly unsent = new Set<string>();
  private readonly glances = new Map<string, Glance>();
  private readonly dismissals: Dismissals;
  private readonly client: Asking;
  private readonly isHidden: () => boolean;
  private readonly front: () => string;
  private readonly now: () => number;
  private readonly servicesPoll: Poll;
  private readonly snapshotPoll: Poll;
  private readonly historyPoll: Poll;
  private readonly othersPoll: Poll;
  private readonly change = new Signal<this, void>(this);
  private readonly coming = new Signal<this, string>(this);
  private readonly watchers = { numbers: 0, services: 0 };
  private saying: ReturnType<typeof setTimeout> | undefined;
  private late: ReturnType<typeof setTimeout> | undefined;
}

const unlistedIn = (snapshot: Snapshot): number => Math.max(0, snapshot.attention_total - snapshot.attention.length);

export function sentence(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
