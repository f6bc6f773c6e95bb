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
  const named = trace.replace('in f\n', "in f\n    raise ValueError('é')\n");
  expect(withCells(named, [{ source, count: 2 }])).toBe(shown);
});

test('a cell that was edited since, or is not open, is a cell all the same', () => {
  const trace = '  File "/tmp/ipykernel_77/679148874.py", line 2, in f\n    raise ValueError(x)\nValueError: é';
  const edited = [{ source: 'def f(x):\n    return x\n', count: 3 }];
  expect(withCells(trace, edited)).toBe('  <cell>, line 2, in f\n    raise ValueError(x)\nValueError: é');
  expect(withCells(trace, edited, (name) => (name === 'f' ? 7 : null)).split('\n')[0]).toBe('  cell [7], line 2, in f');
  expect(withCells('  File "/home/ana/mine.py", line 2, in f', edited)).toBe('  File "/home/ana/mine.py", line 2, in f');
});

test('a cell that submits is found too, though its first line is not compiled', () => {
  const source = '%%dq submit --over docs -o run\ndef f(x):\n    return 1 / x';
  const trace = `  File "/tmp/ipykernel_77/${hashOf('# %%dq\ndef f(x):\n    return 1 / x\n')}.py", line 3, in f`;
  expect(withCells(trace, [{ source, count: 4 }])).toBe('  cell [4], line 3, in f\n    return 1 / x');
});
