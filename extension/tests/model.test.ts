import { afterEach, beforeEach, expect, test, vi } from 'vitest';

import { Refusal, type Action, type Answer, type Service } from '../src/lab/client';
import { Model, type Asking } from '../src/lab/model';
import type { Snapshot } from '../src/shared/snapshot';
import { goldenHistory, goldenSnapshot, service } from './golden';

class Server implements Asking {
  list: Service[] = [service()];
  trouble: Error | null = null;
  readonly asked: string[] = [];
  private seq = 1;

  fresh(changes: Partial<Snapshot> = {}): Snapshot {
    this.seq += 1;
    return { ...goldenSnapshot(), seq: this.seq, at: 1000 + this.seq, ...changes };
  }

  private answer<T>(name: string, value: () => T): Promise<T> {
    this.asked.push(name);
    return this.trouble ? Promise.reject(this.trouble) : Promise.resolve(value());
  }

  services = (): Promise<Service[]> => {
    this.asked.push('services');
    return Promise.resolve(this.list);
  };
  snapshot = (id: string): Promise<Snapshot> => this.answer(`snapshot ${id}`, () => this.fresh());
  history = (): Promise<ReturnType<typeof goldenHistory>> => this.answer('history', goldenHistory);
  panels = (): Promise<[]> => this.answer('panels', () => []);
  forget = (id: string): Promise<void> => this.answer(`forget ${id}`, () => undefined);
  act = (_: string, action: Action): Promise<Answer> =>
    this.answer(`act ${action.action}`, () => ({ count: 1, text: 'done', snapshot: this.fresh({ workers: 99 }) }));

  amount(start: string): number {
    return this.asked.filter((each) => each.startsWith(start)).length;
  }
}

let server: Server;
let hidden: boolean;
let model: Model;
let front: string;

beforeEach(() => {
  vi.useFakeTimers();
  server = new Server();
  hidden = false;
  front = '';
  model = new Model({ client: server, isHidden: () => hidden, front: () => front });
});

afterEach(() => {
  model.dispose();
  vi.useRealTimers();
  vi.restoreAllMocks();
});

const pass = (ms: number): Promise<unknown> => vi.advanceTimersByTimeAsync(ms);

test('while somebody looks, numbers come once a second and services every five', async () => {
  model.watch();
  await pass(500);
  server.asked.length = 0;
  await pass(10_000);
  expect(server.amount('snapshot')).toBeGreaterThanOrEqual(9);
  expect(server.amount('snapshot')).toBeLessThanOrEqual(11);
  expect(server.amount('services')).toBe(2);
});

test('services that answer stand above those that do not, each in the order in which they began', async () => {
  const states = { old: 'silent', lost: 'unreachable', mine: 'up', ended: 'gone', next: 'up' } as const;
  server.list = Object.entries(states).map(([id, state]) => service({ id, name: id, state }));
  model.watch();
  await pass(500);
  expect(model.services?.map((each) => each.id)).toEqual(['mine', 'next', 'old', 'lost', 'ended']);
  expect(model.chosen).toBe('mine');
});

test('the chosen service is asked for numbers once a second, and the others four times a minute', async () => {
  server.list = [service(), service({ id: 'other', name: 'other' }), service({ id: 'old', name: 'old', state: 'gone' })];
  model.watch();
  await pass(60_000);
  expect(server.amount('snapshot papers')).toBeGreaterThan(50);
  expect(server.amount('snapshot other')).toBeGreaterThanOrEqual(4);
  expect(server.amount('snapshot other')).toBeLessThanOrEqual(6);
  expect(server.amount('snapshot old')).toBe(0);
  model.choose('other');
  server.asked.length = 0;
  await pass(3_000);
  expect(server.amount('snapshot papers')).toBeLessThanOrEqual(1);
  expect(server.amount('snapshot other')).toBeGreaterThan(1);
});

test('what needs somebody in a service that is not shown counts, until it no longer answers', async () => {
  const other = service({ id: 'other', name: 'other' });
  server.list = [service(), other];
  const calm = { attention: [], attention_total: 0, runs: [], runs_total: 0 };
  server.snapshot = (id) => Promise.resolve(id === 'other' ? server.fresh() : server.fresh(calm));
  model.watch();
  await pass(2_000);
  expect(model.open).toEqual([]);
  expect([model.needs, model.problem]).toEqual([3, true]);
  expect(model.elsewhere.map((each) => each.service.id)).toEqual(['other']);

  server.snapshot = (id) => (id === 'other' ? Promise.reject(new Refusal(504, 'ServiceSilent', 'no answer')) : Promise.resolve(server.fresh(calm)));
  await pass(16_000);
  expect([model.needs, model.problem]).toEqual([0, false]);
  expect(model.seen(other)).toMatchObject({ old: true, needs: 3 });
  expect(model.seen(other)!.at).toBeGreaterThan(1_000);
});

