// Glyphs. A colour never stands alone: each is drawn beside its word, and hidden from screen readers.

import { LabIcon } from '@jupyterlab/ui-components';

import { draw } from './dom';

type Shape = [string, Record<string, string | number>];

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
  offline: [
    stroke('M1.5 4.8C4 2.6 8 2.6 10.5 4.8M3.4 7c1.5-1.2 3.7-1.2 5.2 0', INK, 1.3),
    stroke('M2 10.5 10 1.5', INK, 1.4)
  ]
} satisfies Record<string, Shape[]>;

export type Glyph = keyof typeof SHAPES;

const QUEUES: Record<string, Glyph> = {
  running: 'play',
  'keeping up': 'play',
  submitting: 'play',
  paused: 'halt',
  draining: 'drain',
  drained: 'halt',
  empty: 'dash',
  stopped: 'cross'
};
const RUNS: Record<string, Glyph> = {
  submitting: 'play',
  running: 'play',
  paused: 'halt',
  waiting: 'warning',
  done: 'tick',
  cancelled: 'struck',
  incomplete: 'warning',
  stopped: 'cross'
};

export function queueGlyph(state: string): Glyph {
  return QUEUES[state] ?? 'warning';
}

export function runGlyph(state: string, dead: number): Glyph {
  return state === 'done' && dead > 0 ? 'cross' : (RUNS[state] ?? 'dash');
}

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

const RAIL = `<svg xmlns="http://www.w3.org/2000/svg" width="16" height="16" viewBox="0 0 18 18">
<g class="jp-icon3 jp-icon-selectable-stroke" fill="none" stroke="#616161" stroke-width="1.6"><path d="M2.5 4h13M2.5 9h9M2.5 14h5"/></g>
<path class="jp-icon3 jp-icon-selectable" fill="#616161" d="M11.6 11.8 15.6 14l-4 2.2z"/></svg>`;

export const dqlabIcon = new LabIcon({ name: 'dqlab:queues', svgstr: RAIL });
