// Commands for the palette, the launcher and other extensions. Without arguments they ask for the queue or run.

import type { JupyterFrontEnd } from '@jupyterlab/application';
import type { ICommandPalette } from '@jupyterlab/apputils';
import type { ILauncher } from '@jupyterlab/launcher';
import type { ReadonlyJSONObject, ReadonlyPartialJSONObject } from '@lumino/coreutils';

import { drainEntry, freesOf, pauseEntry, pauseRun, queueDangers, queueEntries, retryEntries, runDangers, type Entry } from './actions';
import { chosenFrom, told } from './ask';
import { perform, type Desk } from './desk';
import { dqlabIcon } from './icons';
import { CONNECT, LIST, SUBMIT } from './notebook';
import { finished, type Queue, type Run, type Snapshot } from '../shared/snapshot';

const CATEGORY = 'dqlab';
const SIDEBAR = 'dqlab-sidebar';
const ARGS = { type: 'object', properties: { queue: { type: 'string' }, run: { type: 'string' } } };

type EntryOf<T> = (of: T, snapshot: Snapshot) => Entry | undefined;

const QUEUES: [string, string, EntryOf<Queue>][] = [
  ['pause-queue', 'Pause or resume a queue…', (queue) => pauseEntry({ queue: queue.name, state: queue.state })],
  ['drain-queue', 'Drain a queue…', drainEntry],
  ['scale-queue', 'Scale the consumers of a queue…', (queue) => queueEntries(queue).find((each) => each.asksNumber)],
  [
    'compact-queue',
    'Compact a queue…',
    (queue, snapshot) => queueEntries(queue, freesOf(snapshot, queue)).find((each) => each.action.action === 'compact')
  ],
  ['purge-dead', 'Discard the dead messages of a queue…', (queue) => danger(queue, 'dead')],
  ['purge-ready', 'Discard the ready messages of a queue…', (queue) => danger(queue, 'ready')]
];
const RUNS: [string, string, EntryOf<Run>][] = [
  [
    'pause-run',
    'Pause or resume a run…',
    (run) => (finished(run) ? undefined : pauseRun(run))
  ],
  ['cancel-run', 'Cancel a run…', (run) => runDangers(run)[0]],
  ['retry-run', 'Retry the dead documents of a run…', (run) => retryEntries(run)[0]]
];

function danger(queue: Queue, state: string): Entry | undefined {
  return queueDangers(queue).find((each) => each.action.state === state);
}

export function addCommands(app: JupyterFrontEnd, desk: Desk, palette: ICommandPalette | null, launcher: ILauncher | null): void {
  const { model } = desk;
  const add = (id: string, label: string, execute: (args: ReadonlyPartialJSONObject) => unknown, args?: object): void => {
    const describedBy = { args: (args ?? { type: 'object', properties: {} }) as ReadonlyJSONObject };
    app.commands.addCommand(`dqlab:${id}`, { label, icon: dqlabIcon, describedBy, execute });
    palette?.addItem({ command: `dqlab:${id}`, category: CATEGORY });
  };
  const pick = async <T extends { name: string; queue?: string }>(
    title: string,
    all: (snapshot: Snapshot) => T[],
    wanted: unknown,
    entry: EntryOf<T>
  ): Promise<void> => {
    const snapshot = await model.look();
    if (!snapshot) return void app.commands.execute('dqlab:show');
    const possible = all(snapshot).filter((each) => entry(each, snapshot));
    if (!possible.length) return told(title, `There is none in ${model.service()?.name ?? 'this service'} to which that can be done now.`);
    const name = typeof wanted === 'string' && wanted ? wanted : await chosenFrom(title, possible.map((each) => each.name));
    const found = possible.find((each) => each.name === name);
    if (found) await perform(model, model.chosen, entry(found, snapshot)!);
  };

  add('show', 'dqlab', () => app.shell.activateById(SIDEBAR));
  add('insert-cell', 'Insert dq cells', () => desk.insert(LIST, SUBMIT));
  add('connect', 'Insert a cell that starts a service', () => desk.insert(CONNECT));
  add('connect-address', 'Connect to address…', () => desk.connectToAddress());
  add('open-layout', 'Open queue layout', () => desk.openLayout());
  add('open-dashboard', 'Open the dashboard of the service', async () => {
    await model.look();
    const service = model.service();
    if (service) desk.openPanel({ service: service.id, path: 'dq', name: 'All six', ours: true });
  });
  add('show-failures', 'Failures of a run…', async () => {
    const snapshot = await model.look();
    const failed = (snapshot?.runs ?? []).filter((each) => each.counts.dead || each.retrying);
    const name = await chosenFrom('Failures of which run?', failed.map((each) => each.name));
    const run = failed.find((each) => each.name === name);
    if (run && model.chosen !== null) desk.openFailures(model.chosen, { queue: run.queue, run: run.name });
  });
  for (const [id, label, entry] of QUEUES) {
    add(id, label, (args) => pick(label, (snapshot) => snapshot.queues, args.queue, entry), ARGS);
  }
  for (const [id, label, entry] of RUNS) {
    add(id, label, (args) => pick(label, (snapshot) => snapshot.runs, args.run, entry), ARGS);
  }
  launcher?.add({ command: 'dqlab:show', category: 'Other', rank: 10 });
}
