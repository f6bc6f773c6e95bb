// Ask questions. The safe answer has the focus, and the other one names its effect.

import { Clipboard, Dialog, InputDialog, showDialog } from '@jupyterlab/apputils';

import type { Entry, Question } from './actions';
import type { Action } from './client';

export async function confirmed(question: Question): Promise<boolean> {
  const result = await showDialog({
    title: question.title,
    body: question.body,
    buttons: [Dialog.cancelButton({ label: 'Keep' }), Dialog.warnButton({ label: question.accept })],
    defaultButton: 0,
    focusNodeSelector: '.jp-Dialog-footer .jp-mod-reject'
  });
  return result.button.accept;
}

/** Ask the questions of an entry, and return the action to send, or null. */
export async function prepared(entry: Entry): Promise<Action | null> {
  if (entry.question && !(await confirmed(entry.question))) return null;
  if (!entry.asksNumber) return entry.action;
  const answer = await InputDialog.getText({
    title: `Consumers for ${entry.action.queue}`,
    label: 'How many, or auto: one for each worker',
    text: String(entry.action.n ?? 1),
    pattern: '\\s*(auto|[0-9]{1,5})\\s*',
    required: true,
    okLabel: 'Scale'
  });
  if (!answer.button.accept || answer.value === null) return null;
  const given = answer.value.trim();
  if (!/^(auto|\d{1,5})$/.test(given)) return null; // dialogs of older versions of JupyterLab check no pattern
  return { ...entry.action, n: given === 'auto' ? 'auto' : Number(given) };
}

export async function askedFor(title: string, label: string, text = ''): Promise<string | null> {
  const answer = await InputDialog.getText({ title, label, text, okLabel: 'Insert', required: true });
  return answer.button.accept && answer.value?.trim() ? answer.value.trim() : null;
}

/** Show why nothing is done. */
export async function told(title: string, body: string): Promise<void> {
  await showDialog({ title, body, buttons: [Dialog.okButton()] });
}

export async function chosenFrom(title: string, items: string[]): Promise<string | null> {
  if (items.length < 2) return items[0] ?? null;
  const answer = await InputDialog.getItem({ title, items });
  return answer.button.accept ? answer.value : null;
}

export function copy(text: string): void {
  Clipboard.copyToSystem(text);
}
