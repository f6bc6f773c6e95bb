// The services of the page for views: actions, tabs, cells. The plugin makes one desk, and gives it to each view.

import type { Entry } from './actions';
import { copy, prepared } from './ask';
import type { Scope } from './client';
import { subjectKey, type Model } from './model';
import { openMenu, type Item } from './menu';

export interface Opening {
  service: string;
  path: string;
  name: string;
  ours: boolean;
  scope?: Scope;
}

export interface Desk {
  readonly model: Model;
  openPanel(opening: Opening): void;
  openFailures(service: string, scope: Scope): void;
  insert(...cells: string[]): void;
  connectToAddress(): void;
  openLayout(): void;
}

/** Ask the questions of an entry, then act. */
export async function perform(model: Model, service: string | null, entry: Entry): Promise<void> {
  if (service === null) return;
  if (service === model.chosen && model.snapshot !== null && !model.fresh) {
    model.refuseUnsent(subjectKey(entry.action));
    return;
  }
  const action = await prepared(entry);
  if (action) await model.act(service, action);
}

/** The menu of one thing: actions, places that show more, each action as Python, then actions that destroy. */
export function openActions(
  model: Model,
  service: string | null,
  entries: readonly Entry[],
  others: readonly Item[],
  dangers: readonly Entry[],
  from: HTMLElement,
  at?: { x: number; y: number }
): void {
  const item = (entry: Entry, danger: boolean): Item => ({
    label: entry.label,
    danger,
    act: () => void perform(model, service, entry)
  });
  const items: (Item | null)[] = [...entries.map((each) => item(each, false)), ...others];
  const python = [...new Set([...entries, ...dangers].map((each) => each.python))];
  const copies = python.map((code) => ({ label: code, act: () => copy(code) }));
  // After this menu is closed.
  if (copies.length) items.push({ label: 'Copy as Python…', act: () => void setTimeout(() => openMenu(copies, from, at), 0) });
  if (dangers.length) items.push(null, ...dangers.map((each) => item(each, true)));
  openMenu(items, from, at);
}
