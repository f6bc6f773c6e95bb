"""What the commands about queues do: one or two public calls of Python each, and a sentence."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import dataclass, replace
from html import escape

from dqlab.errors import UsageError
from dqlab.jupyter.line import Line
from dqlab.jupyter.sayings import Said
from dqlab.numbers import many
from dqlab.runs.pool import QueuePool
from dqlab.runs.timeline import Timeline
from dqlab.stats import Counts, Snapshot
from dqlab.store.compaction import Compacted

__all__ = ["PanelLink", "compact", "drain", "gc", "history", "open_panel", "purge", "queues", "scale"]


@dataclass(frozen=True)
class PanelLink:
    """An address that a notebook shows as a link; JupyterLab opens it as a tab of the service instead."""

    title: str
    url: str
    service: str = ""

    def __repr__(self) -> str:
        return self.url

    def _repr_html_(self) -> str:
        url = escape(self.url, quote=True)
        marks = f'data-dq-panel="{escape(self.title)}" data-dq-service="{escape(self.service)}"'
        return f'<a href="{url}" target="_blank" rel="noopener" {marks}>{url}</a>'


def queues(line: Line, _: Namespace) -> Snapshot:
    """List the queues of the cluster, and which are in the store only."""
    snapshot = line.lab.stats()
    known = {queue.name for queue in snapshot.queues}
    resting = [name for name in line.lab.queue_names() if name not in known]
    if resting and snapshot.queues_total == len(known):
        line.say(f"in the store {line.lab.store}, and not open: {', '.join(resting)}")
    return replace(snapshot, runs=(), attention=(), attention_total=0)


def drain(line: Line, options: Namespace) -> QueuePool:
    """Stop accepting messages in a queue."""
    pool = line.pool(options.queue)
    pool.drain()
    left = Counts(**pool.counts()).left
    line.said(pool, f"queue {pool.name} takes no more; {many(left, 'message')} left. %dq resume {pool.name} ends that")
    return pool


def scale(line: Line, options: Namespace) -> QueuePool:
    """Change the number of consumers."""
    if options.n != "auto" and not options.n.isdecimal():
        raise UsageError(reason=f"{options.n!r} is not a number of consumers. Write one, or auto. Nothing was done.")
    pool = line.pool(options.queue)
    pool.scale("auto" if options.n == "auto" else int(options.n))
    amount = "a consumer on each worker" if options.n == "auto" else many(int(options.n), "consumer")
    line.said(pool, f"queue {pool.name}: {amount} from now on")
    return pool


def purge(line: Line, options: Namespace) -> int | None:
    """Purge messages; without -y, print what that would delete."""
    pool = line.pool(options.queue)
    if not options.yes:
        amount = many(pool.counts()[options.state], f"{options.state} message")
        line.say(f"queue {pool.name}: {amount} would be thrown away, for good. To do it: add -y")
        return None
    count = pool.purge(options.state)
    line.say(f"queue {pool.name}: {many(count, f'{options.state} message')} thrown away")
    return Said(count)


def history(line: Line, options: Namespace) -> Timeline:
    """Return the history of a queue, or of all."""
    span = float(options.span) if options.span.replace(".", "", 1).isdecimal() else options.span
    return line.pool(options.queue).history(span) if options.queue is not None else line.lab.history(span)


def open_panel(line: Line, options: Namespace) -> PanelLink:
    """Return the address of the dashboard, or of one of its panels."""
    return PanelLink(options.panel, line.lab.panel(options.panel), line.lab.service)


def compact(line: Line, options: Namespace) -> Compacted:
    """Free the disk space of settled messages of a queue."""
    pool = line.pool(options.queue)
    return pool.compact()


def gc(line: Line, _: Namespace) -> None:
    """Compact every queue of the store."""
    compacted = line.lab.gc()
    for name, gave in compacted.items():
        line.say(f"{name}: {gave}")
    if not compacted:
        line.say("no queue is durable here; %dq connect --store runs/ makes queues that are")
