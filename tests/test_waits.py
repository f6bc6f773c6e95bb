"""Every public call that may wait ends, whatever happens meanwhile: with an error of ours, within a limit.

Every public name of the classes that users hold stands in one of the tables below; a new one that stands in none
fails the first test. Calls that wait at the same time share a queue and a condition.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from inspect import getattr_static
from pathlib import Path
from typing import Any

import dask.config
import pytest
from distributed import Client, LocalCluster

import dqlab as dq
from dqlab.errors import ConnectFailed, DqlabError, QueueFull, ResultsFull, StoreFailed
from dqlab.runs.puts import PutResult
from dqlab.runs.results import Results
from tests.disks import asked, break_disk, unplugged


@dataclass
class Scene:
    """What is called: nothing of `run` and `put` will be processed, and `results` are there."""

    lab: dq.Lab
    pool: dq.QueuePool
    run: dq.Run
    put: PutResult
    results: Results
    consumers: dq.ConsumerPool

    @classmethod
    def on(cls, lab: dq.Lab, pool: dq.QueuePool) -> Scene:
        results = pool.map(abs, range(10)).results(timeout=20)
        pool.pause()
        run, put = pool.map(abs, [1], name=f"run-of-{pool.name}"), pool.submit(abs, 1)
        pool.flush(None)
        assert run.submitter is not None
        assert run.submitter.join(20)
        return cls(lab, pool, run, put, results, dq.ConsumerPool(pool.session.link.client, pool))


Call = Callable[[Scene], Any]

WAITS: dict[str, Call] = {
    "Run.wait": lambda s: s.run.wait(),
    "Run.until_over": lambda s: s.run.until_over(),
    "Run.results": lambda s: s.run.results(),
    "Run.as_completed": lambda s: next(iter(s.run.as_completed())),
    "PutResult.results": lambda s: s.put.results(),
    "ConsumerPool.join": lambda s: s.consumers.join(),
}
"""What waits for consumers, without a limit unless it is given one."""

ASKS: dict[str, Call] = {
    "Lab.all_runs": lambda s: s.lab.all_runs(),
    "Lab.attach": lambda s: s.lab.attach(s.run.name),
    "Lab.controls": lambda s: s.lab.controls(s.pool.name),
    "Lab.doctor": lambda s: s.lab.doctor(timeout=2),
    "Lab.ended": lambda s: s.lab.ended,
    "Lab.held_elsewhere": lambda s: s.lab.held_elsewhere,
    "Lab.history": lambda s: s.lab.history("1m"),
    "Lab.past": lambda s: s.lab.past(60),
    "Lab.queue_names": lambda s: s.lab.queue_names(),
    "Lab.snapshot": lambda s: s.lab.snapshot(),
    "Lab.stats": lambda s: s.lab.stats(),
    "Lab.wait_for_change": lambda s: s.lab.wait_for_change(1 << 60, timeout=0.5),
    "Lab.retry": lambda s: s.lab.retry(s.run.name),
    "Lab.gc": lambda s: s.lab.gc(),
    "QueuePool.counts": lambda s: s.pool.counts(),
    "QueuePool.dead": lambda s: list(s.pool.dead()),
    "QueuePool.gone": lambda s: s.pool.gone,
    "QueuePool.get_queue_size": lambda s: s.pool.get_queue_size(),
    "QueuePool.print": lambda s: s.pool.print(),
    "QueuePool.history": lambda s: s.pool.history("1m"),
    "QueuePool.past": lambda s: s.pool.past(60),
    "QueuePool.snapshot": lambda s: s.pool.snapshot(),
    "QueuePool.stats": lambda s: s.pool.stats(),
    "QueuePool.unacked": lambda s: s.pool.unacked(),
    "Run.counts": lambda s: s.run.counts,
    "Run.done": lambda s: s.run.done,
    "Run.state": lambda s: s.run.state,
    "Run.source": lambda s: s.run.source,
    "Run.versions": lambda s: s.run.versions,
    "Run.examples": lambda s: s.run.examples("none"),
    "Run.failures": lambda s: list(s.run.failures()),
    "Run.left": lambda s: s.run.left(timeout=5),
    "Run.lost": lambda s: list(s.run.lost()),
    "Run.past": lambda s: s.run.past(60),
    "Run.record": lambda s: s.run.record(),
    "Run.snapshot": lambda s: s.run.snapshot(),
    "Run.stats": lambda s: s.run.stats(),
    "PutResult.ids": lambda s: s.put.ids,
    "PutResult.durability": lambda s: s.put.durability,
    "Results.__getitem__": lambda s: s.results[3],
    "Results.__iter__": lambda s: list(s.results),
    "Results.count": lambda s: s.results.count(1),
    "Results.index": lambda s: s.results.index(1),
    "Results.items": lambda s: list(s.results.items()),
    "Results.keys": lambda s: list(s.results.keys()),
    "Results.replaced_keys": lambda s: list(s.results.replaced_keys()),
    "Results.to_frame": lambda s: s.results.to_frame(),
    "ConsumerPool.nb_consumed": lambda s: s.consumers.nb_consumed(),
    "ConsumerPool.results": lambda s: s.consumers.results(),
    "ConsumerPool.__iter__": lambda s: list(s.consumers),
}
"""What asks, and waits for no more than an answer."""

ACTS: dict[str, Call] = {
    "Lab.queue": lambda s: s.lab.queue(f"other-than-{s.pool.name}"),
    "Lab.map": lambda s: s.lab.map(abs, [1]),
    "QueuePool.map": lambda s: s.pool.map(abs, [1]),
    "QueuePool.submit": lambda s: s.pool.submit(abs, 1).ids,
    "QueuePool.batch_submit": lambda s: s.pool.batch_submit([(abs, 1)]).ids,
    "QueuePool.put": lambda s: s.pool.put(1).ids,
    "QueuePool.put_many": lambda s: s.pool.put_many([1]).ids,
    "QueuePool.flush": lambda s: s.pool.flush(None),
    "QueuePool.pause": lambda s: s.pool.pause(),
    "QueuePool.resume": lambda s: s.pool.resume(),
    "QueuePool.drain": lambda s: s.pool.drain(),
    "QueuePool.purge": lambda s: s.pool.purge(),
    "QueuePool.scale": lambda s: s.pool.scale(1),
    "QueuePool.forget": lambda s: s.pool.forget(),
    "QueuePool.replace": lambda s: s.pool.replace("c0"),
    "QueuePool.give_up": lambda s: s.pool.give_up("#0"),
    "QueuePool.compact": lambda s: s.pool.compact(),
    "Run.pause": lambda s: s.run.pause(),
    "Run.resume": lambda s: s.run.resume(),
    "Run.scale": lambda s: s.run.scale(1),
    "Run.retry": lambda s: s.run.retry(),
    "Run.send_again": lambda s: s.run.send_again(),
    "Run.replace": lambda s: s.run.replace("c0"),
    "Run.give_up": lambda s: s.run.give_up("#0"),
    "Run.resubmit_lost": lambda s: s.run.resubmit_lost(),
    "ConsumerPool.start": lambda s: s.consumers.start(),
    "ConsumerPool.scale": lambda s: s.consumers.scale(1),
    "ConsumerPool.cancel": lambda s: s.consumers.cancel(),
    "Run.cancel": lambda s: s.run.cancel(),
    "Run.drop": lambda s: s.run.drop(),
    "QueuePool.close": lambda s: s.pool.close(force=True),
    "Lab.close": lambda s: None,  # has tests of its own: the lab is shared
}
"""What changes something."""

SAYS_NOTHING_TO_THE_CLUSTER = {
    "Lab": "announce dashboard embedded keep_in panel queues runs service client name seen told_once widget",
    "QueuePool": "closed get_len get_queue get_queues put_many_sync put_nowait widget __getitem__ __iter__ __len__",
    "Run": "newer queue on_drop submitter undecided widget",
    "PutResult": "__len__",
    "Results": "__len__",
    "ConsumerPool": "__getitem__ __len__",
}
"""What waits for nobody: other names of the above, and what this process knows by itself."""

CLASSES = (dq.Lab, dq.QueuePool, dq.Run, PutResult, Results, dq.ConsumerPool)
CONTAINERS = ("__getitem__", "__iter__", "__len__")
LIMIT = 25.0
"""Seconds within which everything has ended: ten until a scheduler counts as gone, on a busy machine."""


def public(kind: type) -> set[str]:
    """Return the names of a class that a user may call, or whose value is made when it is asked for."""
    names = {name for name in dir(kind) if not name.startswith("_") or name in CONTAINERS}
    return {
        name
        for name in names
        if callable(getattr(kind, name, None)) or isinstance(getattr_static(kind, name), property)
    }


def test_every_public_call_stands_in_a_table() -> None:
    """One that is new, and waits for ever, would be found by a user."""
    known = {*WAITS, *ASKS, *ACTS}
    known |= {f"{kind}.{name}" for kind, names in SAYS_NOTHING_TO_THE_CLUSTER.items() for name in names.split()}

    assert {f"{kind.__name__}.{name}" for kind in CLASSES for name in public(kind)} - known == set()


class StillWaiting(Exception):
    """What a call raised that has not ended."""


def outcomes(scene: Scene, calls: Mapping[str, Call], meanwhile: Callable[[], Any] | None = None) -> dict[str, Any]:
    """Make all calls at the same time, do something meanwhile, and return what each raised or None."""
    ended: dict[str, Any] = dict.fromkeys(calls, StillWaiting())

    def run(name: str, call: Call) -> None:
        try:
            call(scene)
            ended[name] = None
        except BaseException as error:  # noqa: BLE001 - this is what is looked at
            ended[name] = error

    threads = [threading.Thread(target=run, args=item, name=item[0], daemon=True) for item in calls.items()]
    deadline = time.monotonic() + LIMIT
    for thread in threads:
        thread.start()
    if meanwhile is not None:
        meanwhile()
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return ended


def untyped(ended: Mapping[str, Any], *, must_raise: bool) -> dict[str, Any]:
    """Return which calls ended with something else than an error of ours, or did not end."""
    fine = DqlabError if must_raise else (DqlabError, type(None))
    return {name: error for name, error in ended.items() if not isinstance(error, fine)}


@pytest.fixture
def pool(lab: dq.Lab, queue_name: str) -> Iterator[dq.QueuePool]:
    """A queue that others may close."""
    pool = lab.queue(queue_name)
    yield pool
    pool.close(force=True)


@pytest.mark.parametrize("name", WAITS)
def test_interrupt_ends_a_wait(lab: dq.Lab, pool: dq.QueuePool, name: str) -> None:
    """Ctrl-C is what one presses when nothing comes."""
    scene = Scene.on(lab, pool)
    press = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    press.start()

    with pytest.raises(KeyboardInterrupt, match="no longer waiting for"):
        WAITS[name](scene)
    press.join()
    assert scene.run.counts["ready"] == 1


@pytest.mark.parametrize("kept", ["run", "lab", "nothing"])
def test_lines_that_an_interrupt_names_work_with_the_names_that_the_user_has(
    lab: dq.Lab, pool: dq.QueuePool, kept: str
) -> None:
    """It named `lab.attach`, where nothing may be called `lab`."""
    scene = Scene.on(lab, pool)
    mine = {"run": {"mine": scene.run}, "lab": {"work": lab}, "nothing": {}}[kept]
    names: dict[str, Any] = {"dqlab": dq, "_wait": lambda: scene.run, **mine}
    press = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    press.start()

    with pytest.raises(KeyboardInterrupt) as caught:
        exec(compile("_wait().wait()", "cell.py", "exec"), names)
    press.join()
    found = re.search(r"as it is\. (.+)\.wait\(\) waits again, (.+)\.cancel\(\) gives it up\.", str(caught.value))
    assert found is not None, str(caught.value)
    assert found[1] == found[2]
    if kept != "nothing":
        assert found[1].startswith(next(iter(mine)))
    assert eval(found[1], names).id == scene.run.id


def test_queue_closed_by_another_client_ends_every_call(lab: dq.Lab, pool: dq.QueuePool) -> None:
    """Colleagues share clusters, and close what they take for theirs."""
    scene = Scene.on(lab, pool)
    with dq.connect(lab.session.link.address, name="closes") as other:
        ended = outcomes(scene, WAITS, lambda: other.queue(pool.name).close(force=True))

    assert untyped(ended, must_raise=True) == {}
    assert untyped(outcomes(scene, ASKS), must_raise=False) == {}
    assert untyped(outcomes(scene, ACTS), must_raise=False) == {}


def test_no_consumer_ends_every_wait(lab: dq.Lab, queue_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing moves by itself then."""
    for limit in ("run.STALLED_AFTER", "consumer_pool.STALLED_AFTER", "submit.sender.ROOM_WAIT"):
        monkeypatch.setattr(f"dqlab.runs.{limit}", 1.0)
    pool = dq.QueuePool(lab.client, name=queue_name, maxsize=1)
    run, put = pool.map(abs, range(10), consumers=None), pool.submit(abs, 1)
    scene = Scene(lab, pool, run, put, Results("none", pool.handle, run.id, []), dq.ConsumerPool(lab.client, pool))
    pool.submit(abs, 2)
    with pytest.raises(QueueFull):  # once: some of the others flush as well
        ACTS["QueuePool.flush"](scene)
    pool.submit(abs, 2)

    assert untyped(outcomes(scene, WAITS), must_raise=True) == {}
    pool.close()


