// Glyphs. A colour never stands alone: each is drawn beside its word, and hidden from screen readers.

import { draw } from './dom';

type Shape = ['path' | 'circle', Record<string, string | number>];

const stroke = (d: string, colour: string, width: number): Shape => [
  'path',
  { d, fill: 'none', stroke: colour, 'stroke-width': width }
];
const fill = (d: string, colour: string): Shape => ['path', { d, fill: colour }];
const disc = (colour: string): Shape => ['circle', { cx: 6, cy: 6, r: 5, fill: colour }];
const ring = (colour: string, r: number, width: number): Shape => [
  'circle',
  { cx: 6, cy: 6, r, fill: 'none', stroke: colour, 'stroke-width': width }
];

const INK = 'currentColor';
const SHAPES = {
  none: [],
  play: [fill('M3 1.8 10.2 6 3 10.2z', 'var(--dq-brand)')],
  go: [fill('M3 1.8 10.2 6 3 10.2z', INK)],
  halt: [fill('M3 2h2.2v8H3zM6.8 2H9v8H6.8z', INK)],
  drain: [stroke('M6 1.5v6M3 5.2 6 8.2l3-3M2.2 10.5h7.6', INK, 1.5)],
  dash: [stroke('M2 6h8', INK, 1.6)],
  warning: [fill('M6 1 11.4 10.8H.6z', 'var(--dq-leased)'), stroke('M6 4.4v3.2M6 8.6v1.1', 'var(--dq-bg)', 1.3)],
  cross: [stroke('M2.5 2.5 9.5 9.5M9.5 2.5 2.5 9.5', 'var(--dq-dead)', 2.2)],
  tick: [disc('var(--dq-acked)'), stroke('M3.6 6.2 5.3 7.9 8.5 4.4', 'var(--dq-bg)', 1.5)],
  struck: [ring('var(--dq-cancelled)', 4.4, 1.6), stroke('M3.2 8.8 8.8 3.2', 'var(--dq-cancelled)', 1.6)],
  slow: [ring('var(--dq-leased)', 4.6, 1.4), stroke('M6 6 3.4 4.2', 'var(--dq-leased)', 1.5)],
  half: [ring('var(--dq-leased)', 4.4, 1.4), fill('M6 1.6a4.4 4.4 0 0 1 0 8.8z', 'var(--dq-leased)')],
  ring: [ring('var(--dq-ready)', 4.2, 2)],
  later: [ring('var(--dq-delayed)', 4.4, 1.4), stroke('M6 3.2V6l2 1.4', 'var(--dq-delayed)', 1.4)],
  offline: [
    stroke('M1.5 4.8C4 2.6 8 2.6 10.5 4.8M3.4 7c1.5-1.2 3.7-1.2 5.2 0', INK, 1.3),
    stroke('M2 10.5 10 1.5', INK, 1.4)
  ]
} satisfies Record<string, Shape[]>;

export type Glyph = keyof typeof SHAPES;

export function icon(glyph: Glyph): SVGElement {
  const frame = { class: 'dq-g', viewBox: '0 0 12 12', width: 12, height: 12, 'aria-hidden': 'true' };
  return draw('svg', frame, ...SHAPES[glyph].map(([tag, attributes]) => draw(tag, attributes)));
}

/** Put a glyph into an element, unless it is there. */
export function face(element: HTMLElement, glyph: Glyph): void {
  if (element.dataset.glyph === glyph) return;
  element.dataset.glyph = glyph;
  element.replaceChildren(icon(glyph));
}
