"""Runs whose results are written by their consumers: what users see of them."""

from __future__ import annotations

import errno
import itertools
import os
import pickle
import shutil
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import dqlab as dq
from dqlab.datasets import sink_parts
from dqlab.datasets.lineage import ROW_LINEAGE
from dqlab.datasets.sink_parts import PartMissing, Reader, open_parts
from dqlab.datasets.sinks import CLAIM, SinkTaken, Target
from dqlab.errors import ExtraMissing, RunError, RunExists
from dqlab.testing import Gate
from tests.kit.cells import of_a_cell
from tests.kit.sampled import mostly_slow
from tests.kit.waiting import until
from tests.log.test_real_enospc import small_disk  # noqa: F401 - a fixture


@of_a_cell
def square(n: int) -> dict[str, int]:
    return {"n": n, "square": n * n}


@of_a_cell
async def square_async(n: int) -> dict[str, int]:
    return {"n": n, "square": n * n}


@of_a_cell
def odd(n: int) -> Any:
    if n % 2 == 0:
        raise ValueError(f"{n} is even")
    return n


KINDS = {"thread": square, "coroutine": square_async, "process": square}


@pytest.fixture(params=["transient", "durable"])
def pool(request: pytest.FixtureRequest, lab: dq.Lab, queue_name: str, tmp_path: Path) -> Iterator[dq.QueuePool]:
    """A queue in memory, and one on disk."""
    options: dict[str, Any] = {}
    if request.param == "durable":
        options = {"durability": dq.Durability.DURABLE, "dirpath": tmp_path / "store"}
    made = dq.QueuePool(lab.client, name=queue_name, served=True, **options)
    yield made
    made.close(force=True)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_a_sink_are_the_results_of_its_run(pool: dq.QueuePool, tmp_path: Path, kind: str) -> None:
    """In document order, each once, read from files that the consumers wrote."""
    executor: Any = "process" if kind == "process" else "auto"
    run = pool.map(KINDS[kind], range(900), sink=tmp_path / "out", executor=executor)

    values = list(run.results(timeout=60))

    assert values == [{"n": n, "square": n * n} for n in range(900)]
    assert list(tmp_path.glob("out/*.parquet"))
    assert sorted(value["n"] for _, value in run.as_completed(timeout=30)) == list(range(900))
    assert run.results()[17] == {"n": 17, "square": 289}
    frame = run.results().to_frame(columns=["square", "_ordinal", "_seconds", "_consumer", "_code"])
    assert frame["square"].tolist() == [n * n for n in range(900)]
    assert (frame["_seconds"] >= 0).all()
    assert set(frame["_code"]) == {run.versions[0].short}


@of_a_cell
class Running(dq.ConsumerBaseClass):
    """Runs calls, as consumers of the user's own may."""

    def process_item(self, item: Any) -> Any:
        return item()


@pytest.mark.parametrize("kind", ["at most once", "three shards", "consumers of the user's own"])
def test_rows_are_written_whatever_the_queue_is(lab: dq.Lab, queue_name: str, tmp_path: Path, kind: str) -> None:
    """References belong to the shard of their message, and rows to the run."""
    own = kind.startswith("consumers")
    options: dict[str, Any] = {"early_ack": True} if kind == "at most once" else {}
    pool = dq.QueuePool(lab.client, name=queue_name, served=not own, n_queues=3 if "shards" in kind else 1, **options)
    consumers = dq.ConsumerPool(lab.client, pool, Running, n_consumers=2) if own else None
    try:
        run = pool.map(square, range(2_500), sink=tmp_path / "out", consumers=None if own else "auto")
        if consumers is not None:
            consumers.start()
        assert list(run.results(timeout=60)) == [{"n": n, "square": n * n} for n in range(2_500)]
        assert run.table().to_arrow()["n"].to_pylist() == list(range(2_500))
    finally:
        if consumers is not None:
            consumers.cancel()
        pool.close(force=True)


