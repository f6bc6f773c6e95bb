"""dqlab: an interactive, distributed task queue on Dask, at home in Jupyter.

import dqlab as dq

lab = dq.connect()
run = lab.map(count_words, dq.Documents.stdlib())
run.results()
"""

import sys
from importlib import import_module
from importlib.util import find_spec
from types import FunctionType
from typing import TYPE_CHECKING, Any

if sys.platform == "win32":
    raise ImportError(
        "dqlab does not run on Windows: it needs Linux or macOS. Nothing was imported. Install the Windows Subsystem "
        "for Linux, WSL, with `wsl --install`, then install and start dqlab and Jupyter inside it."
    )

if TYPE_CHECKING:
    from dqlab.cluster.consumer.actor import Message
    from dqlab.cluster.consumer.running.in_functions import cancelled, later_from, once, per_consumer, spend, track
    from dqlab.connecting import connect, map
    from dqlab.datasets.sinks import Files, Parquet
    from dqlab.documents import Document, Documents
    from dqlab.errors import DqlabError, Reject, RunFailed
    from dqlab.lab import Lab
    from dqlab.plan import Batch, Smaller
    from dqlab.rules.budget import Budget
    from dqlab.rules.flow import Adaptive
    from dqlab.rules.retry import Later, Retry
    from dqlab.runs.code.sealing import explain
    from dqlab.runs.compare.equality import close, same, same_words
    from dqlab.runs.consumer_pool import ConsumerPool
    from dqlab.runs.consumers import ConsumerBaseClass, DummyConsumer, GeneralConsumer
    from dqlab.runs.pool import QueuePool
    from dqlab.runs.run import Run
    from dqlab.runs.session import Durability
    from dqlab.runs.terms import Limit

    __version__: str

__all__ = [  # noqa: RUF022 - grouped by topic
    # entry points
    "Lab",
    "connect",
    "map",
    # documents
    "Document",
    "Documents",
    # where results are written
    "Files",
    "Parquet",
    # queues and runs
    "Batch",
    "Budget",
    "Adaptive",
    "Durability",
    "Later",
    "Limit",
    "Message",
    "QueuePool",
    "Retry",
    "Run",
    "Smaller",
    "cancelled",
    "later_from",
    "once",
    "per_consumer",
    "spend",
    "explain",
    "track",
    # when two results are the same
    "close",
    "same",
    "same_words",
    # consumers started and stopped by hand
    "ConsumerBaseClass",
    "ConsumerPool",
    "DummyConsumer",
    "GeneralConsumer",
    # errors that users catch or raise
    "DqlabError",
    "Reject",
    "RunFailed",
]


_HOMES = {
    "Batch": "dqlab.plan",
    "Budget": "dqlab.rules.budget",
    "Adaptive": "dqlab.rules.flow",
    "ConsumerBaseClass": "dqlab.runs.consumers",
    "ConsumerPool": "dqlab.runs.consumer_pool",
    "Document": "dqlab.documents",
    "Documents": "dqlab.documents",
    "explain": "dqlab.runs.code.sealing",
    "DqlabError": "dqlab.errors",
    "DummyConsumer": "dqlab.runs.consumers",
    "Durability": "dqlab.runs.session",
    "Files": "dqlab.datasets.sinks",
    "GeneralConsumer": "dqlab.runs.consumers",
    "Lab": "dqlab.lab",
    "Later": "dqlab.rules.retry",
    "Limit": "dqlab.runs.terms",
    "Message": "dqlab.cluster.consumer.actor",
    "Parquet": "dqlab.datasets.sinks",
    "QueuePool": "dqlab.runs.pool",
    "Reject": "dqlab.errors",
    "Retry": "dqlab.rules.retry",
    "Run": "dqlab.runs.run",
    "RunFailed": "dqlab.errors",
    "Smaller": "dqlab.plan",
    "cancelled": "dqlab.cluster.consumer.running.in_functions",
    "later_from": "dqlab.cluster.consumer.running.in_functions",
    "close": "dqlab.runs.compare.equality",
    "connect": "dqlab.connecting",
    "map": "dqlab.connecting",
    "once": "dqlab.cluster.consumer.running.in_functions",
    "per_consumer": "dqlab.cluster.consumer.running.in_functions",
    "same": "dqlab.runs.compare.equality",
    "same_words": "dqlab.runs.compare.equality",
    "spend": "dqlab.cluster.consumer.running.in_functions",
    "track": "dqlab.cluster.consumer.running.in_functions",
}
"""Module of each public name, imported on first access so that `dqlab store` needs no Dask."""


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        if name in (
            "connect",
            "map",
        ):  # it imports for most of a second; a Ctrl-C then would print the frames of imports
            with import_module("dqlab.errors.rendering").interruptible("nothing was started; call it again"):
                found = getattr(import_module(_HOMES[name]), name)
        else:
            found = getattr(import_module(_HOMES[name]), name)
        if isinstance(found, FunctionType):
            found.__module__ = "dqlab"  # functions that users store call it by this name, and its home may move
    elif name in ("errors", "hpc", "testing"):
        found = import_module(f"dqlab.{name}")
    elif name == "__version__":
        found = _version()
    else:
        if name.startswith("_") or find_spec(f"dqlab.{name}") is not None:
            # `from dqlab import config` asks here first, and imports the module only after an AttributeError.
            raise AttributeError(f"module 'dqlab' has no attribute {name!r}")
        from dqlab.errors import NoAttribute
        from dqlab.keywords import nearest

        near = nearest(name, __dir__())
        hint = f"Did you mean {near}?" if near else "dir(dqlab) lists what it has."
        raise NoAttribute(what="dqlab", attribute=name, problem=f"has no {name!r}", hint=hint)
    globals()[name] = found  # the next access does not come here
    return found


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version  # slow to import, and rarely needed

    try:
        return version("dqlab")
    except PackageNotFoundError:  # a checkout that is not installed
        return "0+unknown"


def __dir__() -> list[str]:
    """Return the public names, without modules and imported names, for completion."""
    return sorted([*__all__, "__doc__", "__file__", "__name__", "__version__", "errors", "hpc", "testing"])


def load_ipython_extension(shell: Any) -> None:
    """Add `%dq` and `%%dq` to IPython and register formatters of our objects, for ``%load_ext dqlab``."""
    from dqlab.jupyter import load

    load(shell)


def unload_ipython_extension(shell: Any) -> None:
    """Remove `%dq` and `%%dq` again, for ``%unload_ext dqlab``."""
    from dqlab.jupyter import unload

    unload(shell)


import dqlab.live  # noqa: E402, F401 - views register themselves with the rooms below, and load nothing that draws
