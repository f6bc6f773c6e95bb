import { expect, test } from 'vitest';

import { resultsCell, showCell } from '../src/lab/notebook';

const document = (key: string) => ({ id: 123, key });

test('the cell that shows a document names its run, which need not be the last one of the notebook', () => {
  expect(showCell(document('a/b.pdf'), 'parse-invoices')).toBe('%dq show a/b.pdf parse-invoices');
  expect(showCell(document('a/b.pdf'))).toBe('%dq show a/b.pdf');
});

test('keys and names are words of the line, whatever is in them', () => {
  expect(showCell(document('größe 7.pdf'), "Ana's run")).toBe(`%dq show 'größe 7.pdf' "Ana's run"`);
  expect(showCell(document('größe-7.pdf'), '-v')).toBe("%dq show größe-7.pdf '-v'");
});

test('a key that no line can hold is named by its message', () => {
  expect(showCell(document('x'.repeat(200)), 'r')).toBe('%dq show 123 r');
  expect(showCell(document('a\nb'), 'r')).toBe('%dq show 123 r');
});

test('the cell that shows the results of a run names it, whatever is in its name', () => {
  expect(resultsCell('parse-invoices')).toBe('%dq results parse-invoices --table');
  expect(resultsCell("Ana's run")).toBe(`%dq results "Ana's run" --table`);
});