def test_the_tables_of_a_run_are_read_from_its_sink(queue: dq.QueuePool, tmp_path: Path) -> None:
    """All that results give as tables, without passing the queue."""
    papers = pd.DataFrame({"id": [f"p{n}" for n in range(100)], "year": [2000 + n % 2 for n in range(100)]})
    documents = dq.Documents.from_frame(papers, key="id")

    def length(paper: Any) -> dict[str, Any]:
        return {"n": int(paper["id"][1:]), "word": paper["id"] * 2}

    run = queue.map(length, documents, sink=dq.Parquet(tmp_path / "out")).wait(timeout=30)

    table = run.table()
    assert table.count() == 100
    assert table.head(2)["_key"].to_pylist() == ["p0", "p1"]
    arrow = table.to_arrow()
    assert arrow["n"].to_pylist() == list(range(100))
    assert {"_key", "_ordinal", "_version", "_code", "_seconds", "_consumer", "_at", "_rest"} <= set(arrow.schema.names)
    assert arrow["_at"].null_count == 0
    found = run.query("select year, sum(n) as n from results join source using (key) group by year order by year")
    assert found["n"].tolist() == [2450, 2500]
    assert run.join(papers, on="id")["word"].tolist() == [f"p{n}p{n}" for n in range(100)]
    run.to_parquet(tmp_path / "copy")
    assert run.publish(tmp_path / "published").rows == 100


def test_failures_of_a_run_with_a_sink_are_failures_and_retries_write_their_rows(
    pool: dq.QueuePool, tmp_path: Path
) -> None:
    """A retry after the sink was written adds its rows, with the code that made them."""
    run = pool.map(odd, range(10), sink=tmp_path / "out", retry=dq.Retry(0), stop_if=None)
    with pytest.warns(dq.errors.DqlabWarning, match="5 of 10"):
        run.wait(timeout=30)
    assert list(run.results(errors="skip")) == [1, 3, 5, 7, 9]
    assert run.results(errors="return").to_arrow()["_error"].null_count == 5

    assert run.retry(fn=square) == 5

    values = list(run.results(timeout=30))
    assert values == [n if n % 2 else {"n": n, "square": n * n} for n in range(10)]
    codes = run.table().to_arrow()["_code"].to_pylist()
    assert codes == [run.versions[n % 2 == 0].short for n in range(10)]


