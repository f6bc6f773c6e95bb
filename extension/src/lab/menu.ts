// A menu at a place, recreated each time it opens.

import { CommandRegistry } from '@lumino/commands';
import { Menu } from '@lumino/widgets';

export interface Item {
  label: string;
  danger?: boolean;
  act(): void;
}

/** Open a menu; null stands for a rule. The focus goes back to `from` when nothing was chosen. */
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
    // The chosen command runs after this signal.
    setTimeout(() => menu.dispose(), 0);
  });
  const box = from.getBoundingClientRect();
  menu.open(at?.x ?? box.left, at?.y ?? box.bottom + 2);
}
