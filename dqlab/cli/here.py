"""Clusters that a shell starts here: `dqlab up`, which outlives notebooks, and `dqlab run` of a function over files.

The exit status of `dqlab run` is the outcome: 0 all documents have results, 1 some have none, 2 the words are wrong, 3
the run refused what was asked and nothing ran.
"""

from __future__ import annotations

import logging
import signal
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from dqlab.clusters_here import LOCAL, Registration, check_free, register, unregister
from dqlab.config import check_directory, check_name
from dqlab.connecting import RESERVED, check_store_here, connect, embedded_lab
from dqlab.datasets.sinks import same_sink, sink_named
from dqlab.documents import Documents
from dqlab.errors import BadOption, DqlabError, RunExists, RunNotFound
from dqlab.lab import Lab
from dqlab.live.display import conclude
from dqlab.numbers import many
from dqlab.runs.run import Run
from dqlab.runs.session import result_limit

OPEN = (
    "dqlab up: {address} is open to every user of this machine, who can run code as you there. Leave --port out where "
    "you do not trust all of them."
)
END = (signal.SIGINT, signal.SIGTERM)


class NotStarted(DqlabError):
    """The processes of a cluster did not start."""

    text = (
        "the cluster could not be started: {reason}. Nothing of it is left, and the store was not opened. With "
        "--port 0 any free port is taken."
    )


def up(n: int, *, store: Path | None, name: str = LOCAL, port: int | None = None, say: Callable[[str], None]) -> None:
    """Run a cluster in the main thread until Ctrl-C or SIGTERM, then close its queues and end it."""
    check_name(name, kind="cluster")
    if n < 1:
        raise BadOption(option="n", value=n, problem="must be a number of processes, at least 1.")
    if port is not None and not 0 <= port <= 65535:
        raise BadOption(option="port", value=port, problem="is 0 to 65535.")
    check_free(name)  # every check before anything is started: the message must be the only output
    result_limit()
    if store is not None:
        store = check_directory(store)
        check_store_here(store)
        store.mkdir(mode=0o700, parents=True, exist_ok=True)
    logging.getLogger("dqlab").addHandler(logging.StreamHandler())  # no cell shows errors here: the terminal is the log
    with _signals() as arrived, _lab(n, name, port) as lab:
        address = lab.session.link.address
        lab.keep_in(store)
        about = Registration(name=name, scheduler=address, store=str(store) if store else None, reserved=RESERVED)
        file = register(about)
        try:
            lab.announce()
            say(_ready(about, n, lab.dashboard))
            if port is not None:
                say(OPEN.format(address=address))
            arrived.get()
        finally:
            unregister(file, about)  # first: nobody must find a cluster whose queues are being closed
            closed = _close_queues(lab)
        kept = f"; queues closed and kept in {store}: {closed}" if store is not None else ""
        say(f"dqlab up: {name} ended{kept}")


@contextmanager
def _signals() -> Iterator[SimpleQueue[int]]:
    """Note the first signal that asks for the end, and leave the second one to the handlers from before."""
    # Not an Event: a thread that waits for one holds its lock, and a signal handler in that thread cannot set it.
    arrived: SimpleQueue[int] = SimpleQueue()

    def note(number: int, _: object) -> None:
        restore()
        arrived.put(number)

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    before = {number: signal.signal(number, note) for number in END}
    try:
        yield arrived
    finally:
        restore()


@contextmanager
def _lab(n: int, name: str, port: int | None) -> Iterator[Lab]:
    """Start a cluster with dqlab on it, and end both after the block."""
    try:
        lab = embedded_lab(n, name=name, port=port)
    except (OSError, RuntimeError) as error:
        cause: BaseException = error  # Dask wraps the reason, such as a port in use, several times
        while cause.__cause__ is not None:
            cause = cause.__cause__
        raise NotStarted(reason=f"{type(cause).__name__}: {cause}") from error
    try:
        yield lab
    finally:
        lab.close()


