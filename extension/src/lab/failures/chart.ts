// Draw failed deliveries per minute over time at the real width, so that the text never scales.

import { draw, make, mark } from '../../shared/dom';
import { count, minute, short } from '../../shared/format';
import { ceiling, label } from '../../shared/plot';
import type { Mark } from '../../shared/snapshot';
import type { Minute } from './minutes';

const HEIGHT = 96;
const EDGE = { left: 44, right: 12, top: 18, bottom: 22 };
/** Least seconds on the axis: one minute alone would fill the whole width. */
const SPAN = 300;
/** Seconds between two times on the axis: the shortest step that leaves room for the words. */
const STEPS = [60, 300, 600] as const;
const TIME_WIDTH = 48;
/** Letters of a queue's name for which the title has room. */
const NAME = 24;
/** Approximate width of a letter in a label. */
const LETTER = 6.2;

export function minutesChart(): { element: HTMLElement; draw(minutes: Minute[], marks: Mark[], title: string): void; dispose(): void } {
  const element = make('div', { class: 'dq-chart' });
  let minutes: Minute[] = [];
  let marks: Mark[] = [];
  let title = '';
  let drawn = '';
  const redraw = (): void => {
    const width = Math.floor(element.getBoundingClientRect().width);
    const key = JSON.stringify([width, minutes, marks, title]);
    if (!width || key === drawn) return;
    drawn = key;
    element.replaceChildren(minutes.length ? picture(minutes, marks, title, width) : make('div', { class: 'dq-rest' }, 'No failed delivery is known of the last half hour.'));
  };
  const watcher = new ResizeObserver(redraw);
  watcher.observe(element);
  return {
    element,
    draw(newer, newerMarks, newTitle) {
      [minutes, marks, title] = [newer, newerMarks, newTitle];
      redraw();
    },
    dispose: () => watcher.disconnect()
  };
}

/** The title: deliveries of a whole queue are counted, also where the classes below are those of one run. */
export function titleOf({ queue, run }: { queue?: string; run?: string }): string {
  const name = queue && queue.length > NAME ? `${queue.slice(0, NAME - 1)}…` : queue;
  return `failed deliveries per minute${run && name ? `, all runs of queue ${name}` : ''}`;
}

function picture(minutes: Minute[], marks: Mark[], title: string, width: number): SVGElement {
  const bottom = HEIGHT - EDGE.bottom;
  const last = minutes[minutes.length - 1]!.at + 60;
  const first = Math.min(minutes[0]!.at, last - SPAN);
  const peak = minutes.reduce((most, each) => (each.failed > most.failed ? each : most));
  const top = ceiling(peak.failed);
  const x = (at: number): number => EDGE.left + ((at - first) / (last - first)) * (width - EDGE.left - EDGE.right);
  const y = (value: number): number => bottom - (value / top) * (bottom - EDGE.top);
  const svg = draw('svg', { width, height: HEIGHT, viewBox: `0 0 ${width} ${HEIGHT}`, role: 'img' });
  mark(svg, 'aria-label', `${title.charAt(0).toUpperCase()}${title.slice(1)}; peak ${count(Math.round(peak.failed))} at ${minute(peak.at)}`);
  for (const value of top > 1 ? [0, top / 2, top] : [0, top]) {
    svg.append(draw('path', { d: `M${EDGE.left} ${y(value)}H${width - EDGE.right}`, class: 'dq-grid' }));
    svg.append(label(EDGE.left - 6, y(value) + 4, short(value), { 'text-anchor': 'end' }));
  }
  const wide = Math.max(1, x(first + 60) - x(first) - 1.5);
  for (const each of minutes) {
    if (hasRetries(each)) svg.append(column(x(each.at), y(each.failed), wide, bottom, 'dq-retrying'));
    if (each.dead > 0) svg.append(column(x(each.at), y(each.dead), wide, bottom, 'dq-dead'));
  }
  const step = STEPS.find((each) => x(first + each) - x(first) >= TIME_WIDTH) ?? STEPS[2];
  for (let at = Math.ceil(first / step) * step; at < last; at += step) {
    if (x(at) < width - 20) svg.append(label(x(at), HEIGHT - 6, minute(at), { 'text-anchor': 'middle' }));
  }
  const head = headOf(title, width);
  svg.append(...marksOf(marks.filter((each) => each.at >= first && each.at <= last), x, bottom, width - roomOf(head)), legend(head, minutes.some(hasRetries), width));
  return svg;
}

/** Whether more deliveries failed than documents died; rounded, because sums of rates are off by a fraction. */
export const hasRetries = ({ failed, dead }: Minute): boolean => Math.round(failed - dead) > 0;

const column = (x: number, y: number, width: number, bottom: number, kind: string): SVGElement =>
  draw('rect', { x: x.toFixed(1), y: y.toFixed(1), width: width.toFixed(1), height: Math.max(1, bottom - y).toFixed(1), class: kind });

/** The legend in the colours of the drawing, at the right end. */
function legend(head: string, retries: boolean, width: number): SVGElement {
  const element = draw('text', { x: width - EDGE.right, y: 12, 'text-anchor': 'end' });
  const [dead, and, retry] = ['dead', ' and ', 'retried'].map((words) => {
    const span = draw('tspan');
    span.textContent = words;
    return span;
  });
  dead!.setAttribute('class', 'dq-of-dead');
  retry!.setAttribute('class', 'dq-of-retrying');
  element.append(head, dead!, ...(retries ? [and!, retry!] : []));
  return element;
}

/** The part of the title that fits beside the words in colour: the whole, else the scope, else nothing. */
export function headOf(title: string, width: number): string {
  const heads = [title, title.split(', ')[1] ?? ''].filter(Boolean).map((each) => `${each}: `);
  return heads.find((each) => roomOf(each) + EDGE.left + EDGE.right < width) ?? '';
}

/** Width of the legend in the first line. */
const roomOf = (head: string): number => 110 + (head.length ? (head.length - 4) * LETTER : 0);

function marksOf(marks: Mark[], x: (at: number) => number, bottom: number, room: number): SVGElement[] {
  let free = 0;
  return marks.flatMap((each) => {
    const at = x(each.at);
    const cell = each.cell === null ? '' : `[${each.cell}]`;
    const line = draw('path', { d: `M${at.toFixed(1)} 16V${bottom}`, class: 'dq-when' });
    const whole = draw('title');
    whole.textContent = `${cell} ${each.text}`.trim();
    line.append(whole);
    const words = `${cell} ${each.text}`.trim();
    const needed = words.length * LETTER;
    if (at < free || at + needed > room) return [line];
    free = at + needed + 8;
    const name = label(at + 3, 12, '');
    const code = draw('tspan', { class: 'dq-cell' });
    code.textContent = cell;
    name.append(code, ` ${each.text}`);
    return [line, name];
  });
}
