// Open links to a service's dashboard, as `%dq open` shows them, as tabs instead of leaving the page.

import type { Service } from './client';
import type { Opening } from './desk';
import type { Opening as Wanted } from '../widget/wishes';

const BELOW = 'dq/dashboard/';

/** The opening for a link to one of our own pages; null for every other link. */
export function openingOf(href: string, baseUrl: string): Opening | null {
  let url: URL;
  let base: URL;
  try {
    base = new URL(baseUrl, window.location.href);
    url = new URL(href, window.location.href);
  } catch {
    return null;
  }
  const prefix = `${base.pathname.replace(/\/*$/, '/')}${BELOW}`;
  if (url.origin !== base.origin || !url.pathname.startsWith(prefix)) return null;
  const [service, ...rest] = url.pathname.slice(prefix.length).split('/').map(decoded);
  const path = rest.filter(Boolean).join('/') || 'dq';
  if (!service) return null;
  const ours = path === 'dq' || path.startsWith('individual-dq-');
  const queue = url.searchParams.get('queue');
  const run = url.searchParams.get('run');
  const scope = { ...(queue ? { queue } : {}), ...(run ? { run } : {}) };
  return { service, path, name: nameOf(path), ours, ...(queue || run ? { scope } : {}) };
}

/**
 * The opening for a link with a mark of a kernel, which does not know the address under which Jupyter shows its service:
 * the service that the mark names, or the only one that is up. Null where that is not clear.
 */
export function markedOpening(mark: { dqPanel?: string; dqService?: string }, services: readonly Service[]): Opening | null {
  const panel = mark.dqPanel ?? '';
  if (!/^[a-z][a-z-]*$/.test(panel)) return null;
  const up = services.filter((each) => each.state === 'up');
  const service = mark.dqService ? services.find((each) => each.id === mark.dqService) : only(up);
  if (!service) return null;
  const path = panel === 'dq' || panel.startsWith('individual-') ? panel : `individual-dq-${panel}`;
  return { service: service.id, path, name: nameOf(path), ours: true };
}

/** The opening that a widget asks for, at the service of its own cluster; null where that service is not known. */
export function wantedOpening({ cluster, name, queue, run }: Wanted, services: readonly Service[]): Opening | null {
  const up = services.filter((each) => each.state === 'up');
  const service = up.find((each) => each.scheduler === cluster) ?? services.find((each) => each.scheduler === cluster) ?? only(up);
  if (!service) return null;
  const scope = { ...(queue ? { queue } : {}), ...(run ? { run } : {}) };
  return { service: service.id, path: 'dq', name, ours: true, ...(queue || run ? { scope } : {}) };
}

const only = <T>(of: readonly T[]): T | undefined => (of.length === 1 ? of[0] : undefined);

export interface Known {
  /** The services of the last answer, and of a new one. */
  services(): readonly Service[];
  ask(): Promise<readonly Service[]>;
}

/** Open tabs for clicks on our own links; leave other clicks, and clicks with a held key, to the browser. */
export function interceptLinks(baseUrl: string, known: Known, open: (opening: Opening) => void): void {
  const onClick = (event: MouseEvent): void => {
    if (event.button !== 0 || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    const link = event.target instanceof Element ? event.target.closest<HTMLAnchorElement>('a[href]') : null;
    if (!link || link.hasAttribute('download')) return;
    const { href } = link;
    const mark = { ...link.dataset };
    const opening = openingOf(href, baseUrl) ?? markedOpening(mark, known.services());
    if (!opening && !mark.dqPanel) return;
    event.preventDefault();
    event.stopPropagation();
    if (opening) open(opening);
    else void known.ask().then((services) => follow(markedOpening(mark, services), href));
  };
  const follow = (opening: Opening | null, href: string): void => {
    if (opening) open(opening);
    else window.open(href, '_blank', 'noopener');
  };
  // In the capture phase: JupyterLab's own handler of links in outputs must not act first.
  document.addEventListener('click', onClick, true);
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

function nameOf(path: string): string {
  if (path === 'dq') return 'dqlab';
  const words = path.replace(/^individual-(dq-)?/, '').replace(/-/g, ' ');
  return words.charAt(0).toUpperCase() + words.slice(1);
}
