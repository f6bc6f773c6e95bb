import { expect, test } from 'vitest';

import { age, clock, count, date, due, duration, many, oneLine, rate, share, size } from '../src/format';

const AT = Date.UTC(2026, 10, 21, 14, 22, 7) / 1000;

test('a share reads as all or nothing only when it is', () => {
  expect([0, 0.0004, 0.655, 0.99999, 1, null].map((value) => share(value))).toEqual([
    '0 %',
    '<0.1 %',
    '65.5 %',
    '99.9 %',
    '100 %',
    '–'
  ]);
});

test('rates have three digits and what is not known has a dash', () => {
  expect([451, 23.94, 0.7, 0.001, 0, null].map(rate)).toEqual(['451', '23.9', '0.70', '<0.01', '0', '–']);
});

test('counts are never shortened', () => {
  expect(count(16121)).toBe('16,121');
  expect(many(1, 'document')).toBe('1 document');
  expect(many(16121, 'document')).toBe('16,121 documents');
});

test('bytes are decimal', () => {
  expect([999, 1_800_000_000, 310_000_000].map(size)).toEqual(['999 B', '1.8 GB', '310 MB']);
});

test('a duration never claims time that has not passed', () => {
  expect([0.04, 59.99, 252, 13140, 86_400].map((value) => duration(value))).toEqual(['0.1 s', '59 s', '4 min 12 s', '3 h 39 min', '1 d']);
});

test('instants say when they were, and on which day where that matters', () => {
  expect(clock(AT)).toBe('14:22:07');
  expect(age(AT - 5, AT)).toBe('5 s ago');
  expect(age(AT - 3600, AT)).toBe('13:22');
  expect(age(AT - 86_400, AT)).toBe(date(AT - 86_400));
  expect(due(AT + 700, AT)).toBe('14:34');
  expect(due(AT + 86_400, AT)).toBe('22 Nov 14:22');
});

test('a name of many lines fits on one', () => {
  expect(oneLine('a\n  b\tc')).toBe('a b c');
  expect(oneLine('x'.repeat(300), 10)).toBe(`${'x'.repeat(9)}…`);
});
