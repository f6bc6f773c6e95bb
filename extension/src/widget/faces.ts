// Which glyph stands for which word of a picture.

import type { Glyph } from '../shared/glyphs';
import type { State } from '../shared/snapshot';

export const STATES: Record<State, Glyph> = {
  acked: 'tick',
  dead: 'cross',
  lost: 'cross',
  leased: 'half',
  ready: 'ring',
  delayed: 'later',
  cancelled: 'struck'
};
const FACES: Record<string, Glyph> = {
  connecting: 'dash',
  submitting: 'play',
  running: 'play',
  paused: 'halt',
  drain: 'drain',
  waiting: 'warning',
  'no answer': 'offline',
  gone: 'struck',
  stopped: 'cross',
  done: 'tick',
  'done with dead': 'cross',
  cancelled: 'struck',
  incomplete: 'warning',
  'nothing to do': 'dash'
};
export const TONES: Record<string, Glyph> = { plain: 'dash', quiet: 'dash', warn: 'warning', bad: 'cross' };
export const NEEDS: Record<string, Glyph> = { dead: 'cross', warn: 'warning', slow: 'slow' };

export const faceOf = (name: string): Glyph => FACES[name] ?? 'dash';
