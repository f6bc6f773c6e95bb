// Draw the rows of queues: of many rows, only those in sight.

import { button, draw, hint, hold, make, mark, part, say, seen, show, steady, style, sync, text } from '../shared/dom';
import { face } from '../shared/glyphs';
import { spark } from '../shared/plot';
import { table, type Column } from '../shared/table';
import { blocked, type Context } from './context';
import { faceOf } from './faces';
import type { QueueRow, QueuesParts } from './parts';
import { menuButton } from './pieces';

const MANY = 12;
const SPARE = 6;
/** Width up to which a row has two lines; style/widget/queues.css has the same number. */
const TWO_LINES = 1400;
const WINDOW = 444;
const SPARK = { width: 72, height: 20 };
const PARTS = [['leased', 'leased_part'], ['ready', 'ready_part'], ['delayed', 'delayed_part']] as const;

export interface RowActs {
  toggle(name: string): void;
  more(name: string, from: HTMLElement): void;
}

export interface QueueTable {
  element: HTMLElement;
  focusRow(name: string): void;
  draw(rows: readonly QueueRow[]): void;
}

/** A line of the table: a queue, or the room of rows that are not drawn. */
type Line = { row: QueueRow; index: number } | { space: string; pixels: number };

const moreOf = (line: HTMLElement): HTMLButtonElement => part(line, '.dq-more');
const firstOf = (line: HTMLElement): HTMLButtonElement => part(line, '.dq-first');
/** The button from which the menu of a row hangs. */
const hookOf = (line: HTMLElement): HTMLButtonElement => (seen(moreOf(line)) ? moreOf(line) : firstOf(line));

function columnsOf(context: Context<QueuesParts>, act: RowActs): Column<QueueRow>[] {
  const figure = (title: string, kind: string, field: 'ready' | 'delayed' | 'unacked' | 'dead' | 'in_rate' | 'out_rate' | 'lag' | 'empty_in' | 'disk'): Column<QueueRow> => ({
    title,
    kind: `dq-num ${kind}`,
    text: (row) => row[field]
  });
  return [
    { title: 'queue', kind: 'dq-qn', make: () => [make('span', { class: 'dq-slot' }), make('b'), make('div', {}, make('span'), make('span'))], fill: fillName },
    { title: 'state', kind: 'dq-qs', make: () => [make('span'), make('span')], fill: fillState },
    {
      title: 'depth, 30 min',
      kind: 'dq-q1',
      make: () => [draw('svg', { ...SPARK, viewBox: `0 0 ${SPARK.width} ${SPARK.height}`, 'aria-hidden': 'true', class: 'dq-spark' })],
      fill(cell, row) {
        const values = context.part('sparks')?.[row.name];
        if (values) spark(part<SVGElement>(cell, 'svg'), values, SPARK.width, SPARK.height);
      }
    },
    {
      title: 'depth, same scale',
      kind: 'dq-q2',
      make: () => [make('div', { class: 'dq-bar dq-small', role: 'img' }, ...PARTS.map(([state]) => make('i', { 'data-state': state })))],
      fill: fillDepth
    },
    figure('ready', 'dq-qa', 'ready'),
    figure('delayed', 'dq-qb', 'delayed'),
    figure('unacked', 'dq-qc', 'unacked'),
    figure('dead', 'dq-qd', 'dead'),
    figure('in/s, last\u00a060\u00a0s', 'dq-qe', 'in_rate'),
    figure('out/s, last\u00a060\u00a0s', 'dq-qf', 'out_rate'),
    figure('lag', 'dq-qg', 'lag'),
    figure('empty in', 'dq-qh', 'empty_in'),
    figure('disk', 'dq-qi', 'disk'),
    {
      title: text('span', 'dq-said', 'actions'),
      kind: 'dq-acts',
      make({ name }) {
        const more = menuButton('dq-more dq-wide', '', () => act.more(name, more));
        return [button('', 'dq-first', () => act.toggle(name)), more];
      },
      fill(cell, row) {
        const [first, more] = [firstOf(cell), moreOf(cell)];
        const label = row.paused ? 'Resume' : 'Pause';
        say(first, label);
        mark(first, 'aria-label', `${label} ${row.name}`);
        mark(more, 'aria-label', `More for ${row.name}`);
        for (const each of [first, more]) hold(each, blocked(context));
      }
    }
  ];
}

const toneOf = (row: QueueRow): string => (row.tone ? `dq-${row.tone}` : 'dq-quiet');
const sentence = (row: QueueRow): string => [row.state, row.why].filter(Boolean).join(' · ');

function fillName(cell: HTMLElement, row: QueueRow): void {
  const [name, why] = [part(cell, 'b'), part(cell, 'div')];
  face(part(cell, '.dq-slot'), faceOf(row.icon));
  say(name, row.name);
  hint(name, row.name);
  const [state, reason] = [...why.children] as [HTMLElement, HTMLElement];
  say(state, row.why ? `${row.state} · ` : row.state);
  state.className = row.why ? 'dq-wide' : ''; // in a narrow view the reason gets the room, and the glyph shows the state
  say(reason, row.why);
  why.className = `dq-why dq-cut ${toneOf(row)}`;
  hint(why, sentence(row));
}

function fillState(cell: HTMLElement, row: QueueRow): void {
  const [state, reason] = [...cell.children] as [HTMLElement, HTMLElement];
  say(state, row.state);
  state.className = row.tone && row.icon !== 'running' ? toneOf(row) : 'dq-quiet';
  say(reason, row.why ? ` · ${row.why}` : '');
  reason.className = toneOf(row);
  mark(cell, 'title', sentence(row));
}