def test_mapping_it_again_attaches_and_another_run_is_refused(queue: dq.QueuePool, tmp_path: Path) -> None:
    """'Run all' is safe; another run on the same folder would mix its rows into these."""
    out = tmp_path / "out"
    run = queue.map(square, range(50), name=f"first-{queue.name}", sink=out).wait(timeout=30)

    again = queue.map(square, range(50), name=run.name, sink=out)
    assert list(again.results(timeout=30)) == list(run.results())
    with pytest.raises(SinkTaken, match=f"rows of run {run.name!r}"):
        queue.map(square, range(50), sink=out)
    with pytest.raises(SinkTaken):
        queue.map(square, range(50), name=run.name, sink=out, on_existing="new")
    assert len(run.results()) == 50  # it was not dropped for that
    with pytest.raises(RunExists, match="another sink"):
        queue.map(square, range(50), name=run.name, sink=tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_a_dropped_run_leaves_its_rows_unless_it_is_told(queue: dq.QueuePool, tmp_path: Path) -> None:
    """Hours of work must not go with a name."""
    run = queue.map(square, range(50), sink=tmp_path / "out").wait(timeout=30)
    with pytest.warns(dq.errors.DqlabWarning, match=r"stay in .*out.*drop\(data=True\)"):
        run.drop()
    assert list(tmp_path.glob("out/*.parquet"))

    other = queue.map(square, range(50), sink=tmp_path / "other").wait(timeout=30)
    other.drop(data=True)
    assert not (tmp_path / "other").exists()


@of_a_cell
def padded(n: int) -> str:
    return str(n).rjust(10_000)


@pytest.mark.parametrize("kind", [dq.Parquet, lambda path: dq.Files(f"{path}/{{key}}.txt")])
def test_a_table_reads_large_rows_a_few_at_a_time(
    queue: dq.QueuePool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Any
) -> None:
    """A page refers to 16,000 rows: of 140 kB each, Arrow has no array that holds them, and a kernel little room."""
    run = queue.map(padded, range(60), sink=kind(tmp_path / "out")).wait(timeout=30)
    whole = run.table().to_arrow()
    assert run.table().to_reader().read_all().column("value").num_chunks == 1

    monkeypatch.setattr(sink_parts, "_PORTION", 45_000)
    open_parts.clear()
    rows = [batch.num_rows for batch in run.table().to_batches()]

    assert sum(rows) == 60
    assert max(rows) <= 5
    assert min(rows[:-1]) >= 3
    assert run.table().to_arrow().to_pylist() == whole.to_pylist()
    assert whole["value"].to_pylist() == [padded(n) for n in range(60)]
    monkeypatch.setattr(sink_parts, "_PORTION", 1)
    assert run.table().to_arrow(["_ordinal", "_code"]).to_pylist() == whole.select(["_ordinal", "_code"]).to_pylist()


def test_results_open_large_rows_a_few_at_a_time(
    queue: dq.QueuePool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are read one after another: 16,000 of 140 kB at once are two gigabytes, for a loop that holds one."""
    run = queue.map(padded, range(60), sink=dq.Parquet(tmp_path / "out")).wait(timeout=30)
    results, opened = run.results(), list[int]()
    find = Reader.find

    def note(reader: Reader, references: Any, *ordinals: Any, **options: Any) -> Any:
        opened.append(len(references))
        return find(reader, references, *ordinals, **options)

    monkeypatch.setattr(sink_parts, "_PORTION", 45_000)
    monkeypatch.setattr(Reader, "find", note)

    assert [*results] == [padded(n) for n in range(60)]
    assert sum(opened) == 60
    assert max(opened) <= 5
    assert [*results.items()] == [(n, padded(n)) for n in range(60)]
    assert results[7:12] == [padded(n) for n in range(7, 12)]
    assert [results[n] for n in (59, 0)] == [padded(59), padded(0)]
    for errors in ("skip", "return"):
        assert [*run.results(errors)] == [padded(n) for n in range(60)]
    assert sorted(run.as_completed()) == [(n, padded(n)) for n in range(60)]
    assert max(opened) <= 5
    opened.clear()
    assert [*results.keys()] == [*range(60)]
    assert opened == []


def test_a_run_whose_rows_cannot_be_deleted_is_still_there_to_be_dropped(
    queue: dq.QueuePool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was gone, its files were not, and nothing knew them: the error was that of the system."""
    run = queue.map(square, range(50), sink=tmp_path / "out").wait(timeout=30)

    def refuse(target: Target, name: str) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), target.path(name))

    with monkeypatch.context() as patch:
        patch.setattr(Target, "delete", refuse)
        with pytest.raises(RunError, match=r"Read-only file system.*drop\(data=True\) again") as caught:
            run.drop(data=True)
    assert str(tmp_path / "out") in str(caught.value)
    assert list(run.results()) == [square(n) for n in range(50)]

    run.drop(data=True)
    assert not (tmp_path / "out").exists()
    with pytest.raises(dq.errors.RunNotFound):
        run.counts  # noqa: B018


def test_a_part_that_is_gone_is_an_error_where_its_rows_are_read(queue: dq.QueuePool, tmp_path: Path) -> None:
    """Never a gap, and never another row; what can be read is read."""
    run = queue.map(square, range(20), sink=tmp_path / "out").wait(timeout=30)
    for part in tmp_path.glob("out/*.parquet"):
        part.unlink()
    open_parts.clear()

    with pytest.raises(PartMissing, match=r"\d+ rows? of run .*\.parquet"):
        list(run.results())
    with pytest.raises(PartMissing):
        run.table().to_arrow()
    with pytest.raises(PartMissing):
        list(run.as_completed(timeout=10))
    instead = list(run.results(errors="return"))
    assert all(isinstance(each, PartMissing) for each in instead)


def test_the_first_rows_can_be_read_while_the_run_goes_on(queue: dq.QueuePool, tmp_path: Path) -> None:
    """Looking at rows is how one finds out in the first minute that a column is wrong."""
    gate = Gate(tmp_path)

    def held(n: int) -> int:
        if n >= 10:
            gate.wait()
        return n

    run = queue.map(held, range(12), sink=tmp_path / "out")
    until(lambda: run.table().count() == 10)
    assert run.table().to_arrow()["value"].to_pylist() == list(range(10))
    gate.open()
    run.wait(timeout=30)


