// Show panels of a service's dashboard as tabs. A panel names the service and never a port, so that it survives restarts.

import type { ILayoutRestorer, JupyterFrontEnd } from '@jupyterlab/application';
import { MainAreaWidget, WidgetTracker, type IThemeManager } from '@jupyterlab/apputils';
import { IFrame } from '@jupyterlab/ui-components';
import type { Message } from '@lumino/messaging';
import type { Widget } from '@lumino/widgets';
import type { ReadonlyJSONObject } from '@lumino/coreutils';

import type { Client } from './client';
import type { Opening } from './desk';
import { make, say, show } from '../shared/dom';
import { instant } from '../shared/format';
import { dqlabIcon } from './icons';
import type { Model } from './model';

/** The place of a new tab beside another one. */
export interface DocumentPlacing {
  mode?: 'split-top' | 'split-left' | 'split-right' | 'split-bottom' | 'tab-after';
  ref?: string;
}

export const OPEN_PANEL = 'dqlab:open-panel';

export function panelId({ service, path, scope }: Opening): string {
  return ['dqlab-panel', service, path, scope?.queue, scope?.run].filter(Boolean).join(':');
}

class PanelTab extends MainAreaWidget<IFrame> {
  constructor(
    readonly opening: Opening,
    private model: Model,
    private address: (dark: boolean) => string,
    private dark: () => boolean
  ) {
    super({ content: new IFrame({ sandbox: ['allow-scripts', 'allow-same-origin'], referrerPolicy: 'same-origin' }) });
    this.id = panelId(opening);
    this.toolbar.hide();
    this.title.label = `${opening.name} · ${opening.service}`;
    this.title.caption = `${opening.name} of ${opening.service}`;
    this.title.icon = dqlabIcon;
    this.title.closable = true;
    this.addClass('dq-Panel');
    this.content.addClass('dq-Area');
    if (opening.ours) this.addClass('dq-mod-themed');
    this.content.node.append(this.notice);
    this.load();
    this.drawNotice();
    model.changed.connect(this.drawNotice, this);
    model.returned.connect(this.onReturned, this);
  }

  load(): void {
    this.loaded = true;
    this.content.url = this.address(this.dark());
  }

  /** Load a page of ours again in the new theme; CSS inverts Dask's own pages. */
  retheme(): void {
    if (this.opening.ours && this.loaded) this.load();
  }

  protected override onAfterAttach(message: Message): void {
    super.onAfterAttach(message);
    if (this.isVisible) this.look();
  }

  protected override onAfterShow(): void {
    this.look();
  }

  protected override onBeforeHide(): void {
    this.rest();
  }

  override dispose(): void {
    this.rest();
    super.dispose();
  }

  private look(): void {
    this.watching ??= this.model.watch('services');
  }

  private rest(): void {
    this.watching?.dispose();
    this.watching = null;
  }

  private onReturned(_: Model, service: string): void {
    if (service === this.opening.service) this.load();
  }

  private drawNotice(): void {
    const words = absence(this.model, this.opening.service);
    say(this.notice, words);
    show(this.notice, words !== '');
    // A page whose service has ended would keep trying to connect. A service that was closed in good order is not listed.
    const service = this.model.service(this.opening.service);
    const ended = this.model.services !== null && (service === null || service.state === 'gone');
    if (ended && this.loaded) {
      this.loaded = false;
      this.content.url = 'about:blank';
    } else if (words === '' && !this.loaded) this.load();
  }

  private readonly notice = make('div', { class: 'dq-absent', role: 'status' });
  private loaded = false;
  private watching: ReturnType<Model['watch']> | null = null;
}

function absence(model: Model, id: string): string {
  if (model.services === null) return '';
  const service = model.service(id);
  if (!service) return `${id} is not among the services any more. This panel comes back when it does.`;
  if (service.state === 'up') return '';
  const since = instant(service.since, Date.now() / 1000);
  return service.state === 'gone'
    ? `${service.name} ended at ${since}. This panel comes back when it is started again under this name.`
    : `${service.name} has not answered since ${since}. This panel comes back by itself.`;
}

export interface PanelsOptions {
  app: JupyterFrontEnd;
  model: Model;
  client: Client;
  themes: IThemeManager | null;
  restorer: ILayoutRestorer | null;
}

export class Panels {
  constructor(private options: PanelsOptions) {
    const { app, restorer, themes } = options;
    app.commands.addCommand(OPEN_PANEL, {
      label: 'Open a panel of a service',
      describedBy: { args: { type: 'object', required: ['service', 'path', 'name'] } },
      execute: (args) => {
        const opening = args as unknown as Opening;
        if (opening.service && opening.path) this.open(opening);
      }
    });
    themes?.themeChanged.connect(() => this.tracker.forEach((tab) => tab.retheme()));
    void restorer?.restore(this.tracker, {
      command: OPEN_PANEL,
      args: (tab) => tab.opening as unknown as ReadonlyJSONObject,
      name: (tab) => tab.id
    });
  }

  /** Show a panel in its open tab, or in a new one at `placing`. */
  open(opening: Opening, placing: DocumentPlacing = {}): Widget | null {
    const { app, client, model } = this.options;
    const found = this.tracker.find((tab) => tab.id === panelId(opening));
    if (found) {
      app.shell.activateById(found.id);
      return found;
    }
    const { path, scope, service } = opening;
    const address = (dark: boolean): string =>
      client.dashboard(service, path, { ...(opening.ours ? { theme: dark ? 'dark' : 'light' } : {}), ...scope });
    const tab = new PanelTab(opening, model, address, () => this.isDark());
    app.shell.add(tab, 'main', placing);
    if (!tab.isAttached) {
      // The page has room for one document only, as in Notebook 7.
      tab.dispose();
      window.open(address(this.isDark()), '_blank', 'noopener');
      return null;
    }
    void this.tracker.add(tab);
    app.shell.activateById(tab.id);
    return tab;
  }

  private isDark(): boolean {
    const { themes } = this.options;
    if (themes?.theme) return !themes.isLight(themes.theme);
    return document.body.dataset.jpThemeLight === 'false';
  }

  private readonly tracker = new WidgetTracker<PanelTab>({ namespace: 'dqlab-panels' });
}
