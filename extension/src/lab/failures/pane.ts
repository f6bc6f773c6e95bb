// Show one class: the traceback of one of its documents, and all documents, fifty at a time.

import { copy } from '../ask';
import { withCells, type Cell } from '../cells';
import type { Failure } from '../client';
import { button, hold, make, mark, say, show, text, type Drawn } from '../../shared/dom';
import { count, instant, many, moment, seen } from '../../shared/format';
import { table } from '../../shared/table';
import { openMenu } from '../menu';
import { showCell } from '../notebook';
import { ALL, PAGE, type FailuresModel } from './model';

const FRAME = /^\s+(?:File ".*?"|cell \[[\d ]*\]|<cell>), line (\d+)(?:, in (.*))?$/;

/** What to do where consumers died of a document, in the words of WAY_OUT in dqlab/live/tables.py. */
const WAY_OUT =
  'A function that ends its process, as os._exit and crashes of native code do, ends its consumer too. Map with executor="process": ' +
  'each slot has its own process, and the failure names how that process died.';
const consumerDied = (row: Failure): boolean => row.error === 'NoAnswer' && row.message.includes('consumer died');

export interface Surroundings {
  insert(...cells: string[]): void;
  cells(): Cell[];
}

export function classPane(model: FailuresModel, around: Surroundings): Drawn {
  const { insert } = around;
  const title = make('h2', { class: 'dq-ell' });
  const when = text('span', 'dq-quiet dq-small', '');
  const trace = make('pre', { class: 'dq-trace', tabindex: 0, role: 'region', 'aria-label': 'Traceback' });
  const printed = make('pre', { class: 'dq-trace', tabindex: 0, role: 'region', 'aria-label': 'What it printed' });
  const reason = text('div', 'dq-quiet dq-small', '');
  const versions = text('div', 'dq-quiet dq-small', '');
  const caption = text('div', 'dq-caption', '');
  const previous = button('Previous', '', () => void model.previousPage());
  const next = button('Next', '', () => void model.nextPage());
  const again = button('Look again', 'dq-link', () => model.looked && void model.look(model.looked));
  const pager = make('div', { class: 'dq-pager' }, previous, next, make('span', { class: 'dq-grow' }), again);
  const tools = make('div', { class: 'dq-pager' });
  const element = make('section', { class: 'dq-pane', 'aria-label': 'One class of failures' });
  let shown = '';

  const document = (): Failure | null => {
    const rows = model.page?.rows ?? [];
    return rows.find((row) => String(row.id) === shown) ?? rows[0] ?? null;
  };
  const cellOf = (row: Failure): string => showCell(row, model.run?.name);
  tools.append(
    button('Copy %dq show cell', '', () => withDocument((row) => copy(cellOf(row)))),
    button('Copy reference', '', () => withDocument((row) => copy(row.key))),
    button('Insert cell', 'dq-link', () => withDocument((row) => insert(cellOf(row))))
  );
  const withDocument = (act: (row: Failure) => void): void => {
    const row = document();
    if (row) act(row);
  };

  const choose = (id: string): void => {
    shown = id;
    draw();
  };
  const moreOf = (row: Failure): HTMLButtonElement => {
    const more = button('⋯', 'dq-ib', (event) => {
      event.stopPropagation();
      openMenu(
        [
          { label: 'Copy %dq show cell', act: () => copy(cellOf(row)) },
          { label: 'Copy document reference', act: () => copy(row.key) },
          { label: 'Insert a cell that shows it', act: () => insert(cellOf(row)) }
        ],
        more
      );
    });
    mark(more, 'aria-label', 'More for this document');
    return more;
  };
  const documents = table<Failure>({
    label: 'Documents of this class',
    columns: [
      { title: 'document', cell: 'dq-mono dq-ell dq-key', text: (row) => row.key, hint: (row) => (row.consumer ? `${row.key}, on ${row.consumer}` : row.key) },
      { title: 'error', kind: 'dq-of-error', text: (row) => row.error, hint: (row) => `${row.error}: ${row.message}` },
      { title: 'deliveries', kind: 'dq-num dq-deliveries', text: (row) => count(row.deliveries) },
      { title: 'code version', kind: 'dq-version', cell: 'dq-quiet', text: (row) => model.versionOf(row) },
      { title: 'failed', kind: 'dq-num dq-at', cell: 'dq-quiet', text: (row) => moment(row.when, model.snapshot!.at) },
      { title: 'more', kind: 'dq-tools', make: (row) => [moreOf(row)] }
    ],
    keyOf: (row) => row.id,
    create: (line, row) => line.addEventListener('click', () => choose(String(row.id))),
    update: (line, row) => mark(line, 'aria-selected', row.id === document()?.id),
    keys: { Enter: (line) => choose(line.dataset.row!) }
  });
  documents.element.classList.add('dq-documents');
  element.append(make('div', { class: 'dq-title' }, title, when), trace, printed, reason, tools, versions, caption, documents.element, pager);

  const draw = (): void => {
    const all = model.looked === ALL;
    const chosen = model.classes.find((each) => each.fingerprint === model.looked);
    show(element, all || chosen !== undefined);
    if (!all && !chosen) return;
    mark(documents.element, 'data-all', all);
    const page = model.page;
    const row = document();
    const key = chosen ? `${chosen.error} ${chosen.message}` : 'All dead documents';
    if (title.dataset.key !== key) {
      title.dataset.key = key;
      title.replaceChildren(...(chosen ? [`${chosen.error} `, text('span', 'dq-mono', chosen.message)] : [key]));
      mark(title, 'title', key);
    }
    say(when, chosen?.first ? seen(chosen.first, chosen.last, model.snapshot!.at) : '');
    const raised = row && (row.traceback ? withCells(row.traceback, around.cells(), (name) => model.cellOf(row.version, name)) : `${row.error}: ${row.message}`);
    const instead = page ? '' : 'Asking for the documents…';
    drawTrace(trace, raised ?? (model.pageError || instead));
    show(trace, trace.textContent !== '');
    say(printed, row?.logs ?? '');
    show(printed, Boolean(row?.logs));
    say(reason, [row?.reason, row && consumerDied(row) ? WAY_OUT : ''].filter(Boolean).join('. '));
    show(reason, Boolean(row?.reason));
    show(tools, row !== null);
    const amounts = new Map<string, number>();
    for (const each of page?.rows ?? []) {
      const word = model.versionOf(each);
      amounts.set(word, (amounts.get(word) ?? 0) + 1);
    }
    const parts = [...amounts].map(([word, amount]) => `${word}: ${count(amount)}`);
    say(versions, parts.length ? `Code versions of the documents listed here: ${parts.join(', ')}` : '');
    say(caption, page ? range(page.first, page.rows.length, page.total, page.at, model.snapshot?.at ?? page.at) : model.pageError);
    documents.draw(page?.rows ?? []);
    const many50 = (page?.total ?? 0) > PAGE;
    show(previous, many50);
    show(next, many50);
    hold(previous, !model.hasPrevious);
    hold(next, !page?.next);
  };
  return { element, draw };
}

function range(first: number, amount: number, total: number, at: number, now: number): string {
  if (!amount) return 'None of these documents is dead now.';
  const which = amount === total ? many(total, 'document') : `${count(first)}–${count(first + amount - 1)} of ${many(total, 'document')}`;
  return `${which}, as of ${instant(at, now)}`;
}

/** A traceback that sets off the frame that raised; places and lines stay text, whatever they contain. */
function drawTrace(element: HTMLElement, content: string): void {
  if (element.dataset.shown === content) return;
  element.dataset.shown = content;
  const lines = content.replace(/\s+$/, '').split('\n');
  const last = lines.reduce((found, line, at) => (FRAME.test(line) ? at : found), -1);
  element.replaceChildren(
    ...lines.map((line, at) => {
      const ends = at === lines.length - 1;
      const raised = last >= 0 && (at === last || (at === last + 1 && !ends));
      const kind = raised ? 'dq-raised' : ends ? 'dq-bad' : FRAME.test(line) ? 'dq-quiet' : '';
      return text('span', `dq-code-line ${kind}`, line);
    })
  );
}
