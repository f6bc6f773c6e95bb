// Services: who is there, who fell silent and when, who is gone; and what needs attention in the chosen one.

import type { Service } from '../client';
import type { Desk } from '../desk';
import { button, make, mark, part, say, show, sync, text, type Drawn } from '../../shared/dom';
import { age, clock, many } from '../../shared/format';
import { face, type Glyph } from '../../shared/glyphs';
import { reopen } from '../notebook';
import type { Attention } from '../../shared/snapshot';
import { badge, row, section } from './pieces';

const FACES: Record<Service['state'], Glyph> = { up: 'play', silent: 'offline', gone: 'dash', unreachable: 'offline' };

export function servicesSection(desk: Desk, filter: () => string): Drawn {
  const { model } = desk;
  const area = section('Services');
  const needs = make('ul', { class: 'dq-needs', 'aria-label': 'Needs you' });
  area.element.append(needs);
  let open = false;

  const create = (service: Service): HTMLElement => {
    const element = row('dq-service', 2);
    const right = part(element, '.dq-right');
    const count = button('', 'dq-badge dq-mod-warn dq-count', (event) => {
      event.stopPropagation();
      open = !open || model.chosen !== service.id;
      model.choose(service.id);
      draw();
    });
    right.append(
      count,
      button('Retry now', 'dq-retry', () => model.wake()),
      button('Reopen', 'dq-link dq-reopen', () => {
        const store = model.service(service.id)?.store;
        if (store) desk.insert(reopen(store));
      }),
      button('Remove', 'dq-link dq-remove', () => void model.forget(service.id))
    );
    element.addEventListener('click', (event) => {
      if (!(event.target as Element).closest('button')) model.choose(service.id);
    });
    return element;
  };

  const update = (element: HTMLElement, service: Service): void => {
    const chosen = service.id === model.chosen;
    const silent = chosen && model.failure?.silent === true && service.state === 'up' ? 'silent' : service.state;
    face(part(element, '.dq-slot'), FACES[silent]);
    say(part(element, '.dq-name'), distinctName(service, model.services ?? []));
    mark(element, 'aria-selected', chosen);
    mark(element, 'data-state', silent);
    say(part(element, '.dq-s2'), about(desk, service, silent));
    mark(part(element, '.dq-s2'), 'title', [service.scheduler, service.store].filter(Boolean).join(', '));
    const lines = silent === 'up' ? (model.glances.get(service.id)?.needs ?? 0) : 0;
    badge(part(element, '.dq-count'), lines ? `${lines} need${lines === 1 ? 's' : ''} you` : '');
    mark(part(element, '.dq-count'), 'aria-expanded', open && chosen);
    show(part(element, '.dq-retry'), silent === 'silent' && chosen);
    show(part(element, '.dq-reopen'), silent === 'gone' && Boolean(service.store));
    show(part(element, '.dq-remove'), service.state !== 'up' && !(silent === 'silent' && chosen));
  };

  const drawNeeds = (): void => {
    const lines = open && model.fresh ? model.snapshot!.attention : [];
    show(needs, lines.length > 0);
    sync(needs, lines, (line) => `${line.kind} ${line.queue} ${line.run} ${line.target} ${line.subject}`, needLine, (element, line) => {
      face(part(element, '.dq-slot'), line.severity === 'problem' ? 'cross' : 'warning');
      say(part(element, 'b'), line.subject);
      say(part(element, '.dq-t'), ` ${line.text}`);
      say(part(element, '.dq-d'), line.detail);
    });
  };

  const needLine = (line: Attention): HTMLElement => {
    const words = make('span', { class: 'dq-ell' }, text('b', '', ''), text('span', 'dq-t', ''));
    const element = make('li', {}, make('span', { class: 'dq-slot' }), words, text('span', 'dq-ell dq-d', ''));
    if (line.kind === 'failing' && model.chosen !== null) {
      const service = model.chosen;
      const scope = line.run ? { queue: line.queue, run: line.run } : { queue: line.queue };
      element.append(button('Show', 'dq-link', () => desk.openFailures(service, scope)));
    }
    return element;
  };

  const draw = (): void => {
    const services = model.services ?? [];
    const asked = filter();
    area.head(String(services.length));
    sync(
      area.body,
      services.filter((each) => each.name.toLowerCase().includes(asked) || each.id === model.chosen),
      (each) => `service ${each.id}`,
      create,
      update
    );
    drawNeeds();
  };
  return { element: area.element, draw };
}

/** A service's name, or its id where another one has the same name. */
export function distinctName(service: Service, all: readonly Service[]): string {
  return all.some((each) => each.name === service.name && each.id !== service.id) ? service.id : service.name;
}

function about(desk: Desk, service: Service, state: Service['state']): string {
  const now = Date.now() / 1000;
  if (state === 'gone') return [`ended ${age(service.since, now)}`, service.store ? tail(service.store) : service.where].filter(Boolean).join(' · ');
  if (state === 'unreachable') return service.why ?? '';
  if (state === 'silent') {
    const seen = service.id === desk.model.chosen ? (desk.model.snapshot?.at ?? 0) : 0;
    const since = service.state === 'up' ? seen || service.since : Math.max(seen, service.since);
    return `no answer since ${clock(since)}`;
  }
  const seen = desk.model.glances.get(service.id);
  const words = [service.where || service.host];
  if (seen) words.push(many(seen.workers, 'worker'), many(seen.consumers, 'consumer'));
  return words.filter(Boolean).join(' · ');
}

/** The end of a long path: what tells stores apart. */
function tail(path: string): string {
  return path.length > 24 ? `…/${path.replace(/\/+$/, '').split('/').slice(-2).join('/')}` : path;
}
