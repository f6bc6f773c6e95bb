// Pieces that all widgets share: menu, question, notice, figures, needs, keys.

import { button, hint, hold, make, mark, part, say, seen, show, sync, text, type Drawn } from '../shared/dom';
import { count } from '../shared/format';
import { face } from '../shared/glyphs';
import { blocked, unique, type Context } from './context';
import { NEEDS, TONES } from './faces';
import type { Button, Figure, Need, Notice, Numbers } from './parts';

/** A label, classes and an act; an empty label stands for a rule. */
export type Entry = [label: string, kind: string, act?: () => void];
export type Entries = readonly (Entry | false | '' | 0 | null | undefined)[];

export interface Menu {
  element: HTMLElement;
  open(from: HTMLElement, entries: Entries): void;
  close(): boolean;
}

export const firstSeen = <T extends Element>(elements: Iterable<T>): T | undefined => [...elements].find(seen);

/** Write a button's label; a narrow view hides its second half, the code that a retry takes. */
export function word(element: HTMLElement, label: string): void {
  if (element.getAttribute('aria-label') === label) return;
  const [first = '', code] = label.split(' with ', 2);
  element.replaceChildren(text('span', '', first), ...(code ? [text('span', 'dq-wide', ` with ${code}`)] : []));
  mark(element, 'aria-label', label);
}

/** A button that opens a menu. */
export function menuButton(kind: string, label: string, act: () => void): HTMLButtonElement {
  const element = button('⋯', kind, act);
  if (label) mark(element, 'aria-label', label);
  mark(element, 'aria-haspopup', 'menu');
  mark(element, 'aria-expanded', 'false');
  return element;
}

/** Make a menu that hangs from the button that opens it; Escape closes it and returns the focus. */
export function menuOf(context: Context): Menu {
  const element = make('div', { class: 'dq-menu', role: 'menu' });
  element.hidden = true;
  let opener: HTMLElement | null = null;
  const close = (refocus = true): boolean => {
    if (element.hidden) return false;
    element.hidden = true;
    if (opener) {
      opener.setAttribute('aria-expanded', 'false');
      if (refocus) opener.focus();
    }
    return true;
  };
  const entryOf = ([label, kind, act]: Entry): HTMLElement => {
    if (!label) return make('hr');
    const entry = button(label, kind, () => {
      close();
      act?.();
    });
    entry.setAttribute('role', 'menuitem');
    entry.tabIndex = -1;
    return entry;
  };
  const open = (from: HTMLElement, entries: Entries): void => {
    if (!element.hidden && opener === from) return void close();
    close(false);
    opener = from;
    element.replaceChildren(...entries.filter((each): each is Entry => Boolean(each)).map(entryOf));
    element.hidden = false;
    from.setAttribute('aria-expanded', 'true');
    const card = context.card.getBoundingClientRect();
    const at = from.getBoundingClientRect();
    const below = at.bottom - card.top + 2;
    const height = element.offsetHeight;
    const fits = below + height <= card.height || at.top - card.top < height + 4;
    element.style.top = `${fits ? below : at.top - card.top - height - 2}px`;
    element.style.right = `${Math.max(4, card.right - at.right)}px`;
    element.querySelector('button')?.focus();
  };
  element.addEventListener('keydown', (event) => {
    const entries = [...element.querySelectorAll('button')];
    const at = entries.indexOf(document.activeElement as HTMLButtonElement);
    const steps: Record<string, number> = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: -1 };
    const step = steps[event.key];
    if (step === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    entries.at(step % entries.length)!.focus();
  });
  element.addEventListener('focusout', (event) => {
    const to = event.relatedTarget as Node | null;
    if (to && !element.contains(to) && to !== opener) close(false);
  });
  return { element, open, close };
}

/** The muted line beside a name. Where room is short its words are cut, but never the time of the numbers. */
export function subBox(): { element: HTMLElement; draw(numbers: Numbers): void } {
  const about = text('span', 'dq-ell', '');
  const live = text('span', 'dq-at', '');
  const element = make('span', { class: 'dq-quiet dq-sub' }, about, live);
  return {
    element,
    draw({ subtitle, live: when }) {
      const end = when && subtitle.endsWith(when) ? when.length : 0;
      say(about, subtitle.slice(0, subtitle.length - end));
      say(live, end ? when : '');
      hint(element, subtitle);
    }
  };
}

type Question = readonly string[];

