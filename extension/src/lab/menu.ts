// Open a menu at a place, made for each opening.

import { CommandRegistry } from '@lumino/commands';
import { Menu } from '@lumino/widgets';

export interface Item {
  label: string;
  danger?: boolean;
  act(): void;
}

/** Open a menu, with null for a rule; the focus returns to `from` when it closes. */
export function openMenu(items: readonly (Item | null)[], from: HTMLElement, at?: { x: number; y: number }): void {
  const commands = new CommandRegistry();
  const menu = new Menu({ commands });
  menu.addClass('dq-Menu');
  items.forEach((item, place) => {
    if (item === null) {
      menu.addItem({ type: 'separator' });
      return;
    }
    const command = `item-${place}`;
    commands.addCommand(command, {
      label: item.label,
      mnemonic: -1,
      className: item.danger ? 'dq-mod-danger' : '',
      execute: () => item.act()
    });
    menu.addItem({ command });
  });
  menu.aboutToClose.connect(() => {
    if (from.isConnected) from.focus();
    // Not now: the chosen command runs after this signal.
    setTimeout(() => menu.dispose(), 0);
  });
  const box = from.getBoundingClientRect();
  menu.open(at?.x ?? box.left, at?.y ?? box.bottom + 2);
}