test('a service has nothing of the one that had its name before', async () => {
  const chosen = service({ id: 'mine', name: 'mine' });
  server.list = [chosen, service()];
  server.snapshot = () => Promise.resolve(server.fresh({ consumers_total: 1 }));
  model.watch();
  await pass(2_000);
  expect(model.seen(server.list[1]!)).toMatchObject({ consumers: 1 });
  const began = { started: 1_795_270_000, pid: 8 };
  server.list = [chosen, service(began)];
  server.snapshot = (id) => (id === 'papers' ? new Promise(() => undefined) : Promise.resolve(server.fresh()));
  await pass(6_000);
  expect(model.seen(server.list[1]!)).toBeNull();

  server.list = [service({ id: 'mine', name: 'mine', ...began }), service(began)];
  server.snapshot = () => new Promise(() => undefined);
  await pass(6_000);
  expect(model.chosen).toBe('mine');
  expect(model.snapshot).toBeNull();
});

test('numbers are old as soon as their service is three seconds late', async () => {
  model.watch();
  await pass(2_000);
  expect(model.fresh).toBe(true);
  let answer: (snapshot: Snapshot) => void = () => undefined;
  server.snapshot = () => new Promise((resolve) => (answer = resolve));
  await pass(4_500);
  expect(model.fresh).toBe(false);
  expect(model.failure?.silent).toBe(true);
  answer(server.fresh());
  await pass(0);
  expect(model.fresh).toBe(true);
});

test('a page that nobody can see asks for nothing', async () => {
  model.watch();
  await pass(1_000);
  hidden = true;
  await pass(2_000);
  server.asked.length = 0;
  await pass(60_000);
  expect(server.asked).toEqual([]);
});

test('a closed sidebar asks now and then, for the number on its icon', async () => {
  model.watch().dispose();
  await pass(1_000);
  server.asked.length = 0;
  await pass(60_000);
  expect(server.amount('snapshot')).toBeGreaterThanOrEqual(3);
  expect(server.amount('snapshot')).toBeLessThanOrEqual(5);
  expect(server.amount('history')).toBe(0);
});

test('after errors the next tries are further and further apart, up to 30 s, and the numbers stay', async () => {
  vi.spyOn(Math, 'random').mockReturnValue(0.999); // the longest of the pauses that are drawn by lot
  model.watch();
  await pass(2_000);
  const known = model.snapshot;
  server.trouble = new Refusal(504, 'ServiceSilent', 'no answer');
  await pass(2_000);
  expect(model.fresh).toBe(false);
  expect(model.snapshot).toBe(known);
  expect(model.needs).toBe(0);
  await pass(120_000);
  server.asked.length = 0;
  await pass(120_000);
  expect(server.amount('snapshot')).toBe(4);
  expect(model.nextTry).not.toBeNull();
  server.trouble = null;
  model.wake();
  await pass(100);
  expect(model.fresh).toBe(true);
  expect(model.failure).toBeNull();
});

test('an answer to an action is drawn at once, before the next poll', async () => {
  model.watch();
  await pass(1_500);
  const drawn = vi.fn();
  model.changed.connect(drawn);
  server.asked.length = 0;
  await model.act('papers', { action: 'pause', queue: 'pages' });
  expect(server.asked).toEqual(['act pause']);
  expect(model.snapshot!.workers).toBe(99);
  expect(model.said).toBe('done');
  expect(drawn).toHaveBeenCalled();
});

test('numbers that were asked for before an action do not undo what it showed', async () => {
  model.watch();
  await pass(1_500);
  const late = server.fresh({ workers: 1 });
  let deliver: (snapshot: Snapshot) => void = () => undefined;
  server.snapshot = () => new Promise((resolve) => (deliver = resolve));
  await pass(1_000);
  await model.act('papers', { action: 'pause', queue: 'pages' });
  deliver(late);
  await pass(0);
  expect(model.snapshot!.workers).toBe(99);
});