@pytest.mark.parametrize(
    ("large", "kind"),
    mostly_slow(itertools.product([64 << 10, 20 << 20], KINDS), (64 << 10, "coroutine"), (20 << 20, "process")),
)
def test_large_results_go_into_a_sink(queue: dq.QueuePool, tmp_path: Path, large: int, kind: str) -> None:
    """A result of 20 MB is too large for the queue, which never gets it."""

    def text(n: int) -> str:
        return "x" * (large + n)

    async def later(n: int) -> str:
        return text(n)

    function: Any = later if kind == "coroutine" else text
    executor: Any = "process" if kind == "process" else "auto"
    run = queue.map(function, range(3), sink=tmp_path / "out", executor=executor)

    assert [len(value) for value in run.results(timeout=60)] == [large, large + 1, large + 2]
    assert run.counts["acked"] == 3


def test_a_lab_on_a_copy_of_a_store_leaves_the_folders_of_the_original_alone(
    lab: dq.Lab, queue_name: str, tmp_path: Path
) -> None:
    """The original has the same runs, and rows of later retries, which the copy would delete."""

    def opened(store: str) -> dq.QueuePool:
        durable = dq.Durability.DURABLE
        return dq.QueuePool(lab.client, name=queue_name, served=True, durability=durable, dirpath=tmp_path / store)

    with closing(opened("store")) as pool:
        pool.map(square, range(9), name=queue_name, sink=tmp_path / "rows").wait(timeout=30)
    shutil.copytree(tmp_path / "store", tmp_path / "copy")
    files = sorted(path.name for path in (tmp_path / "rows").iterdir())
    with closing(opened("copy")) as pool:
        run = pool.map(square, range(9), name=queue_name)
        assert list(run.results(timeout=30)) == [square(n) for n in range(9)]
        with pytest.raises(RunError, match=r"belongs to the queue in .*/store/.*, not to .*/copy/"):
            run.drop(data=True)
    assert sorted(path.name for path in (tmp_path / "rows").iterdir()) == files
    with closing(opened("store")) as pool:
        run = pool.map(square, range(9), name=queue_name)
        assert list(run.results(timeout=30)) == [square(n) for n in range(9)]


def test_a_result_that_its_sink_cannot_give_back_fails_its_document_at_once(
    queue: dq.QueuePool, tmp_path: Path
) -> None:
    """Its document was done, and of a table there was the first page of its text, nowhere the rows."""

    def table(n: int) -> Any:
        return pd.DataFrame({"n": [n]}) if n % 3 == 0 else {"n": n}

    run = queue.map(table, range(9), sink=tmp_path / "rows", retry=dq.Retry(3), stop_if=None)
    with pytest.warns(dq.errors.DqlabWarning, match="3 of 9"):
        run.wait(timeout=30)

    failures = list(run.failures())
    assert [(each.key, each.error, each.deliveries) for each in failures] == [
        (n, "ResultRefused", 1) for n in (0, 3, 6)
    ]
    assert "a value of type DataFrame in 'value'" in failures[0].message
    assert list(run.results(errors="skip")) == [{"n": n} for n in range(9) if n % 3]
    assert queue.map(table, [3]).results(timeout=30)[0]["n"].tolist() == [3], "without a sink the queue has the object"


# --- other kinds of sinks ------------------------------------------------------------------------


@pytest.mark.parametrize("executor", ["thread", "process"])
def test_files_named_after_their_documents(queue: dq.QueuePool, tmp_path: Path, executor: Any) -> None:
    """Text extraction gives a text for each paper; a value that is no text fails alone."""
    texts = pd.Series(["eins", "zwei", "drei"], index=["a/1", "b", "c%"])

    def text(value: str) -> Any:
        return {"no": "text"} if value == "zwei" else value.upper()

    sink = dq.Files(f"{tmp_path}/txt/{{key}}.txt")
    run = queue.map(text, texts, sink=sink, retry=dq.Retry(0), executor=executor)
    with pytest.warns(dq.errors.DqlabWarning, match="1 of 3"):
        run.wait(timeout=30)

    assert dict(run.results(errors="skip").items()) == {"a/1": "EINS", "c%": "DREI"}
    assert (tmp_path / "txt" / "a%2F1.txt").read_text() == "EINS"
    (letter,) = run.failures()
    assert letter.error == "ResultRefused"
    assert letter.key == "b"
    assert run.table().to_arrow()["_consumer"].null_count == 0


