// Buttons that open a service's panels as tabs: ours, and behind one more button Dask's own.

import type { Panel } from '../client';
import type { Desk } from '../desk';
import { button, make, show, sync, text, type Drawn } from '../../shared/dom';
import { openMenu } from '../menu';
import { sentence } from '../model';

const AGAIN_MS = 10_000;

export function panelsSection(desk: Desk): Drawn {
  const { model } = desk;
  const body = make('div', { class: 'dq-pan', role: 'group', 'aria-label': 'Open a panel' });
  const element = make('div', {}, text('div', 'dq-sec', 'Open a panel'), body);
  let panels: Panel[] = [];
  let asked = '';
  let again = Infinity;

  const open = (panel: Panel): void => {
    const service = model.service();
    if (service) desk.openPanel({ service: service.id, ...panel });
  };
  const dasks = (from: HTMLElement): void =>
    openMenu(
      panels.filter((each) => !each.ours).map((each) => ({ label: each.name, act: () => open(each) })),
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
    const there = service !== null && service.state === 'up' && model.failure === null;
    const key = service ? `${service.id} ${service.started}` : '';
    if (there && (key !== asked || Date.now() > again)) void fetch(service.id, key);
    const ours = panels.filter((each) => each.ours).map((panel) => ({ name: panel.name, panel }));
    const buttons: { name: string; panel: Panel | null }[] = [...ours];
    if (panels.some((each) => !each.ours)) buttons.push({ name: 'Dask’s own', panel: null });
    show(element, service !== null && buttons.length > 0);
    sync(
      body,
      buttons,
      (each) => each.panel?.path ?? ' dask',
      (each) => {
        const made = button(each.name, '', () => (each.panel ? open(each.panel) : dasks(made)));
        if (!each.panel) made.setAttribute('aria-haspopup', 'menu');
        return made;
      },
      (made) => {
        (made as HTMLButtonElement).disabled = !there;
      }
    );
  };
  return { element, draw };
}
