// Show the HTML twin of a lost live view. A view is saved with its twin, but a notebook prefers the widget: reopened
// without its kernel, it shows an error in place of the widget. Here the twin takes that place.

import type { JupyterFrontEnd } from '@jupyterlab/application';
import { DisposableDelegate, type IDisposable } from '@lumino/disposable';
import type { Widget } from '@lumino/widgets';

import { text } from '../shared/dom';

/** The words of jupyterlab_widgets for a widget that its kernel does not have; tests/browser notices when they change. */
const LOST = 'Error displaying widget: model not found';
const HTML = 'text/html';
const CAPTION = 'This view was saved while it was live, and the kernel that fed it is gone. As it was last saved:';

interface Output {
  data: Record<string, unknown>;
}
interface Renderer extends Widget {
  renderModel(model: Output): Promise<void>;
}
interface OutputArea {
  widgets: readonly Widget[];
  model: { get(index: number): Output };
}
interface Notebook extends Widget {
  widgets: readonly (Widget & { outputArea?: OutputArea })[];
  rendermime: { createRenderer(type: string): Renderer };
}
/** A tab with a notebook, recognized by its shape. */
interface Panel {
  content: Notebook;
}

/** Show the twins of lost widgets in every notebook that is opened later. */
export function showTwins(app: JupyterFrontEnd): IDisposable {
  const extension = { createNew: (panel: unknown): IDisposable => watch((panel as Panel).content) };
  return app.docRegistry.addWidgetExtension('Notebook', extension);
}

function watch(notebook: Notebook): IDisposable {
  const made: Renderer[] = [];
  const observer = new MutationObserver((changes) => {
    for (const { target } of changes) if (isLost(target)) void replace(notebook, target as HTMLElement, made);
  });
  observer.observe(notebook.node, { childList: true, subtree: true });
  return new DisposableDelegate(() => {
    observer.disconnect();
    for (const each of made) each.dispose();
  });
}

const isLost = (node: Node): boolean => node.childNodes.length === 1 && node.firstChild!.nodeType === Node.TEXT_NODE && node.textContent === LOST;

/** Return the output that contains a node; undefined where notebooks have another structure. */
export function outputOf(notebook: Notebook, node: Node): Output | undefined {
  const area = notebook.widgets.find((cell) => cell.node.contains(node))?.outputArea;
  const at = area?.widgets.findIndex((each) => each.node.contains(node)) ?? -1;
  return at < 0 ? undefined : area!.model.get(at);
}

async function replace(notebook: Notebook, node: HTMLElement, made: Renderer[]): Promise<void> {
  const output = outputOf(notebook, node);
  if (output?.data[HTML] === undefined) return;
  const renderer = notebook.rendermime.createRenderer(HTML);
  made.push(renderer);
  await renderer.renderModel(output);
  // Look again: while the twin was rendered, the widget may have appeared.
  if (isLost(node)) node.replaceChildren(text('div', 'dq-twin', CAPTION), renderer.node);
}