def test_files_that_a_dropped_run_did_not_write_stay(queue: dq.QueuePool, tmp_path: Path) -> None:
    """Notes by hand have a name of the same pattern."""
    run = queue.map(str, range(5), sink=dq.Files(f"{tmp_path}/out/{{key}}.txt")).wait(timeout=30)
    (tmp_path / "out" / "README.txt").write_text("by hand")
    (tmp_path / "out" / "folder.txt").mkdir()

    run.drop(data=True)

    assert {path.name for path in (tmp_path / "out").iterdir()} == {"README.txt", "folder.txt"}


class Shelf:
    """A sink of a user's own."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def open(self, part: str) -> Any:
        return (part, [])

    def write(self, part: Any, rows: list[dict[str, Any]]) -> None:
        part[1].extend(rows)

    def commit(self, part: Any) -> str:
        import pickle
        from pathlib import Path

        name = f"{part[0]}.pickle"
        Path(self.folder, name).write_bytes(pickle.dumps(part[1]))
        return name

    def read(self, part: str) -> list[Any]:
        import pickle
        from pathlib import Path

        return [row["value"] for row in pickle.loads(Path(self.folder, part).read_bytes())]


def test_a_sink_of_ones_own(queue: dq.QueuePool, tmp_path: Path) -> None:
    """A database, or a format that dqlab does not know."""
    run = queue.map(square, range(100), sink=of_a_cell(Shelf)(str(tmp_path)))

    assert list(run.results(timeout=30)) == [{"n": n, "square": n * n} for n in range(100)]

    frame = run.results().to_frame(columns=["n", *ROW_LINEAGE])
    rows = [row for file in tmp_path.glob("*.pickle") for row in pickle.loads(file.read_bytes())]
    written = {row["_ordinal"]: row for row in rows}
    assert [written[n]["_seconds"] for n in range(100)] == pytest.approx(frame["_seconds"].tolist(), rel=1e-4)
    for name in ("_attempts", "_consumer", "_code"):
        assert (
            [written[n][name] for n in range(100)] == frame[name].tolist() == run.table().to_arrow()[name].to_pylist()
        )


# --- a sink that cannot be written ---------------------------------------------------------------


class Flaky:
    """A sink that refuses rows while a file exists."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def open(self, part: str) -> Any:
        return part, []

    def write(self, part: Any, rows: list[dict[str, Any]]) -> None:
        import errno
        from pathlib import Path

        if Path(self.folder, "full").exists():
            raise OSError(errno.ENOSPC, "No space left on device")
        part[1].extend(rows)

    def commit(self, part: Any) -> None:
        import pickle
        from pathlib import Path

        Path(self.folder, part[0]).write_bytes(pickle.dumps([row["value"] for row in part[1]]))

    def read(self, part: str) -> Any:
        import pickle
        from pathlib import Path

        return pickle.loads(Path(self.folder, part).read_bytes())


def test_a_run_whose_sink_is_full_waits_with_the_reason_and_goes_on_by_itself(
    pool: dq.QueuePool, tmp_path: Path
) -> None:
    """Nothing is lost, nothing fails, nothing runs again, and nobody has to do anything but make room."""
    (tmp_path / "full").touch()
    calls = tmp_path / "calls"
    calls.mkdir()

    def noted(n: int) -> int:
        import uuid

        (calls / f"{n}-{uuid.uuid4().hex}").touch()
        return n

    run = pool.map(noted, range(5_000), sink=of_a_cell(Flaky)(str(tmp_path)))
    until(lambda: "No space left on device" in run.stats().why)
    assert run.state.value == "waiting"
    ran = None
    while ran != (ran := len(list(calls.iterdir()))):
        time.sleep(0.5)  # what had begun may end; then nothing begins
    assert ran < 5_000
    assert run.counts["acked"] == run.counts["dead"] == 0

    (tmp_path / "full").unlink()

    assert list(run.results(timeout=60)) == list(range(5_000))
    assert len(list(calls.iterdir())) == 5_000
    assert run.stats().why == ""


