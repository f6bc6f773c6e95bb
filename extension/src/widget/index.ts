// The entry point for front ends: makes the widget of one kind, and draws it when parts have changed.

import { guarded, make } from '../shared/dom';
import { ASK, type Context, type WidgetView } from './context';
import { labWidget } from './lab';
import { NAMES, type AnyParts, type Head, type Numbers, type Press } from './parts';
import { queueWidget } from './queues';
import { runWidget } from './run';
import { patience, SILENT_MS, silenced, silentSince, telling, unanswered, unsent, warning } from './silence';
import { copied, INSERT, KEEP, wish, type Insertion, type Kept, type Twin } from './wishes';

/** The model as anywidget gives it. */
export interface Model {
  get(name: string): unknown;
  send(message: Press): void;
  on(event: string, listener: () => void): void;
  off(event: string, listener: () => void): void;
}

const KINDS: Record<string, (context: Context<any>) => WidgetView> = { run: runWidget, lab: labWidget, queue: queueWidget };
/** Counts signs of life of a kernel that has nothing new to show. */
const BEATS = 'beats';
const LOOK_MS = 500;
const FIRST_TRIES = 20;
/** How often the kernel learns that the widget is kept: KEPT_FOR in dqlab/live/widget.py is five minutes. */
const KEEP_MS = 60_000;
/** How long the effect of a press is shown; then the present state again. */
const TOLD_MS = 60_000;

