import { expect, test, vi } from 'vitest';

import { insertBelow, withTwins } from '../src/lab/wishes';
import { INSERT, wish, type Kept } from '../src/widget/wishes';

const WIDGET = 'application/vnd.jupyter.widget-view+json';

/** A notebook of cells with one output each, in which a live view stands. */
function notebook(amount: number) {
  const views = Array.from({ length: amount }, () => Object.assign(document.createElement('section'), { className: 'dqlab' }) as Kept);
  const widgets = views.map((view) => {
    const [node, output] = [document.createElement('div'), document.createElement('div')];
    node.append(output);
    output.append(view);
    return { node, outputArea: { widgets: [{ node: output }] } };
  });
  const insertCells = vi.fn();
  const model = { dirty: false, toJSON: () => ({}), sharedModel: { insertCells } };
  return { views, insertCells, content: { widgets, model, activeCellIndex: 0 } as any };
}

test('a cell is inserted below the one that shows the view, is the active one then, and is not run', () => {
  const { views, insertCells, content } = notebook(3);
  expect(insertBelow(content, views[1]!, 'def parse(document): ...')).toBe(true);
  expect(insertCells).toHaveBeenCalledWith(2, [{ cell_type: 'code', source: 'def parse(document): ...', metadata: {} }]);
  expect(content.activeCellIndex).toBe(2);
});

test('a view that stands in no cell of the notebook is told so, and copies', () => {
  const { insertCells, content } = notebook(1);
  expect(insertBelow(content, document.createElement('section'), 'x')).toBe(false);
  expect(insertCells).not.toHaveBeenCalled();
});

test('what nobody does is not taken for done', () => {
  const [outer, inner] = [document.createElement('div'), document.createElement('section')];
  outer.append(inner);
  expect(wish(inner, INSERT, { source: 'x' })).toBe(false);
  outer.addEventListener(INSERT, (event) => event.preventDefault());
  expect(wish(inner, INSERT, { source: 'x' })).toBe(true);
});

test('a view that was kept after its end is saved as its twin; one that has none yet as it is', () => {
  const { views, content } = notebook(2);
  views[1]!.dqTwin = { 'text/plain': 'done', 'text/html': '<b>done</b>' };
  views[1]!.dqOver = true;
  const live = (): object => ({ outputs: [{ data: { [WIDGET]: { model_id: '1' }, 'text/plain': 'running' } }] });
  const saved = withTwins({ cells: [live(), live()] }, content);
  expect(saved).toEqual({ cells: [live(), { outputs: [{ data: { 'text/plain': 'done', 'text/html': '<b>done</b>' } }] }] });
});

test('a view that goes on, or stands in a layout, is saved with its last state beside it', () => {
  const { views, content } = notebook(1);
  views[0]!.dqTwin = { 'text/plain': 'running 60 %', 'text/html': '<b>60 %</b>' };
  const widget = { [WIDGET]: { model_id: '1' } };
  const saved = (): unknown => withTwins({ cells: [{ outputs: [{ data: { ...widget, 'text/plain': 'running 1 %' } }] }] }, content);
  expect(saved()).toEqual({ cells: [{ outputs: [{ data: { ...widget, ...views[0]!.dqTwin } }] }] });

  const second = Object.assign(document.createElement('section'), { className: 'dqlab' }) as Kept;
  second.dqTwin = { 'text/plain': 'done' };
  second.dqOver = true;
  views[0]!.after(second);
  const both = { 'text/plain': 'running 60 %\ndone', 'text/html': '<b>60 %</b>\n' };
  expect(saved()).toEqual({ cells: [{ outputs: [{ data: { ...widget, ...both } }] }] });
});
