// The chart of failed deliveries: its time axis fits what there is.

import { afterEach, beforeEach, expect, test, vi } from 'vitest';

import { minutesChart } from '../src/lab/failures/chart';
import { minute } from '../src/shared/format';

const START = 1_800_000_000 - (1_800_000_000 % 600);

beforeEach(() => {
  vi.stubGlobal('ResizeObserver', class {
    observe(): void {}
    disconnect(): void {}
  });
  vi.spyOn(Element.prototype, 'getBoundingClientRect').mockReturnValue({ width: 600 } as DOMRect);
});
afterEach(() => {
  vi.unstubAllGlobals();
  vi.restoreAllMocks();
});

function drawn(minutes: number): { times: string[]; columns: number[] } {
  const chart = minutesChart();
  chart.draw(Array.from({ length: minutes }, (_, at) => ({ at: START + 60 * at, failed: 5, dead: 0 })), [], 'failed deliveries');
  const all = [...chart.element.querySelectorAll('text')].map((each) => each.textContent!);
  const columns = [...chart.element.querySelectorAll('rect')].map((each) => Number(each.getAttribute('width')));
  chart.dispose();
  return { times: all.filter((each) => /^\d\d:\d\d$/.test(each)), columns };
}

test('the first minute is seen, and half an hour of nothing is not', () => {
  const { times, columns } = drawn(1);
  expect(columns[0]).toBeGreaterThan(80);
  expect(times).toContain(minute(START));
  expect(times.length).toBeGreaterThan(2);
});

test.each([1, 5, 12, 30, 60])('times on the axis of %d minutes do not run into each other', (minutes) => {
  const { times } = drawn(minutes);
  expect(new Set(times).size).toBe(times.length);
  expect(times.length).toBeLessThanOrEqual(12);
  expect(times.length).toBeGreaterThan(1);
});

test.each([
  [12.0000001, false],
  [11.9999999, false],
  [13, true]
])('of 12 dead among %f failed deliveries per minute, retried are named and drawn: %s', (failed, named) => {
  const chart = minutesChart();
  chart.draw([{ at: START, failed, dead: 12 }], [], 'failed deliveries');
  expect(chart.element.textContent!.includes('retried')).toBe(named);
  expect(chart.element.querySelectorAll('rect.dq-retrying').length).toBe(named ? 1 : 0);
  chart.dispose();
});
