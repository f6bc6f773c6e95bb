"""Results of a shard in memory: a budget there, then files that take up little more than what is kept."""

from __future__ import annotations

import asyncio
import errno
import os
import tempfile
import threading
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from dqlab.cluster.shard import vault as results
from dqlab.cluster.shard.vault import Vault
from tests.descriptors import count_files
from tests.logs import lines_of

SIZE = 1000


def blob(number: int, size: int = SIZE) -> bytes:
    return number.to_bytes(4, "big") * (size // 4)


def play(part: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(part())


async def written(vault: Vault) -> None:
    """Wait until nothing is being written."""
    while vault._spilling is not None:
        await asyncio.wait([vault._spilling], timeout=10.0)


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every file of a vault is closed with it."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    yield
    assert count_files(tmp_path) == 0


@pytest.mark.long
def test_files_shrink_with_what_is_kept_although_one_result_is_kept_forever() -> None:
    """One run that was not dropped once kept the room of every run after it, in a file that `ls` does not show."""

    async def part() -> None:
        vault = Vault(10 * SIZE, 1 << 30, file_bytes=50 * SIZE)
        kept = [vault.add(blob(1)) for _ in range(20)]
        await written(vault)
        for _ in range(30):
            run = [vault.add(blob(2)) for _ in range(200)]
            await written(vault)
            vault.forget(run)
            await written(vault)
        assert vault.file_bytes <= 2 * 20 * SIZE + 50 * SIZE
        assert [await vault.read(number) for number in kept] == [blob(1)] * 20
        vault.forget(kept)
        await written(vault)
        assert (vault.nbytes, vault.file_bytes) == (0, 0)
        vault.close()

    play(part)


def test_files_shrink_although_every_run_leaves_one_result_forever() -> None:
    """A file is closed when nothing of it is kept, and each of these keeps something: what is left has to move."""

    async def part() -> None:
        vault, kept = Vault(0, 1 << 30, file_bytes=50 * SIZE), []
        for number in range(30):
            run = [vault.add(blob(number)) for _ in range(60)]
            await written(vault)
            kept.append(run.pop(30))
            vault.forget(run)
            await written(vault)
        assert vault.file_bytes <= 2 * vault.nbytes + 2 * 60 * SIZE
        assert [await vault.read(number) for number in kept] == [blob(number) for number in range(30)]

        run = [vault.add(blob(99)) for _ in range(600)]
        await written(vault)
        vault.forget([number for at, number in enumerate(run) if at % 60])  # and nothing comes after that
        await written(vault)
        assert vault.file_bytes <= 2 * vault.nbytes + 2 * 60 * SIZE
        vault.close()

    play(part)


def test_every_record_is_read_back_whatever_is_added_dropped_and_rewritten() -> None:
    """Rewriting moves records while others read them."""

    async def part() -> None:
        random, known = Random(4), dict[int, bytes]()
        vault = Vault(20 * SIZE, 1 << 30, file_bytes=30 * SIZE)

        async def look() -> None:
            number = random.choice(list(known))
            expected = known[number]
            assert await vault.read(number) == expected

        for step in range(1500):
            data = blob(step, 4 * random.randrange(1, 500))
            known[vault.add(data)] = data
            if random.random() < 0.9 and len(known) > 30:
                gone = random.sample(list(known), random.randrange(3))
                vault.forget(gone)
                for number in gone:
                    del known[number]
            if step % 7 == 0:
                await asyncio.gather(*(look() for _ in range(5)))
        await written(vault)
        assert vault.nbytes == sum(map(len, known.values()))
        assert vault.file_bytes <= 2 * vault.nbytes + 2 * 30 * SIZE
        for number, data in known.items():
            assert await vault.read(number) == data
        vault.close()

    play(part)


def test_a_record_that_is_dropped_while_it_is_read_is_read_whole() -> None:
    """Closing its file at once would let another file take the descriptor, and its bytes would be read."""

    async def part() -> None:
        vault = Vault(0, 1 << 30)
        number = vault.add(blob(7))
        await written(vault)
        reading = asyncio.create_task(vault.read(number))
        await asyncio.sleep(0)
        vault.forget([number])
        assert await reading == blob(7)
        assert vault.file_bytes == 0
        vault.close()

    play(part)


def test_a_full_disk_is_said_and_tried_again_and_memory_stays_bounded(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A small /tmp once ended spilling for good, in silence, and memory grew to 4 GiB."""
    full, pwrite = [True], os.pwrite

    def write(descriptor: int, data: Any, offset: int) -> int:
        if full[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        return pwrite(descriptor, data, offset)

    monkeypatch.setattr(results.os, "pwrite", write)

    async def part() -> None:
        vault = Vault(10 * SIZE, 1 << 30)
        numbers = []
        while not vault.full:
            numbers.append(vault.add(blob(len(numbers))))
            await written(vault)
            assert len(numbers) <= 20, "it is to stop at twice its budget"
        assert "No space left" in vault.trouble
        full[0] = False
        vault._try_again()
        await written(vault)
        assert not vault.trouble
        assert not vault.full
        assert [await vault.read(number) for number in numbers] == [blob(number) for number in range(len(numbers))]
        assert vault._in_memory <= 10 * SIZE
        vault.close()

    play(part)
    assert [record.getMessage().split()[0] for record in lines_of(caplog)] == ["event=spill_failed"]


def test_what_could_not_be_written_is_tried_again_by_itself_however_often_that_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A record that was tried once, and never again, stays in memory for as long as it is kept."""
    full, failed, often, pwrite = [True], list[int](), threading.Event(), os.pwrite

    def write(descriptor: int, data: Any, offset: int) -> int:
        if full[0]:
            failed.append(offset)
            if len(failed) == 50:
                often.set()
            raise OSError(errno.ENOSPC, "No space left on device")
        return pwrite(descriptor, data, offset)

    monkeypatch.setattr(results.os, "pwrite", write)
    monkeypatch.setattr(results, "RETRY_S", 0.001)

    async def part() -> None:
        vault = Vault(10 * SIZE, 1 << 30)
        numbers = [vault.add(blob(number)) for number in range(20)]
        assert await asyncio.to_thread(often.wait, 10.0), "it gave up"
        full[0] = False
        async with asyncio.timeout(10):
            while vault._spilling is not None or vault._again is not None or vault.trouble:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        assert vault._in_memory <= 10 * SIZE
        assert [await vault.read(number) for number in numbers] == [blob(number) for number in range(20)]
        vault.close()

    play(part)


@pytest.mark.parametrize("end", ["close", "cancel"])
def test_what_is_being_written_when_a_vault_closes_goes_into_no_other_file(
    end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread cannot be stopped: with its descriptor closed it would write into the next file, perhaps a log."""
    begun, go_on, pwrite = threading.Event(), threading.Event(), os.pwrite

    def write(descriptor: int, data: Any, offset: int) -> int:
        begun.set()
        go_on.wait(10.0)
        return pwrite(descriptor, data, offset)

    monkeypatch.setattr(results.os, "pwrite", write)
    victim = tmp_path / "log"

    async def part() -> None:
        vault = Vault(0, 1 << 30)
        vault.add(blob(7))
        spilling = vault._spilling
        assert spilling is not None
        await asyncio.to_thread(begun.wait, 10.0)
        if end == "cancel":
            spilling.cancel()
        vault.close()
        await asyncio.wait([spilling], timeout=10.0)
        with victim.open("wb"):  # may get a descriptor that has just become free
            go_on.set()
            await asyncio.get_running_loop().shutdown_default_executor()
            assert victim.stat().st_size == 0

    play(part)


def test_large_results_come_back_from_a_file_as_they_were() -> None:
    """Those of some megabytes are read into large pages, by as many calls as the system wants."""

    async def part() -> None:
        vault = Vault(0, 1 << 30)
        dice, sizes = Random(1), [(4 << 20) - 1, 4 << 20, 3, (9 << 20) + 5]
        given = [dice.randbytes(size) for size in sizes]
        kept = [vault.add(memoryview(each)) for each in given]
        await written(vault)
        assert vault.nbytes == sum(sizes)
        assert [await vault.read(number) for number in kept] == given
        vault.forget(kept)
        assert vault.nbytes == 0
        vault.close()

    play(part)
