// The context that the pieces of one widget share: its elements, the parts of its picture, and how a press is sent.

import type { Parts, Press } from './parts';

export interface Context<P extends Parts = Parts> {
  readonly kind: string;
  readonly root: HTMLElement;
  readonly card: HTMLElement;
  /** Called when the widget is removed. */
  readonly closing: (() => void)[];
  /** A question is open. */
  asking: boolean;
  /** The chart is shown as a table. */
  asTable: boolean;
  /** The command that was sent and not answered yet. */
  pressed: string;
  /** The kernel sends nothing, so it would not act on a press. */
  readonly silent: boolean;
  /** The numbers are old, because the kernel or the cluster does not answer. */
  readonly stale: boolean;
  /** Insert a cell below the widget; where that is impossible, copy it and show that. */
  insert(source: string): void;
  /** Copy a line and show that. */
  copy(text: string): void;
  part<K extends keyof P>(name: K): P[K];
  redraw(): void;
  /** Send a press; a `free` one does not hold back the next. */
  send(message: Press, free?: boolean): void;
}

export type Keys = Record<string, (event: KeyboardEvent) => boolean>;

/** The widget of one kind: its update, and its keys, which return whether they did something. */
export interface WidgetView {
  draw(): void;
  keys: Keys;
}

/** The command that polls a cluster again when it does not answer. */
export const ASK = 'ask';

/** Whether a button is held for now: while the numbers are old, all but the button that polls again. */
export const blocked = (context: Context, command = ''): boolean =>
  context.asking || context.silent || (context.stale && command !== ASK) || context.pressed !== '';

let ids = 0;
export const unique = (name: string): string => `dq-${name}-${Date.now().toString(36)}-${ids++}`;
