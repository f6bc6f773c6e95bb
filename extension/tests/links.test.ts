import { expect, test } from 'vitest';

import { openingOf } from '../src/links';

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
