// The table of every view: a head, one row per thing, and keys that move among rows.

import { hint, make, mark, part, say, seen, sync } from './dom';
import { printable, UNKNOWN } from './format';
import { roving, type RowKeys } from './keys';

export interface Column<T> {
  title: string | Node;
  /** Classes of the head and of cells; of the head alone; of cells alone. */
  kind?: string;
  head?: string;
  cell?: string;
  /** The text of a cell, or of the element of class `dq-text` in it; and of its tooltip. */
  text?: (row: T) => string;
  hint?: (row: T) => string;
  /** A cell that is more than text: its content, and the function that updates it. */
  make?: (row: T) => (Node | string)[];
  fill?: (cell: HTMLTableCellElement, row: T) => void;
}

export interface TableOptions<T> {
  label: string;
  columns: readonly Column<T>[];
  keyOf(row: T, place: number): string | number;
  create?(line: HTMLTableRowElement, row: T): void;
  update?(line: HTMLTableRowElement, row: T): void;
  keys?: RowKeys;
  /** Selector of the rows among which keys move. */
  stops?: string;
}

export interface Table<T> {
  element: HTMLTableElement;
  body: HTMLTableSectionElement;
  heads: HTMLTableCellElement[];
  /** One row, for a table whose rows are not all of one kind. */
  create(row: T): HTMLTableRowElement;
  update(line: HTMLTableRowElement, row: T): void;
  /** Call this after a change of rows other than by `draw`. */
  settle(): void;
  /** How many columns have room. */
  width(): number;
  draw(rows: readonly T[]): void;
}

const classes = (...kinds: (string | undefined)[]): { class?: string } => {
  const named = kinds.filter(Boolean).join(' ');
  return named ? { class: named } : {};
};

export function table<T>(options: TableOptions<T>): Table<T> {
  const { columns, keyOf, label } = options;
  const heads = columns.map(({ head, kind, title }) => make('th', { scope: 'col', ...classes(kind, head) }, title));
  const body = make('tbody');
  const element = make('table', { 'aria-label': label }, make('thead', {}, make('tr', {}, ...heads)), body);
  const settle = roving(body, options.keys, options.stops);

  const create = (row: T): HTMLTableRowElement => {
    const line = make('tr', {}, ...columns.map((each) => make('td', classes(each.kind, each.cell), ...(each.make?.(row) ?? []))));
    options.create?.(line, row);
    return line;
  };
  const update = (line: HTMLTableRowElement, row: T): void => {
    columns.forEach((column, place) => {
      const cell = line.cells[place]!;
      if (column.text) {
        const words = printable(column.text(row));
        say(column.make ? part(cell, '.dq-text') : cell, words);
        mark(cell, 'data-zero', words === '0' || words === UNKNOWN);
      }
      if (column.hint) hint(cell, printable(column.hint(row)));
      column.fill?.(cell, row);
    });
    options.update?.(line, row);
  };
  return {
    element,
    body,
    heads,
    create,
    update,
    settle,
    width: () => heads.filter(seen).length || 1,
    draw(rows) {
      sync(body, rows, keyOf, create, update);
      settle();
    }
  };
}
