"""Which devices a slot's process sees: shares of a mask, or of what the machine has."""

from __future__ import annotations

import math
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dqlab.cluster.consumer import devices
from dqlab.cluster.consumer.devices import MASK, Equipment, Numbers, devices_here, most_of, of_mask, share_of
from dqlab.cluster.transport.isolation import GPUS


@given(
    names=st.integers(1, 8).map(lambda n: [f"MIG-{at}" for at in range(n)]),
    slots=st.integers(0, 40),
    gpus=st.integers(1, 9).map(float) | st.floats(0.05, 1),
)
def test_no_device_is_above_its_share_and_none_is_left_over(names: list[str], slots: int, gpus: float) -> None:
    """Each slot knows its number alone, and all of them together share the mask."""
    served = [number for number in range(slots) if gpus <= most_of(len(names), number)]

    seen = Counter[str]()
    for number in served:
        share = share_of(names, number, gpus)
        assert len(share) == max(1, gpus)
        assert set(share) <= set(names)
        seen.update(dict.fromkeys(share, 1))
    assert all(n * min(gpus, 1) <= 1 + 1e-9 for n in seen.values())
    room = len(names) // gpus if gpus >= 1 else len(names) * math.floor(1 / gpus)
    assert served == list(range(min(slots, int(room))))
    assert not served or max(seen.values()) - min(seen.values()) <= 1


@pytest.mark.parametrize(
    ("mask", "found"),
    [
        ("0,1", ["0", "1"]),
        (" 3 ", ["3"]),
        ("GPU-8932f937,MIG-a/1/0", ["GPU-8932f937", "MIG-a/1/0"]),
        ("", []),
        ("-1", []),
        ("NoDevFiles", []),
        ("2,-1,0", ["2"]),
        ("1,1", ["1"]),
    ],
)
def test_a_mask_is_read_as_cuda_reads_it(mask: str, found: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """What follows a device that is none is ignored; Slurm writes words for no device."""
    monkeypatch.setenv(MASK, mask)
    assert devices_here() == of_mask(mask) == found


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without devices, unless a test makes files of them."""
    monkeypatch.delenv(MASK, raising=False)
    monkeypatch.setattr(devices, "FILES", tmp_path)
    return tmp_path


def test_devices_of_a_machine_are_its_files(machine: Path) -> None:
    for name in ("nvidia10", "nvidia0", "nvidia2", "nvidiactl", "nvidia-uvm"):
        (machine / name).touch()
    assert devices_here() == ["0", "2", "10"]


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere each process counts for itself")
def test_slots_of_one_queue_and_job_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one queue two runs share the devices by turns; jobs on one node may have different devices of one name."""
    monkeypatch.setenv(MASK, "0,1")
    first, second = Numbers(2, "q", "tcp://one"), Numbers(2, "q", "tcp://one")
    others = Numbers(1, "another", "tcp://one"), Numbers(1, "q", "tcp://another")
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    others += (Numbers(1, "q", "tcp://one"),)
    monkeypatch.delenv("SLURM_JOB_ID")

    assert (first.taken, second.taken, [each.taken for each in others]) == ([0, 1], [2, 3], [[0], [0], [0]])
    first.give_back()
    third = Numbers(3, "q", "tcp://one")
    assert third.taken == [0, 1, 4]

    for each in (second, third, *others):
        each.give_back()


def test_slots_divide_the_resources_of_their_worker() -> None:
    """Two calls that need one each of two, and not four."""
    slots = [Equipment.of((), place, {"GPU": 2.0}, place) for place in range(4)]
    assert [slot.has["GPU"] >= 1 for slot in slots] == [True, True, False, False]
    assert all(GPUS not in slot.has for slot in slots)
