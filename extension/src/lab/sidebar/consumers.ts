// Consumers of the chosen service, the slowest first; closed until the user opens it.

import type { Desk } from '../desk';
import { make, mark, part, say, show, steady, sync, type Drawn } from '../../shared/dom';
import { count, duration, many, rate } from '../../shared/format';
import { face } from '../../shared/glyphs';
import { troubleOf, type Consumer } from '../../shared/snapshot';
import { row } from './pieces';

/** A consumer's name with its queue: each queue has a c0. */
const keyOf = (consumer: Consumer): string => `consumer ${consumer.queue} ${consumer.name}`;

export function consumersSection(desk: Desk): Drawn {
  const { model } = desk;
  const body = make('div', { role: 'tree', 'aria-label': 'Consumers, the slowest first; speeds of the last 60 s' });
  body.id = 'dq-consumers';
  const head = make('button', { class: 'dq-sec dq-disclosure', type: 'button', 'aria-controls': body.id, 'aria-expanded': 'false' });
  const amount = make('span', { class: 'dq-c' });
  const slow = make('span', { class: 'dq-c dq-plain dq-warn' });
  head.append(make('span', { class: 'dq-turn', 'aria-hidden': 'true' }), make('span', {}, 'Consumers'), amount, make('span', { class: 'dq-grow' }), slow);
  const more = make('div', { class: 'dq-rest' });
  const element = make('div', {}, head, body, more);
  const ordered = steady<Consumer>(body, keyOf);
  let open = false;
  let several = false;
  head.addEventListener('click', () => {
    open = !open;
    draw();
  });

  const update = (line: HTMLElement, consumer: Consumer): void => {
    const unit = model.snapshot?.units ?? 'documents';
    const trouble = troubleOf(consumer);
    face(part(line, '.dq-slot'), consumer.silent !== null ? 'offline' : trouble ? 'slow' : 'play');
    say(part(line, '.dq-name'), consumer.name);
    const where = [several ? consumer.queue : '', consumer.worker && `worker ${consumer.worker}`].filter(Boolean).join(' · ');
    say(part(line, '.dq-right'), `${rate(consumer.units_rate)} ${unit}/s`);
    mark(part(line, '.dq-right'), 'title', 'last 60 s');
    const held = consumer.oldest_age === null ? 'idle' : `${duration(consumer.oldest_age)} on ${consumer.document ?? 'one'}`;
    const busy = consumer.silent === null ? held : `no answer for ${duration(consumer.silent)}`;
    say(part(line, '.dq-s2'), [where, trouble === 'stuck' ? `stuck ${busy}` : busy].filter(Boolean).join(' · '));
    mark(part(line, '.dq-s2'), 'title', consumer.document ?? '');
    mark(line, 'data-slow', trouble !== '');
    mark(line, 'aria-label', `${consumer.name}${several ? ` of ${consumer.queue}` : ''}${trouble && `, ${trouble}`}, ${rate(consumer.units_rate)} ${unit} per second, ${busy}`);
  };

  const draw = (): void => {
    const snapshot = model.snapshot;
    const consumers = snapshot?.consumers ?? [];
    several = new Set(consumers.map((each) => each.queue)).size > 1;
    const troubles = ['silent', 'stuck', 'slow'].flatMap((word) => {
      const found = consumers.filter((each) => troubleOf(each) === word).length;
      return found ? [`${count(found)} ${word}`] : [];
    });
    say(amount, count(snapshot?.consumers_total ?? 0));
    say(slow, troubles.join(', '));
    mark(head, 'aria-expanded', open);
    show(body, open);
    sync(body, open ? ordered(consumers) : [], keyOf, () => row('dq-consumer', 2), update);
    const hidden = (snapshot?.consumers_total ?? 0) - consumers.length;
    show(more, open && hidden > 0);
    say(more, `and ${many(hidden, 'faster consumer')}`);
  };
  return { element, draw };
}
