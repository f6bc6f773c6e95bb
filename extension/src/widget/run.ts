// The widget of a run.

import { button, hint, hold, make, mark, say, seen, show, style, sync, text } from '../shared/dom';
import { face, icon } from '../shared/glyphs';
import type { State } from '../shared/snapshot';
import { chartBox } from './chart';
import { blocked, type Context, type WidgetView } from './context';
import { faceOf, STATES } from './faces';
import { codePane, consumersPane, disclosures, failuresPane, leasesPane } from './panes';
import type { Bars, Button, Counter, Need, RunHead, RunNumbers, RunParts } from './parts';
import { askBox, chartEntry, drawFigures, keysBox, menuButton, menuOf, needsBox, newsOf, noticeBox, ratchet, subBox, word, type Entry } from './pieces';
import { OPEN, wish, type Opening } from './wishes';

const MORE: Button = { command: 'more', label: 'More', primary: false, n: 0, hint: '', target: '' };
const SEPARATOR: Button = { command: '', label: '', primary: false, n: 0, hint: '', target: '' };
/** Faces of a run with which a user can only wait, or poll again. */
const FACELESS = ['connecting', 'no answer', 'gone', 'nothing to do'];

export function runWidget(context: Context<RunParts>): WidgetView {
  const chipIcon = make('span', { class: 'dq-slot' });
  const chipText = make('span');
  const said = make('span', { class: 'dq-said' });
  const chip = make('span', { class: 'dq-chip', role: 'status' }, chipIcon, chipText, said);
  const name = make('h1', { class: 'dq-ell', tabindex: -1 });
  const sub = subBox();
  const tools = make('span', { class: 'dq-tools', role: 'toolbar', 'aria-label': 'Run controls' });
  const header = make('header', {}, chip, name, sub.element, tools);
  const notice = noticeBox(context);
  const ask = askBox(context);
  const menu = menuOf(context);

  const percent = make('div', { class: 'dq-pct' });
  const bar = make('div', { class: 'dq-bar', role: 'img' });
  const of = make('div', { class: 'dq-of' });
  const counters = make('div', { class: 'dq-leg', role: 'group', 'aria-label': 'Documents by state' });
  const figures = make('div', { class: 'dq-stats' });
  const lines = make('div');
  const chart = chartBox(context);
  const needs = needsBox(context, (need, from) => act(need, from));
  const two = make('div', { class: 'dq-two' }, chart.element, needs.element);
  const progress = make('div', { class: 'dq-prog' }, percent, make('div', {}, bar), of, make('div', { class: 'dq-lg' }, counters));
  const panes = [consumersPane(context), failuresPane(context), leasesPane(context), codePane(context)];
  const details = disclosures(context, panes);
  const keys = keysBox([['P', 'pause or resume'], ['Tab', 'next'], ['↑ ↓', 'rows'], ['Enter', 'opens'], ['Esc', 'closes']]);
  const body = make('div', { class: 'dq-body' }, progress, figures, lines, two);
  const steady = ratchet(context, [progress, figures, two, details.elements[0]!]);
  context.card.append(header, newsOf(notice.element, ask.element), body, ...details.elements, keys.element, menu.element);
  let again: ((words: readonly string[]) => void) | null = null;

  function scale(queue: string, from: HTMLElement): void {
    const now = context.part('consumers')?.rows.length ?? 1;
    again = null;
    ask.number(`Consumers for queue ${queue}:`, now, 'Set', (n) => context.send({ command: 'scale', n }), from);
  }

  function act(need: Need, from: HTMLElement): void {
    if (need.action === 'scale') scale(need.queue, from);
    else if (need.action === 'resume') context.send({ command: 'resume' });
    else if (need.ready) context.send({ command: 'retry', target: need.target });
    else details.show(need.pane, need.pane === 'failures' ? need.target : '');
  }

  const cancelWords = (): string[] | null => {
    const now = context.part('numbers').ask;
    return now && [now.question, now.detail, now.keep, now.go];
  };

  function askCancel(from: HTMLElement): void {
    const words = cancelWords();
    if (words) again = ask.question(words, () => context.send({ command: 'cancel' }), from);
  }

  function more(from: HTMLElement): void {
    const buttons = context.part('head')?.buttons ?? [];
    const hidden = buttons.filter((each) => !seen(toolOf(each)!));
    const cancel = hidden.find((each) => each.command === 'cancel');
    const offers = context.part('offers');
    const about: Opening | null = offers && { cluster: offers.cluster, name: offers.run, queue: offers.queue, run: offers.run };
    menu.open(from, [
      ...hidden.filter((each) => each !== cancel).map((each): Entry => [each.label, '', () => press(each, from)]),
      offers?.results && !buttons.some((each) => each.command === 'results') && ['Results', '', () => context.insert(offers.results)],
      offers?.label && [offers.label, '', () => context.insert(offers.code)],
      about?.run && ['Open', '', () => wish(context.root, OPEN, about) || context.copy(offers!.open)],
      offers?.queue && ['Scale…', '', () => scale(offers.queue, from)],
      chartEntry(context),
      ['Keys', '', () => keys.toggle()],
      cancel && ['', ''],
      cancel && [cancel.label, 'dq-danger', () => askCancel(from)]
    ]);
  }

  const keyOf = (each: Button): string => `${each.command} ${each.n}`;
  const toolOf = (each: Button): HTMLElement | null => tools.querySelector(`[data-key="${keyOf(each)}"]`);

  function press({ command, n, target }: Button, from: HTMLElement): void {
    const offers = context.part('offers');
    if (command === 'cancel') askCancel(from);
    else if (command === 'fix') details.show('failures', target);
    else if (command === 'results') context.insert(offers?.results ?? '');
    else context.send(n ? { command, n } : { command });
  }

  function createTool(each: Button): HTMLElement {
    const { command, label, primary, n } = each;
    if (command === SEPARATOR.command) return make('span', { class: 'dq-sep dq-wide' });
    if (command === MORE.command) {
      const toggle = menuButton('dq-more', label, () => more(toggle));
      toggle.dataset.command = command;
      return toggle;
    }
    const lesser = n > 0 || command === 'results' || (command === 'resume' && !primary);
    const kind = command === 'cancel' ? 'dq-danger dq-wide' : lesser ? 'dq-wide' : primary ? 'dq-pri' : '';
    const element = button('', kind, () => press(each, element));
    word(element, label);
    element.dataset.command = command;
    element.dataset.key = keyOf(each);
    if (command === 'resume' && !primary) element.dataset.resumes = 'all that failed';
    return element;
  }

  /** Buttons that replace each other: after a press of one, a user may want the other next. */
  const twins = (command: string): string => (command === 'pause' || command === 'resume' ? 'toggle' : command);

  function drawTools(head: RunHead): void {
    const focused = tools.contains(document.activeElement) ? (document.activeElement as HTMLElement).dataset : null;
    const was = focused && { command: twins(focused.command ?? ''), key: focused.key };
    const all = head.buttons.flatMap((each) => (each.command === 'cancel' ? [MORE, SEPARATOR, each] : [each]));
    if (!all.includes(MORE) && !FACELESS.includes(head.face)) all.push(MORE);
    sync(tools, all, (each) => each.command + each.label, createTool, (element, { command, hint: words }) => {
      hint(element, words);
      if (command !== SEPARATOR.command) hold(element, command === MORE.command ? context.asking : blocked(context, command));
    });
    if (!was || tools.contains(document.activeElement)) return;
    // Focus the same button with other words, or its twin, and never another button: a second Enter would press it.
    const same = [...tools.querySelectorAll<HTMLElement>('button')].filter(seen).find(({ dataset: { command = '', key, resumes } }) =>
      was.command === 'toggle' ? twins(command) === 'toggle' && !resumes : key === was.key
    );
    (same ?? name).focus();
  }

  function drawNumbers(now: RunNumbers): void {
    sub.draw(now);
    const create = ([state, word]: Counter): HTMLElement =>
      make('span', {}, icon(STATES[state as State]), text('span', 'dq-k', word), make('b'));
    sync(counters, now.counters, ([state]) => state, create, (child, [, , documents, zero]) => {
      child.dataset.zero = String(zero);
      say(child.lastElementChild!, documents);
    });
    drawFigures(figures, now.figures);
    sync(lines, now.lines, (_, place) => place, () => make('div', { class: 'dq-line' }), say);
  }

  function drawBars(now: Bars): void {
    say(percent, now.percent);
    say(of, now.unit ? `of ${now.unit}` : '');
    say(said, now.milestone);
    mark(bar, 'aria-label', now.label || 'no progress known');
    sync(bar, now.bars, (piece) => piece.state, (piece) => make('i', { 'data-state': piece.state }), (child, piece) =>
      style(child, 'width', `${piece.fraction * 100}%`)
    );
  }

  return {
    keys: {
      Escape: () => menu.close() || ask.close(),
      '?': () => keys.toggle(),
      p: () => {
        const toggle = context.part('head')?.buttons.find((each) => ['pause', 'resume'].includes(each.command));
        if (!toggle) return false;
        // To resume the code with which everything failed must be a decision, and not a slip of a key.
        if (toggle.command === 'resume' && !toggle.primary) details.show('failures', '');
        else if (!blocked(context)) context.send({ command: toggle.command });
        return true;
      }
    },
    draw() {
      const head = context.part('head');
      if (!head) return;
      mark(context.root, 'aria-label', `Run ${head.name}`);
      context.root.dataset.stale = String(head.stale);
      steady(head);
      face(chipIcon, faceOf(head.face));
      say(chipText, head.chip);
      say(name, head.name);
      hint(name, head.name);
      notice.draw(head.notice, head.face === 'no answer');
      drawNumbers(context.part('numbers'));
      drawBars(context.part('bars'));
      const words = cancelWords();
      if (context.asking && again) words ? again(words) : ask.close(); // a run that has ended cannot be cancelled
      drawTools(head);
      show(two, context.part('chart') !== null);
      chart.draw();
      needs.draw();
      details.draw();
    }
  };
}
