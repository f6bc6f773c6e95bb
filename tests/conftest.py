"""What tests share: one small cluster for the whole run, fresh queues on it, and time moved by hand."""

from __future__ import annotations

import atexit
import gc
import os
import shutil
import signal
import sys
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import pytest
from hypothesis import HealthCheck, settings

from tests.kit.sampled import examples

# As in Dask's own tests, a `LocalCluster` forks its workers from one process that has imported what they need, and is
# there in half the time. This is set before `distributed` is imported. In scripts that tests start it spawns them, as
# in those of users; what `dq.connect()` starts has a nursery to fork workers from, here and there.
FORKS = hasattr(os, "fork")
dask.config.set({"distributed.worker.multiprocessing-method": "forkserver" if FORKS else "spawn"})

# Dask's servers look at their event loops fifty times a second, at their machine twice, and at their memory ten times,
# those of an idle cluster too: of each of the clusters that tests share, that took a twenty-fifth of a processor.
dask.config.set(
    {
        "distributed.admin.tick.interval": "500 ms",
        "distributed.admin.system-monitor.disk": False,
        "distributed.admin.system-monitor.interval": "2 s",
        "distributed.worker.memory.monitor-interval": "500 ms",
    }
)

# Where bytecode is not kept, each of the hundreds of processes that tests start compiles dqlab again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Notebooks are validated by a package that loads a grammar of IRIs where one is installed: most of a second in each
# tester, and notebooks have no field that it checks.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]

# Labs of tests are not services of the user who runs them.
os.environ["JUPYTER_RUNTIME_DIR"] = tempfile.mkdtemp(prefix="dqlab-runtime-")
atexit.register(shutil.rmtree, os.environ["JUPYTER_RUNTIME_DIR"], ignore_errors=True)

# How long an example takes depends on what else the machine does.
settings.register_profile(
    "dqlab", deadline=None, max_examples=examples(100), suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("dqlab")

from distributed import Client  # noqa: E402
from distributed.utils import get_mp_context  # noqa: E402

import dqlab as dq  # noqa: E402
from dqlab.connecting import NEEDED  # noqa: E402
from dqlab.testing import FakeClock  # noqa: E402
from tests.kit import forking, starts  # noqa: E402
from tests.kit.testers import FROZEN, mixed, scheduler  # noqa: E402

# What workers are forked from has dqlab, too. Dask names its own modules at the first call, and never again.
if FORKS:
    get_mp_context().set_forkserver_preload(["distributed", *NEEDED, *forking.TESTS])

# Each nursery, from which `dq.connect()` forks its workers, is forked as well.
forking.share()

pytest_plugins = ["dqlab.testing"]

starts.watch()

STARTING = {"cluster", "dq_lab", "jupyter", "launched", "pbs_jobs", "stranger", "town"}
"""Fixtures that start processes; `launched` imports JupyterLab, which starts one."""

TAKES_LONG, STARTS, SHARES, COMPUTES = range(4)
"""Kinds of files: notebooks and browsers, clusters of their own, the shared cluster, none."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs a cluster, by its fixtures, and mix it with what only computes: see `tests/kit/testers.py`.

    `make test-fast` leaves out what is marked.
    """
    kind = dict.fromkeys((item.path for item in items), COMPUTES)
    for item in items:
        fixtures = set(getattr(item, "fixturenames", ()))
        if item.path.suffix == ".ipynb" or any(item.iter_markers("browser")):
            kind[item.path] = TAKES_LONG
        elif any(item.iter_markers("cluster")):
            kind[item.path] = min(kind[item.path], SHARES if "dq_lab" in fixtures else STARTS)
    items[:] = mixed(items, kind)
    # Files of tests/hpc import dask-jobqueue, whose import has Ctrl-C end the process.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_sessionstart() -> None:
    """Look for no cycles while everything is imported: what is made stays."""
    gc.disable()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Have the cyclic collector leave what was imported and collected: it went through it again and again."""
    gc.enable()
    gc.collect()
    gc.freeze()
    session.config.stash[FROZEN] = gc.get_freeze_count()


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark a test that starts processes by its fixtures, and what a browser plays, before tests are chosen by marks."""
    if STARTING & set(getattr(item, "fixturenames", ())):
        item.add_marker(pytest.mark.cluster)
    if item.get_closest_marker("browser") and not item.get_closest_marker("smoke"):
        item.add_marker(pytest.mark.slow)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Share units of tests in their order."""
    return scheduler(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    """Fail a test whose fixtures start a process without a mark."""
    return (yield from starts.marked(item))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Fail a test that starts a process without a mark."""
    return (yield from starts.marked(item))


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
