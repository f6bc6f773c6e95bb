// Pieces of the sidebar's rows: sections, bars by state, refusals.

import { make, mark, part, say, show, style, sync, text } from '../../shared/dom';
import { share } from '../../shared/format';
import { all, STATES, type Counts } from '../../shared/snapshot';

export interface Section {
  element: HTMLElement;
  body: HTMLElement;
  head(amount: string, right?: string): void;
}

/** A section with its rows, which are a tree, unless the section is marked as a list. */
export function section(title: string, role: 'tree' | 'list' = 'tree'): Section {
  const amount = text('span', 'dq-c', '');
  const right = text('span', 'dq-c dq-plain', '');
  const header = make('div', { class: 'dq-sec' }, text('span', '', title), amount, make('span', { class: 'dq-grow' }), right);
  const body = make('div', { role, 'aria-label': title });
  return {
    element: make('div', {}, header, body),
    body,
    head(count, word = '') {
      say(amount, count);
      say(right, word);
    }
  };
}

/** A row: glyph, name, words at the right; below it a second line, and a refusal. */
export function row(kind: string, lines: 1 | 2): HTMLElement {
  const element = make('div', { class: `dq-it ${kind}`, role: 'treeitem', tabindex: -1 });
  element.append(make('span', { class: 'dq-slot' }), make('span', { class: 'dq-ell dq-name' }), make('span', { class: 'dq-right' }));
  if (lines === 2) element.append(make('span', { class: 'dq-s2' }));
  const refusal = make('span', { class: 'dq-refusal', role: 'alert' });
  refusal.hidden = true;
  element.append(refusal);
  return element;
}

export function refuse(element: HTMLElement, sentence: string | undefined): void {
  const refusal = part(element, '.dq-refusal');
  say(refusal, sentence ?? '');
  show(refusal, Boolean(sentence));
}

export function badge(element: HTMLElement, content: string): void {
  say(element, content);
  show(element, content !== '');
}

/** Fill a bar: one piece for each state that exists, in their order. */
export function bar(element: HTMLElement, counts: Counts): void {
  const total = all(counts);
  const shares = STATES.map((state) => ({ state, part: total ? counts[state] / total : 0 })).filter((each) => each.part > 0);
  const words = shares.map((each) => `${share(each.part)} ${each.state === 'leased' ? 'unacked' : each.state}`);
  mark(element, 'aria-label', words.join(', ') || 'nothing yet');
  sync(
    element,
    shares,
    (each) => each.state,
    (each) => make('i', { 'data-state': each.state }),
    (piece, each) => style(piece, 'width', `${(each.part * 100).toFixed(2)}%`)
  );
}
