// One class: the traceback of one of its documents, and all of them, fifty at a time.

import { copy } from '../ask';
import type { Failure } from '../client';
import { button, make, mark, part, say, show, sync, text } from '../dom';
import { age, clock, count, many } from '../format';
import { openMenu } from '../menu';
import { showCell } from '../notebook';
import { PAGE, type FailuresModel } from './model';

const FRAME = /^\s+File ".*?", line (\d+)(?:, in (.*))?$/;

export function classPane(model: FailuresModel, insert: (...cells: string[]) => void): { element: HTMLElement; draw(): void } {
  const title = make('h2', { class: 'dq-ell' });
  const when = text('span', 'dq-mut dq-small', '');
  const trace = make('pre', { class: 'dq-trace', tabindex: 0, role: 'region', 'aria-label': 'Traceback' });
  const reason = text('div', 'dq-mut dq-small', '');
  const versions = text('div', 'dq-mut dq-small', '');
  const caption = text('div', 'dq-caption', '');
  const body = make('tbody');
  const heads: [string, string][] = [
    ['document', ''],
    ['deliveries', 'dq-num'],
    ['code', ''],
    ['when', 'dq-num'],
    ['', 'dq-tools']
  ];
  const head = make('tr', {}, ...heads.map(([name, kind]) => text('th', kind, name)));
  const table = make('table', { 'aria-label': 'Documents of this class', class: 'dq-documents' }, make('thead', {}, head), body);
  const previous = button('Previous', '', () => void model.previousPage());
  const next = button('Next', '', () => void model.nextPage());
  const again = button('Look again', 'dq-link', () => model.looked && void model.look(model.looked));
  const pager = make('div', { class: 'dq-pager' }, previous, next, make('span', { class: 'dq-grow' }), again);
  const tools = make('div', { class: 'dq-pager' });
  const element = make('section', { class: 'dq-pane', 'aria-label': 'One class of failures' });
  element.append(make('div', { class: 'dq-title' }, title, when), trace, reason, tools, versions, caption, table, pager);
  let shown: string | number | null = null;

  const document = (): Failure | null => {
    const rows = model.page?.rows ?? [];
    return rows.find((row) => row.id === shown) ?? rows[0] ?? null;
  };
  const cellOf = (row: Failure): string => showCell(row.id, model.run?.name);
  tools.append(
    button('Copy %dq show cell', '', () => withDocument((row) => copy(cellOf(row)))),
    button('Copy reference', '', () => withDocument((row) => copy(row.key))),
    button('Insert cell', 'dq-link', () => withDocument((row) => insert(cellOf(row))))
  );
  const withDocument = (act: (row: Failure) => void): void => {
    const row = document();
    if (row) act(row);
  };

  const create = (first: Failure): HTMLElement => {
    const row = make('tr', { tabindex: 0 });
    const more = button('⋯', 'dq-ib', (event) => {
      event.stopPropagation();
      openMenu(
        [
          { label: 'Copy %dq show cell', act: () => copy(cellOf(first)) },
          { label: 'Copy document reference', act: () => copy(first.key) },
          { label: 'Insert a cell that shows it', act: () => insert(cellOf(first)) }
        ],
        more
      );
    });
    mark(more, 'aria-label', 'More for this document');
    row.append(
      text('td', 'dq-mono dq-ell dq-key', ''),
      text('td', 'dq-num dq-deliveries', ''),
      text('td', 'dq-mut dq-version', ''),
      text('td', 'dq-num dq-mut dq-at', ''),
      make('td', { class: 'dq-tools' }, more)
    );
    const choose = (): void => {
      shown = first.id;
      draw();
    };
    row.addEventListener('click', choose);
    row.addEventListener('keydown', (event) => {
      if (event.key !== 'Enter' || event.target !== row) return;
      event.preventDefault();
      choose();
    });
    return row;
  };

  const update = (row: HTMLElement, each: Failure): void => {
    say(part(row, '.dq-key'), each.key);
    mark(part(row, '.dq-key'), 'title', each.consumer ? `${each.key}, on ${each.consumer}` : each.key);
    say(part(row, '.dq-deliveries'), count(each.deliveries));
    say(part(row, '.dq-version'), model.versionOf(each.version));
    say(part(row, '.dq-at'), age(each.when, Date.now() / 1000));
    mark(row, 'aria-selected', each.id === document()?.id);
  };

  const draw = (): void => {
    const chosen = model.classes.find((each) => each.fingerprint === model.looked);
    show(element, chosen !== undefined);
    if (!chosen) return;
    const page = model.page;
    const row = document();
    const key = `${chosen.error} ${chosen.message}`;
    if (title.dataset.key !== key) {
      title.dataset.key = key;
      title.replaceChildren(`${chosen.error} `, text('span', 'dq-mono', chosen.message));
      mark(title, 'title', key);
    }
    say(when, chosen.first ? `${clock(chosen.first)} to ${age(chosen.last, model.snapshot!.at)}` : '');
    drawTrace(trace, row ? row.traceback || `${row.error}: ${row.message}` : model.pageError || 'Asking for the documents…');
    say(reason, row?.reason ?? '');
    show(reason, Boolean(row?.reason));
    show(tools, row !== null);
    const amounts = new Map<string, number>();
    for (const each of page?.rows ?? []) {
      const word = model.versionOf(each.version);
      amounts.set(word, (amounts.get(word) ?? 0) + 1);
    }
    const parts = [...amounts].map(([word, amount]) => `${word}: ${count(amount)}`);
    say(versions, parts.length ? `Versions of the code among those listed: ${parts.join(', ')}` : '');
    say(caption, page ? range(page.first, page.rows.length, page.total, page.at) : model.pageError);
    sync(body, page?.rows ?? [], (each) => String(each.id), create, update);
    const many50 = (page?.total ?? 0) > PAGE;
    show(previous, many50);
    show(next, many50);
    previous.disabled = !model.hasPrevious;
    next.disabled = !page?.next;
  };
  return { element, draw };
}

function range(first: number, amount: number, total: number, at: number): string {
  if (!amount) return 'No document of this class is dead now.';
  const which = amount === total ? many(total, 'document') : `${count(first)}–${count(first + amount - 1)} of ${many(total, 'document')}`;
  return `${which}, as of ${clock(at)}`;
}

/** A traceback with the frame that raised set off; places and lines are text, whatever they contain. */
function drawTrace(element: HTMLElement, content: string): void {
  if (element.dataset.shown === content) return;
  element.dataset.shown = content;
  const lines = content.replace(/\s+$/, '').split('\n');
  const last = lines.reduce((found, line, at) => (FRAME.test(line) ? at : found), -1);
  element.replaceChildren(
    ...lines.map((line, at) => {
      const ends = at === lines.length - 1;
      const raised = last >= 0 && (at === last || (at === last + 1 && !ends));
      const kind = raised ? 'dq-raised' : ends ? 'dq-bad' : FRAME.test(line) ? 'dq-mut' : '';
      return text('span', `dq-code-line ${kind}`, line);
    })
  );
}
