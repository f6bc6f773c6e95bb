"""What each command does: one or two public calls of Python, and what the line says about it."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Sized
from typing import Any

from dqlab.documents import Documents
from dqlab.jupyter.letters import find_letter
from dqlab.jupyter.line import Line
from dqlab.lab import Lab
from dqlab.lab import connect as open_lab
from dqlab.live.rows import many
from dqlab.queue.retry import Retry
from dqlab.runs.failures import DeadLetter, Failures
from dqlab.runs.pool import QueuePool
from dqlab.runs.results import Results
from dqlab.runs.run import Run
from dqlab.stats import Snapshot

__all__ = ["ACTIONS"]

COUNTING = 1.0
"""Seconds a submission may take to count its documents, so that the line can say how many there are."""


def connect(line: Line, options: Namespace) -> Lab:
    """Connect to a cluster, or start one."""
    target = line.target(options.target)
    lab = target if isinstance(target, Lab) and not target.closed else open_lab(target, n=options.n)
    line.desk.use(lab)
    if options.out is not None:
        line.say(f"{lab.name}: {many(lab.stats().workers, 'worker')} at {lab.session.link.address}")
    return lab


def submit(line: Line, options: Namespace) -> Run:
    """Map a function over documents."""
    function = line.function(options.function)
    documents = line.evaluate(options.over, "--over")
    retry = Retry(options.retries) if options.retries is not None else None
    pool = line.lab.queue(options.queue or line.queue)
    run = pool.map(function, documents, name=options.name, on_existing=options.on_existing, retry=retry, cell=line.cell)
    line.desk.submitted(line.lab, run)
    line.say(_submitted(run, documents))
    if options.watch:
        line.desk.show(run)
    return _waited(line, run) if options.wait else run


def status(line: Line, _: Namespace) -> Snapshot:
    """Show all queues."""
    return line.lab.stats()


def watch(line: Line, options: Namespace) -> None:
    """Show a run while it runs."""
    line.desk.show(line.run(options.run))


def wait(line: Line, options: Namespace) -> Run:
    """Wait until a run is done."""
    return _waited(line, line.run(options.run), options.timeout)


def results(line: Line, options: Namespace) -> Results:
    """Wait for a run, and return its values."""
    return line.run(options.run).results(errors=options.errors)


def failed(line: Line, options: Namespace) -> Failures:
    """Return the dead documents of a run."""
    return line.run(options.run).failures()


def show(line: Line, options: Namespace) -> DeadLetter:
    """Return one dead document."""
    return find_letter(line.run(options.run).failures(), options.letter)


def retry(line: Line, options: Namespace) -> int:
    """Send dead documents through again."""
    run = line.run(options.run)
    name = options.fn or run.versions[-1].name
    defined = options.fn is not None or callable(line.names.get(name))
    count = run.retry(fn=line.function(name) if defined else None, where=options.where)
    code = f"{name} as it is defined now" if defined else f"the code it had; no {name} is defined here"
    line.say(f"{run.name}: {many(count, 'document')} sent again with {code}")
    return count


def pause(line: Line, options: Namespace) -> Run | QueuePool:
    """Start nothing more of a run or a queue."""
    held = line.run_or_queue(options.run)
    held.pause()
    line.say(f"{_called(held)} is paused")
    return held


def resume(line: Line, options: Namespace) -> Run | QueuePool:
    """Go on after pause."""
    held = line.run_or_queue(options.run)
    held.resume()
    line.say(f"{_called(held)} goes on")
    return held


def cancel(line: Line, options: Namespace) -> int | None:
    """Give up what has no result yet; without -y, say what that would be."""
    run = line.run(options.run)
    if not options.yes:
        left = many(run.stats().counts.left, "document")
        line.say(f"{run.name}: {left} without a result would be given up; results stay. To do it: add -y")
        return None
    count = run.cancel()
    line.say(f"{run.name}: {many(count, 'document')} given up")
    return count


def close(line: Line, _: Namespace) -> None:
    """Close the lab."""
    lab = line.lab
    lab.close()
    line.say(f"{lab.name} is closed")


ACTIONS: dict[str, Callable[[Line, Namespace], Any]] = {
    action.__name__: action
    for action in (connect, submit, status, watch, wait, results, failed, show, retry, pause, resume, cancel, close)
}
"""Every command by its name."""


def _waited(line: Line, run: Run, timeout: str | None = None) -> Run:
    try:
        return run.wait(_duration(timeout))
    except KeyboardInterrupt:
        line.say(f"no longer waiting for {run.name}; it goes on")
        raise


def _duration(text: str | None) -> float | str | None:
    return float(text) if text is not None and text.replace(".", "", 1).isdecimal() else text


def _submitted(run: Run, documents: object) -> str:
    """Say how much was submitted, as far as that is known without listing anything twice."""
    settled = run.submitter is None or run.submitter.join(COUNTING)
    stats = run.stats()
    if settled or not isinstance(documents, Sized) or isinstance(documents, Documents):
        amount = many(stats.counts.all, "document") + ("" if settled else " so far")
    else:
        amount = many(len(documents), "document")
    return f"{run.name}: {amount} on queue {run.queue}, {many(stats.consumers, 'consumer')}"


def _called(held: Run | QueuePool) -> str:
    return held.name if isinstance(held, Run) else f"queue {held.name}"
