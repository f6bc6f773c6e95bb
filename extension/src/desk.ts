// What views ask for beside numbers: actions, tabs, cells. Made once by the plugin, and given to each view.

import type { Entry } from './actions';
import { copy, prepared } from './ask';
import type { Scope } from './client';
import type { Model } from './model';
import type { Item } from './menu';

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

/** Ask what has to be asked, then do it. */
export async function perform(model: Model, service: string | null, entry: Entry): Promise<void> {
  if (service === null) return;
  const action = await prepared(entry);
  if (action) await model.act(service, action);
}

/** Entries as a menu shows them: what can be done, what is shown elsewhere, then what destroys. */
export function menuItems(
  model: Model,
  service: string | null,
  entries: readonly Entry[],
  others: readonly Item[],
  dangers: readonly Entry[]
): (Item | null)[] {
  const item = (entry: Entry, danger: boolean): Item => ({
    label: entry.label,
    danger,
    act: () => void perform(model, service, entry)
  });
  const items: (Item | null)[] = [...entries.map((each) => item(each, false)), ...others];
  const first = entries[0];
  if (first) items.push({ label: 'Copy as Python', act: () => copy(first.python) });
  if (dangers.length) items.push(null, ...dangers.map((each) => item(each, true)));
  return items;
}
