// The panes that open below a run or a queue, one at a time: consumers, failures, leases, runs, code.

import { button, hint, hold, make, mark, part, say, seen, show, steady, style, sync, text } from '../shared/dom';
import { count, UNKNOWN } from '../shared/format';
import { face } from '../shared/glyphs';
import { table } from '../shared/table';
import { blocked, unique, type Context } from './context';
import type { ConsumerRow, FailureRow, HeldRow, Parts, QueuesParts, RunLine } from './parts';

export interface Pane {
  readonly name: keyof Parts | 'runs';
  readonly element: HTMLElement;
  /** The words of its button: its name, how many rows, and what needs attention. */
  title(): { words: (string | undefined)[]; warning?: string | undefined };
  /** Whether there is something to show. */
  any(): boolean;
  draw(): void;
  /** Scroll one of its rows into sight. */
  show?(target: string): void;
}

export function consumersPane(context: Context): Pane {
  const caption = text('div', 'dq-caption', '');
  const made = table<ConsumerRow>({
    label: 'Consumers, slowest first',
    columns: [
      { title: 'consumer', make: () => [make('span', { class: 'dq-slot' }), make('b', { class: 'dq-text' })], text: (row) => row.name, fill: fillTrouble },
      { title: 'worker', kind: 'dq-wide', cell: 'dq-quiet', text: (row) => row.worker },
      { title: '', kind: 'dq-num', make: speed, text: (row) => row.units_rate, fill: (cell, row) => style(part(cell, 'i'), 'width', `${row.fraction * 100}%`) },
      { title: 'documents/s', kind: 'dq-num dq-mid', text: (row) => row.rate },
      { title: 'idle', kind: 'dq-num dq-mid', text: (row) => row.idle },
      { title: 'unacked', kind: 'dq-num', text: (row) => row.leased },
      { title: 'oldest', kind: 'dq-num', text: (row) => row.oldest },
      { title: 'memory', kind: 'dq-num dq-wide', text: (row) => row.memory },
      { title: 'last error', kind: 'dq-wide', cell: 'dq-mono dq-quiet', text: (row) => row.error }
    ],
    keyOf: (row) => row.name,
    update(line, row) {
      mark(line, 'data-slow', row.trouble !== '');
      hint(line, row.document);
    }
  });
  const speedHead = made.heads[2]!;
  mark(speedHead, 'aria-sort', 'ascending');
  const more = text('div', 'dq-rest', '');
  const scroll = make('div', { class: 'dq-scroll' }, made.element);
  const ordered = steady<ConsumerRow>(scroll, (row) => row.name);
  const now = () => context.part('consumers');
  return {
    name: 'consumers',
    element: make('div', {}, caption, scroll, more),
    title: () => ({ words: ['Consumers', now()?.title], warning: now()?.troubles }),
    any: () => now() !== null,
    draw() {
      const { caption: words, more: rest, rows, unit } = now()!;
      say(caption, words);
      say(speedHead, `${unit} ↑`);
      made.draw(ordered(rows));
      say(more, rest);
      show(more, rest !== '');
    }
  };
}

const speed = (): Node[] => [make('span', { class: 'dq-inl dq-wide' }, make('i')), make('span', { class: 'dq-amount dq-text' })];

function fillTrouble(cell: HTMLElement, row: ConsumerRow): void {
  const slot = part(cell, '.dq-slot');
  face(slot, row.trouble ? 'slow' : 'none');
  mark(slot, 'title', row.trouble);
}

/** A row of the failures' table: a class, or its details, which open below it. */
interface ClassLine {
  row: FailureRow;
  opened: boolean;
}

