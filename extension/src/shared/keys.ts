// Handle keys in a list of rows: one stop for Tab, arrows move among rows, and from a row to its buttons and back.

import { mark, seen } from './dom';

/** The elements that keys move among: `sync` marks other elements with `data-row` too. */
const ROWS = '[role="treeitem"][data-row], tr[data-row]';

export type RowKeys = Record<string, (row: HTMLElement) => void>;

/** Wire an area once; call the returned function after each change of its rows. */
export function roving(area: HTMLElement, keys: RowKeys = {}, selector = ROWS): () => void {
  const rowOf = (target: EventTarget | null): HTMLElement | null =>
    target instanceof Element ? target.closest<HTMLElement>(selector) : null;
  const rows = (): HTMLElement[] => [...area.querySelectorAll<HTMLElement>(selector)].filter(seen);
  const stops = (row: HTMLElement): HTMLElement[] => [row, ...[...row.querySelectorAll('button')].filter(seen)];
  const settle = (): void => {
    const all = rows();
    const kept = all.find((row) => row.tabIndex === 0) ?? all[0];
    for (const row of all) {
      mark(row, 'tabindex', row === kept ? 0 : -1); // without the attribute a row takes no focus at all
      for (const inner of row.querySelectorAll('button')) mark(inner, 'tabindex', -1);
    }
  };
  const stopAt = (row: HTMLElement | null): void => {
    const all = rows();
    if (row && all.includes(row)) for (const each of all) each.tabIndex = each === row ? 0 : -1;
  };
  const go = (target: HTMLElement | undefined): void => {
    if (!target) return;
    stopAt(rowOf(target));
    target.focus();
  };
  area.addEventListener('focusin', (event) => stopAt(rowOf(event.target)));
  area.addEventListener('keydown', (event) => {
    const target = event.target as HTMLElement;
    const row = rowOf(target);
    if (!row || event.ctrlKey || event.metaKey || event.altKey || target.matches('input')) return;
    const all = rows();
    const at = all.indexOf(row);
    const inner = stops(row);
    const place = inner.indexOf(target);
    const moves: Record<string, () => void> = {
      ArrowDown: () => go(all[Math.min(at + 1, all.length - 1)]),
      ArrowUp: () => go(all[Math.max(at - 1, 0)]),
      Home: () => go(all[0]),
      End: () => go(all[all.length - 1]),
      ArrowRight: () => go(inner[Math.min(place + 1, inner.length - 1)]),
      ArrowLeft: () => go(inner[Math.max(place - 1, 0)])
    };
    const own = target === row ? keys[event.key] : undefined;
    const move = own ? () => own(row) : moves[event.key];
    if (!move || at < 0) return;
    event.preventDefault();
    event.stopPropagation();
    move();
  });
  return settle;
}
