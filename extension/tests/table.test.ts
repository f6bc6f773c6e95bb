import { afterEach, beforeEach, expect, test } from 'vitest';

import { guarded, make } from '../src/shared/dom';
import { table, type Table } from '../src/shared/table';

interface Row {
  name: string;
  dead: string;
}

let pressed: string[];
let made: Table<Row>;

// Elements have no size here: what the keys move among is all that is not hidden.
const sizeOf = Element.prototype.getClientRects;
beforeEach(() => {
  Element.prototype.getClientRects = function (this: Element) {
    return (this.closest('[hidden]') ? [] : [{}]) as unknown as DOMRectList;
  };
  pressed = [];
  made = table<Row>({
    label: 'Queues',
    columns: [
      { title: 'queue', make: () => [make('b', { class: 'dq-text' }), make('button')], text: (row) => row.name },
      { title: 'dead', kind: 'dq-num', cell: 'dq-bad', text: (row) => row.dead, hint: (row) => `${row.dead} dead` }
    ],
    keyOf: (row) => row.name,
    keys: { Enter: (line) => pressed.push(line.dataset.row!) }
  });
  document.body.replaceChildren(made.element);
});
afterEach(() => {
  Element.prototype.getClientRects = sizeOf;
});

const lines = (): HTMLTableRowElement[] => [...made.body.children] as HTMLTableRowElement[];
const press = (key: string): boolean =>
  document.activeElement!.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true, cancelable: true }));

test('heads name their columns for readers that do not see, and cells are as their heads', () => {
  made.draw([{ name: 'pages', dead: '212' }]);
  expect(made.heads.map((each) => [each.textContent, each.scope, each.className])).toEqual([
    ['queue', 'col', ''],
    ['dead', 'col', 'dq-num']
  ]);
  const [name, dead] = lines()[0]!.cells;
  expect([name!.textContent, dead!.textContent, dead!.className, dead!.title]).toEqual(['pages', '212', 'dq-num dq-bad', '212 dead']);
});

test('a name that would turn the text beside it around does not', () => {
  made.draw([{ name: '!\u202erev\u2069\u0007', dead: '1\u202e' }]);
  const [name, dead] = lines()[0]!.cells;
  expect([name!.textContent, dead!.title]).toEqual(['!\ufffdrev\ufffd\ufffd', '1\ufffd dead']);
});

test('a row stays the same element while its figures change, and what is nothing stands back', () => {
  made.draw([{ name: 'pages', dead: '212' }, { name: 'ocr', dead: '–' }]);
  const [pages, ocr] = lines();
  made.draw([{ name: 'ocr', dead: '3' }, { name: 'pages', dead: '0' }]);
  expect(lines()).toEqual([ocr, pages]);
  expect(lines().map((line) => line.cells[1]!.dataset.zero)).toEqual(['false', 'true']);
});

test('Tab stops once, arrows go to rows and into them, and keys act on the row that has the focus', () => {
  made.draw([{ name: 'pages', dead: '1' }, { name: 'ocr', dead: '2' }]);
  expect([...made.element.querySelectorAll<HTMLElement>('[tabindex="0"]')]).toEqual([lines()[0]]);
  lines()[0]!.focus();
  press('ArrowDown');
  expect(document.activeElement).toBe(lines()[1]);
  press('Enter');
  press('ArrowRight');
  expect(document.activeElement).toBe(lines()[1]!.querySelector('button'));
  press('Enter');
  expect(pressed).toEqual(['ocr']);
});

test('a text from a user is text, whatever it contains', () => {
  made.draw([{ name: '<img src=x>', dead: '<b>1</b>' }]);
  expect(made.element.querySelector('img')).toBeNull();
  expect(lines()[0]!.textContent).toBe('<img src=x><b>1</b>');
});

test('a view that cannot be drawn says so once, and no more when it can', () => {
  const root = make('section', {}, made.element);
  const breaks = (): void => {
    throw new TypeError('e.replace is not a function');
  };
  const broken = (): (string | null)[] => [...root.querySelectorAll('.dq-broken')].map((each) => each.textContent);

  expect(() => guarded(root, breaks)).toThrow(TypeError);
  expect(() => guarded(root, breaks)).toThrow(TypeError);
  expect(broken()).toEqual([expect.stringMatching(/^This view stopped at \d\d:\d\d:\d\d \(TypeError: e.replace is not a function\)\. What it shows may be old/)]);

  guarded(root, () => made.draw([{ name: 'pages', dead: '1' }]));
  expect(broken()).toEqual([]);
  expect(lines().length).toBe(1);
});
