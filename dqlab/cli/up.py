"""A cluster that outlives notebooks, which `dqlab up` starts, keeps and ends."""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue

from dqlab.clusters_here import LOCAL, Registration, check_free, register, unregister
from dqlab.config import check_directory, check_name
from dqlab.connecting import RESERVED, check_store_here, embedded_lab
from dqlab.errors import BadOption, DqlabError
from dqlab.lab import Lab
from dqlab.numbers import many
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
