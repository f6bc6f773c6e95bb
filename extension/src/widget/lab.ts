// The widget of a lab: all its queues.

import { button, hint, hold, make, mark, say, show, text } from '../shared/dom';
import { face } from '../shared/glyphs';
import { ASK, blocked, type Context, type WidgetView } from './context';
import { faceOf } from './faces';
import { heatBox } from './heat';
import { queueRows, type QueueRow, type QueuesParts } from './parts';
import { askBox, drawFigures, keysBox, menuOf, needsBox, noticeBox, subBox } from './pieces';
import { openDashboard, queueMenu } from './queues';
import { runsPane } from './panes';
import { queueTable } from './rows';

/** Queues above which they can be filtered. */
const MANY = 12;

export function labWidget(context: Context<QueuesParts>): WidgetView {
  const glyph = make('span', { class: 'dq-slot', role: 'status' });
  const name = make('h1', { class: 'dq-ell', tabindex: -1 });
  const sub = subBox();
  const dashboard = text('a', 'dq-button', 'Open dashboard');
  dashboard.target = '_blank';
  dashboard.rel = 'noopener';
  dashboard.addEventListener('click', (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    if (openDashboard(context, '')) event.preventDefault();
  });
  const again = button('Retry now', '', () => context.send({ command: ASK }));
  const tools = make('span', { class: 'dq-tools', role: 'toolbar', 'aria-label': 'Lab controls' }, again, dashboard);
  const notice = noticeBox(context);
  const ask = askBox(context);
  const menu = menuOf(context);
  const figures = make('div', { class: 'dq-stats dq-six' });
  const find = make('input', { class: 'dq-find', type: 'search', placeholder: 'Filter by name or state…  /', 'aria-label': 'Filter queues' });
  const filter = make('div', { class: 'dq-filter', role: 'toolbar', 'aria-label': 'Filter queues' }, find);
  filter.append(make('span', { class: 'dq-grow' }), text('span', 'dq-lab dq-wide', 'worst first'));
  const said = make('span', { class: 'dq-said', role: 'status' });
  const more = text('div', 'dq-rest', '');
  const keys = keysBox([
    ['/', 'filter'],
    ['↑ ↓', 'rows'],
    ['← →', 'buttons'],
    ['Enter', 'menu of a queue'],
    ['P', 'pause or resume it'],
    ['Esc', 'closes']
  ]);
  let words = '';

  const rows = (): QueueRow[] => queueRows(context.part('rows'));
  const byName = (wanted: string): QueueRow | undefined => rows().find((row) => row.name === wanted);
  const toggle = (queue: string): void => context.send({ command: byName(queue)?.paused ? 'resume' : 'pause', queue });
  const openMenu = (wanted: string, from: HTMLElement): void => {
    const row = byName(wanted);
    if (!row) return;
    const queue = row.name;
    const acts = {
      scale: () => ask.number(`Consumers for ${queue}:`, row.consumers, 'Set', (n) => context.send({ command: 'scale', queue, n }), from),
      purge: () => void ask.question(row.purge, () => context.send({ command: 'purge', queue }), from)
    };
    menu.open(from, queueMenu(context, row, acts));
  };
  const table = queueTable(context, { toggle, more: openMenu });
  const clear = (): void => {
    words = find.value = '';
    draw();
  };
  const heat = heatBox((wanted) => {
    clear();
    table.focusRow(wanted);
  });
  const runs = runsPane(context, true);
  const runsHead = text('h2', '', '');
  const runsBox = make('section', { class: 'dq-of-lab', 'aria-label': 'Runs' }, runsHead, runs.element);
  const needs = needsBox(context, () => undefined); // a lab's lines have no buttons: they name what to type
  const needsHere = make('section', { class: 'dq-of-lab', 'aria-label': 'Needs you' }, needs.element);
  const header = make('header', {}, glyph, name, sub.element, tools);
  const queues = [filter, heat.element, ask.element, table.element, more];
  context.card.append(header, notice.element, figures, ...queues, needsHere, runsBox, keys.element, said, menu.element);
  find.addEventListener('input', () => {
    words = find.value.trim().toLowerCase();
    draw();
  });

  function drawRows(): void {
    const rest = context.part('rows')?.more ?? '';
    const all = rows();
    const many = all.length > MANY;
    show(filter, many);
    show(heat.element, many);
    if (many) heat.draw(all);
    const found = (row: QueueRow): boolean => [row.name, row.state, row.why].some((each) => each.toLowerCase().includes(words));
    const matches = all.filter((row) => !words || found(row));
    table.draw(matches);
    const hidden = all.length - matches.length;
    say(more, matches.length || !all.length ? (hidden ? '' : rest) : 'no queue matches');
    show(more, more.textContent !== '');
    say(said, words ? `${matches.length} of ${all.length} queues` : '');
  }

  function draw(): void {
    const head = context.part('head');
    if (!head) return;
    mark(context.root, 'aria-label', `Lab ${head.name}`);
    context.root.dataset.stale = String(head.stale);
    face(glyph, faceOf(head.icon));
    mark(glyph, 'aria-label', head.icon);
    say(name, head.name);
    hint(name, head.name);
    notice.draw(head.notice, head.icon === 'no answer');
    const linked = /^https?:\/\//.test(head.dashboard);
    show(dashboard, linked);
    if (linked) mark(dashboard, 'href', head.dashboard);
    show(again, head.buttons.length > 0);
    hold(again, blocked(context, ASK));
    const numbers = context.part('numbers');
    sub.draw(numbers);
    drawFigures(figures, numbers.figures);
    show(table.element, rows().length > 0);
    drawRows();
    show(needsHere, Boolean(context.part('needs')?.rows.length));
    needs.draw();
    show(runsBox, runs.any());
    if (!runs.any()) return;
    say(runsHead, runs.title().words.filter(Boolean).join(' '));
    runs.draw();
  }

  return {
    keys: {
      Escape: () => {
        if (menu.close() || ask.close()) return true;
        if (!words && document.activeElement !== find) return false;
        clear();
        return true;
      },
      '/': () => {
        if (!filter.hidden) find.focus();
        return !filter.hidden;
      },
      '?': () => keys.toggle(),
      p: (event) => {
        const line = (event.target as Element).closest<HTMLElement>('tr[data-name]');
        if (line && !blocked(context)) toggle(line.dataset.name!);
        return line !== null;
      }
    },
    draw
  };
}
