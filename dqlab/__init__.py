"""dqlab: an interactive, distributed task queue on Dask, at home in Jupyter.

import dqlab as dq

lab = dq.connect()
run = lab.map(count_words, dq.Documents.stdlib())
run.results()
"""

from importlib.metadata import PackageNotFoundError, version
from typing import Any

from dqlab.cluster.message import Message
from dqlab.connecting import connect
from dqlab.documents import Document, Documents
from dqlab.errors import DqlabError, Reject, RunFailed
from dqlab.lab import Lab
from dqlab.queue.retry import Retry
from dqlab.runs.consumer_pool import ConsumerPool
from dqlab.runs.consumers import ConsumerBaseClass, DummyConsumer, GeneralConsumer
from dqlab.runs.pool import QueuePool
from dqlab.runs.run import Run
from dqlab.runs.session import Durability

try:
    __version__ = version("dqlab")
except PackageNotFoundError:  # a checkout that is not installed
    __version__ = "0+unknown"

__all__ = [  # noqa: RUF022 - grouped by topic
    # where everything begins
    "Lab",
    "connect",
    # documents
    "Document",
    "Documents",
    # queues and runs
    "Durability",
    "Message",
    "QueuePool",
    "Retry",
    "Run",
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


def __dir__() -> list[str]:
    """Return what is for users; rooms and imported names are left out of completion."""
    return sorted([*__all__, "__doc__", "__file__", "__name__", "__version__", "errors", "testing"])


def load_ipython_extension(shell: Any) -> None:
    """Give IPython `%dq` and `%%dq`, and teach it to show our objects: ``%load_ext dqlab``."""
    from dqlab.jupyter import load

    load(shell)


def unload_ipython_extension(shell: Any) -> None:
    """Take `%dq` and `%%dq` away again: ``%unload_ext dqlab``."""
    from dqlab.jupyter import unload

    unload(shell)
