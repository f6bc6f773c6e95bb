// The sidebar: what needs the user, services, and for the chosen one its runs, queues, consumers and panels. Draws the model.

import type { Message } from '@lumino/messaging';
import type { IDisposable } from '@lumino/disposable';
import { Widget } from '@lumino/widgets';

import { pauseEntry } from '../actions';
import { perform, type Desk } from '../desk';
import { button, guarded, make, mark, say, show, text } from '../../shared/dom';
import { instant } from '../../shared/format';
import { face } from '../../shared/glyphs';
import { failsThroughout } from '../../shared/snapshot';
import { dqlabIcon } from '../icons';
import { openMenu } from '../menu';
import { roving } from '../../shared/keys';
import { consumersSection } from './consumers';
import { emptyState } from './empty';
import { needsSection } from './needs';
import { panelsSection } from './panels';
import { queuesSection } from './queues';
import { runKey, runsSection } from './runs';
import { servicesSection } from './services';

/** Number of rows above which the filter is always shown. */
const MANY_ROWS = 12;
const KEYS = 'Arrows move · Enter or a click opens · P pauses or resumes · / filters · ⋯ or the menu key: all actions';

export class Sidebar extends Widget {
  constructor(private desk: Desk) {
    super({ node: make('aside', { 'aria-label': 'dqlab' }) });
    this.id = 'dqlab-sidebar';
    this.addClass('dq-Area');
    this.addClass('dq-Side');
    this.title.icon = dqlabIcon;
    this.title.caption = 'dqlab';
    this.build();
    desk.model.changed.connect(this.draw, this);
    this.ticking = setInterval(() => this.drawNote(), 1_000);
  }

  override dispose(): void {
    clearInterval(this.ticking);
    this.watching?.dispose();
    super.dispose();
  }

  protected override onAfterShow(message: Message): void {
    super.onAfterShow(message);
    this.look();
  }

  protected override onAfterAttach(message: Message): void {
    super.onAfterAttach(message);
    if (this.isVisible) this.look();
  }

  protected override onBeforeHide(message: Message): void {
    this.watching?.dispose();
    this.watching = null;
    super.onBeforeHide(message);
  }

  protected override onBeforeDetach(message: Message): void {
    this.watching?.dispose();
    this.watching = null;
    super.onBeforeDetach(message);
  }

  protected override onActivateRequest(): void {
    (this.tree.querySelector<HTMLElement>('[role="treeitem"][tabindex="0"]') ?? this.node).focus();
  }

  private look(): void {
    this.watching ??= this.desk.model.watch();
    this.draw();
  }

  private build(): void {
    const { desk } = this;
    const plus = button('+', 'dq-ib', () => desk.connectToAddress());
    mark(plus, 'aria-label', 'Connect to a service');
    mark(plus, 'title', 'Connect to a service');
    const more = button('⋯', 'dq-ib', () => this.openMore(more));
    mark(more, 'aria-label', 'More');
    const header = make('div', { class: 'dq-header' }, text('b', '', 'dqlab'), make('span', { class: 'dq-grow' }), plus, more);
    const asked = (): string => this.filter.value.trim().toLowerCase();
    const needs = needsSection(desk);
    const services = servicesSection(desk, asked);
    const runs = runsSection(desk, asked);
    const queues = queuesSection(desk, asked);
    const consumers = consumersSection(desk);
    const panels = panelsSection(desk);
    const empty = emptyState(desk);
    this.live.append(runs.element, queues.element, consumers.element);
    this.tree.append(needs.element, services.element, this.note, this.live);
    this.keys.hidden = true;
    this.node.append(header, this.said, this.filter, this.tree, empty.element, panels.element, this.keys);
    this.filter.addEventListener('input', () => this.draw());
    this.filter.addEventListener('keydown', (event) => this.onFilterKey(event));
    this.node.addEventListener('keydown', (event) => this.onKey(event));
    this.settle = roving(this.tree, { Enter: (row) => this.openRow(row), p: (row) => this.pauseRow(row), P: (row) => this.pauseRow(row) });
    this.live.addEventListener('click', (event) => this.onClick(event));
    this.drawAll = () => {
      for (const each of [needs, services, runs, queues, consumers, panels, empty]) each.draw();
      const { model } = desk;
      show(empty.element, model.services !== null && !model.services.some((each) => each.state !== 'gone'));
      show(services.element, (model.services ?? []).length > 0);
      show(this.live, model.snapshot !== null);
    };
  }

  private draw(): void {
    guarded(this.node, () => this.drawWhatIsSeen());
  }

  private drawWhatIsSeen(): void {
    const { model } = this.desk;
    this.drawRail();
    if (!this.isVisible) return;
    this.drawAll();
    say(this.said, model.said);
    show(this.said, model.said !== '');
    mark(this.live, 'data-stale', model.snapshot !== null && !model.fresh);
    const rows = (model.snapshot?.queues.length ?? 0) + (model.snapshot?.runs.length ?? 0);
    show(this.filter, rows > MANY_ROWS || this.filter.value !== '' || this.filter === document.activeElement);
    this.drawNote();
    this.settle();
  }

