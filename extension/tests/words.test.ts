// Writes what the sidebar and the failures tab say of the golden scene: `tests/live/panels/test_five_seconds.py` asks.

import { writeFileSync } from 'node:fs';

import { Widget } from '@lumino/widgets';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';

import type { Client, Failure } from '../src/lab/client';
import type { Desk } from '../src/lab/desk';
import { FailuresView } from '../src/lab/failures/view';
import { Model } from '../src/lab/model';
import { Sidebar } from '../src/lab/sidebar/sidebar';
import { goldenHistory, goldenSnapshot, service } from './golden';

const FAILED: Failure = {
  id: 7,
  key: 'lux/contract-7.pdf',
  error: 'KeyError',
  message: "'total'",
  at: 'totals:12',
  traceback: 'Traceback (most recent call last):\n  cell [15], line 12, in totals\n    return page["total"]\nKeyError: \'total\'',
  fingerprint: '7b0f44a1',
  deliveries: 4,
  version: 'a41f9c',
  consumer: 'c4',
  when: 0,
  reason: '3 retries used up'
} as Failure;

const client = {
  services: () => Promise.resolve([service()]),
  snapshot: () => Promise.resolve(goldenSnapshot()),
  history: () => Promise.resolve(goldenHistory()),
  panels: () => Promise.resolve([{ path: 'dq', name: 'All six', ours: true }]),
  failures: () => Promise.resolve({ run: 'parse-invoices', queue: 'pages', total: 61, rows: [FAILED], next: null })
} as unknown as Client;

/** The words that are on view, each with a space behind it: what is hidden is left out, and so is what is folded. */
function words(element: Element): string {
  const nodes = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
  const found: string[] = [];
  while (nodes.nextNode()) {
    const parent = nodes.currentNode.parentElement!;
    if (!parent.closest('[hidden], style, script')) found.push(nodes.currentNode.textContent!.trim());
  }
  return found.filter(Boolean).join(' ').replace(/\s+/g, ' ');
}

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

test('the sidebar and the failures tab are read as words', async () => {
  const model = new Model({ client, isHidden: () => false });
  const desk: Desk = {
    model,
    openPanel: vi.fn(),
    openFailures: vi.fn(),
    insert: vi.fn(),
    connectToAddress: vi.fn(),
    openLayout: vi.fn()
  };
  const sidebar = new Sidebar(desk);
  const scope = { queue: 'pages', run: 'parse-invoices' };
  const failures = new FailuresView({ client, model, service: 'papers', scope, insert: vi.fn(), cells: () => [], open: vi.fn() });
  Widget.attach(sidebar, document.body);
  Widget.attach(failures, document.body);
  await vi.advanceTimersByTimeAsync(3_000);

  const said = { sidebar: words(sidebar.node), failures: words(failures.node) };
  sidebar.dispose();
  failures.dispose();
  model.dispose();
  expect(said.sidebar).toContain('parse-invoices');
  expect(said.failures).toContain('KeyError');
  if (process.env.DQLAB_WORDS) writeFileSync(process.env.DQLAB_WORDS, JSON.stringify(said));
});
