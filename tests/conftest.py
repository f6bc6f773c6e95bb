"""What tests share: one small cluster for the whole run, fresh queues on it, and time moved by hand."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import dask
import pytest

# As Dask's own tests do: workers are forked from one process that has imported what they need, and a cluster is there
# in half the time. Has to be said before `distributed` is imported. Scripts that tests start spawn theirs, as users do.
dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"})

# Labs of tests are no services of whoever runs them.
os.environ["JUPYTER_RUNTIME_DIR"] = tempfile.mkdtemp(prefix="dqlab-runtime-")
atexit.register(shutil.rmtree, os.environ["JUPYTER_RUNTIME_DIR"], ignore_errors=True)

from distributed import Client  # noqa: E402

import dqlab as dq  # noqa: E402
from dqlab.testing import FakeClock  # noqa: E402

pytest_plugins = ["dqlab.testing"]


@pytest.fixture(scope="session")
def lab(dq_lab: dq.Lab) -> dq.Lab:
    """Two consumer processes and one for queues, started once: a start takes seconds."""
    return dq_lab


@pytest.fixture
def client(lab: dq.Lab) -> Client:
    """The lab's Dask client."""
    return lab.client


@pytest.fixture
def queue_name() -> str:
    """A name no other test has used."""
    return f"q-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def queue(lab: dq.Lab, queue_name: str) -> Iterator[dq.QueuePool]:
    """A fresh queue with automatic consumers; closed, with all it holds, at the end."""
    pool = lab.queue(queue_name)
    yield pool
    pool.close()


@pytest.fixture
def clock() -> FakeClock:
    """Stands still until `clock.advance(seconds)`."""
    return FakeClock()


@pytest.fixture
def in_memory(tmp_path: Path) -> Iterator[Path]:
    """An empty directory, in memory where there is one: for thousands of logs."""
    memory = Path("/dev/shm")
    if not memory.is_dir():
        yield tmp_path
        return
    directory = Path(tempfile.mkdtemp(prefix="dqlab-", dir=memory))
    yield directory
    shutil.rmtree(directory)