test('a refusal stays with what was asked, and the next try of it takes it away', async () => {
  model.watch();
  await pass(1_000);
  server.trouble = new Refusal(409, 'QueueDraining', 'pages is draining. Resume it first.');
  expect(await model.act('papers', { action: 'drain', queue: 'pages' })).toBeNull();
  expect(model.refusals.get('queue pages')).toBe('pages is draining. Resume it first.');
  server.trouble = null;
  await model.act('papers', { action: 'resume', queue: 'pages' });
  expect(model.refusals.size).toBe(0);
});

test('a service that is there again is announced, and so is one that was restarted', async () => {
  const returned = vi.fn();
  model.returned.connect((_, id) => returned(id));
  model.watch();
  await pass(1_000);
  server.list = [service({ state: 'silent' })];
  await pass(5_000);
  expect(returned).not.toHaveBeenCalled();
  server.list = [service()];
  await pass(5_000);
  expect(returned).toHaveBeenCalledTimes(1);
  server.list = [service({ started: 1_795_270_000 })];
  await pass(5_000);
  expect(returned).toHaveBeenCalledTimes(2);
});

test('the service of the notebook in front is shown, until somebody chooses another one', async () => {
  const other = service({ id: 'other', name: 'other', kernels: ['k-2'] });
  server.list = [service({ kernels: ['k-1'] }), other];
  front = 'k-2';
  model.watch();
  await pass(1_500);
  expect(model.chosen).toBe('other');
  model.choose('papers');
  model.follow();
  await pass(6_000);
  expect(model.chosen).toBe('papers');
  front = 'k-1';
  model.follow();
  front = 'k-2';
  model.follow();
  expect(model.chosen).toBe('other');
  front = '';
  model.follow();
  expect(model.chosen).toBe('other');
});

test('a cluster that several notebooks share is shown for each of them', async () => {
  server.list = [service({ kernels: [] }), service({ id: 'up', name: 'up', kernels: ['k-1', 'k-2'] })];
  front = 'k-2';
  model.watch();
  await pass(1_500);
  expect(model.chosen).toBe('up');
  server.list = [service({ kernels: ['k-2'] }), service({ id: 'up', name: 'up', kernels: ['k-1'] })];
  await pass(5_500);
  expect(model.chosen).toBe('papers'); // its notebook has connected to another one
});

test('a service that its notebook starts while it is in front is shown', async () => {
  server.list = [service({ kernels: ['k-1'] })];
  front = 'k-2';
  model.watch();
  await pass(1_500);
  expect(model.chosen).toBe('papers');
  server.list = [...server.list, service({ id: 'mine', kernels: ['k-2'] })];
  await pass(5_500);
  expect(model.chosen).toBe('mine');
});

test('a restarted kernel leads to the next service of its notebook, and never to that of another one', async () => {
  const other = service({ id: 'other', name: 'other', started: 1_795_260_050 });
  server.list = [service(), other];
  model.watch();
  await pass(1_500);
  for (const ended of [[service({ state: 'gone' })], []]) {
    server.list = [...ended, other];
    await pass(5_500);
    expect(model.chosen).toBe('papers');
    expect(model.service()?.state).toBe('gone');
  }
  server.list.push(service({ id: 'again', started: 1_795_260_100 }));
  await pass(5_500);
  expect(model.chosen).toBe('again');
  expect(model.fresh).toBe(true);
});

test('a service that has removed its file is shown as ended until somebody removes it', async () => {
  server.list = [service()];
  model.watch();
  await pass(1_500);
  server.list = [];
  await pass(11_000);
  expect(model.services?.map((each) => each.state)).toEqual(['gone']);
  server.trouble = new Refusal(404, 'NoSuchService', 'no service is announced here');
  await model.forget('papers');
  await pass(100);
  expect(model.services).toEqual([]);
});

test('a service that somebody chose after it had ended stays chosen', async () => {
  server.list = [service({ id: 'again', started: 1_795_260_100 }), service({ state: 'gone' })];
  model.watch();
  await pass(1_500);
  expect(model.chosen).toBe('again');
  model.choose('papers');
  await pass(11_000);
  expect(model.chosen).toBe('papers');
});

test('a service that has ended is not asked, and another one is chosen when it is forgotten', async () => {
  server.list = [service(), service({ id: 'other', name: 'other' })];
  model.watch();
  await pass(1_500);
  server.list = [service({ state: 'gone' }), service({ id: 'other', name: 'other' })];
  await pass(5_500);
  server.asked.length = 0;
  await pass(4_000);
  expect(server.amount('snapshot')).toBe(0);
  expect(model.fresh).toBe(false);
  server.list = server.list.slice(1);
  await model.forget('papers');
  await pass(100);
  expect(model.chosen).toBe('other');
});
