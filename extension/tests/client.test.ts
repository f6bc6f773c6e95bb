import { ServerConnection } from '@jupyterlab/services';
import { afterEach, expect, test } from 'vitest';

import { Client, Refusal } from '../src/lab/client';
import { plainSnapshot } from './golden';

const BASE = 'http://localhost/user/ana/';

/** A client whose server answers as told, and the requests that it got. */
function serving(status: number, body: unknown): { client: Client; requests: Request[] } {
  const requests: Request[] = [];
  const fetch = (request: RequestInfo | URL): Promise<Response> => {
    requests.push(request as Request);
    const text = body === undefined ? null : typeof body === 'string' ? body : JSON.stringify(body);
    return Promise.resolve(new Response(text, { status }));
  };
  return { client: new Client(ServerConnection.makeSettings({ baseUrl: BASE, fetch: fetch as typeof window.fetch })), requests };
}

afterEach(() => {
  document.cookie = '_xsrf=; expires=Thu, 01 Jan 1970 00:00:00 GMT';
});

test('everything is asked below the base URL', async () => {
  const { client, requests } = serving(200, { services: [] });
  await client.services();
  expect(requests[0]!.url).toBe(`${BASE}dq/api/services`);
});

test('names are escaped in paths and queries', async () => {
  const { client, requests } = serving(200, plainSnapshot);
  await client.snapshot('a/b', { run: 'x&y=1' });
  expect(requests[0]!.url).toBe(`${BASE}dq/api/services/a%2Fb/snapshot?run=x%26y%3D1`);
  expect(client.dashboard('papers', 'individual-dq-depth', { theme: 'dark', queue: 'a b' })).toBe(
    `${BASE}dq/dashboard/papers/individual-dq-depth?theme=dark&queue=a+b`
  );
});

test('an action goes by POST with the XSRF token, and brings the new numbers', async () => {
  document.cookie = '_xsrf=secret';
  const { client, requests } = serving(200, { count: 3, text: 'done', snapshot: plainSnapshot });
  const answer = await client.act('papers', { action: 'purge', queue: 'pages', state: 'dead' });
  const [request] = requests;
  expect(request!.method).toBe('POST');
  expect(request!.headers.get('X-XSRFToken')).toBe('secret');
  expect(await request!.json()).toEqual({ action: 'purge', queue: 'pages', state: 'dead' });
  expect(answer.snapshot.totals.counts.dead).toBe(215);
});

test('the key of a document that is a number is its text', async () => {
  const { client } = serving(200, { run: 'r', queue: 'q', total: 3, next: null, rows: [{ id: 1, key: 3 }, { id: 2, key: 'a.pdf' }, { id: 4, key: null }] });
  const { rows } = await client.failures('papers', { run: 'r' });
  expect(rows.map((row) => row.key)).toEqual(['3', 'a.pdf', '']);
});

test('a refusal carries the sentence of the server', async () => {
  const { client } = serving(404, { error: 'QueueNotFound', message: 'There is no queue x. Use one of: pages.' });
  const refusal = await client.snapshot('papers').catch((error: unknown) => error);
  expect(refusal).toBeInstanceOf(Refusal);
  expect(refusal).toMatchObject({ status: 404, kind: 'QueueNotFound', message: 'There is no queue x. Use one of: pages.', silent: false });
});

test('a service that does not answer is silent, and so is a server that cannot be reached', async () => {
  const { client } = serving(504, { error: 'ServiceSilent', message: 'papers did not answer.' });
  await expect(client.snapshot('papers')).rejects.toMatchObject({ silent: true });
  const unreachable = new Client(
    ServerConnection.makeSettings({ baseUrl: BASE, fetch: () => Promise.reject(new TypeError('no route')) })
  );
  await expect(unreachable.services()).rejects.toMatchObject({ status: 0, silent: true });
});

test('a page that is not JSON is an error with a sentence, whatever it says', async () => {
  const { client } = serving(200, '<html>login</html>');
  await expect(client.services()).rejects.toThrow(/not JSON/);
  await expect(serving(500, 'oops').client.services()).rejects.toThrow(/500/);
});

test('forgetting a service has no answer', async () => {
  const { client, requests } = serving(204, undefined);
  await client.forget('old');
  expect(requests[0]!.method).toBe('DELETE');
});

test('a server without its part of dqlab says what to install', async () => {
  await expect(serving(404, { message: 'Not Found' }).client.services()).rejects.toThrow(/Install dqlab\[lab\] where the server runs/);
});
