// Services: the chosen one and those that answer; silent ones share a line, and so do ended ones.

import type { Service } from '../client';
import type { Desk } from '../desk';
import { button, make, mark, part, say, show, sync, text, type Drawn } from '../../shared/dom';
import { instant, many, moment } from '../../shared/format';
import { face, type Glyph } from '../../shared/glyphs';
import { reopen } from '../notebook';
import { badge, row, section } from './pieces';

const FACES: Record<Service['state'], Glyph> = { up: 'play', silent: 'offline', gone: 'dash', unreachable: 'offline' };

export function servicesSection(desk: Desk, filter: () => string): Drawn {
  const { model } = desk;
  const area = section('Services');
  const folds = [
    folded('dq-silent', 'Services that do not answer', (amount) => (amount === 1 ? 'does not answer' : 'do not answer')),
    folded('dq-ended', 'Services that have ended', (amount) => (amount === 1 ? 'has ended' : 'have ended'))
  ] as const;
  for (const each of folds) {
    area.element.append(each.line, each.body);
    each.line.addEventListener('click', () => {
      each.open = !each.open;
      draw();
    });
  }

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
    const glance = model.seen(service);
    const lines = silent === 'up' ? (glance?.needs ?? 0) : 0;
    badge(part(element, '.dq-count'), lines ? `${lines} need${lines === 1 ? 's' : ''} you` : '');
    mark(part(element, '.dq-count'), 'data-old', glance?.old ?? false);
    show(part(element, '.dq-retry'), silent === 'silent' && chosen);
    show(part(element, '.dq-reopen'), silent === 'gone' && Boolean(service.store));
    show(part(element, '.dq-remove'), service.state !== 'up' && !(silent === 'silent' && chosen));
  };

  const draw = (): void => {
    const asked = filter();
    const shown = (model.services ?? []).filter((each) => each.name.toLowerCase().includes(asked) || each.id === model.chosen);
    const rest = shown.filter((each) => each.state !== 'up' && each.id !== model.chosen);
    const parts = [rest.filter((each) => each.state !== 'gone'), rest.filter((each) => each.state === 'gone')];
    const listed = shown.filter((each) => !rest.includes(each));
    const up = (model.services ?? []).filter((each) => each.state === 'up').length;
    const none = listed.every((each) => each.state === 'gone') ? 'none running' : 'none answers';
    area.head(up || !listed.length ? String(up) : '', up || !listed.length ? '' : none);
    sync(area.body, listed, keyOf, create, update);
    folds.forEach((fold, at) => {
      const part = parts[at]!;
      const unfolded = fold.open || asked !== '';
      show(fold.line, part.length > 0);
      say(fold.words, `${many(part.length, 'service')} ${fold.verb(part.length)}`);
      mark(fold.line, 'aria-expanded', unfolded);
      show(fold.body, unfolded && part.length > 0);
      sync(fold.body, unfolded ? part : [], keyOf, create, update);
    });
  };
  return { element: area.element, draw };
}

const keyOf = (service: Service): string => `service ${service.id}`;

/** A line for several services, which opens. */
function folded(id: string, label: string, verb: (amount: number) => string) {
  const body = make('div', { role: 'tree', 'aria-label': label, id });
  const words = text('span', '', '');
  const turn = make('span', { class: 'dq-turn', 'aria-hidden': 'true' });
  const line = make('button', { class: 'dq-folded', type: 'button', 'aria-controls': id, 'aria-expanded': 'false' }, turn, words);
  return { body, line, open: false, verb, words };
}

/** A service's name, or its id where another one has the same name. */
export function distinctName(service: Service, all: readonly Service[]): string {
  return all.some((each) => each.name === service.name && each.id !== service.id) ? service.id : service.name;
}

function about(desk: Desk, service: Service, state: Service['state']): string {
  const now = Date.now() / 1000;
  if (state === 'gone') return [`ended ${moment(service.since, now)}`, service.store ? tail(service.store) : service.where].filter(Boolean).join(' · ');
  if (state === 'unreachable') return service.why ?? '';
  if (state === 'silent') {
    const seen = service.id === desk.model.chosen ? (desk.model.snapshot?.at ?? 0) : 0;
    const since = service.state === 'up' ? seen || service.since : Math.max(seen, service.since);
    return `no answer since ${instant(since, now)}`;
  }
  const seen = desk.model.seen(service);
  const words = [service.where || service.host];
  if (seen?.at) words.push(staff(seen, service.embedded));
  if (seen?.old) words.push(seen.at ? `as of ${instant(seen.at, now)}` : 'no numbers yet');
  return words.filter(Boolean).join(' · ');
}

/** Consumers by processes, because each queue has one in each; as `_consumer_words` in dqlab/live/lab_picture.py. */
function staff({ consumers, on, workers }: { consumers: number; on: number | null; workers: number }, embedded: boolean): string {
  if (!consumers || on === null) return `${many(workers, 'worker')} · ${consumers ? many(consumers, 'consumer') : 'no consumers yet'}`;
  if (consumers === on && embedded) return many(on, 'consumer process');
  return `${many(consumers, 'consumer')} on ${many(on, embedded ? 'process' : 'worker')}`;
}

/** The end of a long path, where stores differ. */
function tail(path: string): string {
  return path.length > 24 ? `…/${path.replace(/\/+$/, '').split('/').slice(-2).join('/')}` : path;
}
