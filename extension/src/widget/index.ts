// What a front end calls: makes the widget of one kind, and lets it draw when parts have changed.

import { make } from '../shared/dom';
import type { Context, WidgetView } from './context';
import { labWidget } from './lab';
import { NAMES, type AnyParts, type Press } from './parts';
import { queueWidget } from './queues';
import { runWidget } from './run';

/** The model as anywidget gives it. */
export interface Model {
  get(name: string): unknown;
  send(message: Press): void;
  on(event: string, listener: () => void): void;
  off(event: string, listener: () => void): void;
}

const KINDS: Record<string, (context: Context<any>) => WidgetView> = { run: runWidget, lab: labWidget, queue: queueWidget };
const PATIENCE_MS = 15_000;

function render({ el, model }: { el: HTMLElement; model: Model }): () => void {
  const card = make('div', { class: 'dq-card' });
  // Without the attribute JupyterLab takes keys pressed on our buttons for commands to the notebook's cells.
  const root = make('section', { class: 'dqlab', 'data-lm-suppress-shortcuts': 'true' }, card);
  el.append(root);
  let waiting: ReturnType<typeof setTimeout> | undefined;
  let queued = false;
  const context: Context<AnyParts> = {
    kind: model.get('kind') as string,
    root,
    card,
    closing: [],
    asking: false,
    asTable: false,
    pressed: '',
    part: (name) => (model.get(name) ?? null) as any,
    redraw: () => widget?.draw(),
    // A second press must do nothing until the first was answered; if nobody answers, buttons come back by themselves.
    send(message, free = false) {
      if (free) return model.send(message);
      context.pressed = message.command;
      clearTimeout(waiting);
      waiting = setTimeout(release, PATIENCE_MS);
      model.send(message);
      context.redraw();
    }
  };
  const release = (): void => {
    context.pressed = '';
    context.redraw();
  };
  let widget: WidgetView | null = null;
  const made = (widget = KINDS[context.kind]!(context));

  const listeners = [...NAMES, 'answered'].map((name) => {
    const listener = (): void => {
      if (name === 'answered') context.pressed = '';
      if (queued) return;
      queued = true;
      queueMicrotask(() => {
        queued = false;
        made.draw();
      });
    };
    model.on(`change:${name}`, listener);
    return () => model.off(`change:${name}`, listener);
  });
  root.addEventListener('keydown', (event) => {
    const target = event.target as Element;
    const typing = target.matches('input') && event.key !== 'Escape';
    if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
    if (made.keys[event.key.length === 1 ? event.key.toLowerCase() : event.key]?.(event)) {
      event.preventDefault();
      event.stopPropagation();
    }
  });
  made.draw();
  return () => {
    clearTimeout(waiting);
    for (const end of [...listeners, ...context.closing]) end();
  };
}

export default { render };
