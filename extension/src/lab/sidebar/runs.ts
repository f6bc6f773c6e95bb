// Runs of the chosen service: share, bar by state, probable end, failures.

import { pauseRun, runDangers, runEntries } from '../actions';
import { openActions, perform, type Desk } from '../desk';
import { button, hold, make, mark, part, say, show, steady, sync, type Drawn } from '../../shared/dom';
import { count, due, minute, moment, share } from '../../shared/format';
import { face } from '../../shared/glyphs';
import { runGlyph } from '../icons';
import { subjectKey } from '../model';
import { resultsCell } from '../notebook';
import { failsThroughout, finished, hadNothing, progress, putOff, settledShare, stateOf, type Run } from '../../shared/snapshot';
import { badge, bar, refuse, row, section } from './pieces';

export const runKey = (run: Run): string => `run ${run.queue} ${run.name}`;

/** How a run ended: with dead documents it is not just done. The words are those of dqlab/live/run_rows.py. */
export function endWord(run: Run): string {
  if (hadNothing(run)) return 'empty';
  if (run.state !== 'done' || !(run.counts.dead || run.counts.lost)) return stateOf(run);
  if (run.counts.dead) return run.counts.acked ? 'some dead' : 'all dead';
  return 'some lost';
}

/** The words after a run's bar: its probable end, or why that is not known. */
export function runWord(run: Run, fresh: boolean, now: number): string {
  if (run.stuck) return `waiting for ${count(run.counts.leased)}`;
  if (run.state === 'running' || run.state === 'submitting') {
    if (!fresh) return '–';
    if (run.eta) return `ends ${due(run.eta.p50, now)}`;
    if (run.state === 'running' && putOff(run) && !run.counts.ready) return `${count(putOff(run))} put off`;
    return run.state;
  }
  if (finished(run) && run.ended !== null) return `${endWord(run)} ${moment(run.ended, now)}`;
  return run.state === 'waiting' && run.why.startsWith('no consumer') ? 'no consumer' : run.state;
}

const NONE = 'No run yet: %%dq submit starts one.';
/** A store's runs are listed only once one of its queues is open. */
const NONE_OPEN = 'No run is open. %dq runs lists those in the store, %%dq submit starts one.';

export function runsSection(desk: Desk, filter: () => string): Drawn {
  const { model } = desk;
  const area = section('Runs');
  const more = make('div', { class: 'dq-rest' });
  const ordered = steady<Run>(area.body, runKey);
  area.element.append(more);
  const current = (key: string): Run | undefined => model.snapshot?.runs.find((each) => runKey(each) === key);

  const menu = (element: HTMLElement, at?: { x: number; y: number }): void => {
    const run = current(element.dataset.row!);
    const service = model.chosen;
    if (!run || service === null) return;
    const scope = { queue: run.queue, run: run.name };
    const others = [
      { label: 'Results', act: () => desk.insert(resultsCell(run.name)) },
      { label: 'Show failures', act: () => desk.openFailures(service, scope) },
      { label: 'Open dashboard', act: () => desk.openPanel({ service, path: 'dq', name: run.name, ours: true, scope }) }
    ];
    openActions(model, service, runEntries(run), others, runDangers(run), element, at);
  };

  const create = (first: Run): HTMLElement => {
    const element = row('dq-run', 2);
    const key = runKey(first);
    const toggle = (): void => {
      const run = current(key);
      if (run) void perform(model, model.chosen, pauseRun(run));
    };
    const failures = (): void => {
      if (model.chosen !== null) desk.openFailures(model.chosen, { queue: first.queue, run: first.name });
    };
    const acts = make('span', { class: 'dq-acts' });
    acts.append(button('', 'dq-ib dq-toggle', toggle), button('⋯', 'dq-ib dq-more', () => menu(element)));
    part(element, '.dq-right').append(acts, button('', 'dq-badge dq-mod-dead', failures), make('span', { class: 'dq-share' }));
    part(element, '.dq-s2').append(
      make('span', { class: 'dq-bar', role: 'img' }),
      make('span', { class: 'dq-when' })
    );
    element.addEventListener('contextmenu', (event) => {
      event.preventDefault();
      event.stopPropagation();
      menu(element, event.clientX ? { x: event.clientX, y: event.clientY } : undefined);
    });
    return element;
  };

  const update = (element: HTMLElement, run: Run): void => {
    const word = runWord(run, model.fresh, run.at || (model.snapshot?.at ?? 0));
    const shown = share(settledShare(run));
    const { action, label } = pauseRun(run);
    const stopped = action.action === 'resume';
    const over = finished(run);
    face(part(element, '.dq-slot'), runGlyph(run));
    say(part(element, '.dq-name'), run.name);
    mark(part(element, '.dq-name'), 'title', run.why ? `${run.name}: ${stateOf(run)}, ${run.why}` : run.name);
    say(part(element, '.dq-share'), shown);
    badge(part(element, '.dq-badge'), run.counts.dead ? `✕ ${count(run.counts.dead)}` : '');
    mark(part(element, '.dq-badge'), 'aria-label', `${count(run.counts.dead)} dead: show failures of ${run.name}`);
    bar(part(element, '.dq-bar'), progress(run));
    say(part(element, '.dq-when'), word);
    const when = model.fresh ? '' : ` at ${minute(model.snapshot?.at ?? 0)}`;
    mark(element, 'aria-label', `Run ${run.name}, ${stateOf(run)}${when}, ${shown} settled, ${word}`);
    const toggle = part(element, '.dq-toggle');
    show(toggle, !over && !failsThroughout(run) && model.service()?.state !== 'gone');
    hold(toggle, !model.fresh);
    face(toggle, stopped ? 'go' : 'halt');
    mark(toggle, 'aria-label', `${label} ${run.name}`);
    mark(toggle, 'title', label);
    mark(part(element, '.dq-more'), 'aria-label', `More for ${run.name}`);
    mark(element, 'aria-busy', model.busy.has(subjectKey({ queue: run.queue, run: run.name })));
    refuse(element, model.refusals.get(subjectKey({ queue: run.queue, run: run.name })));
  };

  const draw = (): void => {
    const snapshot = model.snapshot;
    const runs = snapshot?.runs ?? [];
    const asked = filter();
    const active = runs.filter((each) => !finished(each)).length;
    const when = model.fresh || snapshot === null ? '' : ` at ${minute(snapshot.at)}`;
    area.head(active ? `${active} active${when}` : runs.length ? `none active${when}` : '0');
    sync(
      area.body,
      ordered(runs).filter((each) => each.name.toLowerCase().includes(asked)),
      runKey,
      create,
      update
    );
    const hidden = (snapshot?.runs_total ?? 0) - runs.length;
    show(more, hidden > 0 || (snapshot !== null && !runs.length));
    say(more, hidden > 0 ? `and ${count(hidden)} more` : model.service()?.store && !snapshot?.queues.length ? NONE_OPEN : NONE);
  };
  return { element: area.element, draw };
}

