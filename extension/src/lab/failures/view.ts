// Show the failures of a run or queue: when they began, their classes, and actions on the selected ones.

import type { Message } from '@lumino/messaging';
import { Widget } from '@lumino/widgets';

import { pauseRun, retryEntries, type Entry } from '../actions';
import type { Cell } from '../cells';
import { copy } from '../ask';
import type { Client, Scope } from '../client';
import { perform } from '../desk';
import { button, guarded, hint, hold, make, say, show, sync, text } from '../../shared/dom';
import { count, instant, many, share } from '../../shared/format';
import { face } from '../../shared/glyphs';
import { dqlabIcon } from '../icons';
import { subjectKey, type Model } from '../model';
import { word } from '../python';
import { failsThroughout, ran, type Run } from '../../shared/snapshot';
import { minutesChart, titleOf } from './chart';
import { minutesOf } from './minutes';
import { FailuresModel } from './model';
import { classPane } from './pane';
import { classesTable } from './table';

export interface FailuresOptions {
  client: Client;
  model: Model;
  service: string;
  scope: Scope;
  insert(...cells: string[]): void;
  /** Cells of the open notebooks, to which the places in a traceback may belong. */
  cells(): Cell[];
  open(scope: Scope): void;
}

export class FailuresView extends Widget {
  readonly failures: FailuresModel;

  constructor(private options: FailuresOptions) {
    super({ node: make('div', { 'aria-label': 'Failures', role: 'region' }) });
    const { client, model, scope, service } = options;
    this.addClass('dq-Area');
    this.addClass('dq-Fail');
    this.title.icon = dqlabIcon;
    this.title.closable = true;
    this.title.label = `Failures · ${scope.run ?? scope.queue ?? service}`;
    this.title.caption = `Failures of ${scope.run ?? scope.queue ?? service} in ${service}`;
    this.failures = new FailuresModel(client, service, scope, () => !this.isVisible || document.hidden);
    this.table = classesTable(this.failures);
    this.pane = classPane(this.failures, options);
    const header = make('header', { role: 'group' }, make('h1', { tabindex: -1 }, 'Failures'), this.sentence, make('span', { class: 'dq-grow' }), text('span', 'dq-quiet dq-aside', 'one row per class: same error, same place'));
    const code = make('div', { class: 'dq-python' }, this.python, button('Copy as Python', 'dq-link', () => copy(this.failures.python)));
    const left = make('div', { class: 'dq-left' }, header, this.notice, this.chart.element, this.table.element);
    left.append(make('span', { class: 'dq-fill' }), make('div', { class: 'dq-foot' }, this.said, this.actions, code));
    this.node.append(make('div', { class: 'dq-frame' }, left, this.pane.element));
    this.failures.changed.connect(this.draw, this);
    model.changed.connect(this.draw, this);
    this.draw();
  }

  override dispose(): void {
    if (this.isDisposed) return;
    this.chart.dispose();
    this.failures.dispose();
    super.dispose();
  }

  protected override onAfterShow(message: Message): void {
    super.onAfterShow(message);
    this.failures.wake();
  }

  protected override onActivateRequest(): void {
    (this.node.querySelector<HTMLElement>('tr[tabindex="0"]') ?? this.node).focus();
  }

  private draw(): void {
    const focused = this.node.contains(document.activeElement);
    guarded(this.node, () => this.drawAll());
    const now = document.activeElement;
    // Never to another button: a second Enter would press it.
    if (focused && (!this.node.contains(now) || now!.closest('[hidden]'))) this.node.querySelector<HTMLElement>('h1')!.focus({ preventScroll: true });
  }

  private drawAll(): void {
    const { failures } = this;
    const [before, dead, after] = summary(failures);
    say(this.sentence.children[0]!, before);
    say(this.sentence.children[1]!, dead);
    say(this.sentence.children[2]!, after);
    this.drawNotice();
    const snapshot = failures.snapshot;
    show(this.actions, snapshot !== null);
    if (!snapshot) return;
    if (failures.history) this.chart.draw(minutesOf(failures.history), failures.history.marks, titleOf(failures.scope));
    this.table.draw();
    this.pane.draw();
    this.drawActions();
    say(this.python, failures.scope.run ? failures.python : '');
    hint(this.python, failures.python);
    show(this.python.parentElement!, Boolean(failures.scope.run) && snapshot.failures.dead > 0);
  }

  private drawNotice(): void {
    const { failures } = this;
    const { run } = failures;
    const stopped = run && (run.state === 'stopped' || (run.state === 'paused' && run.why !== ''));
    const refused = this.options.model.refusals.get(this.subject);
    const silent = failures.failure && (failures.snapshot ? `Shown as of ${instant(failures.snapshot.at, Date.now() / 1000)}. ${failures.failure.message}` : failures.failure.message);
    const words = refused ?? silent ?? (stopped ? `${run.name} is ${run.state}${run.why.startsWith('by ') ? ' ' : ': '}${run.why}` : '');
    show(this.notice, words !== '');
    if (!words) return;
    const [slot, sentence] = [this.notice.children[0] as HTMLElement, this.notice.children[1]!];
    face(slot, refused ? 'cross' : silent ? 'offline' : 'warning');
    say(sentence, words);
    if (run) say(this.resume, pauseRun(run).label);
    show(this.resume, !refused && !silent && !(run && failsThroughout(run)));
    show(this.again, Boolean(silent) && !refused);
  }

