// Elements: made once, changed only where something changed. What came from users goes in by textContent.

const SVG = 'http://www.w3.org/2000/svg';
const REORDER_MS = 5_000;

type Attributes = Record<string, string | number>;

export function make(tag: string, attributes: Attributes = {}, ...children: (Node | string)[]): HTMLElement {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  element.append(...children);
  return element;
}

export function draw(tag: string, attributes: Attributes = {}, ...children: (Node | string)[]): SVGElement {
  const element = document.createElementNS(SVG, tag) as SVGElement;
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  element.append(...children);
  return element;
}

export function text(tag: string, kind: string, content: string): HTMLElement {
  const element = make(tag, kind ? { class: kind } : {});
  element.textContent = content;
  return element;
}

export function button(label: string, kind: string, act: (event: MouseEvent) => void): HTMLButtonElement {
  const element = text('button', kind, label) as HTMLButtonElement;
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

export function show(element: HTMLElement, shown: boolean): void {
  if (element.hidden === shown) element.hidden = !shown;
}

export function part<T extends Element = HTMLElement>(element: Element, selector: string): T {
  return element.querySelector(selector) as unknown as T;
}

/** Keep one child per key, in order; make and remove only what changed. */
export function sync<T>(
  parent: Element,
  items: readonly T[],
  keyOf: (item: T) => string,
  create: (item: T) => HTMLElement,
  update: (element: HTMLElement, item: T, place: number) => void
): void {
  const old = new Map([...parent.children].map((child) => [(child as HTMLElement).dataset.row, child as HTMLElement]));
  const kept = new Set(items.map(keyOf));
  // First: what stays is not moved, and keeps the focus.
  for (const [key, gone] of old) if (key === undefined || !kept.has(key)) gone.remove();
  items.forEach((item, place) => {
    const key = keyOf(item);
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

/** Rows keep their places while they are read: a new order at most every 5 s, never under pointer or focus. */
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