def test_no_room_for_results_ends_every_wait(lab: dq.Lab, queue_name: str) -> None:
    """A queue that has no room pauses itself, which is nobody's wish."""
    with dask.config.set({"dqlab.results.maxsize": 20_000, "dqlab.results.memory-bytes": 10_000}):
        pool = lab.queue(queue_name)
    run, put = pool.map(bytes, [1_000] * 20_000), pool.batch_submit([(bytes, 1_000)] * 20_000)
    scene = Scene(lab, pool, run, put, Results("none", pool.handle, run.id, []), dq.ConsumerPool(lab.client, pool))
    waits = WAITS | {"Run.as_completed": lambda s: list(s.run.as_completed())}
    ended = outcomes(scene, waits)

    assert {name: error for name, error in ended.items() if not isinstance(error, ResultsFull)} == {}
    pool.close()


def test_log_that_failed_ends_every_call(
    lab: dq.Lab, queue_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Disks fail under people who wait: each call ends, and none of them costs what is on the disk."""
    monkeypatch.setattr("dqlab.cluster.scheduler.actors.FAILING_AFTER", 0.5)
    monkeypatch.setattr("dqlab.cluster.scheduler.actors.RESOLVE_WAIT", 0.5)
    monkeypatch.setattr("dqlab.cluster.scheduler.supervisor.LONGEST_PAUSE", 0.5)
    kept = {"durability": dq.Durability.DURABLE, "dirpath": tmp_path}
    pool = dq.QueuePool(lab.client, name=queue_name, served=True, **kept)  # type: ignore[arg-type]
    scene = Scene.on(lab, pool)

    def fail() -> None:
        asked(lab.client, queue_name, break_disk)
        with suppress(DqlabError):
            assert pool.put(1).ids

    closing = ("Run.drop", "QueuePool.close")
    with unplugged(lab.client, tmp_path):
        ended = outcomes(scene, WAITS, fail)
        assert {name: error for name, error in ended.items() if not isinstance(error, StoreFailed)} == {}
        assert untyped(outcomes(scene, ASKS), must_raise=False) == {}
        acts = {name: act for name, act in ACTS.items() if name not in closing}
        assert untyped(outcomes(scene, acts), must_raise=False) == {}
    again = lab.queue(queue_name)
    assert (again.durability, again.counts()["acked"]) == (dq.Durability.DURABLE, 10)
    again.close(force=True)


@pytest.mark.parametrize("call", ["QueuePool.close", "Lab.close"])
def test_closing_ends_though_a_log_has_failed(
    lab: dq.Lab, queue_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """A user whose disk fails closes everything first."""
    monkeypatch.setattr("dqlab.cluster.scheduler.actors.FAILING_AFTER", 0.5)
    monkeypatch.setattr("dqlab.cluster.scheduler.actors.RESOLVE_WAIT", 0.5)
    monkeypatch.setattr("dqlab.cluster.scheduler.supervisor.LONGEST_PAUSE", 0.5)
    other = dq.connect(lab.session.link.address, name=f"closes-{queue_name}", store=tmp_path)
    pool = other.queue(queue_name)
    run = pool.map(abs, range(10), consumers=None)
    assert run.submitter is not None
    assert run.submitter.join(20)
    with unplugged(lab.client, tmp_path):
        asked(lab.client, queue_name, break_disk)
        calls = {call: (lambda s: pool.close(force=True)) if call == "QueuePool.close" else lambda s: other.close()}
        ended = outcomes(Scene(other, pool, run, None, None, None), calls)  # type: ignore[arg-type]
        assert untyped(ended, must_raise=False) == {}
        other.close()
    again = dq.QueuePool(lab.client, name=queue_name, durability=dq.Durability.DURABLE, dirpath=tmp_path)
    assert again.counts()["ready"] == 10
    again.close(force=True)


@contextmanager
def silent() -> Iterator[str]:
    """Listen where a scheduler might be, let connect, and answer nothing: one that is stopped, or that swaps."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"tcp://127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.cluster
def test_connecting_to_nobody_ends(tmp_path: Path) -> None:
    """Whatever is wrong with a cluster shows when somebody connects to it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        nobody = f"tcp://127.0.0.1:{server.getsockname()[1]}"
    with silent() as stopped:
        written = tmp_path / "written"
        written.write_text(json.dumps({"address": stopped}))
        calls: dict[str, Call] = {
            "no scheduler": lambda _: dq.connect(nobody, timeout=0.5),
            "one that is stopped": lambda _: dq.connect(stopped, timeout=0.5),
            "no file of one": lambda _: dq.connect(scheduler_file=tmp_path / "none", timeout=0.5),
            "a file of one that is stopped": lambda _: dq.connect(scheduler_file=written, timeout=0.5),
            "sockets that are gone": lambda _: dq.connect(f"unix://{tmp_path}:7", timeout=0.5),
        }
        began = time.monotonic()
        ended = outcomes(None, calls)  # type: ignore[arg-type]

    assert {name: error for name, error in ended.items() if not isinstance(error, ConnectFailed)} == {}
    assert time.monotonic() - began < 5


@pytest.mark.cluster
def test_interrupt_ends_connecting() -> None:
    """Ctrl-C is what one presses at a wrong address, and the next try is not to find a lab that is half made."""
    with silent() as stopped:
        press = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
        press.start()
        began = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            dq.connect(stopped, timeout=20)
        press.join()
        assert time.monotonic() - began < 5
        with pytest.raises(ConnectFailed):
            dq.connect(stopped, timeout=0.5)


def test_connecting_with_a_store_that_cannot_be_used_ends(lab: dq.Lab, tmp_path: Path) -> None:
    """A path that is a file, or a disk that refuses: before anything is mapped."""
    (tmp_path / "file").write_text("")
    with unplugged(lab.client, tmp_path):
        with pytest.raises(DqlabError):
            dq.connect(lab.session.link.address, name="no-store", store=tmp_path / "file")
        refuses = dq.connect(lab.session.link.address, name="refuses", store=tmp_path / "store")
        with pytest.raises(DqlabError, match="the cable"):
            refuses.queue("kept")
        refuses.close()


STATES: dict[str, Callable[[dq.Lab, dq.QueuePool], object]] = {
    "nothing": lambda lab, pool: None,
    "closed by another": lambda lab, pool: lab.queue(pool.name).close(force=True),
    "no consumers": lambda lab, pool: pool.map(abs, range(10), consumers=None),
    "paused": lambda lab, pool: (pool.map(abs, range(10)), lab.queue(pool.name).pause()),  # type: ignore[func-returns-value]
    "an input that hangs": lambda lab, pool: pool.map(abs, iter(threading.Event().wait, None)),
    "put under way": lambda lab, pool: pool.batch_submit([(abs, 1)] * 50_000),
}


@pytest.mark.parametrize("state", STATES)
def test_lab_closes_in_any_state(lab: dq.Lab, queue_name: str, state: str) -> None:
    """It is the last cell of a notebook, run whatever became of the others."""
    other = dq.connect(lab.session.link.address, name=f"closes-{queue_name}")
    pool = other.queue(queue_name)
    STATES[state](lab, pool)
    began = time.monotonic()
    other.close()
    assert time.monotonic() - began < 5
    assert other.closed
    assert untyped(outcomes(None, {"put": lambda _: pool.submit(abs, 1).ids}), must_raise=True) == {}  # type: ignore[arg-type]
    lab.queue(queue_name).close(force=True)


@pytest.mark.slow
def test_scheduler_that_is_gone_ends_every_call(queue_name: str) -> None:
    """A kernel whose cluster has ended is restarted only when somebody says that it has."""
    cluster = LocalCluster(n_workers=3, threads_per_worker=1, dashboard_address=None)
    with dq.connect(Client(cluster, set_as_default=False), name="ends") as lab:
        scene = Scene.on(lab, lab.queue(queue_name))
        ended = outcomes(scene, WAITS | {"QueuePool.flush": lambda s: s.pool.submit(abs, 1).results()}, cluster.close)

        assert untyped(ended, must_raise=True) == {}
        assert untyped(outcomes(scene, ASKS), must_raise=False) == {}
        assert untyped(outcomes(scene, ACTS), must_raise=False) == {}
        lab.client.close()
