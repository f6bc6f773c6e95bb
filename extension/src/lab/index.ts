// The plugins that JupyterLab and Notebook 7 load. They only register; every token but the application's own is optional.

import { ILayoutRestorer, type JupyterFrontEnd, type JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ICommandPalette, IThemeManager } from '@jupyterlab/apputils';
import { ILauncher } from '@jupyterlab/launcher';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { Token } from '@lumino/coreutils';
import type { ISignal } from '@lumino/signaling';

import { askedFor } from './ask';
import { Client } from './client';
import { addCommands } from './commands';
import type { Desk } from './desk';
import { browserMemory, Dismissals } from './dismissals';
import { FailureTabs } from './failures/tabs';
import { LAYOUT, openLayout, type Place } from './layout';
import { interceptLinks, wantedOpening } from './links';
import { Model } from './model';
import { cellsIn, connectTo, insert, kernelIn } from './notebook';
import { Panels } from './panels';
import { Sidebar } from './sidebar/sidebar';
import { showTwins } from './twins';
import { grantOpenings, grantWishes } from './wishes';

const IDesk = new Token<Desk>('dqlab:IDesk', 'Services of dqlab: their numbers, and what can be done to them.');

const desk: JupyterFrontEndPlugin<Desk> = {
  id: 'dqlab:plugin',
  description: 'Asks for services, opens their panels and failures as tabs.',
  autoStart: true,
  provides: IDesk,
  optional: [ILayoutRestorer, ISettingRegistry, IThemeManager],
  activate: (
    app: JupyterFrontEnd,
    restorer: ILayoutRestorer | null,
    registry: ISettingRegistry | null,
    themes: IThemeManager | null
  ): Desk => {
    const client = new Client(app.serviceManager.serverSettings);
    const dismissals = new Dismissals(browserMemory(), `dqlab:dismissed:${client.baseUrl}`);
    const model = new Model({ client, front: () => kernelIn(app.shell), dismissals });
    const changes = (app.shell as { currentChanged?: ISignal<unknown, unknown> }).currentChanged;
    changes?.connect(() => model.follow());
    const panels = new Panels({ app, model, client, themes, restorer });
    const failures = new FailureTabs({ app, model, client, restorer, cells: () => cellsIn(app.shell), insert: (...cells) => void insert(app.shell, ...cells) });
    let layout: Place[] = LAYOUT;
    const read = (settings: ISettingRegistry.ISettings): void => {
      model.setInterval(settings.composite.interval as number);
      layout = (settings.composite.layout ?? LAYOUT) as unknown as Place[];
    };
    registry
      ?.load(desk.id)
      .then((settings) => {
        read(settings);
        settings.changed.connect(read);
      })
      .catch((reason: unknown) => console.warn('dqlab: the settings cannot be read, the defaults are used', reason));
    const known = { services: () => model.services ?? [], ask: () => model.list() };
    interceptLinks(client.baseUrl, known, (opening) => panels.open(opening));
    grantOpenings(async (wanted) => {
      const opening = wantedOpening(wanted, await model.list());
      if (opening) panels.open(opening);
      else app.shell.activateById('dqlab-sidebar');
    });
    return {
      model,
      openPanel: (opening) => void panels.open(opening),
      openFailures: (service, scope) => void failures.open(service, scope),
      insert: (...cells) => void insert(app.shell, ...cells),
      connectToAddress: async () => {
        const address = await askedFor('Connect to a service', 'Address of a Dask scheduler', 'tcp://');
        if (address !== null) await insert(app.shell, connectTo(address));
      },
      openLayout: async () => {
        await model.look();
        if (model.chosen !== null) openLayout(app, panels, model.chosen, layout);
        else app.shell.activateById('dqlab-sidebar');
      }
    };
  }
};

const sidebar: JupyterFrontEndPlugin<void> = {
  id: 'dqlab:sidebar',
  description: 'Services, runs and queues beside the notebook.',
  autoStart: true,
  requires: [IDesk],
  optional: [ILayoutRestorer],
  activate: (app: JupyterFrontEnd, services: Desk, restorer: ILayoutRestorer | null) => {
    const widget = new Sidebar(services);
    restorer?.add(widget, widget.id);
    app.shell.add(widget, 'left', { rank: 450, type: 'dqlab' });
  }
};

const commands: JupyterFrontEndPlugin<void> = {
  id: 'dqlab:commands',
  description: 'Commands of dqlab in the palette and on the launcher.',
  autoStart: true,
  requires: [IDesk],
  optional: [ICommandPalette, ILauncher],
  activate: (app: JupyterFrontEnd, services: Desk, palette: ICommandPalette | null, launcher: ILauncher | null) =>
    addCommands(app, services, palette, launcher)
};

const twins: JupyterFrontEndPlugin<void> = {
  id: 'dqlab:twins',
  description: 'Shows live views that were saved, and whose kernel is gone, as they were saved.',
  autoStart: true,
  activate: (app: JupyterFrontEnd) => void showTwins(app)
};

const wishes: JupyterFrontEndPlugin<void> = {
  id: 'dqlab:wishes',
  description: 'Inserts cells for live views, and keeps their buttons after the end.',
  autoStart: true,
  activate: (app: JupyterFrontEnd) => void grantWishes(app)
};

export default [desk, sidebar, commands, twins, wishes];
