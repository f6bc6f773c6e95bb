import { expect, test } from 'vitest';

import { showCell } from '../src/lab/notebook';

test('the cell that shows a document names its run, which need not be the last one of the notebook', () => {
  expect(showCell(123, 'parse-invoices')).toBe('%dq show 123 parse-invoices');
  expect(showCell(123)).toBe('%dq show 123');
});