export interface AskBox {
  element: HTMLElement;
  close(): boolean;
  /** Ask with question, detail, safe answer and other answer; the returned function changes these words. */
  question(words: Question, act: () => void, from: HTMLElement | null): (newer: Question) => void;
  number(label: string, value: number, go: string, act: (n: number) => void, from: HTMLElement | null): void;
}

/** A question in the widget itself; the safe answer has the focus. */
export function askBox(context: Context): AskBox {
  const element = make('div', { class: 'dq-ask', role: 'alertdialog' });
  element.hidden = true;
  let back: HTMLElement | null = null;
  const empty = (): void => {
    element.hidden = true;
    element.replaceChildren();
    context.asking = false;
  };
  /** Return the focus, which the removed buttons had, to the origin of the question, or near it. */
  const refocus = (): void => {
    if (back?.isConnected && seen(back)) return back.focus();
    const { root } = context;
    const command = back?.dataset.command;
    const same = command ? firstSeen(root.querySelectorAll<HTMLElement>(`[data-command="${command}"]`)) : undefined;
    (same ?? firstSeen(root.querySelectorAll<HTMLElement>('.dq-more')) ?? root.querySelector('h1'))?.focus({ preventScroll: true });
  };
  const close = (): boolean => {
    if (element.hidden) return false;
    empty();
    context.redraw();
    refocus();
    return true;
  };
  const open = (label: string, parts: Node[], first: HTMLElement, from: HTMLElement | null, dangerous: boolean): void => {
    back = from ?? (document.activeElement as HTMLElement | null);
    context.asking = true;
    element.classList.toggle('dq-calm', !dangerous);
    element.setAttribute('aria-label', label);
    element.replaceChildren(...parts);
    element.hidden = false;
    context.redraw();
    first.focus();
  };
  const answer = (act: () => void): void => {
    empty();
    act();
    context.redraw();
    refocus();
  };
  return {
    element,
    close,
    question(words, act, from) {
      const [asked = '', more = '', safe = '', other = ''] = words;
      const question = text('b', '', asked);
      const detail = text('span', '', more);
      const keep = button(safe, '', close);
      const go = button(other, 'dq-danger', () => answer(act));
      open(asked, [make('span', { class: 'dq-grow' }, question, ' ', detail), keep, go], keep, from, true);
      return (newer) => [question, detail, keep, go].forEach((each, place) => say(each, newer[place] ?? ''));
    },
    number(label, value, go, act, from) {
      const id = unique('n');
      const input = make('input', { id, type: 'number', min: 1, max: 100000, required: '', value: Math.max(1, value) });
      const question = text('label', 'dq-grow', label);
      question.htmlFor = id;
      const confirm = (): void => {
        const n = Number(input.value);
        if (input.reportValidity()) answer(() => act(n)); // the browser words the error, in the user's language
      };
      input.addEventListener('keydown', (event) => {
        if (event.key !== 'Enter') return;
        event.preventDefault(); // else the same key presses the button that gets the focus next
        confirm();
      });
      open(label, [question, input, button(go, '', confirm), button('Leave it', '', close)], input, from, false);
    }
  };
}

/** The place of a notice and a question: always there, so that neither moves the elements below. */
export const newsOf = (...children: HTMLElement[]): HTMLElement => make('div', { class: 'dq-news' }, ...children);

/** Keep parts from getting lower when another state is drawn: the elements below would move under the reader. */
export function ratchet(context: Context, parts: readonly HTMLElement[]): (head: object) => void {
  let last: object | null = null;
  let width = 0;
  let asTable = false;
  /** Give up room kept for another width: a run that has ended is not drawn again, and would keep it forever. */
  const released = (): boolean => {
    const other = width !== context.card.clientWidth || asTable !== context.asTable;
    if (other) [width, asTable] = [context.card.clientWidth, context.asTable];
    if (other) for (const part of parts) part.style.minHeight = '';
    return other;
  };
  const watcher = new ResizeObserver(released);
  watcher.observe(context.card);
  context.closing.push(() => watcher.disconnect());
  return (head) => {
    if (!released() && head !== last) {
      const heights = parts.map((part) => part.getBoundingClientRect().height);
      parts.forEach((part, place) => (part.style.minHeight = `${heights[place]}px`));
    }
    last = head;
  };
}

