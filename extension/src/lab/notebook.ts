// Insert cells into the user's notebook. Notebooks are recognized by their shape, so no plugin of theirs is required.

import type { JupyterFrontEnd } from '@jupyterlab/application';
import { Dialog, showDialog } from '@jupyterlab/apputils';
import type { Widget } from '@lumino/widgets';

import type { Cell } from './cells';
import { copy } from './ask';
import { quoted, word } from './python';

interface SharedNotebook {
  insertCells(at: number, cells: { cell_type: 'code'; source: string; metadata: object }[]): unknown;
}

interface NotebookLike {
  activeCellIndex: number;
  model: { sharedModel: SharedNotebook } | null;
  scrollToItem?(index: number): Promise<void>;
}

interface SharedCell {
  cell_type?: string;
  execution_count?: number | null;
  getSource(): string;
}

export const CONNECT = 'import dqlab as dq\nlab = dq.connect()';
/** Cells that start a service and list a folder, and that read each of its documents. */
export const LIST = `%load_ext dqlab
import dqlab as dq
%dq connect
docs = dq.Documents.from_glob("data/**/*.txt")`;
export const SUBMIT = `%%dq submit --over docs --watch -o run
def read(document):
    return {"words": len(document.text().split())}`;

export const connectTo = (address: string): string => `import dqlab as dq\nlab = dq.connect(${quoted(address)})`;
export const reopen = (store: string): string => `import dqlab as dq\nlab = dq.connect(store=${quoted(store)})`;
/** Keys up to this length are listed whole. */
const LONGEST_KEY = 120;

/**
 * The cell that shows a dead document, by its key: a later run has the same key, but the id of a message belongs to one
 * run. The cell names the run, because the notebook's last run may be another one.
 */
export function showCell({ id, key }: { id: string | number; key: string }, run?: string): string {
  const whole = key !== '' && key.length < LONGEST_KEY && !/[\p{C}\u2028\u2029\ufffd]|^\s|\s$|\s\s|[^\S ]/u.test(key);
  return `%dq show ${whole ? word(key) : id}${run ? ` ${word(run)}` : ''}`;
}

/** The cell that shows the results of a run: columns, types, the first rows, and the folder of a sink. */
export const resultsCell = (run: string): string => `%dq results ${word(run)} --table`;

/** Insert cells after the active one of the current notebook; without a notebook, offer the code to copy. */
export async function insert(shell: JupyterFrontEnd.IShell, ...sources: string[]): Promise<boolean> {
  const found = notebookIn(shell);
  if (!found) {
    const code = sources.join('\n\n');
    const result = await showDialog({
      title: 'No notebook is open',
      body: 'Open a notebook and try again, or copy the code.',
      buttons: [Dialog.cancelButton(), Dialog.okButton({ label: 'Copy code' })]
    });
    if (result.button.accept) copy(code);
    return false;
  }
  const [widget, notebook] = found;
  const at = notebook.activeCellIndex + 1;
  notebook.model!.sharedModel.insertCells(
    at,
    sources.map((source) => ({ cell_type: 'code', source, metadata: {} }))
  );
  notebook.activeCellIndex = at;
  shell.activateById(widget.id);
  void notebook.scrollToItem?.(at)?.catch(() => undefined);
  return true;
}

/** Return the id of the kernel of the notebook or console in front; empty where there is none. */
export function kernelIn(shell: JupyterFrontEnd.IShell): string {
  const current = shell.currentWidget as { sessionContext?: { session?: { kernel?: { id?: string } | null } | null } } | null;
  return current?.sessionContext?.session?.kernel?.id ?? '';
}

/** Return the code cells of the notebooks that are open. */
export function cellsIn(shell: JupyterFrontEnd.IShell): Cell[] {
  return [...shell.widgets('main')].flatMap((widget) => {
    const shared = (widget as { content?: { model?: { sharedModel?: { cells?: readonly SharedCell[] } } } }).content?.model?.sharedModel;
    const code = (shared?.cells ?? []).filter((each) => each.cell_type === 'code');
    return code.map((each) => ({ source: each.getSource(), count: each.execution_count ?? null }));
  });
}

function notebookIn(shell: JupyterFrontEnd.IShell): [Widget, NotebookLike] | null {
  const current = shell.currentWidget;
  const all = [...shell.widgets('main')];
  const seen = all.filter((widget) => widget.isVisible);
  for (const widget of [...(current ? [current] : []), ...seen, ...all]) {
    const content = (widget as { content?: Partial<NotebookLike> }).content;
    if (typeof content?.activeCellIndex === 'number' && content.model?.sharedModel?.insertCells) {
      return [widget, content as NotebookLike];
    }
  }
  return null;
}
