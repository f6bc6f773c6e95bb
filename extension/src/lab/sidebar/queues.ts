// Queues of the chosen service: state, depth over half an hour, dead and waiting messages.

import { drainEntry, freesOf, pauseEntry, queueDangers, queueEntries, queueSentence } from '../actions';
import { openActions, perform, type Desk } from '../desk';
import { button, draw as drawn, hold, make, mark, part, say, show, steady, sync, type Drawn } from '../../shared/dom';
import { count } from '../../shared/format';
import { face, icon } from '../../shared/glyphs';
import { queueGlyph } from '../icons';
import { subjectKey } from '../model';
import { troubled, waiting, type Queue } from '../../shared/snapshot';
import { spark } from '../../shared/plot';
import { badge, refuse, row, section } from './pieces';

const WIDTH = 64;
const HEIGHT = 18;

export function queuesSection(desk: Desk, filter: () => string): Drawn {
  const { model } = desk;
  const area = section('Queues');
  const more = make('div', { class: 'dq-rest' });
  const ordered = steady<Queue>(area.body, (each) => `queue ${each.name}`);
  area.element.append(more);
  const current = (name: string): Queue | undefined => model.snapshot?.queues.find((each) => each.name === name);

  const menu = (element: HTMLElement, name: string, at?: { x: number; y: number }): void => {
    const queue = current(name);
    const service = model.chosen;
    if (!queue || service === null) return;
    const scope = { queue: name };
    const others = [
      { label: 'Show failures', act: () => desk.openFailures(service, scope) },
      { label: 'Open dashboard', act: () => desk.openPanel({ service, path: 'dq', name, ours: true, scope }) }
    ];
    const entries = queueEntries(queue, freesOf(model.snapshot!, queue));
    openActions(model, service, entries, others, queueDangers(queue), element, at);
  };

  const create = (first: Queue): HTMLElement => {
    const name = first.name;
    const element = row('dq-queue', 1);
    const act = (entry: (queue: Queue) => ReturnType<typeof drainEntry>) => (): void => {
      const queue = current(name);
      if (queue) void perform(model, model.chosen, entry(queue));
    };
    const acts = make('span', { class: 'dq-acts' });
    const drain = button('', 'dq-ib dq-drain', act(drainEntry));
    drain.append(icon('drain'));
    acts.append(
      button('', 'dq-ib dq-toggle', act((queue) => pauseEntry({ queue: name, state: queue.state }))),
      drain,
      button('⋯', 'dq-ib dq-more', () => menu(element, name))
    );
    const line = drawn('svg', { class: 'dq-spark', width: WIDTH, height: HEIGHT, viewBox: `0 0 ${WIDTH} ${HEIGHT}`, 'aria-hidden': 'true' });
    const room = make('span', { class: 'dq-room' }, line, acts);
    const failures = (): void => {
      if (model.chosen !== null) desk.openFailures(model.chosen, { queue: name });
    };
    part(element, '.dq-right').append(button('', 'dq-badge dq-mod-dead', failures), room, make('span', { class: 'dq-amount' }));
    element.addEventListener('contextmenu', (event) => {
      event.preventDefault();
      event.stopPropagation();
      menu(element, name, event.clientX ? { x: event.clientX, y: event.clientY } : undefined);
    });
    return element;
  };

  const update = (element: HTMLElement, queue: Queue): void => {
    const depth = waiting(queue.counts);
    const stopped = pauseEntry({ queue: queue.name, state: queue.state }).label === 'Resume';
    face(part(element, '.dq-slot'), troubled(queue) ? 'warning' : queueGlyph(queue.state));
    say(part(element, '.dq-name'), queue.name);
    mark(part(element, '.dq-name'), 'title', [queue.name, queue.state, queue.why].filter(Boolean).join(' · '));
    badge(part(element, '.dq-badge'), queue.counts.dead ? `✕ ${count(queue.counts.dead)}` : '');
    mark(part(element, '.dq-badge'), 'aria-label', `${count(queue.counts.dead)} dead: show failures of ${queue.name}`);
    say(part(element, '.dq-amount'), count(depth));
    mark(part(element, '.dq-amount'), 'data-zero', depth === 0);
    spark(part<SVGElement>(element, '.dq-spark'), model.history?.depths[queue.name] ?? [], WIDTH, HEIGHT);
    const toggle = part(element, '.dq-toggle');
    for (const each of [toggle, part(element, '.dq-drain')]) hold(each, !model.fresh);
    face(toggle, stopped ? 'go' : 'halt');
    mark(toggle, 'aria-label', `${stopped ? 'Resume' : 'Pause'} ${queue.name}`);
    mark(toggle, 'title', stopped ? 'Resume' : 'Pause');
    mark(part(element, '.dq-drain'), 'aria-label', `Drain ${queue.name}`);
    mark(part(element, '.dq-drain'), 'title', 'Drain: refuse puts, process what is there');
    mark(part(element, '.dq-more'), 'aria-label', `More for ${queue.name}`);
    mark(element, 'aria-label', queueSentence(queue));
    mark(element, 'aria-busy', model.busy.has(subjectKey({ queue: queue.name })));
    refuse(element, model.refusals.get(subjectKey({ queue: queue.name })));
  };

  const draw = (): void => {
    const snapshot = model.snapshot;
    const queues = snapshot?.queues ?? [];
    const asked = filter();
    area.head(count(snapshot?.queues_total || queues.length), queues.length ? 'waiting' : '');
    sync(
      area.body,
      ordered(queues).filter((each) => each.name.toLowerCase().includes(asked)),
      (each) => `queue ${each.name}`,
      create,
      update
    );
    const hidden = (snapshot?.queues_total ?? 0) - queues.length;
    show(more, hidden > 0);
    say(more, `and ${count(hidden)} more`);
  };
  return { element: area.element, draw };
}
