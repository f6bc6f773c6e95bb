// The table of failure classes: error, times, numbers, code. The check marks make a filter, and not a list of documents.

import { button, draw as drawn, make, mark, part, say, show, steady, style, text, type Drawn } from '../../shared/dom';
import { count, many, moment, share, UNKNOWN } from '../../shared/format';
import type { FailureClass } from '../../shared/snapshot';
import { table } from '../../shared/table';
import { lastMinutes } from './minutes';
import { ALL, type FailuresModel } from './model';

const WIDTH = 120;
const HEIGHT = 24;

export function classesTable(model: FailuresModel): Drawn {
  const all = box('Select all classes', () => model.toggleAll());
  const made = table<FailureClass>({
    label: 'Classes of failures',
    columns: [
      { title: all, kind: 'dq-tick', make: ({ fingerprint }) => [box('', () => model.toggle(fingerprint))], fill: fillTick },
      {
        title: 'error, message, where it was raised',
        kind: 'dq-what',
        make: () => [make('div', { class: 'dq-ell' }, make('b'), ' ', make('span', { class: 'dq-mono' })), make('div', { class: 'dq-mono dq-quiet dq-ell dq-where' })],
        hint: (each) => `${each.error}: ${each.message}`,
        fill: fillWhat
      },
      {
        title: 'per minute, 30 min',
        kind: 'dq-wide',
        make: () => [drawn('svg', { width: WIDTH, height: HEIGHT, viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: 'dq-columns', 'aria-hidden': 'true' })],
        fill: (cell, each) => columnsOf(part<SVGElement>(cell, 'svg'), lastMinutes(model.history?.classes[each.fingerprint]))
      },
      {
        title: 'dead',
        kind: 'dq-num',
        make: () => [make('span', { class: 'dq-share-bar' }, make('i')), make('b', { class: 'dq-dead-count dq-text' })],
        text: (each) => count(each.dead),
        fill: fillShare
      },
      { title: 'to retry', kind: 'dq-num dq-mid', cell: 'dq-retrying-count', text: (each) => count(each.retrying) },
      {
        title: 'code version',
        kind: 'dq-mid dq-code',
        cell: 'dq-quiet dq-versions',
        text: (each) => each.versions.join(', ') || UNKNOWN,
        hint: (each) => each.versions.join(', ')
      },
      { title: 'last failure', kind: 'dq-num dq-mid', cell: 'dq-quiet dq-last', text: (each) => (each.last ? moment(each.last, model.snapshot!.at) : UNKNOWN) }
    ],
    keyOf: (each) => each.fingerprint,
    create(line, { fingerprint }) {
      line.classList.add('dq-class');
      line.addEventListener('click', (event) => {
        if (!(event.target as Element).closest('input')) void model.look(fingerprint);
      });
    },
    update: (line, each) => mark(line, 'aria-selected', model.looked === each.fingerprint),
    keys: {
      Enter: (row) => void model.look(row.dataset.row!),
      ' ': (row) => model.toggle(row.dataset.row!)
    }
  });
  mark(made.heads[3]!, 'aria-sort', 'descending');
  const others = button('', 'dq-link', () => void model.look(ALL));
  const none = text('span', '', '');
  const rest = make('div', { class: 'dq-rest' }, others, none);
  const element = make('div', { class: 'dq-classes' }, made.element, rest);
  const ordered = steady<FailureClass>(made.body, (each) => each.fingerprint);

  function fillTick(cell: HTMLElement, each: FailureClass): void {
    const tick = part<HTMLInputElement>(cell, 'input');
    tick.checked = model.selected.has(each.fingerprint);
    mark(tick, 'aria-label', `Select ${each.error} ${each.message}`);
  }

  function fillShare(cell: HTMLElement, each: FailureClass): void {
    const total = model.snapshot!.failures.dead;
    const of = total ? each.dead / total : 0;
    style(part(cell, 'i'), 'width', `${(of * 100).toFixed(1)}%`);
    mark(part(cell, '.dq-share-bar'), 'title', share(of));
  }

  const draw = (): void => {
    const failures = model.snapshot?.failures;
    const classes = model.classes;
    made.draw(ordered(classes));
    const chosen = classes.filter((each) => model.selected.has(each.fingerprint)).length;
    all.checked = chosen > 0 && chosen === classes.length;
    all.indeterminate = chosen > 0 && chosen < classes.length;
    const hidden = (failures?.classes_total ?? 0) - classes.length;
    const listed = classes.reduce((sum, each) => sum + each.dead, 0);
    const dead = failures?.dead ?? 0;
    const more = `${count(hidden)} more ${hidden === 1 ? 'class' : 'classes'}, ${many(dead - listed, 'dead document')}`;
    say(others, hidden > 0 ? `${more}: show all ${count(dead)}` : '');
    mark(others, 'aria-pressed', model.looked === ALL);
    say(none, classes.length ? '' : 'No document has failed.');
    show(others, hidden > 0);
    show(rest, hidden > 0 || !classes.length);
  };
  return { element, draw };
}

function fillWhat(cell: HTMLElement, each: FailureClass): void {
  say(part(cell, 'b'), each.error);
  say(part(cell, 'span'), each.message);
  say(part(cell, '.dq-where'), `${each.at || '(process)'} · fingerprint ${each.fingerprint.slice(0, 8)}`);
}

function box(label: string, act: () => void): HTMLInputElement {
  const element = make('input', { type: 'checkbox', 'aria-label': label });
  element.addEventListener('change', act);
  return element;
}

/** Draw columns of failed deliveries, one per minute, on their own scale. */
function columnsOf(svg: SVGElement, values: number[]): void {
  const key = values.join();
  if (svg.dataset.key === key) return;
  svg.dataset.key = key;
  const top = Math.max(1, ...values);
  const wide = WIDTH / values.length;
  const columns = values.flatMap((value, at) => {
    if (!value) return [];
    const height = Math.max(3, (value / top) * (HEIGHT - 1));
    return [drawn('rect', { x: (at * wide).toFixed(1), y: (HEIGHT - height).toFixed(1), width: wide - 1, height: height.toFixed(1), class: 'dq-dead' })];
  });
  svg.replaceChildren(drawn('path', { d: `M0 ${HEIGHT - 0.5}H${WIDTH}`, class: 'dq-grid' }), ...columns);
}
