// The widget of one queue, and the menu that queues have everywhere.

import { button, hint, hold, make, mark, say, show } from '../shared/dom';
import { face } from '../shared/glyphs';
import { chartBox } from './chart';
import { blocked, type Context, type WidgetView } from './context';
import { faceOf } from './faces';
import { consumersPane, disclosures, failuresPane, leasesPane, runsPane } from './panes';
import { queueRows, type QueueRow, type QueuesParts } from './parts';
import { askBox, chartEntry, drawFigures, keysBox, menuButton, menuOf, needsBox, noticeBox, subBox, type Entries, type Entry } from './pieces';
import { OPEN, wish, type Opening } from './wishes';

export interface QueueActs {
  scale(row: QueueRow): void;
  purge(row: QueueRow): void;
}

/** Ask the page to open the dashboard of a queue, or of all queues with "", and return whether it does. */
export function openDashboard(context: Context<QueuesParts>, queue: string): boolean {
  const head = context.part('head');
  const about: Opening = { cluster: head?.cluster ?? '', name: queue || (head?.name ?? ''), queue, run: '' };
  return wish(context.root, OPEN, about);
}

export function queueMenu(context: Context<QueuesParts>, row: QueueRow, act: QueueActs): Entries {
  const queue = row.name;
  return [
    ['Drain', '', () => context.send({ command: 'drain', queue })],
    ['Scale…', '', () => act.scale(row)],
    row.durable && ['Compact', '', () => context.send({ command: 'compact', queue })],
    ...row.retries.map(([run, label]): Entry => [label, '', () => context.send({ command: 'retry', queue, run })]),
    ['Open', '', () => openDashboard(context, queue) || context.copy('%dq open')],
    row.purge.length > 0 && ['', ''],
    row.purge.length > 0 && [`${row.purge[3]} dead…`, 'dq-danger', () => act.purge(row)]
  ];
}

export function queueWidget(context: Context<QueuesParts>): WidgetView {
  const chipIcon = make('span', { class: 'dq-slot' });
  const chipText = make('span');
  const chip = make('span', { class: 'dq-chip', role: 'status' }, chipIcon, chipText);
  const name = make('h1', { class: 'dq-ell', tabindex: -1 });
  const sub = subBox();
  const first = button('', '', () => context.send({ command: first.dataset.command! }));
  const toggle = menuButton('dq-more', 'More', () => more());
  const tools = make('span', { class: 'dq-tools', role: 'toolbar', 'aria-label': 'Queue controls' }, first, toggle);
  const notice = noticeBox(context);
  const ask = askBox(context);
  const menu = menuOf(context);
  const figures = make('div', { class: 'dq-stats dq-six' });
  const chart = chartBox(context);
  const current = (): QueueRow | undefined => queueRows(context.part('rows'))[0];
  const needs = needsBox(context, (need, from) => {
    const row = current();
    if (need.action === 'scale') {
      if (row) scale(row, from);
    } else if (need.action === 'resume' || need.action === 'compact') context.send({ command: need.action });
    else details.show(need.pane, need.pane === 'failures' ? need.target : '');
  });
  const two = make('div', { class: 'dq-two' }, chart.element, needs.element);
  const details = disclosures(context, [consumersPane(context), runsPane(context), failuresPane(context), leasesPane(context)]);
  const keys = keysBox([['P', 'pause or resume'], ['↑ ↓', 'rows'], ['Enter', 'opens'], ['Esc', 'closes']]);
  const body = make('div', { class: 'dq-body' }, two);
  const header = make('header', {}, chip, name, sub.element, tools);
  context.card.append(header, notice.element, ask.element, figures, body, ...details.elements, keys.element, menu.element);

  function scale(row: QueueRow, from: HTMLElement): void {
    ask.number(`Consumers for ${row.name}:`, row.consumers, 'Set', (n) => context.send({ command: 'scale', n }), from);
  }

  function more(): void {
    const row = current();
    const acts = {
      scale: (now: QueueRow) => scale(now, toggle),
      purge: (now: QueueRow) => void ask.question(now.purge, () => context.send({ command: 'purge' }), toggle)
    };
    menu.open(toggle, [chartEntry(context), ...(row ? queueMenu(context, row, acts) : [])]);
  }

  return {
    keys: {
      Escape: () => menu.close() || ask.close(),
      '?': () => keys.toggle(),
      p: () => {
        const command = first.dataset.command ?? '';
        const press = ['pause', 'resume'].includes(command) && !blocked(context);
        if (press) context.send({ command });
        return press;
      }
    },
    draw() {
      const head = context.part('head');
      if (!head) return;
      mark(context.root, 'aria-label', `Queue ${head.name}`);
      context.root.dataset.stale = String(head.stale);
      face(chipIcon, faceOf(head.icon));
      say(chipText, head.chip || 'Connecting');
      say(name, head.name);
      hint(name, head.name);
      notice.draw(head.notice, head.icon === 'no answer');
      const [press] = head.buttons;
      show(first, press !== undefined);
      if (press) {
        first.dataset.command = press.command;
        say(first, press.label);
        first.className = press.primary ? 'dq-pri' : '';
      }
      for (const each of [first, toggle]) hold(each, blocked(context, each.dataset.command));
      show(toggle, current() !== undefined && !head.stale);
      const numbers = context.part('numbers');
      sub.draw(numbers);
      drawFigures(figures, numbers.figures);
      show(body, context.part('chart') !== null);
      chart.draw();
      needs.draw();
      details.draw();
    }
  };
}
