// Buttons that open a service's panels as tabs: ours, and after one more button Dask's own.

import type { Panel, Scope } from '../client';
import type { Desk } from '../desk';
import { button, hold, make, show, sync, text, type Drawn } from '../../shared/dom';
import { count } from '../../shared/format';
import type { Snapshot } from '../../shared/snapshot';
import { openMenu } from '../menu';
import { sentence } from '../model';

const AGAIN_MS = 10_000;
const FAILURES = 'individual-dq-failures';

interface Failing {
  name: string;
  dead: number;
  scope: Scope;
}

/** Runs with dead documents, and queues with dead messages of no listed run. */
export function failing({ queues, runs }: Snapshot): Failing[] {
  const found: Failing[] = runs
    .filter((run) => run.counts.dead > 0)
    .map((run) => ({ name: run.name, dead: run.counts.dead, scope: { queue: run.queue, run: run.name } }));
  for (const { counts, name } of queues) {
    const listed = found.filter((each) => each.scope.queue === name).reduce((sum, each) => sum + each.dead, 0);
    if (counts.dead > listed) found.push({ name: `queue ${name}`, dead: counts.dead, scope: { queue: name } });
  }
  return found;
}

export function panelsSection(desk: Desk): Drawn {
  const { model } = desk;
  const body = make('div', { class: 'dq-pan', role: 'group', 'aria-label': 'Open a panel' });
  const element = make('div', {}, text('div', 'dq-sec', 'Open a panel'), body);
  let panels: Panel[] = [];
  let asked = '';
  let again = Infinity;

  const isThere = (): boolean => model.service()?.state === 'up' && model.failure === null;
  const open = (panel: Panel, from: HTMLElement): void => {
    const service = model.service();
    if (!service) return;
    if (panel.path === FAILURES) openFailures(service.id, from);
    else desk.openPanel({ service: service.id, ...panel });
  };
  /** Open the failures of a run in a tab; where several runs have some, ask for one. */
  const openFailures = (service: string, from: HTMLElement): void => {
    const failed = model.snapshot ? failing(model.snapshot) : [];
    const items = failed.map(({ dead, name, scope }) => ({ label: `${name}: ${count(dead)} dead`, act: () => desk.openFailures(service, scope) }));
    if (items.length > 1) openMenu(items, from);
    else desk.openFailures(service, failed[0]?.scope ?? {});
  };
  const dasks = (from: HTMLElement): void =>
    openMenu(
      panels.filter((each) => !each.ours).map((each) => ({ label: each.name, act: () => open(each, from) })),
      from
    );
  const fetch = async (service: string, key: string): Promise<void> => {
    asked = key;
    again = Infinity;
    try {
      panels = await model.panels(service);
    } catch (error) {
      again = Date.now() + AGAIN_MS;
      console.warn(`dqlab: the panels of ${service} are not known: ${sentence(error)}`);
    }
    draw();
  };

  const draw = (): void => {
    const service = model.service();
    const there = isThere();
    const key = service ? `${service.id} ${service.started}` : '';
    if (service && there && (key !== asked || Date.now() > again)) void fetch(service.id, key);
    const ours = panels.filter((each) => each.ours).map((panel) => ({ name: panel.name, panel }));
    const buttons: { name: string; panel: Panel | null }[] = [...ours];
    if (panels.some((each) => !each.ours)) buttons.push({ name: 'Dask’s own', panel: null });
    show(element, service !== null && buttons.length > 0);
    sync(
      body,
      buttons,
      (each) => each.panel?.path ?? ' dask',
      (each) => {
        const made = button(each.name, '', () => {
          if (!isThere()) return;
          if (each.panel) open(each.panel, made);
          else dasks(made);
        });
        if (!each.panel) made.setAttribute('aria-haspopup', 'menu');
        return made;
      },
      (made) => {
        hold(made, !there);
      }
    );
  };
  return { element, draw };
}