export function noticeBox(context: Context): { element: HTMLElement; draw(notice: Notice, offline: boolean): void } {
  const glyph = make('span', { class: 'dq-slot' });
  const words = text('span', 'dq-grow', '');
  const tools = make('span', { class: 'dq-tools' });
  const element = make('div', { class: 'dq-notice' }, glyph, words, tools);
  const create = (each: Button): HTMLElement => {
    const { command, target } = each;
    return button(each.label, '', () => context.send({ command, target }));
  };
  return {
    element,
    draw(notice, offline) {
      show(element, notice.text !== '');
      show(tools, notice.buttons.length > 0);
      element.dataset.tone = notice.tone;
      if (notice.tone === 'bad') element.setAttribute('role', 'alert');
      else element.removeAttribute('role');
      face(glyph, offline ? 'offline' : (TONES[notice.tone] ?? 'dash'));
      say(words, notice.text);
      sync(tools, notice.buttons, ({ command, target }) => `${command} ${target}`, create, (child, each) => {
        hint(child, each.hint);
        hold(child, blocked(context, each.command));
      });
    }
  };
}

export function drawFigures(element: HTMLElement, figures: readonly Figure[]): void {
  show(element, figures.length > 0);
  const create = (): HTMLElement => {
    const value = make('div', { class: 'dq-v' }, make('span'), make('small'));
    return make('div', { class: 'dq-stat' }, make('div', { class: 'dq-lab' }), value, make('div', { class: 'dq-s' }));
  };
  sync(element, figures, (_, place) => place, create, (child, figure) => {
    const value = part(child, '.dq-v span');
    const second = part(child, '.dq-s');
    say(part(child, '.dq-lab'), figure.label);
    say(value, figure.value);
    value.className = `dq-${figure.tone}`;
    say(part(child, 'small'), figure.unit);
    say(second, [figure.second, figure.extra].filter(Boolean).join(' · '));
    hint(second, second.textContent ?? '');
  });
}

/** The lines about what needs the user, each with one command; `act` gets the line and the button. */
export function needsBox(context: Context, act: (need: Need, from: HTMLElement) => void): Drawn {
  const amount = text('span', 'dq-quiet', '');
  const list = make('ul', { class: 'dq-att' });
  const none = text('div', 'dq-rest', 'nothing now');
  const element = make('div', {}, make('h2', {}, 'Needs you ', amount), list, none);
  const current = (key: string): Need | undefined => context.part('needs')?.rows.find((each) => each.key === key);
  const create = ({ key }: Need): HTMLElement => {
    const go = button('', 'dq-link', () => {
      const need = current(key);
      if (need) act(need, go);
    });
    return make('li', {}, make('span'), make('span', { class: 'dq-t' }, make('b'), make('span')), go, make('span', { class: 'dq-d' }));
  };
  return {
    element,
    draw() {
      const { total = 0, rows = [] } = context.part('needs') ?? {};
      const hidden = total - rows.length;
      say(amount, hidden > 0 ? `${count(total)} · ${count(hidden)} not listed` : String(total));
      show(none, rows.length === 0);
      sync(list, rows, (row) => row.key, create, (line, row) => {
        const [glyph, words] = [...line.children] as HTMLElement[];
        const [subject, rest] = [...words!.children] as HTMLElement[];
        const go = part<HTMLButtonElement>(line, 'button');
        const detail = part(line, '.dq-d');
        face(glyph!, NEEDS[row.icon] ?? 'dash');
        say(subject!, row.subject);
        subject!.className = row.tone === 'bad' ? 'dq-bad' : '';
        say(rest!, row.icon === 'dead' ? `: ${row.text}` : ` ${row.text}`);
        hint(words!, `${row.subject} ${row.text}`);
        word(go, row.label);
        show(go, row.label !== '');
        hold(go, blocked(context));
        const more = row.label || !row.line ? row.detail : [row.detail, `next: ${row.line}`].filter(Boolean).join(' · ');
        say(detail, more);
        hint(detail, more);
      });
    }
  };
}

/** The keys of a widget, shown when asked for. */
export function keysBox(lines: readonly [key: string, meaning: string][]): { element: HTMLElement; toggle(): boolean } {
  const element = make('div', { class: 'dq-keys', role: 'note' });
  element.hidden = true;
  for (const [key, meaning] of lines) element.append(make('span', {}, text('kbd', '', key), ` ${meaning}`));
  return {
    element,
    toggle() {
      element.hidden = !element.hidden;
      return true;
    }
  };
}

/** The entry that shows the chart as a table, where there is a chart. */
export function chartEntry(context: Context): Entry | false {
  const chart = context.part('chart');
  if (!chart || chart.empty) return false;
  return [
    context.asTable ? 'Show chart' : 'Show chart as table',
    '',
    () => {
      context.asTable = !context.asTable;
      context.redraw();
    }
  ];
}
