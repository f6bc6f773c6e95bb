"""Runs that need devices or resources: what their functions see, who runs them, and what is told when nobody can."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import dqlab as dq
from dqlab.cluster.consumer.devices import MASK, Equipment
from dqlab.cluster.consumer.process import child_handle
from dqlab.cluster.consumer.process.slot_process import SlotProcess
from dqlab.cluster.consumer.running.chunk import Chunk, Lease
from dqlab.cluster.consumer.running.execution import Origin
from dqlab.cluster.transport.isolation import Isolation
from dqlab.cluster.transport.sealed import blob_hash, open_value, pack_function, seal_function, seal_value
from dqlab.errors import RunStalled
from dqlab.frame import Frame, Kind, Outcome
from dqlab.runs import waiting
from dqlab.stats import Blocked
from tests.kit.cells import of_a_cell
from tests.kit.waiting import is_alive, until

pytestmark = pytest.mark.cluster

CUDA = """
import os
SEEN, BEGAN = os.environ.get("CUDA_VISIBLE_DEVICES"), os.getpid()

def launch():
    if os.getpid() != BEGAN:
        raise RuntimeError("Cannot re-initialize CUDA in forked subprocess")
    return SEEN, BEGAN
"""
"""Reads its mask once, at its import, and fails after a fork, as CUDA does."""


def launched(_: Any) -> tuple[str, int]:
    import fake_cuda

    return fake_cuda.launch()


@pytest.fixture
def slot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlotProcess]:
    """The second slot of a machine with two devices, in a process that has used them already."""
    (tmp_path / "fake_cuda.py").write_text(CUDA)
    monkeypatch.syspath_prepend(tmp_path)
    launched(0)
    slot = SlotProcess(Origin("consumer/q/0", "worker", 1 << 24), Equipment.of(("GPU-a", "GPU-b"), 1, {}, 1))
    yield slot
    slot.close()


def seen(slot: SlotProcess, run: bytes = b"r" * 16, function: Any = launched, **limits: Any) -> Any:
    blob = pack_function(seal_function(function), code="c0de")
    frame = Frame.encode([seal_value(0)], kind=Kind.ELEMENT, run=run, function=blob_hash(blob))
    chunk = Chunk(Lease(0, 1, 1, 60.0, Isolation(**limits).record()), [0], [Frame.decode(frame)])
    slot.run(chunk, blob)
    [(_, outcome, payload, _)] = chunk.done
    assert outcome is Outcome.ACK, payload
    return open_value(payload)


def test_a_process_sees_its_share_before_the_first_import_and_is_no_fork(slot: SlotProcess) -> None:
    mask, process = seen(slot, gpus=1)
    assert mask == "GPU-b"
    assert process != os.getpid()
    assert seen(slot, gpus=1) == (mask, process)  # what it has loaded stays


def test_another_run_gets_the_device_once_the_process_of_the_first_has_ended(slot: SlotProcess) -> None:
    _, first = seen(slot, gpus=1)

    def meanwhile(_: Any) -> bool:
        return is_alive(first)

    assert seen(slot, b"s" * 16, meanwhile, gpus=1) is False
    mask, third = seen(slot, b"s" * 16)  # needs none, and is as its worker
    assert third != first
    assert mask == os.environ.get(MASK)


def test_the_processes_of_a_slot_have_its_device_one_at_a_time(slot: SlotProcess) -> None:
    """One runs single messages and the other batches, perhaps of the same run."""
    _, first = seen(slot, gpus=1)
    for_batches = SlotProcess(slot.origin, slot._equipment)
    assert seen(for_batches, function=lambda _: is_alive(first), gpus=1) is False
    for_batches.close()


def test_a_process_that_idles_frees_its_device(slot: SlotProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """A notebook that goes on with other things needs the memory; the next message starts another process."""
    monkeypatch.setattr(child_handle, "IDLE_S", 0.1)
    _, first = seen(slot, gpus=1)
    child = slot.child
    assert child is not None
    until(lambda: not child.alive)
    assert seen(slot, gpus=1)[1] != first


@pytest.fixture
def equipped(lab: dq.Lab, queue_name: str) -> Iterator[dq.QueuePool]:
    """A queue with two consumers: as it seems, the worker of one has a device and a licence, and the other nothing."""

    def equip(mask: str, dask_worker: Any = None, **resources: float) -> None:
        os.environ[MASK] = mask
        dask_worker.state.total_resources.update(resources)

    def strip(dask_worker: Any = None) -> None:
        del os.environ[MASK]
        dask_worker.state.total_resources.pop("licence", None)

    lab.client.run(equip, "")
    lab.client.run(equip, "MIG-7", licence=1, workers=[address_of(lab, 2)])
    pool = lab.queue(queue_name)
    yield pool
    pool.close()
    lab.client.run(strip)


def address_of(lab: dq.Lab, name: int) -> str:
    names = lab.client.run(lambda dask_worker: str(dask_worker.name))
    return next(address for address, named in names.items() if named == str(name))


@of_a_cell
def mask_and_worker(_: Any) -> tuple[str | None, int]:
    return os.environ.get("CUDA_VISIBLE_DEVICES"), os.getppid()


@of_a_cell
def in_thread(_: Any) -> int:
    time.sleep(0.01)
    return os.getpid()


def test_a_worker_without_devices_leaves_a_run_to_one_that_has_them(lab: dq.Lab, equipped: dq.QueuePool) -> None:
    able = lab.client.run(os.getpid)[address_of(lab, 2)]

    assert set(equipped.map(mask_and_worker, range(50), gpus=1).results()) == {("MIG-7", able)}
    assert set(equipped.map(mask_and_worker, range(50), gpus=0.25).results()) == {("MIG-7", able)}
    assert set(equipped.map(in_thread, range(50), resources={"licence": 1}).results()) == {able}
    assert len(set(equipped.map(in_thread, range(200)).results())) == 2


def test_what_nobody_can_run_ends_the_wait_and_runs_once_somebody_can(
    lab: dq.Lab, equipped: dq.QueuePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "STALLED_AFTER", 0.5)
    run = equipped.map(mask_and_worker, range(3), gpus=2, name="large")

    with pytest.raises(RunStalled, match=r"it needs gpus=2 .* of 2 slots none has more than gpus=1"):
        run.wait(timeout=30)
    stats = run.stats()
    assert (stats.state, stats.blocked) == ("waiting", Blocked.NEEDS)
    assert "large has no consumer that can run it" in str(lab.doctor())

    lab.client.run(lambda: os.environ.update(CUDA_VISIBLE_DEVICES="0,1"), workers=[address_of(lab, 1)])
    more = dq.ConsumerPool(lab.client, equipped, n_consumers=2)
    more.start()
    assert {mask for mask, _ in run.results(timeout=30)} == {"0,1"}
    more.cancel()
