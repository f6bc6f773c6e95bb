// Open a set of panels around the current notebook, as the settings list them.

import type { JupyterFrontEnd } from '@jupyterlab/application';

import type { DocumentPlacing, Panels } from './panels';

export interface Place {
  path: string;
  name: string;
  mode: NonNullable<DocumentPlacing['mode']>;
  /** The path of an earlier panel in the list; empty for the current document. */
  beside: string;
}

export const LAYOUT: Place[] = [
  { path: 'individual-dq-depth', name: 'Queue depth', mode: 'split-right', beside: '' },
  { path: 'individual-dq-throughput', name: 'Throughput', mode: 'split-bottom', beside: 'individual-dq-depth' },
  { path: 'individual-dq-unacked', name: 'Unacked', mode: 'split-bottom', beside: 'individual-dq-throughput' },
  { path: 'individual-dq-failures', name: 'Failures', mode: 'split-bottom', beside: '' }
];

export function openLayout(app: JupyterFrontEnd, panels: Panels, service: string, places: readonly Place[]): void {
  const document = app.shell.currentWidget?.id ?? '';
  const opened = new Map<string, string>();
  for (const { path, name, mode, beside } of places) {
    const ref = opened.get(beside) ?? document;
    const tab = panels.open({ service, path, name, ours: true }, ref ? { mode, ref } : {});
    if (tab) opened.set(path, tab.id);
  }
  if (document) app.shell.activateById(document);
}