export function failuresPane(context: Context): Pane {
  let open = '';
  const toggle = (fingerprint: string | undefined): void => {
    if (!fingerprint) return;
    open = open === fingerprint ? '' : fingerprint;
    if (open && context.kind === 'run' && context.part('needs')) context.send({ command: 'show', target: open }, true);
    context.redraw();
  };
  const word = (kind: string, cell: string, title: string, field: Exclude<keyof FailureRow, 'first'>, head = '') => ({
    title,
    kind,
    cell,
    head,
    text: (row: FailureRow) => row[field],
    hint: (row: FailureRow) => row[field]
  });
  const made = table<FailureRow>({
    label: 'Failures by class',
    columns: [
      {
        title: 'error',
        head: 'dq-c1',
        make: () => [
          make('span', { class: 'dq-turn', 'aria-hidden': 'true' }),
          make('span', { class: 'dq-error' }),
          make('div', { class: 'dq-mono dq-quiet dq-cut dq-narrow' })
        ],
        hint: (row) => `${row.error} ${row.message}`,
        fill(cell, row) {
          say(part(cell, '.dq-error'), row.error);
          say(part(cell, 'div'), row.message);
        }
      },
      word('dq-wide', 'dq-mono', 'message', 'message'),
      word('dq-wide', 'dq-mono', 'at', 'at', 'dq-c3'),
      word('dq-wide', 'dq-mono', 'code', 'code'),
      word('dq-num', 'dq-bad', 'dead', 'dead'),
      word('dq-num', '', 'retrying', 'retrying'),
      word('dq-wide', 'dq-mono', 'one document', 'document')
    ],
    keyOf: (row) => row.fingerprint,
    create(line, { fingerprint }) {
      mark(line, 'data-fingerprint', fingerprint);
      line.addEventListener('click', () => toggle(fingerprint));
    },
    update: (line, row) => mark(line, 'aria-expanded', row.fingerprint === open),
    keys: { Enter: (line) => toggle(line.dataset.fingerprint), ' ': (line) => toggle(line.dataset.fingerprint) },
    stops: 'tr[data-fingerprint]'
  });
  mark(made.element, 'role', 'treegrid'); // rows of a plain table have no state "open" for a screen reader
  const more = text('div', 'dq-rest', '');
  const ordered = steady<FailureRow>(made.body, (row) => row.fingerprint);
  const now = () => context.part('failures');

  const detail = (row: FailureRow): HTMLElement => {
    const box = make('div', { class: 'dq-detail' }, text('div', 'dq-quiet', row.seen));
    const [fingerprint, letters] = context.part('examples') ?? ['', []];
    if (row.mend) box.append(text('div', 'dq-mend', row.mend));
    if (row.retry) {
      const retry = button(row.retry, row.mend ? '' : 'dq-pri', () => context.send({ command: 'retry', target: row.fingerprint }));
      hold(retry, blocked(context));
      retry.dataset.key = 'retry';
      const few = button(`${row.first} first`, '', () => context.send({ command: 'retry', target: row.fingerprint, n: row.first }));
      hold(few, blocked(context));
      few.dataset.key = 'few';
      show(few, row.first > 0);
      box.append(make('div', { class: 'dq-tools' }, retry, few, text('span', 'dq-quiet dq-hint', row.hint)));
    }
    const [letter] = letters;
    if (fingerprint === row.fingerprint && letter) {
      box.append(text('pre', '', letter.traceback), text('div', 'dq-quiet', 'such as'));
      for (const each of letters) {
        const line = text('div', 'dq-mono dq-cut', `${each.document} (${each.deliveries}, ${each.version})`);
        if (each.cell) line.append(' ', button('Run this one here', 'dq-link', () => context.insert(each.cell)));
        box.append(line);
      }
    }
    return box;
  };
  const drawDetail = (line: HTMLTableRowElement, row: FailureRow): void => {
    const cell = line.cells[0]!;
    mark(cell, 'colspan', made.width());
    const key = JSON.stringify([row, context.part('examples'), blocked(context)]);
    if (line.dataset.key === key) return;
    line.dataset.key = key;
    const focused = cell.contains(document.activeElement) ? (document.activeElement as HTMLElement).dataset : null;
    cell.replaceChildren(detail(row));
    if (!focused) return;
    // Focus the pressed button, or the row above: a second Enter must not press another button.
    const same = [...cell.querySelectorAll<HTMLElement>('[data-key]')].filter(seen).find((each) => each.dataset.key === focused.key);
    (same ?? (line.previousElementSibling as HTMLElement | null))?.focus();
  };

  return {
    name: 'failures',
    element: make('div', {}, made.element, more),
    title: () => ({ words: ['Failures', now()?.title] }),
    any: () => Boolean(now()?.rows.length),
    show(fingerprint) {
      if (open !== fingerprint) toggle(fingerprint);
      made.body.querySelector<HTMLElement>(`tr[data-fingerprint="${CSS.escape(fingerprint)}"]`)?.focus();
    },
    draw() {
      const { more: rest, rows } = now()!;
      mark(made.element, 'data-keys', rows.some((row) => row.document !== UNKNOWN));
      const lines = ordered(rows).flatMap((row): ClassLine[] =>
        row.fingerprint === open ? [{ row, opened: false }, { row, opened: true }] : [{ row, opened: false }]
      );
      sync<ClassLine, HTMLTableRowElement>(
        made.body,
        lines,
        ({ opened, row }) => (opened ? `${row.fingerprint} more` : row.fingerprint),
        ({ opened, row }) => (opened ? make('tr', { class: 'dq-more-row' }, make('td')) : made.create(row)),
        (line, { opened, row }) => (opened ? drawDetail(line, row) : made.update(line, row))
      );
      made.settle();
      say(more, rest);
      show(more, rest !== '');
    }
  };
}