  /** Show on the icon how many lines need the user, in red when one is a problem. */
  private drawRail(): void {
    const { model } = this.desk;
    const dead = model.problem;
    const needs = model.needs ? String(model.needs) : '';
    if (this.title.dataset['dq-needs'] === needs && this.title.dataset['dq-dead'] === String(dead)) return;
    this.title.dataset = { ...this.title.dataset, 'dq-needs': needs, 'dq-dead': String(dead) };
    this.title.className = needs ? 'dq-mod-needs' : '';
    this.title.caption = needs ? `dqlab: ${needs} ${needs === '1' ? 'needs' : 'need'} you` : 'dqlab';
  }

  /** Show how old the numbers are, and when the next poll is due. */
  private drawNote(): void {
    if (!this.isVisible) return;
    const { model } = this.desk;
    const [glyph, words] = note(model);
    show(this.note, words !== '');
    if (!words) return;
    face(this.note.firstElementChild as HTMLElement, glyph);
    say(this.note.lastElementChild!, words);
  }

  private openMore(from: HTMLElement): void {
    openMenu(
      [
        { label: 'Open queue layout', act: () => this.desk.openLayout() },
        { label: 'Ask again now', act: () => this.desk.model.wake() },
        { label: 'Filter', act: () => this.openFilter() },
        { label: 'Keys', act: () => this.toggleKeys() }
      ],
      from
    );
  }

  /** Open a run or a queue on a click, as on Enter; its buttons act by themselves. */
  private onClick(event: MouseEvent): void {
    const target = event.target as Element;
    const row = target.closest<HTMLElement>('[role="treeitem"][data-row]'); // parts of a bar have keys too
    if (row && !target.closest('button, a, input')) this.openRow(row);
  }

  private openRow(row: HTMLElement): void {
    const { model } = this.desk;
    const [kind] = row.dataset.row!.split(' ');
    if (kind === 'service') {
      model.choose(row.dataset.row!.slice('service '.length));
      return;
    }
    const service = model.chosen;
    if (service === null) return;
    const run = model.snapshot?.runs.find((each) => runKey(each) === row.dataset.row);
    const queue = model.snapshot?.queues.find((each) => `queue ${each.name}` === row.dataset.row);
    if (run) {
      this.desk.openPanel({ service, path: 'dq', name: run.name, ours: true, scope: { queue: run.queue, run: run.name } });
    } else if (queue) {
      this.desk.openPanel({ service, path: 'dq', name: queue.name, ours: true, scope: { queue: queue.name } });
    }
  }

  private pauseRow(row: HTMLElement): void {
    const { model } = this.desk;
    const run = model.snapshot?.runs.find((each) => runKey(each) === row.dataset.row);
    const queue = model.snapshot?.queues.find((each) => `queue ${each.name}` === row.dataset.row);
    if (run && failsThroughout(run) && model.chosen !== null) {
      // To resume would fail its other documents too, so that takes a decision in its menu.
      this.desk.openFailures(model.chosen, { queue: run.queue, run: run.name });
      return;
    }
    const of = run ? { queue: run.queue, run: run.name, state: run.state } : queue && { queue: queue.name, state: queue.state };
    if (of) void perform(model, model.chosen, pauseEntry(of));
  }

  private openFilter(): void {
    show(this.filter, true);
    this.filter.focus();
  }

  private toggleKeys(): void {
    show(this.keys, this.keys.hidden);
  }

  private onFilterKey(event: KeyboardEvent): void {
    if (event.key !== 'Escape') return;
    event.stopPropagation();
    this.filter.value = '';
    this.filter.blur();
    this.draw();
    this.onActivateRequest();
  }

  private onKey(event: KeyboardEvent): void {
    if ((event.target as Element).matches('input') || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === '/') this.openFilter();
    else if (event.key === '?') this.toggleKeys();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  private readonly said = make('div', { class: 'dq-said', role: 'status' });
  private readonly filter = make('input', {
    class: 'dq-filter',
    type: 'search',
    placeholder: 'Filter by name',
    'aria-label': 'Filter services, runs and queues by name'
  }) as HTMLInputElement;
  private readonly tree = make('div', { class: 'dq-tree' });
  private readonly note = make('div', { class: 'dq-note', role: 'alert' }, make('span', { class: 'dq-slot' }), make('span'));
  private readonly live = make('div', { class: 'dq-live' });
  private readonly keys = text('div', 'dq-keys', KEYS);
  private readonly ticking: ReturnType<typeof setInterval>;
  private watching: IDisposable | null = null;
  private settle: () => void = () => undefined;
  private drawAll: () => void = () => undefined;
}

function note(model: Desk['model']): ['offline' | 'cross', string] {
  if (model.services === null && model.servicesError) return ['offline', model.servicesError];
  const service = model.service();
  if (!service) return ['offline', ''];
  const at = model.snapshot ? `Shown as of ${instant(model.snapshot.at, Date.now() / 1000)}. ` : '';
  if (service.state === 'gone') return ['offline', at && `${at}The service has ended.`];
  if (!model.failure) return ['offline', ''];
  if (!model.failure.silent) return ['cross', model.failure.message];
  const seconds = model.nextTry === null ? 0 : Math.max(0, Math.ceil((model.nextTry - Date.now()) / 1000));
  const next = seconds ? `Next try in ${seconds} s.` : 'Trying now.';
  return ['offline', `${at}Runs go on without this view. ${next}`];
}
