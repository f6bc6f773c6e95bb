// One row per class of failures: what, when, how many, in which code. The check marks make a filter, not a list.

import { draw as drawn, make, mark, part, say, show, steady, sync, text } from '../dom';
import { age, count, many, share } from '../format';
import type { FailureClass } from '../snapshot';
import { roving } from '../tree';
import { lastMinutes } from './minutes';
import type { FailuresModel } from './model';

const WIDTH = 120;
const HEIGHT = 24;

export function classesTable(model: FailuresModel): { element: HTMLElement; draw(): void } {
  const all = box('Select all classes', () => model.toggleAll());
  const head = make('tr', {}, make('th', { class: 'dq-tick' }, all));
  const columns: [string, string][] = [
    ['class, message, where it was raised', 'dq-what'],
    ['per minute, 30 min', 'dq-wide'],
    ['dead', 'dq-num'],
    ['retrying', 'dq-num dq-mid'],
    ['code', 'dq-mid dq-code'],
    ['last seen', 'dq-num dq-mid']
  ];
  for (const [name, kind] of columns) head.append(text('th', kind, name));
  part(head, 'th.dq-num').setAttribute('aria-sort', 'descending');
  const body = make('tbody');
  const element = make('div', { class: 'dq-classes' }, make('table', { 'aria-label': 'Classes of failures' }, make('thead', {}, head), body));
  const rest = make('div', { class: 'dq-rest' });
  element.append(rest);
  const ordered = steady<FailureClass>(body, (each) => each.fingerprint);
  const settle = roving(body, {
    Enter: (row) => void model.look(row.dataset.row!),
    ' ': (row) => model.toggle(row.dataset.row!)
  });

  const create = (first: FailureClass): HTMLElement => {
    const { fingerprint } = first;
    const tick = box('', () => model.toggle(fingerprint));
    const what = make('td', { class: 'dq-what' });
    what.append(
      make('div', { class: 'dq-ell' }, text('b', '', ''), ' ', text('span', 'dq-mono', '')),
      text('div', 'dq-mono dq-mut dq-ell dq-where', '')
    );
    const line = drawn('svg', { width: WIDTH, height: HEIGHT, viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: 'dq-columns', 'aria-hidden': 'true' });
    const amount = make('td', { class: 'dq-num' }, make('span', { class: 'dq-share-bar' }, make('i')), text('b', 'dq-dead-count', ''));
    const element = make('tr', { class: 'dq-class' }, make('td', { class: 'dq-tick' }, tick), what, make('td', { class: 'dq-wide' }, line), amount);
    element.append(
      text('td', 'dq-num dq-mid dq-retrying-count', ''),
      text('td', 'dq-mut dq-mid dq-code dq-versions', ''),
      text('td', 'dq-num dq-mut dq-mid dq-last', '')
    );
    element.addEventListener('click', (event) => {
      if (!(event.target as Element).closest('input')) void model.look(fingerprint);
    });
    return element;
  };

  const update = (element: HTMLElement, each: FailureClass): void => {
    const tick = part<HTMLInputElement>(element, 'input');
    const total = model.snapshot!.failures.dead;
    tick.checked = model.selected.has(each.fingerprint);
    mark(tick, 'aria-label', `Select ${each.error} ${each.message}`);
    mark(element, 'aria-selected', model.looked === each.fingerprint);
    say(part(element, '.dq-what b'), each.error);
    say(part(element, '.dq-what span'), each.message);
    mark(part(element, '.dq-what'), 'title', `${each.error}: ${each.message}`);
    say(part(element, '.dq-where'), `${each.at || '(process)'} · fingerprint ${each.fingerprint.slice(0, 8)}`);
    columnsOf(part<SVGElement>(element, '.dq-columns'), lastMinutes(model.history?.classes[each.fingerprint]));
    const width = `${total ? ((each.dead / total) * 100).toFixed(1) : 0}%`;
    const filled = part(element, '.dq-share-bar i');
    if (filled.style.width !== width) filled.style.width = width;
    mark(part(element, '.dq-share-bar'), 'title', share(total ? each.dead / total : 0));
    say(part(element, '.dq-dead-count'), count(each.dead));
    say(part(element, '.dq-retrying-count'), count(each.retrying));
    const versions = [...(model.versions.get(each.fingerprint) ?? [])].sort();
    say(part(element, '.dq-versions'), versions.join(' ') || '–');
    mark(part(element, '.dq-versions'), 'title', 'among the documents looked at');
    say(part(element, '.dq-last'), age(each.last, model.snapshot!.at));
  };

  const draw = (): void => {
    const failures = model.snapshot?.failures;
    const classes = model.classes;
    sync(body, ordered(classes), (each) => each.fingerprint, create, update);
    settle();
    const chosen = classes.filter((each) => model.selected.has(each.fingerprint)).length;
    all.checked = chosen > 0 && chosen === classes.length;
    all.indeterminate = chosen > 0 && chosen < classes.length;
    const hidden = (failures?.classes_total ?? 0) - classes.length;
    const listed = classes.reduce((sum, each) => sum + each.dead, 0);
    const words = hidden > 0 ? `${count(hidden)} more ${hidden === 1 ? 'class' : 'classes'} · ${many((failures?.dead ?? 0) - listed, 'dead document')}` : '';
    show(rest, words !== '' || classes.length === 0);
    say(rest, words || 'No document has failed.');
  };
  return { element, draw };
}

function box(label: string, act: () => void): HTMLInputElement {
  const element = make('input', { type: 'checkbox', 'aria-label': label }) as HTMLInputElement;
  element.addEventListener('change', act);
  return element;
}

/** Columns of failed deliveries, one a minute, on their own scale. */
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
