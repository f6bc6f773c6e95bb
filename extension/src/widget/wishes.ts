// What a widget asks of the page around it: to insert a cell, to open a tab, to keep it. JupyterLab answers where dqlab's
// extension is installed (src/lab/wishes.ts); elsewhere nothing does, and what was to be inserted is copied.

export const INSERT = 'dqlab-insert';
export const OPEN = 'dqlab-open';
export const KEEP = 'dqlab-keep';

/** Cells for the notebook that shows the widget, below it. */
export interface Insertion {
  source: string;
}
/** The dashboard of a run, of a queue where that is "", or of all queues of a cluster, which its scheduler's address names. */
export interface Opening {
  cluster: string;
  name: string;
  queue: string;
  run: string;
}
/** The last picture of a widget for who reads the notebook without its kernel, by MIME type. */
export type Twin = Record<string, string>;
export interface Kept extends HTMLElement {
  dqTwin?: Twin | undefined;
  /** The twin is final, and saved in place of the widget. */
  dqOver?: boolean;
}

/** Ask the page for something; whether it is done. */
export function wish(from: HTMLElement, name: string, detail: object = {}): boolean {
  return !from.dispatchEvent(new CustomEvent(name, { bubbles: true, cancelable: true, detail }));
}

/** Put text where it can be pasted from; what to say about that. */
export async function copied(text: string): Promise<string> {
  try {
    await navigator.clipboard.writeText(text);
    return 'Copied. Paste it into a cell:';
  } catch {
    return 'Copy this into a cell:';
  }
}