export function leasesPane(context: Context): Pane {
  const summary = text('div', 'dq-caption', '');
  const bins = make('div', { class: 'dq-bins', role: 'img' });
  const made = table<HeldRow>({
    label: 'Held longest',
    columns: [
      { title: 'document', cell: 'dq-mono', text: (row) => row.document, hint: (row) => row.document },
      { title: 'consumer', text: (row) => row.consumer },
      { title: 'held for', kind: 'dq-num', text: (row) => row.held },
      { title: 'lease ends in', kind: 'dq-num dq-mid', text: (row) => row.ends_in },
      { title: 'renewals', kind: 'dq-num dq-wide', text: (row) => row.renewals },
      { title: 'delivery', kind: 'dq-num dq-wide', text: (row) => row.delivery }
    ],
    keyOf: (_, place) => place,
    update: (line, row) => mark(line, 'data-slow', row.late)
  });
  const now = () => context.part('leases');
  return {
    name: 'leases',
    element: make('div', {}, summary, bins, made.element),
    title: () => ({ words: ['Unacked', now()?.title] }),
    any: () => now() !== null,
    draw() {
      const leases = now()!;
      say(summary, leases.summary);
      show(bins, leases.bins.length > 0);
      const largest = Math.max(1, ...leases.bins.map(([, amount]) => amount));
      mark(bins, 'aria-label', `Messages by time since delivery: ${leases.bins.map(([age, amount]) => `${age} ${amount}`).join(', ')}`);
      sync(bins, leases.bins, ([age]) => age, () => make('div', {}, make('b'), make('i'), make('span')), (child, [age, amount, late]) => {
        mark(child, 'data-late', late && amount > 0);
        say(part(child, 'b'), amount ? count(amount) : '');
        style(part(child, 'i'), 'height', `${amount && Math.max(2, Math.round((amount / largest) * 36))}px`);
        say(part(child, 'span'), age);
      });
      show(made.element, leases.rows.length > 0);
      made.draw(leases.rows);
    }
  };
}

export function codePane(context: Context): Pane {
  const caption = text('div', 'dq-caption', '');
  const source = make('pre', { tabindex: '0' });
  const now = () => context.part('code');
  return {
    name: 'code',
    element: make('div', {}, caption, source),
    title: () => ({ words: ['Code', now()?.title] }),
    any: () => now() !== null,
    draw() {
      const code = now()!;
      say(caption, code.caption);
      say(source, code.text);
      mark(source, 'aria-label', code.caption);
    }
  };
}

const stateOf = (row: RunLine): string => (row.tone ? `dq-${row.tone}` : 'dq-quiet');