def _ready(about: Registration, n: int, dashboard: str) -> str:
    named = f", name={about.name!r}" if about.name != LOCAL else ""
    return (
        f"dqlab up: {many(n, 'consumer process')} at {about.scheduler}, dashboard {dashboard}, {about.keeps}; "
        f'in a notebook: dq.connect("local"{named}); Ctrl-C ends it'
    )


def _close_queues(lab: Lab) -> int:
    """Retire the consumers of every queue, checkpoint and close its log, and return how many were durable."""
    link = lab.session.link
    queues = link.sync(link.scheduler("dq_queues"))
    for name in queues:
        link.sync(link.scheduler("dq_close", name=name, client=link.client.id, force=True))
    return sum("store" in queue["options"] for queue in queues.values())


DONE, FAILED, REFUSED = 0, 1, 3


def run(options: Namespace, say: Callable[[str], None]) -> int:
    """Map or update, wait for the end, and return the exit status."""
    function = function_of(options.function)
    name = options.name or function.__name__
    check_name(name, kind="run")
    try:
        with connect(n=options.n, store=options.store, name=f"run-{name}") as lab:
            mapped = _mapped(lab, function, name, options)
            say(str(mapped.updated or f"run {name!r}: {mapped.stats().counts.all:,} documents so far"))
            return _ended(mapped, say)
    except (DqlabError, OSError) as error:
        if isinstance(error, RunExists) and error.in_python:
            steps = "--update runs what is new or has changed, and keeps the rest; another --name keeps both."
            error = RunExists(run=error.run, difference=error.difference, steps=steps)
        say(f"dqlab run: refused, nothing ran: {type(error).__name__}: {error}")
        return REFUSED


def _mapped(lab: Lab, function: Callable[[Any], Any], name: str, options: Namespace) -> Run:
    """Start a run, attach to the same one, or update it."""
    documents = Documents.from_glob(options.over)
    sink: Any = None if options.sink is None else sink_named(options.sink)
    try:
        found = lab.attach(name) if options.update else None
    except RunNotFound:
        found = None
    if found is None:
        return lab.map(function, documents, name=name, sink=sink, retry=options.retries)
    if sink is not None and not same_sink(found.record()["sink"], sink.record()):
        raise RunExists(
            run=name, difference=f"another sink ({found.sink})", steps="Leave --sink out, or give a --name."
        )
    return found.update(documents, function, trust=options.trust, keep_gone=options.keep_gone, wait=True)


def _ended(mapped: Run, say: Callable[[str], None]) -> int:
    """Wait for the end of a run, and return the exit status."""
    try:
        progress = mapped.until_over()
    except DqlabError as error:
        if isinstance(error, RunExists):
            raise
        say(f"dqlab run: {type(error).__name__}: {error}")
        return FAILED
    say(conclude(mapped))
    return DONE if progress.counts.acked == progress.counts.all else FAILED


def function_of(word: str) -> Callable[[Any], Any]:
    """Return the function that ``FILE.py:NAME`` names, or raise `BadOption`."""
    file, _, name = word.rpartition(":")
    path = Path(file).expanduser().resolve()
    spec = spec_from_file_location(path.stem, path) if path.is_file() else None
    if spec is None or spec.loader is None:
        raise BadOption(option="FUNCTION", value=word, problem="is no FILE.py:NAME of a file that exists. Nothing ran.")
    sys.path.insert(0, str(path.parent))  # as `python FILE.py` has it: for modules beside it
    module = sys.modules[path.stem] = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # its own code may raise anything
        problem = f"cannot be imported: {type(error).__name__}: {error}. Nothing ran."
        raise BadOption(option="FUNCTION", value=word, problem=problem) from error
    function: Callable[..., Any] | None = getattr(module, name, None)
    if not callable(function):
        raise BadOption(option="FUNCTION", value=word, problem=f"has no function {name!r}. Nothing ran.")
    return function
