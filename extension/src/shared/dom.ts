// Make elements once, and change them only where something changed. Users' text goes in by textContent, never as HTML.

import { clock } from './format';

const SVG = 'http://www.w3.org/2000/svg';
const REORDER_MS = 5_000;

export type Attributes = Record<string, string | number>;

/** A part of a view: its element, and the function that updates it. */
export interface Drawn {
  element: HTMLElement;
  draw(): void;
}

export function make<K extends keyof HTMLElementTagNameMap>(tag: K, attributes: Attributes = {}, ...children: (Node | string)[]): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  element.append(...children);
  return element;
}

export function draw<K extends keyof SVGElementTagNameMap>(tag: K, attributes: Attributes = {}, ...children: (Node | string)[]): SVGElementTagNameMap[K] {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  element.append(...children);
  return element;
}

export function text<K extends keyof HTMLElementTagNameMap>(tag: K, kind: string, content: string): HTMLElementTagNameMap[K] {
  const element = make(tag, kind ? { class: kind } : {});
  element.textContent = content;
  return element;
}

/** Draw a view, or show on top of it that drawing failed: the old picture below would be taken for the present one. */
export function guarded(root: HTMLElement, draw: () => void): void {
  const shown = root.querySelector(':scope > .dq-broken');
  try {
    draw();
    shown?.remove();
  } catch (error) {
    const words = `This view stopped at ${clock(Date.now() / 1000)} (${String(error)}). What it shows may be old, and the work goes on. Reload the page.`;
    if (!shown) root.prepend(make('div', { class: 'dq-broken', role: 'alert' }, words));
    throw error; // for the console, with where it happened
  }
}

export function button(label: string, kind: string, act: (event: MouseEvent) => void): HTMLButtonElement {
  const element = text('button', kind, label);
  element.type = 'button';
  element.addEventListener('click', act);
  return element;
}

export function say(element: Element, content: string): void {
  if (element.textContent !== content) element.textContent = content;
}

export function mark(element: Element, name: string, value: string | number | boolean): void {
  if (element.getAttribute(name) !== String(value)) element.setAttribute(name, String(value));
}

export function hint(element: HTMLElement, words: string): void {
  if (element.title !== words) element.title = words;
}

export function show(element: HTMLElement, shown: boolean): void {
  if (element.hidden === shown) element.hidden = !shown;
}

/** Make a button do nothing for now. Unlike `disabled`, this keeps the focus on the button. */
export function hold(element: HTMLElement, held: boolean): void {
  mark(element, 'aria-disabled', held);
}

export function style(element: HTMLElement, name: 'width' | 'height' | 'opacity', value: string): void {
  if (element.style[name] !== value) element.style[name] = value;
}

export function part<T extends Element = HTMLElement>(element: Element, selector: string): T {
  return element.querySelector(selector) as unknown as T;
}

/** Whether an element takes room on the page. */
export const seen = (element: Element): boolean => element.getClientRects().length > 0;

/** Keep one child per key, in order; make and remove only what changed. */
export function sync<T, E extends HTMLElement = HTMLElement>(
  parent: Element,
  items: readonly T[],
  keyOf: (item: T, place: number) => string | number,
  create: (item: T) => E,
  update: (element: E, item: T, place: number) => void
): void {
  const old = new Map([...parent.children].map((child) => [(child as E).dataset.row, child as E]));
  const keys = items.map((item, place) => String(keyOf(item, place)));
  const kept = new Set(keys);
  // Remove first: then the elements that stay need not move, and a moved element loses the focus.
  for (const [key, gone] of old) if (key === undefined || !kept.has(key)) gone.remove();
  items.forEach((item, place) => {
    const key = keys[place]!;
    let child = old.get(key);
    if (!child) {
      child = create(item);
      child.dataset.row = key;
      old.set(key, child);
    }
    if (parent.children[place] !== child) parent.insertBefore(child, parent.children[place] ?? null);
    update(child, item, place);
  });
}

/** Keep rows in their places while a user reads them: a new order at most every 5 s, never under pointer or focus. */
export function steady<T>(area: Element, keyOf: (item: T) => string): (rows: readonly T[]) => T[] {
  let order = new Map<string, number>();
  let taken = 0;
  return (rows) => {
    const busy = area.matches(':hover') || area.contains(document.activeElement);
    const now = performance.now();
    const known = order.size === rows.length && rows.every((row) => order.has(keyOf(row)));
    if (!known || (!busy && now - taken > REORDER_MS)) {
      order = new Map(rows.map((row, place) => [keyOf(row), place]));
      taken = now;
    }
    return [...rows].sort((a, b) => order.get(keyOf(a))! - order.get(keyOf(b))!);
  };
}
