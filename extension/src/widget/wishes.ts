// Requests of a widget to the page around it: insert a cell, open a tab, keep the widget. JupyterLab answers where
// dqlab's extension is installed (src/lab/wishes.ts); elsewhere nothing answers, and the cell is copied.

export const INSERT = 'dqlab-insert';
export const OPEN = 'dqlab-open';
export const KEEP = 'dqlab-keep';

/** A cell to insert below the widget. */
export interface Insertion {
  source: string;
}
/** The dashboard of a run, or of a queue without `run`, or of all queues without both; `cluster` is a scheduler's address. */
export interface Opening {
  cluster: string;
  name: string;
  queue: string;
  run: string;
}
/** The last picture of a widget by MIME type, for a reader of the notebook without its kernel. */
export type Twin = Record<string, string>;
export interface Kept extends HTMLElement {
  dqTwin?: Twin | undefined;
  /** The twin is final, and saved in place of the widget. */
  dqOver?: boolean;
}

/** Ask the page for something, and return whether the page does it. */
export function wish(from: HTMLElement, name: string, detail: object = {}): boolean {
  // A page that grants a wish prevents the default of its event.
  return !from.dispatchEvent(new CustomEvent(name, { bubbles: true, cancelable: true, detail }));
}

/** Copy text, and return the words to show about that. */
export async function copied(text: string): Promise<string> {
  try {
    await navigator.clipboard.writeText(text);
    return 'Copied. Paste it into a cell:';
  } catch {
    return 'Copy this into a cell:';
  }
}