def fill(filler: Path) -> None:
    """Take all the room that is left on a disk."""
    with suppress(OSError), filler.open("wb", buffering=0) as file:
        while file.write(bytes(1 << 12)):
            pass


def test_a_disk_that_is_really_full_costs_no_row(queue: dq.QueuePool, small_disk: Path, tmp_path: Path) -> None:  # noqa: F811
    """What fits is written, what does not is tried again, and half a part is never seen."""
    filler, full = small_disk / "filler", tmp_path / "full"

    def text_of(n: int) -> str:  # all of them fit on the disk, as one part and without compression
        import random

        return random.Random(n).randbytes(1_000).hex()

    def noise(n: int) -> str:
        import time

        while n >= 300 and not full.exists():
            time.sleep(0.01)
        return text_of(n)

    run = queue.map(noise, range(600), sink=dq.Parquet(small_disk / "out"))
    fill(filler)
    full.touch()
    until(lambda: "No space left on device" in run.stats().why)
    assert not run.done
    filler.unlink()

    values = list(run.results(timeout=60))

    assert values == [text_of(n) for n in range(600)]
    assert not list(small_disk.glob("out/.*"))


def test_the_next_chunk_runs_while_a_part_is_written(queue: dq.QueuePool, tmp_path: Path) -> None:
    """A store that takes a second for each part would otherwise stop all functions for as long."""

    class Slow:
        def open(self, part: str) -> Any:
            return None

        def write(self, part: Any, rows: list[Any]) -> None:
            import time
            from pathlib import Path

            def calls() -> int:
                return len(list(Path(str(tmp_path)).glob("called-*")))

            before = calls()
            time.sleep(0.5)
            Path(str(tmp_path), f"during-{calls() - before}").touch()

        def commit(self, part: Any) -> None:
            pass

    def noted(n: int) -> int:
        import time
        from pathlib import Path

        time.sleep(0.01)
        Path(str(tmp_path), f"called-{n}").touch()
        return n

    queue.map(noted, range(300), sink=of_a_cell(Slow)()).wait(timeout=60)

    assert max(int(path.name.removeprefix("during-")) for path in tmp_path.glob("during-*")) > 20


def test_a_run_that_is_cancelled_while_its_sink_is_full_ends(queue: dq.QueuePool, tmp_path: Path) -> None:
    """Its consumers would try for ever to write rows that no run wants."""
    (tmp_path / "full").touch()
    run = queue.map(square, range(2_000), sink=of_a_cell(Flaky)(str(tmp_path)))
    until(lambda: run.stats().why)

    run.cancel()

    until(lambda: run.done)
    assert list(queue.map(square, range(10)).results(timeout=30))[3] == {"n": 3, "square": 9}


def test_a_folder_that_is_gone_holds_the_run_up(queue: dq.QueuePool, tmp_path: Path) -> None:
    """A share that is not mounted on a worker is an empty folder there: rows must not go into it."""
    gate = Gate(tmp_path)

    def held(n: int) -> int:
        gate.wait()
        return n

    run = queue.map(held, range(3), sink=tmp_path / "out")
    until(lambda: run.counts["leased"] > 0)
    (tmp_path / "out" / CLAIM).rename(tmp_path / "kept")
    gate.open()
    until(lambda: "_dqlab.json" in run.stats().why)

    (tmp_path / "kept").rename(tmp_path / "out" / CLAIM)

    assert list(run.results(timeout=30)) == [0, 1, 2]


def test_without_pyarrow_a_run_is_refused_where_it_is_mapped(
    queue: dq.QueuePool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the workers each document would fail, one after the other."""
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)

    with pytest.raises(ExtraMissing, match="pyarrow"):
        queue.map(square, range(3), sink=tmp_path / "out")
    assert not (tmp_path / "out").exists()