function render({ el, model }: { el: HTMLElement; model: Model }): () => void {
  const card = make('div', { class: 'dq-card' });
  // Without the attribute JupyterLab takes keys pressed on our buttons for commands to the notebook's cells.
  const root: Kept = make('section', { class: 'dqlab', 'data-lm-suppress-shortcuts': 'true' }, card);
  el.append(root);
  let waiting: ReturnType<typeof setTimeout> | undefined;
  let queued = false;
  let seen = true;
  let heard = Date.now();
  let silent = false;
  /** The notice about a press that the kernel did not answer. */
  let missed = '';
  let told = '';
  let forgetting: ReturnType<typeof setTimeout> | undefined;
  const forget = (): void => {
    clearTimeout(forgetting);
    forgetting = setTimeout(() => {
      missed = told = '';
      redraw();
    }, TOLD_MS);
  };
  /** Draw, and move the focus of a removed button to the heading: not to the page, and not to another button. */
  const redraw = (): void => {
    const focused = root.contains(document.activeElement);
    guarded(root, () => widget?.draw());
    if (focused && !root.contains(document.activeElement)) root.querySelector('h1')?.focus({ preventScroll: true });
  };
  let kept = -Infinity;
  const context: Context<AnyParts> = {
    kind: model.get('kind') as string,
    root,
    card,
    closing: [],
    asking: false,
    asTable: false,
    pressed: '',
    get silent() {
      return silent;
    },
    get stale() {
      return silent || ((model.get('head') as Head | null)?.stale ?? false);
    },
    part: (name) => {
      const part = (model.get(name) ?? null) as any;
      if (silent) return silenced(name as never, part as never, silentSince(model.get('numbers') as Numbers | null, heard), missed);
      if (name !== 'head') return part;
      if (missed) return warning(part, part?.stale ? `${missed} ${part.notice.text}` : missed);
      return told ? telling(part, told) : part;
    },
    insert(source) {
      const detail: Insertion = { source };
      if (!wish(root, INSERT, detail)) context.copy(source);
    },
    copy: (text) =>
      void copied(text).then((words) => {
        told = `${words} ${text}`;
        forget();
        context.redraw();
      }),
    redraw,
    // A second press does nothing until the first is answered; without an answer a notice shows that, and the buttons work
    // again. While nothing answers, buttons are held: a menu or a question that is still open must not send either, because
    // the command would be carried out at some later time.
    send(message, free = false) {
      if (silent || (context.stale && message.command !== ASK)) {
        if (free) return;
        missed = unsent(message.command);
        if (!silent) forget();
        return context.redraw();
      }
      if (free) return model.send(message);
      context.pressed = message.command;
      missed = told = '';
      clearTimeout(waiting);
      waiting = setTimeout(giveUp, SILENT_MS);
      model.send(message);
      context.redraw();
    }
  };
  const giveUp = (): void => {
    missed = context.pressed && unanswered(context.pressed);
    context.pressed = '';
    if (missed) forget();
    context.redraw();
  };
  const look = (): void => {
    const beats = (model.get(BEATS) as number | undefined) ?? 0;
    if (silent || Date.now() - heard < patience(context.part('numbers'), beats)) return;
    silent = true;
    clearTimeout(waiting);
    giveUp();
  };
  // A page that saves the twin in place of the widget may keep the widget after the end, with its buttons.
  const keep = (): void => {
    const twin = model.get('twin') as Twin | null;
    const over = model.get('over') === true;
    const ends = over && JSON.stringify(root.dqTwin ?? {}) !== JSON.stringify(twin ?? {});
    [root.dqTwin, root.dqOver] = [twin ?? {}, over];
    // Only the end marks the notebook as changed: a live view would make the page save forever.
    if (!root.isConnected || (!ends && Date.now() - kept < KEEP_MS) || !wish(root, KEEP, { changed: ends })) return;
    kept = Date.now();
    model.send({ command: 'keep' });
  };
  const keeping = setInterval(keep, KEEP_MS / 4);
  // A run that has ended may never change again, so ask as soon as the widget is in the page (AWAITED in
  // dqlab/live/canvases.py).
  let tries = FIRST_TRIES;
  const looking = setInterval(() => {
    look();
    if (kept < 0 && tries-- > 0) keep();
  }, LOOK_MS);
  let widget: WidgetView | null = null;
  const made = (widget = KINDS[context.kind]!(context));

  const listeners = [...NAMES, 'answered', BEATS].map((name) => {
    const listener = (): void => {
      heard = Date.now();
      if (name === BEATS && !silent) return; // a sign of life changes no part
      if (silent) missed = '';
      silent = false;
      if (name === 'answered') context.pressed = missed = '';
      // A widget out of sight is drawn when a user scrolls to it, except for a new state, which is announced.
      if (queued || (!seen && name !== 'head')) return;
      queued = true;
      // One message changes several parts, with an event for each: draw once after all of them.
      queueMicrotask(() => {
        queued = false;
        redraw();
        if (kept < 0) keep();
      });
    };
    model.on(`change:${name}`, listener);
    return () => model.off(`change:${name}`, listener);
  });
  model.on('change:twin', keep);
  // Held buttons are not disabled, so that they keep the focus: their clicks end here.
  const stop = (event: Event): void => {
    if ((event.target as Element).closest('[aria-disabled=true]')) event.stopPropagation();
  };
  root.addEventListener('click', stop, { capture: true });
  root.addEventListener('keydown', (event) => {
    const target = event.target as Element;
    const typing = target.matches('input') && event.key !== 'Escape';
    if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
    if (made.keys[event.key.length === 1 ? event.key.toLowerCase() : event.key]?.(event)) {
      event.preventDefault();
      event.stopPropagation();
    }
  });
  guarded(root, () => made.draw());
  const watcher = new IntersectionObserver((entries) => {
    const shown = entries.at(-1)!.isIntersecting;
    if (shown && !seen) made.draw();
    seen = shown;
    root.dataset.seen = String(seen);
  });
  watcher.observe(root);
  return () => {
    clearTimeout(waiting);
    clearTimeout(forgetting);
    clearInterval(looking);
    clearInterval(keeping);
    model.off('change:twin', keep);
    watcher.disconnect();
    for (const end of [...listeners, ...context.closing]) end();
  };
}

export default { render };