function fillDepth(cell: HTMLElement, row: QueueRow): void {
  const bar = part(cell, '.dq-bar');
  PARTS.forEach(([, field], place) => {
    const piece = bar.children[place] as HTMLElement;
    show(piece, row[field] > 0);
    style(piece, 'width', `${row[field] * 100}%`);
  });
  mark(bar, 'aria-label', `${row.waiting} waiting`);
}

export function queueTable(context: Context<QueuesParts>, act: RowActs): QueueTable {
  const open = (line: HTMLElement): void => act.more(line.dataset.name!, hookOf(line));
  const made = table<QueueRow>({
    label: 'Queues',
    columns: columnsOf(context, act),
    keyOf: (row) => row.name,
    create(line, { name }) {
      mark(line, 'role', 'row');
      line.dataset.name = name;
      line.cells[0]!.addEventListener('click', () => {
        if (!seen(moreOf(line))) act.more(name, firstOf(line));
      });
    },
    update: (line, row) => mark(line, 'data-tone', row.tone),
    keys: { Enter: open, ' ': open },
    stops: 'tr[data-name]'
  });
  made.element.classList.add('dq-queues');
  const scroll = make('div', { class: 'dq-window' }, made.element);
  const ordered = steady<QueueRow>(scroll, (row) => row.name);
  let shown: { row: QueueRow; index: number }[] = [];
  let wanted = '';

  // Arrows reach rows that are not drawn yet. In the capture phase: the keys of `roving` know only drawn rows.
  made.body.addEventListener(
    'keydown',
    (event) => {
      const rows = shown.map((item) => item.row.name);
      const at = rows.indexOf((event.target as HTMLElement).dataset.name ?? '');
      const last = rows.length - 1;
      const places: Record<string, number> = { ArrowUp: at - 1, ArrowDown: at + 1, PageUp: at - 10, PageDown: at + 10, Home: 0, End: last };
      const to = places[event.key];
      if (to === undefined || at < 0 || rows.length <= MANY) return;
      event.preventDefault();
      event.stopImmediatePropagation();
      focusRow(rows[Math.min(Math.max(to, 0), last)]!);
    },
    true
  );

  const tall = (): number => (context.root.clientWidth <= TWO_LINES ? 46 : 34);

  /** The lines to draw, between the room of the other lines. */
  function inSight(many: boolean, top: number): Line[] {
    let [from, to, above, below] = [0, shown.length, 0, 0];
    if (many) {
      const height = tall();
      const bottom = top + Math.max(scroll.clientHeight, WINDOW); // a hidden or new element has no height yet
      from = Math.min(to, Math.max(0, Math.floor((top - SPARE * 34) / height)));
      to = Math.min(to, Math.max(from, Math.ceil((bottom + SPARE * 34) / height)));
      above = from * height;
      below = (shown.length - to) * height;
    }
    return [{ space: 'above', pixels: above }, ...shown.slice(from, to), { space: 'below', pixels: below }];
  }

  function create(line: Line): HTMLTableRowElement {
    if ('row' in line) return made.create(line.row);
    return make('tr', { class: 'dq-space', 'aria-hidden': 'true' }, make('td'));
  }

  function render(): void {
    const many = shown.length > MANY;
    const top = scroll.scrollTop;
    scroll.classList.toggle('dq-scrolls', many);
    const wide = made.width();
    sync<Line, HTMLTableRowElement>(
      made.body,
      inSight(many, top),
      (line) => ('row' in line ? `q ${line.row.name}` : line.space),
      create,
      (element, line) => {
        if ('row' in line) {
          made.update(element, line.row);
          mark(element, 'aria-rowindex', line.index);
          return;
        }
        const cell = element.cells[0]!;
        mark(cell, 'colspan', wide);
        show(element, line.pixels > 0);
        style(cell, 'height', `${line.pixels}px`);
      }
    );
    // Removed rows made the content shorter for a moment, which moved the scroll.
    if (many && scroll.scrollTop !== top) scroll.scrollTop = top;
    mark(made.element, 'aria-rowcount', shown.length + 1);
    made.settle();
    if (!wanted) return;
    const target = made.body.querySelector<HTMLElement>(`tr[data-name="${CSS.escape(wanted)}"]`);
    wanted = '';
    if (!target) return;
    made.body.querySelectorAll("tr[tabindex='0']").forEach((each) => mark(each, 'tabindex', -1));
    mark(target, 'tabindex', 0);
    target.focus({ preventScroll: true });
  }

  function focusRow(name: string): void {
    const at = Math.max(0, shown.findIndex((item) => item.row.name === name)) * tall();
    const room = scroll.clientHeight;
    if (at < scroll.scrollTop + 30 || at + 80 > scroll.scrollTop + room) scroll.scrollTop = Math.max(0, at - room / 2);
    wanted = name;
    render();
  }

  let queued = false;
  scroll.addEventListener('scroll', () => {
    if (queued) return;
    queued = true;
    requestAnimationFrame(() => {
      queued = false;
      render();
    });
  });
  const watcher = new ResizeObserver(render);
  watcher.observe(scroll);
  context.closing.push(() => watcher.disconnect());

  return {
    element: scroll,
    focusRow,
    draw(rows) {
      shown = ordered(rows).map((row, at) => ({ row, index: at + 2 }));
      render();
    }
  };
}
