// The glyphs of states, and the picture in JupyterLab's sidebar.

import { LabIcon } from '@jupyterlab/ui-components';

import type { Glyph } from '../shared/glyphs';
import { hadNothing, stateOf, type Run } from '../shared/snapshot';

const QUEUES: Record<string, Glyph> = {
  running: 'play',
  'keeping up': 'play',
  submitting: 'play',
  paused: 'halt',
  draining: 'drain',
  drained: 'halt',
  empty: 'dash',
  stopped: 'cross'
};
const RUNS: Record<string, Glyph> = {
  submitting: 'play',
  running: 'play',
  paused: 'halt',
  waiting: 'warning',
  done: 'tick',
  following: 'later',
  rehearsed: 'halt',
  cancelled: 'struck',
  incomplete: 'warning',
  stopped: 'cross'
};

export function queueGlyph(state: string): Glyph {
  return QUEUES[state] ?? 'warning';
}

export function runGlyph(run: Run): Glyph {
  const state = hadNothing(run) ? '' : stateOf(run);
  return state === 'done' && (run.counts.dead > 0 || run.counts.lost > 0) ? 'cross' : (RUNS[state] ?? 'dash');
}

const RAIL = `<svg xmlns="http://www.w3.org/2000/svg" width="16" height="16" viewBox="0 0 18 18">
<g class="jp-icon3 jp-icon-selectable-stroke" fill="none" stroke="#616161" stroke-width="1.6"><path d="M2.5 4h13M2.5 9h9M2.5 14h5"/></g>
<path class="jp-icon3 jp-icon-selectable" fill="#616161" d="M11.6 11.8 15.6 14l-4 2.2z"/></svg>`;

export const dqlabIcon = new LabIcon({ name: 'dqlab:queues', svgstr: RAIL });
