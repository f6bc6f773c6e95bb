// The first section: what needs the user in the chosen service, each line with its actions, until it is dismissed.

import { perform, type Desk } from '../desk';
import { button, hint, hold, make, mark, part, say, show, sync, text, type Drawn } from '../../shared/dom';
import { count } from '../../shared/format';
import { face } from '../../shared/glyphs';
import { subjectKey } from '../model';
import { ENDED, type Need, type Step } from '../needs';
import { refuse, section } from './pieces';
import { distinctName } from './services';

export function needsSection(desk: Desk): Drawn {
  const { model } = desk;
  const area = section('Needs you', 'list');
  const rest = text('span', 'dq-grow', '');
  const back = button('Bring back', 'dq-link', () => model.recall());
  const foot = make('div', { class: 'dq-rest dq-foot' }, rest, back);
  const others = make('div', { class: 'dq-rest dq-elsewhere', role: 'group', 'aria-label': 'Needs you in other services' });
  area.element.classList.add('dq-needs');
  area.element.tabIndex = -1;
  area.element.append(foot, others);
  const known = new Map<string, Need>();
  let unfolded = false;

  const take = (step: Step, need: Need): void => {
    const service = model.chosen;
    if (service === null) return;
    if ('entry' in step && !model.fresh) return;
    if ('entry' in step) void perform(model, service, step.entry);
    else if ('failures' in step) desk.openFailures(service, step.failures);
    else if ('code' in step) desk.insert(step.code);
    else desk.openPanel({ service, path: `individual-dq-${step.panel}`, name: panelName(step.panel), ours: true, scope: need.scope });
  };

  const create = (first: Need): HTMLElement => {
    const { key } = first;
    const dismiss = button('×', 'dq-ib dq-dismiss', () => {
      const need = known.get(key);
      if (need) model.dismiss(need);
    });
    mark(dismiss, 'title', 'Dismiss, until there is news about it');
    const words = make('span', { class: 'dq-words' }, text('b', '', ''), text('span', 'dq-t', ''));
    const element = make('div', { class: 'dq-need', role: 'listitem' }, make('span', { class: 'dq-slot' }), words, dismiss);
    const refusal = make('span', { class: 'dq-refusal', role: 'alert' });
    refusal.hidden = true;
    element.append(text('span', 'dq-d', ''), make('span', { class: 'dq-steps' }), refusal);
    if (key === ENDED) {
      const fold = button('', 'dq-link dq-fold', () => {
        unfolded = !unfolded;
        draw();
      });
      part(element, '.dq-steps').append(fold);
      element.append(make('div', { class: 'dq-parts', role: 'list', 'aria-label': 'Runs that have ended' }));
    }
    return element;
  };

  const update = (element: HTMLElement, need: Need): void => {
    known.set(need.key, need);
    face(part(element, '.dq-slot'), need.severity === 'problem' ? 'cross' : 'warning');
    say(part(element, 'b'), need.subject);
    say(part(element, '.dq-t'), ` ${need.text}`);
    hint(part(element, '.dq-words'), `${need.subject} ${need.text}`);
    hint(part(element, '.dq-d'), need.detail);
    say(part(element, '.dq-d'), need.detail);
    show(part(element, '.dq-d'), need.detail !== '');
    mark(part(element, '.dq-dismiss'), 'aria-label', `Dismiss: ${need.subject} ${need.text}`);
    const { queue, run } = need.scope;
    refuse(element, queue === undefined ? undefined : model.refusals.get(subjectKey({ queue, run })));
    if (need.key === ENDED) {
      const fold = part(element, '.dq-fold');
      say(fold, unfolded ? 'Hide them' : 'Show them');
      mark(fold, 'aria-expanded', unfolded);
      const parts = part(element, '.dq-parts');
      show(parts, unfolded);
      sync(parts, unfolded ? need.parts : [], (each) => each.key, create, update);
      return;
    }
    sync(
      part(element, '.dq-steps'),
      need.steps,
      (step) => step.id,
      (step) =>
        button('', step.id === need.steps[0]?.id ? '' : 'dq-link', () => {
          const now = known.get(need.key);
          const current = now?.steps.find((each) => each.id === step.id);
          if (now && current) take(current, now);
        }),
      (made, step) => {
        say(made, step.label);
        hold(made, 'entry' in step && !model.fresh);
        mark(made, 'aria-label', `${step.label}: ${need.subject} ${need.text}`);
      }
    );
  };

  const draw = (): void => {
    const needs = model.open;
    const focused = area.element.contains(document.activeElement);
    const service = model.service();
    show(area.element, model.snapshot !== null && service?.state !== 'gone');
    mark(area.element, 'data-stale', !model.fresh);
    const { elsewhere } = model;
    const here = elsewhere.length ? 'nothing here' : 'nothing now';
    area.head(needs.length + model.unlisted ? count(needs.length + model.unlisted) : '', needs.length ? '' : here);
    show(others, elsewhere.length > 0);
    sync(
      others,
      elsewhere,
      (each) => each.service.id,
      ({ service: { id } }) => button('', 'dq-link', () => model.choose(id)),
      (made, each) => say(made, `${count(each.glance.needs)} in ${distinctName(each.service, model.services ?? [])}`)
    );
    known.clear();
    sync(area.body, needs, (need) => need.key, create, update);
    const { unlisted, dismissed } = model;
    say(rest, [unlisted && `and ${count(unlisted)} more`, dismissed && `${count(dismissed)} dismissed`].filter(Boolean).join(' · '));
    show(back, dismissed > 0);
    show(foot, unlisted + dismissed > 0);
    // Never to another button: a second Enter would press it.
    if (focused && !area.element.contains(document.activeElement)) area.element.focus();
  };
  return { element: area.element, draw };
}

const panelName = (path: string): string => path.charAt(0).toUpperCase() + path.slice(1);
