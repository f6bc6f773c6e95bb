// Grant the requests of widgets to the notebook that shows them: a cell below them, a tab, and to be kept after their end.

import type { JupyterFrontEnd } from '@jupyterlab/application';
import { DisposableDelegate, type IDisposable } from '@lumino/disposable';
import type { Widget } from '@lumino/widgets';

import { INSERT, KEEP, OPEN, type Insertion, type Kept, type Opening, type Twin } from '../widget/wishes';

const WIDGET = 'application/vnd.jupyter.widget-view+json';

interface SavedOutput {
  data?: Record<string, unknown>;
}
interface SavedCell {
  outputs?: SavedOutput[];
}
interface NotebookModel {
  dirty: boolean;
  toJSON(): unknown;
  sharedModel: { insertCells(at: number, cells: object[]): unknown };
}
interface Notebook extends Widget {
  widgets: readonly (Widget & { outputArea?: { widgets: readonly Widget[] } })[];
  activeCellIndex: number;
  model: NotebookModel | null;
  scrollToItem?(index: number): Promise<void>;
  deselectAll?(): void;
}
/** A tab with a notebook, recognized by its shape. */
interface Panel {
  content: Notebook;
}

/** Grant the requests of widgets in every notebook that is opened later. */
export function grantWishes(app: JupyterFrontEnd): IDisposable {
  return app.docRegistry.addWidgetExtension('Notebook', { createNew: (panel: unknown): IDisposable => grant(panel as Panel) });
}

/** Open the dashboards that widgets ask for, wherever a widget stands. */
export function grantOpenings(open: (of: Opening) => void | Promise<void>): void {
  document.addEventListener(OPEN, (event) => {
    event.preventDefault();
    void open((event as CustomEvent<Opening>).detail);
  });
}

function grant({ content }: Panel): IDisposable {
  const wrapped = new WeakSet<NotebookModel>();
  const onInsert = (event: Event): void => {
    if (insertBelow(content, event.target as Node, (event as CustomEvent<Insertion>).detail.source)) event.preventDefault();
  };
  const onKeep = (event: Event): void => {
    const { model } = content;
    if (!model) return;
    if (!wrapped.has(model)) saveTwins(content, model);
    wrapped.add(model);
    event.preventDefault();
    if ((event as CustomEvent<{ changed: boolean }>).detail.changed) model.dirty = true;
  };
  content.node.addEventListener(INSERT, onInsert);
  content.node.addEventListener(KEEP, onKeep);
  return new DisposableDelegate(() => {
    content.node.removeEventListener(INSERT, onInsert);
    content.node.removeEventListener(KEEP, onKeep);
  });
}

/** Insert a cell below the one that contains a node, scroll there, and return whether such a cell exists. Run nothing. */
export function insertBelow(notebook: Notebook, node: Node, source: string): boolean {
  const at = notebook.widgets.findIndex((cell) => cell.node.contains(node)) + 1;
  if (!at || !notebook.model) return false;
  notebook.model.sharedModel.insertCells(at, [{ cell_type: 'code', source, metadata: {} }]);
  notebook.deselectAll?.();
  notebook.activeCellIndex = at;
  void notebook.scrollToItem?.(at)?.catch(() => undefined);
  return true;
}

/** Make the notebook save the twins of its widgets, which need no kernel. */
function saveTwins(notebook: Notebook, model: NotebookModel): void {
  const toJSON = model.toJSON.bind(model);
  model.toJSON = () => withTwins(toJSON(), notebook);
}

export function withTwins(saved: unknown, notebook: Pick<Notebook, 'widgets'>): unknown {
  const cells = (saved as { cells?: SavedCell[] }).cells ?? [];
  notebook.widgets.forEach((cell, place) =>
    cell.outputArea?.widgets.forEach((output, index) => {
      const views = [...output.node.querySelectorAll<Kept>('.dqlab')].filter((each) => Object.keys(each.dqTwin ?? {}).length);
      const stored = cells[place]?.outputs?.[index];
      if (!stored?.data || !(WIDGET in stored.data) || !views.length) return;
      // Beside a live view, or several, the widgets stay in the file: only a final twin alone replaces its widget.
      const final = views.length === 1 && views[0]!.dqOver === true;
      stored.data = { ...(final ? {} : stored.data), ...together(views.map((each) => each.dqTwin!)) };
    })
  );
  return saved;
}

/** One twin of all widgets in an output. */
function together(twins: readonly Twin[]): Twin {
  const types = [...new Set(twins.flatMap((each) => Object.keys(each)))];
  return Object.fromEntries(types.map((type) => [type, twins.map((each) => each[type] ?? '').join('\n')]));
}
