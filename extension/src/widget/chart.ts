// Draw a line over time at the real width, so that its text never scales.

import { draw, make, say, text, type Drawn } from '../shared/dom';
import { count, short } from '../shared/format';
import { ceiling, label, lineOf, most, round } from '../shared/plot';
import { table } from '../shared/table';
import type { Context } from './context';
import type { Chart } from './parts';

const HEIGHT = 150;
const EDGE = { left: 40, right: 10, top: 16, bottom: 20 };
const BOTTOM = HEIGHT - EDGE.bottom;
/** Most pixels of a figure in a time of day, and pixels between two times. */
const GLYPH = 6.6;
const GAP = 8;

type Scale = (value: number) => number;

function marksOf(chart: Chart, x: Scale, width: number): SVGElement[] {
  const shapes: SVGElement[] = [];
  let free = 0;
  chart.marks.forEach((each, place) => {
    const at = x(each.at);
    const following = chart.marks[place + 1];
    const next = following ? x(following.at) : width - EDGE.right;
    shapes.push(draw('path', { d: `M${round(at)} 14V${BOTTOM}`, class: 'dq-mark' }));
    const cell = each.cell.length * 6.8;
    const words = each.text.length * 5.6 + 6;
    if (at < free || at + 3 + cell > width) return;
    const name = label(at + 3, 11, '');
    const first = draw('tspan', { class: 'dq-code' });
    first.textContent = each.cell;
    name.append(first);
    const full = width >= 420 && at + 3 + cell + words < Math.max(next, at + 1);
    if (full) name.append(` ${each.text}`);
    const whole = draw('title');
    whole.textContent = `${each.cell} ${each.text}`;
    name.append(whole);
    free = at + 3 + cell + (full ? words : 4);
    shapes.push(name);
  });
  return shapes;
}

function axes(chart: Chart, x: Scale, y: Scale, top: number, width: number): SVGElement[] {
  const shapes: SVGElement[] = [];
  for (const value of [0, top / 2, top]) {
    shapes.push(draw('path', { d: `M${EDGE.left} ${round(y(value))}H${width - EDGE.right}`, class: 'dq-grid' }));
    shapes.push(label(EDGE.left - 6, y(value) + 4, short(value), { 'text-anchor': 'end' }));
  }
  let free = -Infinity;
  for (const [at, word] of chart.ticks) {
    const place = x(at);
    const half = (word.length * GLYPH) / 2;
    const from = place < EDGE.left + half ? place : Math.min(place - half, width - 2 * half);
    if (from < free || place > width - EDGE.right) continue;
    shapes.push(label(from + half, BOTTOM + 15, word, { 'text-anchor': 'middle' }));
    shapes.push(draw('path', { d: `M${round(place)} ${BOTTOM}v4`, class: 'dq-grid' }));
    free = from + 2 * half + GAP;
  }
  return shapes;
}

function fanOf(chart: Chart, x: Scale, y: Scale, last: number, width: number): SVGElement[] {
  const [early, probably, late] = chart.fan.map(x) as [number, number, number];
  const from = `${round(x(chart.now))},${round(y(last))}`;
  const end = Math.min(Math.max(late + 2, EDGE.left + 70), width - EDGE.right);
  return [
    draw('path', { d: `M${from}L${round(early)},${BOTTOM}L${round(late)},${BOTTOM}Z`, class: 'dq-fan' }),
    draw('path', { d: `M${from}L${round(probably)},${BOTTOM}`, class: 'dq-likely' }),
    draw('rect', { x: round(early), y: BOTTOM - 1.5, width: Math.max(2, round(late - early)), height: 3, class: 'dq-when' }),
    label(end, BOTTOM - 36, chart.due, { 'text-anchor': 'end', class: 'dq-due' }),
    label(end, BOTTOM - 23, chart.band, { 'text-anchor': 'end' })
  ];
}

function picture(chart: Chart, width: number): SVGElement {
  const top = ceiling(most(chart.values));
  const x: Scale = (at) => EDGE.left + (at / chart.end) * (width - EDGE.left - EDGE.right);
  const y: Scale = (value) => BOTTOM - (value / top) * (BOTTOM - EDGE.top);
  const svg = draw('svg', { width, height: HEIGHT, viewBox: `0 0 ${width} ${HEIGHT}`, role: 'img', 'aria-label': chart.label });
  svg.append(...axes(chart, x, y, top, width));
  svg.append(...lineOf(chart.values, (at) => x(at * chart.step), y, BOTTOM));
  const last = chart.values[chart.values.length - 1] ?? null;
  if (chart.fan.length && last !== null) svg.append(...fanOf(chart, x, y, last, width));
  if (last !== null) svg.append(draw('circle', { cx: round(x(chart.now)), cy: round(y(last)), r: 3, class: 'dq-now' }));
  svg.append(...marksOf(chart, x, width));
  return svg;
}

function asTable(chart: Chart): HTMLElement {
  const made = table<[number, string]>({
    label: chart.label,
    columns: [
      { title: 'time', text: ([, word]) => word },
      { title: chart.title, kind: 'dq-num', text: ([at]) => count(chart.values[Math.round(at / chart.step)]) }
    ],
    keyOf: ([at]) => at
  });
  made.draw(chart.ticks.filter(([at]) => at <= chart.now));
  return made.element;
}

export function chartBox(context: Context): Drawn {
  const title = text('h2', '', '');
  const place = make('div', { class: 'dq-chart' });
  const element = make('div', {}, title, place);
  let chart: Chart | null = null;
  let shown = '';
  const redraw = (): void => {
    if (!chart) return;
    const width = Math.floor(place.getBoundingClientRect().width);
    if (!width) return;
    const key = `${width}${context.asTable}${JSON.stringify(chart)}`;
    if (key === shown) return;
    shown = key;
    if (chart.empty) place.replaceChildren(text('div', 'dq-rest', chart.empty));
    else place.replaceChildren(context.asTable ? asTable(chart) : picture(chart, width));
  };
  const watcher = new ResizeObserver(redraw);
  watcher.observe(place);
  context.closing.push(() => watcher.disconnect());
  return {
    element,
    draw() {
      chart = context.part('chart');
      if (chart) say(title, chart.title);
      redraw();
    }
  };
}
