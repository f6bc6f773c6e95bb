// Show failures as tabs: one for each service and run or queue, restored when the page is loaded again.

import type { ILayoutRestorer, JupyterFrontEnd } from '@jupyterlab/application';
import type { Cell } from '../cells';
import { MainAreaWidget, WidgetTracker } from '@jupyterlab/apputils';

import type { Client, Scope } from '../client';
import type { Model } from '../model';
import { FailuresView } from './view';

export const OPEN_FAILURES = 'dqlab:open-failures';
/** Areas for a tab; the first one with room is used: Notebook 7 has none in the middle. */
const AREAS = ['main', 'right', 'down'];

export interface FailureTabsOptions {
  app: JupyterFrontEnd;
  client: Client;
  model: Model;
  restorer: ILayoutRestorer | null;
  insert(...cells: string[]): void;
  /** Cells of the open notebooks. */
  cells(): Cell[];
}

class FailuresTab extends MainAreaWidget<FailuresView> {
  constructor(
    content: FailuresView,
    readonly service: string,
    readonly scope: Scope
  ) {
    super({ content });
    this.id = tabId(service, scope);
    this.toolbar.hide();
  }
}

function tabId(service: string, scope: Scope): string {
  return ['dqlab-failures', service, scope.queue, scope.run].filter(Boolean).join(':');
}

export class FailureTabs {
  constructor(private options: FailureTabsOptions) {
    const { app, restorer } = options;
    app.commands.addCommand(OPEN_FAILURES, {
      label: 'Open the failures of a run or queue',
      describedBy: { args: { type: 'object', required: ['service'] } },
      execute: (args) => {
        const scope: Scope = {};
        if (typeof args.queue === 'string' && args.queue) scope.queue = args.queue;
        if (typeof args.run === 'string' && args.run) scope.run = args.run;
        if (typeof args.service === 'string') this.open(args.service, scope);
      }
    });
    void restorer?.restore(this.tracker, {
      command: OPEN_FAILURES,
      args: (tab) => ({ service: tab.service, ...tab.scope }),
      name: (tab) => tab.id
    });
  }

  open(service: string, scope: Scope): void {
    const { app, cells, client, insert, model } = this.options;
    const found = this.tracker.find((tab) => tab.id === tabId(service, scope));
    if (found) {
      app.shell.activateById(found.id);
      return;
    }
    const open = (other: Scope): void => this.open(service, other);
    const tab = new FailuresTab(new FailuresView({ cells, client, model, service, scope, insert, open }), service, scope);
    for (const area of AREAS) {
      if (tab.isAttached) break;
      tab.toggleClass('dq-mod-aside', area !== 'main');
      app.shell.add(tab, area);
    }
    if (!tab.isAttached) {
      tab.dispose();
      return;
    }
    void this.tracker.add(tab);
    app.shell.activateById(tab.id);
  }

  private readonly tracker = new WidgetTracker<FailuresTab>({ namespace: 'dqlab-failures' });
}
