// What the pieces of one widget share: its elements, the parts of its picture, and how a press is sent.

import type { Parts, Press } from './parts';

export interface Context<P extends Parts = Parts> {
  readonly kind: string;
  readonly root: HTMLElement;
  readonly card: HTMLElement;
  /** Called when the widget is taken away. */
  readonly closing: (() => void)[];
  /** A question stands open. */
  asking: boolean;
  /** The chart is shown as a table. */
  asTable: boolean;
  /** The command that was sent and not answered yet. */
  pressed: string;
  /** Nothing comes from the kernel: nobody would act on a press. */
  readonly silent: boolean;
  /** What is shown is old, because the kernel, or the cluster, does not answer. */
  readonly stale: boolean;
  /** Insert a cell below the widget; where that cannot be, copy it and say so. */
  insert(source: string): void;
  /** Copy a line and say so. */
  copy(text: string): void;
  part<K extends keyof P>(name: K): P[K];
  redraw(): void;
  /** Send a press; a `free` one does not hold back the next. */
  send(message: Press, free?: boolean): void;
}

export type Keys = Record<string, (event: KeyboardEvent) => boolean>;

/** The widget of one kind: what brings it up to date, and its keys; each returns whether it did something. */
export interface WidgetView {
  draw(): void;
  keys: Keys;
}

/** The command that asks a cluster that does not answer again. */
export const ASK = 'ask';

/** Whether a button is held for now; while what is shown is old, only the one that asks again is not. */
export const blocked = (context: Context, command = ''): boolean =>
  context.asking || context.silent || (context.stale && command !== ASK) || context.pressed !== '';

let ids = 0;
export const unique = (name: string): string => `dq-${name}-${Date.now().toString(36)}-${ids++}`;
