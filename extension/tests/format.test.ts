import { expect, test } from 'vitest';

import spelt from '../../tests/golden/numbers.json';
import { clock, count, date, due, duration, instant, many, minute, moment, rate, seen, share, short, size } from '../src/shared/format';

const RULES: Record<keyof typeof spelt, (...given: any[]) => string> = {
  count,
  many,
  share: (value) => share(value),
  'share with two places': (value) => share(value, 2),
  rate,
  size,
  duration: (value) => duration(value),
  clock,
  minute,
  date,
  due,
  moment,
  instant,
  seen
};

test.each(Object.entries(spelt))('%s spells a number as Python does', (rule, examples) => {
  for (const example of examples) {
    const given = example.slice(0, -1);
    expect([...given, RULES[rule as keyof typeof spelt](...given)]).toEqual(example);
  }
});

test('what is not finite is not known', () => {
  expect([rate(NaN), rate(Infinity), share(NaN), duration(Infinity)]).toEqual(['–', '–', '–', '–']);
});

test('figures beside an axis are short', () => {
  expect([0, 0.5, 1000, 12_500, 5e7, 2e9].map(short)).toEqual(['0', '0.5', '1k', '12.5k', '50M', '2G']);
});
