import { expect, test } from 'vitest';

import { interceptLinks, markedOpening, openingOf, wantedOpening } from '../src/lab/links';
import { service } from './golden';

const BASE = `${window.location.origin}/user/ana/`;

test('a link to a page of a service opens that page, with its queue and run', () => {
  expect(openingOf(`${BASE}dq/dashboard/papers/dq?queue=pages&run=parse`, BASE)).toEqual({
    service: 'papers',
    path: 'dq',
    name: 'dqlab',
    ours: true,
    scope: { queue: 'pages', run: 'parse' }
  });
  expect(openingOf(`${BASE}dq/dashboard/papers/individual-task-stream`, BASE)).toMatchObject({ ours: false, name: 'Task stream' });
});

test.each([
  ['another origin', 'http://elsewhere.example/user/ana/dq/dashboard/papers/dq'],
  ['another user', `${window.location.origin}/user/bob/dq/dashboard/papers/dq`],
  ['a way out of the dashboard', `${BASE}dq/dashboard/../../api/contents`],
  ['no service', `${BASE}dq/dashboard/`],
  ['the API', `${BASE}dq/api/services`],
  ['a script', 'javascript:alert(1)'],
  ['nonsense', 'http://[']
])('%s goes its own way', (_, href) => {
  expect(openingOf(href, BASE)).toBeNull();
});

test('a link that a kernel has marked opens its service, or the only one that is up', () => {
  const gone = service({ id: 'old', state: 'gone' });
  expect(markedOpening({ dqPanel: 'depth' }, [service(), gone])).toMatchObject({ service: 'papers', path: 'individual-dq-depth' });
  expect(markedOpening({ dqPanel: 'dq', dqService: 'old' }, [service(), gone])).toMatchObject({ service: 'old', path: 'dq' });
  expect(markedOpening({ dqPanel: 'dq' }, [service(), service({ id: 'b' })])).toBeNull();
  expect(markedOpening({ dqPanel: '../api' }, [service()])).toBeNull();
  expect(markedOpening({}, [service()])).toBeNull();
});

test('a widget opens the dashboard of its own cluster, whichever service was chosen or came first', () => {
  const first = service({ id: 'first', scheduler: 'tcp://10.0.0.1:8786' });
  const own = service({ id: 'own', scheduler: 'tcp://10.0.0.2:8786' });
  const before = service({ id: 'before', scheduler: 'tcp://10.0.0.2:8786', state: 'gone' });
  const wanted = { cluster: 'tcp://10.0.0.2:8786', name: 'parse', queue: 'pages', run: 'parse' };
  const scope = { queue: 'pages', run: 'parse' };
  expect(wantedOpening(wanted, [first, before, own])).toEqual({ service: 'own', path: 'dq', name: 'parse', ours: true, scope });
  expect(wantedOpening({ ...wanted, queue: '', run: '' }, [first, own])).toEqual({ service: 'own', path: 'dq', name: 'parse', ours: true });
  expect(wantedOpening({ ...wanted, cluster: 'tcp://elsewhere:1' }, [first, own])).toBeNull();
  expect(wantedOpening({ ...wanted, cluster: '' }, [first])).toMatchObject({ service: 'first' });
});

test('only a plain click on a link of ours is taken, and the page stays', async () => {
  const opened: string[] = [];
  interceptLinks(BASE, { services: () => [], ask: () => Promise.resolve([service()]) }, (opening) => opened.push(opening.path));
  document.body.innerHTML = `<a id="ours" href="${BASE}dq/dashboard/papers/dq"><b>open</b></a><a id="other" href="${BASE}lab">lab</a>
    <a id="marked" href="http://127.0.0.1:1/dq" data-dq-panel="depth" data-dq-service="papers">depth</a>`;
  const click = (selector: string, init: MouseEventInit = {}): boolean => {
    const event = new MouseEvent('click', { bubbles: true, cancelable: true, button: 0, ...init });
    return document.querySelector(selector)!.dispatchEvent(event);
  };
  expect(click('#ours b')).toBe(false);
  expect(click('#ours b', { ctrlKey: true })).toBe(true);
  expect(opened).toEqual(['dq']);
  expect(click('#marked')).toBe(false); // a service that was announced a moment ago is asked for
  await Promise.resolve();
  await Promise.resolve();
  expect(opened).toEqual(['dq', 'individual-dq-depth']);
});
