// Draw lines over time: scales, the pieces of a line, words in a drawing.

import { draw, type Attributes } from './dom';

export type Values = readonly (number | null)[];

export const round = (value: number): number => Math.round(value * 10) / 10;

/** The smallest 1, 2 or 5 times a power of ten that is not below a value. */
export function ceiling(value: number): number {
  const power = 10 ** Math.floor(Math.log10(Math.max(1, value)));
  return [1, 2, 5, 10].map((step) => step * power).find((top) => top >= value) ?? 1;
}

/** The largest known value, but at least 1. */
export const most = (values: Values): number => Math.max(1, ...values.map((value) => value ?? 0));

/** Words at a place in a drawing. */
export function label(x: number, y: number, content: string, attributes: Attributes = {}): SVGTextElement {
  const element = draw('text', { x: round(x), y: round(y), ...attributes });
  element.textContent = content;
  return element;
}

/** The points of a line in pieces: unknown values leave a gap. */
function pieces(values: Values): number[][] {
  const found: number[][] = [];
  values.forEach((value, at) => {
    if (value === null) return;
    if (at > 0 && values[at - 1] !== null) found[found.length - 1]!.push(at);
    else found.push([at]);
  });
  return found;
}

/** A line, and the area between it and the bottom. */
export function lineOf(values: Values, x: (at: number) => number, y: (value: number) => number, bottom: number): SVGElement[] {
  return pieces(values).flatMap((piece) => {
    const points = piece.map((at) => `${round(x(at))},${round(y(values[at]!))}`).join(' ');
    const [first, last] = [piece[0]!, piece[piece.length - 1]!].map((at) => `${round(x(at))},${bottom}`);
    return [
      draw('path', { d: `M${points} ${last} ${first}Z`, class: 'dq-area' }),
      draw('path', { d: `M${points}`, class: 'dq-line' })
    ];
  });
}

/** A queue's depth over its lifetime, at most half an hour, without axes, on its own scale. */
export function spark(svg: SVGElement, depths: Values, width: number, height: number): void {
  const first = depths.findIndex((each) => each !== null);
  const values = first < 0 ? [] : depths.slice(first);
  const key = values.join();
  if (svg.dataset.key === key) return;
  svg.dataset.key = key;
  const top = most(values);
  if (values.length === 1) values.push(values[0]!); // one known minute is drawn as a level line
  const x = (at: number): number => (at / Math.max(1, values.length - 1)) * width;
  svg.replaceChildren(...lineOf(values, x, (value) => height - 1 - (value / top) * (height - 2), height));
}
