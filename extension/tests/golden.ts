// The files that Python's tests read too.

import history from '../../tests/golden/history.json';
import snapshot from '../../tests/golden/snapshot.json';
import { historyReader, snapshotReader, type History, type Snapshot } from '../src/shared/snapshot';
import type { Service } from '../src/lab/client';

export const plainSnapshot: unknown = snapshot;
export const goldenSnapshot = (): Snapshot => snapshotReader.read(structuredClone(snapshot));
export const goldenHistory = (): History => historyReader.read(structuredClone(history));

export function service(changes: Partial<Service> = {}): Service {
  const plain: Service = {
    id: 'papers',
    name: 'papers',
    state: 'up',
    where: 'on this machine',
    scheduler: 'tcp://127.0.0.1:8786',
    embedded: true,
    store: 'runs/',
    started: 1_795_260_000,
    since: 1_795_270_927,
    pid: 7,
    host: 'here',
    kernels: []
  };
  return { ...plain, ...changes };
}
