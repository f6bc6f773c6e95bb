// Services: those that answer, those that stopped answering and when; those that have ended share a line.

import type { Service } from '../client';
import type { Desk } from '../desk';
import { button, make, mark, part, say, show, sync, text, type Drawn } from '../../shared/dom';
import { age, clock, many } from '../../shared/format';
import { face, type Glyph } from '../../shared/glyphs';
import { reopen } from '../notebook';
import { badge, row, section } from './pieces';

const FACES: Record<Service['state'], Glyph> = { up: 'play', silent: 'offline', gone: 'dash', unreachable: 'offline' };

export function servicesSection(desk: Desk, filter: () => string): Drawn {
  const { model } = desk;
  const area = section('Services');
  const ended = make('div', { role: 'tree', 'aria-label': 'Services that have ended' });
  ended.id = 'dq-ended';
  const words = text('span', '', '');
  const turn = make('span', { class: 'dq-turn', 'aria-hidden': 'true' });
  const fold = make('button', { class: 'dq-folded', type: 'button', 'aria-controls': ended.id, 'aria-expanded': 'false' }, turn, words);
  area.element.append(fold, ended);
  let open = false;
  fold.addEventListener('click', () => {
    open = !open;
    draw();
  });

  const create = (service: Service): HTMLElement => {
    const element = row('dq-service', 2);
    part(element, '.dq-right').append(
      make('span', { class: 'dq-badge dq-mod-warn dq-count' }),
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
    show(part(element, '.dq-retry'), silent === 'silent' && chosen);
    show(part(element, '.dq-reopen'), silent === 'gone' && Boolean(service.store));
    show(part(element, '.dq-remove'), service.state !== 'up' && !(silent === 'silent' && chosen));
  };

  const draw = (): void => {
    const asked = filter();
    const shown = (model.services ?? []).filter((each) => each.name.toLowerCase().includes(asked) || each.id === model.chosen);
    const over = (each: Service): boolean => each.state === 'gone' && each.id !== model.chosen;
    const gone = shown.filter(over);
    const unfolded = open || asked !== '';
    area.head(String((model.services ?? []).filter((each) => each.state !== 'gone').length));
    sync(area.body, shown.filter((each) => !over(each)), (each) => `service ${each.id}`, create, update);
    show(fold, gone.length > 0);
    say(words, `${many(gone.length, 'service')} ${gone.length === 1 ? 'has' : 'have'} ended`);
    mark(fold, 'aria-expanded', unfolded);
    show(ended, unfolded && gone.length > 0);
    sync(ended, unfolded ? gone : [], (each) => `service ${each.id}`, create, update);
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
