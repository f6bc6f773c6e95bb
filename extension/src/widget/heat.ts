// One cell per queue, in the order of the rows.

import { hint as point, make, mark, style, sync, text } from '../shared/dom';
import { unique } from './context';
import type { QueueRow } from './parts';

const HINT = 'Every queue, one cell each · needs you, running (stronger = deeper), paused, empty · arrow keys move, Enter opens';

const kindOf = (row: QueueRow): string =>
  row.tone || (row.paused || row.icon === 'drain' ? 'halt' : row.icon === 'connecting' ? 'none' : 'ready');

export function heatBox(choose: (name: string) => void): { element: HTMLElement; draw(rows: readonly QueueRow[]): void } {
  const hint = text('div', 'dq-lab', HINT);
  hint.id = unique('hint');
  const line = make('div', { role: 'row', class: 'dq-heat-row' });
  const grid = make('div', { class: 'dq-heat', role: 'grid', 'aria-label': 'Queues by state', 'aria-describedby': hint.id }, line);
  const element = make('div', { class: 'dq-heat-box' }, hint, grid);
  const cells = (): HTMLElement[] => [...line.children] as HTMLElement[];
  element.addEventListener('click', (event) => {
    const target = (event.target as Element).closest<HTMLElement>('[data-name]');
    if (target) choose(target.dataset.name!);
  });
  line.addEventListener('keydown', (event) => {
    const all = cells();
    const at = all.indexOf(document.activeElement as HTMLElement);
    const from = all[at];
    const wide = all.filter((each) => each.offsetTop === all[0]!.offsetTop).length;
    const steps: Record<string, number> = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: wide, ArrowUp: -wide };
    const step = steps[event.key];
    if (!from || (step === undefined && event.key !== 'Enter')) return;
    event.preventDefault();
    event.stopPropagation();
    if (step === undefined) return choose(from.dataset.name!);
    const next = all[Math.min(Math.max(at + step, 0), all.length - 1)]!;
    from.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  });
  const create = (row: QueueRow): HTMLElement => make('i', { role: 'gridcell', tabindex: '-1', 'data-name': row.name });
  return {
    element,
    draw(rows) {
      const running = rows.filter((row) => !row.tone && row.icon === 'running').map((row) => row.name);
      sync(line, rows, (row) => row.name, create, (child, row) => {
        const kind = kindOf(row);
        const words = `${row.name}: ${[row.state, row.why].filter(Boolean).join(', ')}, ${row.waiting} waiting`;
        const weaker = Math.round(73 * (running.indexOf(row.name) / running.length)) / 100;
        mark(child, 'data-kind', kind);
        mark(child, 'aria-label', words);
        point(child, words);
        style(child, 'opacity', kind === 'ready' ? String(1 - weaker) : '');
      });
      const [first] = cells();
      if (first && !cells().some((each) => each.tabIndex === 0)) first.tabIndex = 0;
    }
  };
}