/** Runs of a queue, or of all queues of a lab, in which case each row names its queue. */
export function runsPane(context: Context<QueuesParts>, several = false): Pane {
  const made = table<RunLine>({
    label: several ? 'Runs' : 'Runs on this queue',
    columns: [
      { title: 'run', make: () => [make('b', { class: 'dq-text' })], text: (row) => row.name, hint: (row) => row.name },
      ...(several ? [{ title: 'queue', kind: 'dq-wide dq-where', cell: 'dq-quiet', text: (row: RunLine) => row.queue, hint: (row: RunLine) => row.queue }] : []),
      {
        title: 'state',
        kind: 'dq-mid dq-state',
        make: () => [make('span', { class: 'dq-text' })],
        text: (row) => row.state,
        hint: (row) => row.state,
        fill: (cell, row) => (part(cell, 'span').className = `dq-text ${stateOf(row)}`)
      },
      { title: 'settled', kind: 'dq-num', text: (row) => row.share },
      { title: 'left', kind: `dq-num dq-left${several ? ' dq-mid' : ''}`, text: (row) => row.left },
      { title: 'done at', kind: 'dq-num', text: (row) => row.done },
      { title: 'dead', kind: 'dq-num', text: (row) => row.dead, fill: (cell, row) => cell.classList.toggle('dq-bad', row.dead !== '0') }
    ],
    keyOf: (row) => row.key
  });
  made.element.classList.add('dq-runs');
  const more = text('div', 'dq-rest', '');
  const now = () => context.part('runs');
  return {
    name: 'runs',
    element: make('div', {}, made.element, more),
    title: () => ({ words: ['Runs', now()?.title] }),
    any: () => Boolean(now()?.rows.length),
    draw() {
      const { more: rest, rows } = now()!;
      made.draw(rows);
      say(more, rest);
      show(more, rest !== '');
    }
  };
}

export interface Disclosures {
  elements: HTMLElement[];
  draw(): void;
  /** Open a pane, and scroll one of its rows into sight. */
  show(name: string, target: string): void;
}

/** The row of buttons that open panes, and the panes. */
export function disclosures(context: Context, panes: readonly Pane[]): Disclosures {
  const live = text('span', 'dq-live dq-narrow', '');
  const footer = make('footer', { role: 'group', 'aria-label': 'Details' });
  const body = make('div', { class: 'dq-panes' });
  let open: string | undefined;
  const set = (name: string): void => {
    open = open === name ? '' : name;
    context.redraw();
  };
  const places = panes.map((pane) => {
    const id = unique(pane.name);
    const words = make('span');
    const warning = make('span', { class: 'dq-warn' });
    const toggle = button('', '', () => set(pane.name));
    toggle.append(words, warning);
    mark(toggle, 'aria-controls', id);
    const box = make('div', { class: 'dq-pane', id }, pane.element);
    box.addEventListener('keydown', (event) => {
      if (event.key !== 'Escape') return;
      event.stopPropagation();
      set(pane.name);
      toggle.focus();
    });
    footer.append(toggle);
    body.append(box);
    return { pane, toggle, box, words, warning };
  });
  footer.append(live);
  return {
    elements: [footer, body],
    show(name, target) {
      if (open !== name) set(name);
      const place = places.find((each) => each.pane.name === name);
      if (!place) return;
      if (target && place.pane.show) place.pane.show(target);
      else (place.box.querySelector<HTMLElement>("tr[tabindex='0']") ?? place.toggle).focus();
    },
    draw() {
      if (open === undefined) open = context.part('needs') && context.part('chart') ? '' : 'failures';
      let any = false;
      for (const { pane, toggle, box, words, warning } of places) {
        const there = pane.any();
        const opened = there && open === pane.name;
        any ||= there;
        show(toggle, there);
        show(box, opened);
        if (!there) continue;
        const title = pane.title();
        mark(toggle, 'aria-expanded', opened);
        say(words, [opened ? '▾' : '▸', ...title.words].filter(Boolean).join(' '));
        say(warning, title.warning ? ` · ${title.warning}` : '');
        if (opened) pane.draw();
      }
      say(live, context.part('numbers').live);
      show(footer, any || live.textContent !== '');
      footer.classList.toggle('dq-narrow', !any);
    }
  };
}