  private drawActions(): void {
    const { failures } = this;
    const { run, selection } = failures;
    const classes = selection.fingerprints.length || (failures.snapshot?.failures.classes_total ?? 0);
    const label = `${many(classes, 'class')}, ${many(selection.dead, 'document')}`;
    const hint = selection.fingerprints.length ? 'all that match, not just those shown' : 'all that are dead: select classes to narrow';
    say(this.chosen, label);
    const mend = run && selection.same ? `Edit the cell and run it, then %dq retry ${word(run.name)} · ` : '';
    say(this.hint, selection.dead ? `${mend}${hint}` : '');
    const entries: Entry[] = failures.scope.run ? retryEntries(selection) : [];
    const places: { key: string; label: string; act: () => void; first: boolean }[] = entries.map((entry, at) => ({
      key: `retry ${at}`,
      label: entry.label,
      act: () => void this.perform(at),
      first: at === 0 && !selection.same
    }));
    if (!failures.scope.run) {
      for (const run of failures.runs) {
        const act = (): void => this.options.open({ queue: run.queue, run: run.name });
        places.push({ key: `run ${run.name}`, label: `${run.name}: ${count(run.counts.dead)}`, act, first: false });
      }
      const others = failures.unlisted ? `; %dq runs lists ${count(failures.unlisted)} more` : '';
      if (failures.runs.length || others) say(this.hint, `Runs are retried one by one${others}${failures.runs.length ? '; open one:' : ''}`);
    }
    sync(
      this.buttons,
      places,
      (each) => each.key,
      (each) => button(each.label, '', () => each.act()),
      (element, each) => {
        say(element, each.label);
        element.classList.toggle('dq-pri', each.first);
        hold(element, this.held && each.key.startsWith('retry '));
      }
    );
    const { said } = this.options.model;
    say(this.said, said);
    show(this.said, said !== '');
  }

  /** An answer is pending or missing: the shown action may be done by now. */
  private get held(): boolean {
    return this.options.model.busy.has(this.subject) || this.failures.failure !== null;
  }

  private get subject(): string {
    const { queue = '', run } = this.failures.scope;
    return subjectKey(run === undefined ? { queue } : { queue, run });
  }

  private async perform(at: number): Promise<void> {
    const entry = retryEntries(this.failures.selection)[at];
    if (!entry || this.held) return;
    await perform(this.options.model, this.options.service, entry);
    this.failures.wake();
  }

  private readonly sentence = make('span', { class: 'dq-quiet dq-ell' }, make('span'), make('b', { class: 'dq-bad' }), make('span'));
  private readonly resume = button('Resume', '', () => {
    const { run } = this.failures;
    if (run) void perform(this.options.model, this.options.service, pauseRun(run));
  });
  private readonly again = button('Retry now', '', () => this.failures.wake());
  private readonly notice = make('div', { class: 'dq-notice', role: 'alert' }, make('span', { class: 'dq-slot' }), make('span', { class: 'dq-grow' }), this.resume, this.again);
  private readonly chart = minutesChart();
  private readonly table: ReturnType<typeof classesTable>;
  private readonly pane: ReturnType<typeof classPane>;
  private readonly said = make('div', { class: 'dq-said', role: 'status' });
  private readonly chosen = text('b', '', '');
  private readonly hint = text('span', 'dq-quiet dq-small', '');
  private readonly buttons = make('span', { class: 'dq-buttons' });
  private readonly actions = make('div', { class: 'dq-act', role: 'toolbar', 'aria-label': 'Act on the selection' }, this.chosen, this.hint, this.buttons);
  private readonly python = make('code', { class: 'dq-ell' });
}

/** `parse-invoices · `, `212`, ` dead in 4 classes · 0.66 % of 32,089 that ran · 211 more waiting to retry`. */
export function summary(failures: Pick<FailuresModel, 'snapshot' | 'scope' | 'run' | 'failure'>): [string, string, string] {
  const { run, scope, snapshot } = failures;
  if (!snapshot) return [failures.failure ? '' : 'asking for the first numbers', '', ''];
  const { classes_total: classes, dead, retrying } = snapshot.failures;
  const rest = [dead ? ` dead in ${many(classes, 'class')}` : 'no dead document'];
  if (run && dead) rest.push(`${share(deadShare(run), 2)} of ${count(ran(run.counts))} that ran`);
  if (retrying) rest.push(`${count(retrying)} more waiting to retry`);
  return [`${scope.run ?? scope.queue ?? 'all queues'} · `, dead ? count(dead) : '', rest.join(' · ')];
}

function deadShare(run: Run): number {
  const all = ran(run.counts);
  return all ? run.counts.dead / all : 0;
}
