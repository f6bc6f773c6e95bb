import { expect, test } from 'vitest';

import { hashOf, withCells } from '../src/lab/cells';

test('a cell is found by the name under which its kernel compiled it', () => {
  // As ipykernel computes them.
  expect([hashOf(''), hashOf('a'), hashOf('ab'), hashOf('abc')]).toEqual([3990065800, 2167009006, 2805137849, 3350977461]);
  expect(hashOf("def f(x):\n    raise ValueError('é')\n")).toBe(679148874);
});

test('a traceback of a function of a cell shows the cell and the line, unless it was edited', () => {
  const source = "def f(x):\n    raise ValueError('é')\n";
  const trace = ['Traceback (most recent call last):', '  File "/tmp/ipykernel_77/679148874.py", line 2, in f', 'ValueError: é'].join('\n');
  const shown = ['Traceback (most recent call last):', '  cell [2], line 2, in f', "    raise ValueError('é')", 'ValueError: é'].join('\n');
  expect(withCells(trace, [{ source, count: 2 }])).toBe(shown);
  expect(withCells(trace, [{ source: `${source}#`, count: 3 }])).toBe(trace);
  const named = trace.replace('in f\n', "in f\n    raise ValueError('é')\n");
  expect(withCells(named, [{ source, count: 2 }])).toBe(shown);
});
