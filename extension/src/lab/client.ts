// The only module that fetches. The Jupyter server checks the login and the XSRF token, and has the tokens of services.

import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';

import { historyReader, snapshotReader, type History, type Snapshot } from '../shared/snapshot';

/** Longer than the server itself waits for a service, so that the server's error is shown, and not a timeout here. */
const LOOK_MS = 15_000;
const ACT_MS = 70_000;
const COMPACT_MS = 3_610_000;

const NO_SERVER =
  'The Jupyter server has no part of dqlab. Install dqlab[lab] where the server runs, then restart the server.';

/** One cluster with dqlab on it. `since` is when it last answered, or when it ended. */
export interface Service {
  id: string;
  name: string;
  state: 'up' | 'silent' | 'gone' | 'unreachable';
  /** Why it cannot be reached from here, and what to do; empty when it can. */
  why?: string;
  where: string;
  scheduler: string;
  embedded: boolean;
  store: string | null;
  started: number;
  since: number;
  pid: number;
  host: string;
  /** Ids of the kernels whose last lab is on it. */
  kernels: string[];
}

/** Equal only for the same service: an id can be used again. */
export const identity = (service: Service): string => [service.id, service.started, service.pid, service.host].join(' ');

export interface Panel {
  path: string;
  name: string;
  ours: boolean;
}

/** One document that failed for good. */
export interface Failure {
  id: number | string;
  key: string;
  error: string;
  message: string;
  at: string;
  traceback: string;
  fingerprint: string;
  deliveries: number;
  version: number | string | null;
  consumer: string;
  when: number;
  reason: string;
  /** What it printed; "" for nothing. */
  logs?: string;
}

export interface FailurePage {
  run: string;
  queue: string;
  total: number;
  rows: Failure[];
  next: string | null;
}

export interface Scope {
  queue?: string;
  run?: string;
}

export type Verb = 'pause' | 'resume' | 'drain' | 'scale' | 'purge' | 'compact' | 'replace' | 'give_up' | 'cancel' | 'retry';

export interface Action {
  action: Verb;
  queue: string;
  run?: string;
  n?: number | 'auto';
  state?: 'dead' | 'ready' | 'delayed';
  fingerprints?: string[];
  limit?: number;
  consumer?: string;
  document?: string;
}

export interface Answer {
  count: number | null;
  text: string;
  snapshot: Snapshot;
}

/** A refusal of the server, or of the service behind it, whose message names the next step. */
export class Refusal extends Error {
  constructor(
    readonly status: number,
    readonly kind: string,
    message: string
  ) {
    super(message);
  }

  /** The service did not answer, and so did not refuse. */
  get silent(): boolean {
    return this.status === 502 || this.status === 504 || this.status === 0;
  }
}

type Query = Record<string, string | number | undefined | null>;

export class Client {
  constructor(private settings: ServerConnection.ISettings = ServerConnection.makeSettings()) {}

  get baseUrl(): string {
    return this.settings.baseUrl;
  }

  /** Address of a page of a service's dashboard, behind Jupyter's own login. */
  dashboard(service: string, path: string, query: Query = {}): string {
    const parts = path.split('/').map(encodeURIComponent);
    return URLExt.join(this.baseUrl, 'dq/dashboard', encodeURIComponent(service), ...parts) + search(query);
  }

  async services(): Promise<Service[]> {
    try {
      return (await this.ask<{ services: Service[] }>(['services'])).services;
    } catch (error) {
      if (!(error instanceof Refusal) || error.status !== 404) throw error;
      throw new Refusal(404, 'NoServer', NO_SERVER);
    }
  }

  async forget(service: string): Promise<void> {
    await this.ask(['services', service], {}, { method: 'DELETE' });
  }

  async snapshot(service: string, scope: Scope = {}): Promise<Snapshot> {
    return snapshotReader.read(await this.ask(['services', service, 'snapshot'], { ...scope }));
  }

  async history(service: string, span: number, scope: Scope = {}): Promise<History> {
    return historyReader.read(await this.ask(['services', service, 'history'], { span, ...scope }));
  }

  /** Fetch a page of dead documents; keys that are numbers arrive as numbers. */
  async failures(
    service: string,
    scope: Scope & { fingerprint?: string; after?: string | null; limit?: number }
  ): Promise<FailurePage> {
    const page = await this.ask<FailurePage>(['services', service, 'failures'], { ...scope });
    return { ...page, rows: page.rows.map((row) => ({ ...row, key: String(row.key ?? '') })) };
  }

  async panels(service: string): Promise<Panel[]> {
    return (await this.ask<{ panels: Panel[] }>(['services', service, 'panels'])).panels;
  }

  async act(service: string, action: Action): Promise<Answer> {
    const init = { method: 'POST', body: JSON.stringify(action) };
    const wait = action.action === 'compact' ? COMPACT_MS : ACT_MS;
    const answer = await this.ask<Answer>(['services', service, 'actions'], {}, init, wait);
    return { ...answer, snapshot: snapshotReader.read(answer.snapshot) };
  }

  private async ask<T>(path: string[], query: Query = {}, init: RequestInit = {}, wait = LOOK_MS): Promise<T> {
    const url = URLExt.join(this.baseUrl, 'dq/api', ...path.map(encodeURIComponent)) + search(query);
    const signal = AbortSignal.timeout(wait);
    let response: Response;
    try {
      response = await ServerConnection.makeRequest(url, { cache: 'no-cache', signal, ...init }, this.settings);
    } catch (error) {
      throw new Refusal(0, 'Unreachable', 'The Jupyter server does not answer. Check that it still runs, then retry.');
    }
    if (response.status === 204) return undefined as T;
    const body: any = await response.json().catch(() => null);
    if (!response.ok) {
      const sentence = body?.message || `The Jupyter server answered ${response.status} ${response.statusText}.`;
      throw new Refusal(response.status, String(body?.error ?? ''), String(sentence));
    }
    if (body === null) throw new Refusal(502, 'Unreadable', 'The Jupyter server sent an answer that is not JSON.');
    return body as T;
  }
}

function search(query: Query): string {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== '');
  const text = new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString();
  return text && `?${text}`;
}
