"""Parquet files are whole under their name, or not there, and take the place of nothing that is not theirs."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from dqlab.datasets import files
from dqlab.datasets.files import Identity, TargetTaken, TargetUnwritable, run_of, write_parquet
from dqlab.datasets.rows import SAMPLE
from dqlab.datasets.table import RunTable
from dqlab.errors import BadOption, DqlabWarning
from dqlab.platforms import exchange
from tests.datasets.pages import Pages

pytestmark = pytest.mark.lowest

RUN = Identity("words", "ab" * 16)
OTHER = Identity("other", "cd" * 16)
MANY = 2_500


def table_of(values: Any, **how: Any) -> RunTable:
    return RunTable(Pages(values, **how))


NUMBERS = [{"n": n, "t": f"x{n % 7}"} for n in range(MANY)]


def test_every_row_is_written_once_and_in_order(tmp_path: Path) -> None:
    target = write_parquet(table_of(NUMBERS), tmp_path / "out", RUN)

    assert [file.name for file in tmp_path.iterdir()] == ["out"]
    assert [file.name for file in target.iterdir()] == ["part-00000.parquet"]
    rows = ds.dataset(target).to_table()
    assert rows["n"].to_pylist() == rows["_ordinal"].to_pylist() == list(range(MANY))
    assert run_of(target / "part-00000.parquet") == RUN


def test_a_name_that_ends_in_parquet_is_one_file(tmp_path: Path) -> None:
    target = write_parquet(table_of(NUMBERS), tmp_path / "deep" / "out.parquet", RUN)

    assert [file.name for file in target.parent.iterdir()] == ["out.parquet"]
    assert pq.read_table(target)["n"].to_pylist() == list(range(MANY))


def test_files_and_row_groups_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader holds a row group: one of 10 GB cannot be read where 10 GB do not fit."""
    monkeypatch.setattr(files, "PART_ROWS", 1_000)
    monkeypatch.setattr(files, "GROUP_ROWS", 400)

    target = write_parquet(table_of(NUMBERS, page=200), tmp_path / "out", RUN)

    parts = [pq.read_metadata(file) for file in sorted(target.iterdir())]
    assert [part.num_rows for part in parts] == [1_000, 1_000, 500]
    assert max(part.row_group(at).num_rows for part in parts for at in range(part.num_row_groups)) == 400
    monkeypatch.setattr(files, "GROUP_BYTES", 1)
    small = pq.read_metadata(write_parquet(table_of(NUMBERS, page=200), tmp_path / "small.parquet", RUN))
    assert small.num_row_groups >= MANY / 200


@pytest.mark.parametrize("name", ["out", "out.parquet"])
def test_rows_that_were_written_before_a_type_widened_have_the_wider_type_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Files of one folder with two schemas are read with the first one, and the rest of the numbers is an error."""
    monkeypatch.setattr(files, "PART_ROWS", 800)
    monkeypatch.setattr(files, "GROUP_ROWS", 300)
    values: list[Any] = [{"n": n, "m": None, "deep": {"x": [n]}} for n in range(SAMPLE + 200)]
    values += [{"n": 0.5, "m": "x", "deep": {"x": [0.5], "y": 1}}, {"n": 2**60}, {"n": 7, "new": b"x"}]
    values[3] = {"n": 2**53 + 1}

    with pytest.warns(
        DqlabWarning, match=r"are null there: [12] in n \(double\), 1 without a column\. The column _rest has them"
    ):
        target = write_parquet(table_of(values), tmp_path / name, RUN)

    rows = ds.dataset(target).to_table().to_pylist()
    paths = [target] if target.is_file() else sorted(target.iterdir())
    assert len({str(pq.read_schema(path).remove_metadata()) for path in paths}) == 1
    assert [row["_ordinal"] for row in rows] == list(range(len(values)))
    assert [row["n"] for row in rows[:5]] == [0.0, 1.0, 2.0, None, 4.0]
    assert rows[3]["_rest"] == f'{{"n":{2**53 + 1}}}'
    assert [(row["n"], row["m"], row["_rest"]) for row in rows[-3:]] == [
        (0.5, "x", None),
        (None, None, f'{{"n":{2**60}}}'),
        (7.0, None, '{"new":{"base64":"eA=="}}'),
    ]
    assert rows[5]["deep"] == {"x": [5.0], "y": None}


@pytest.mark.parametrize("values", [[], [None, None], [{}], [{"a": []}], [{"a": None}], [[]]])
@pytest.mark.parametrize("name", ["out", "out.parquet"])
def test_runs_with_little_in_them_are_written(tmp_path: Path, values: list[Any], name: str) -> None:
    """Parquet refuses a struct without fields, and pyarrow a column without a type."""
    target = write_parquet(table_of(values), tmp_path / name, RUN)

    assert ds.dataset(target).to_table().num_rows == len(values)


def test_writing_the_same_run_again_takes_the_place_of_the_old_files(tmp_path: Path) -> None:
    for name in ("out", "out.parquet"):
        write_parquet(table_of(NUMBERS), tmp_path / name, RUN)
        target = write_parquet(table_of(NUMBERS[:5]), tmp_path / name, RUN)
        assert ds.dataset(target).to_table().num_rows == 5

    assert sorted(file.name for file in tmp_path.iterdir()) == ["out", "out.parquet"]


def test_where_names_cannot_be_exchanged_the_old_rows_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two renames in a row leave a moment with nothing, and a crash leaves it so."""
    target = write_parquet(table_of(NUMBERS), tmp_path / "out", RUN)
    monkeypatch.setattr(files, "exchange", lambda one, other: False)

    with pytest.raises(TargetTaken, match=r"cannot put others in their place at once.*Delete it first"):
        write_parquet(table_of(NUMBERS[:5]), target, RUN)

    assert ds.dataset(target).to_table().num_rows == MANY
    assert [file.name for file in tmp_path.iterdir()] == ["out"]


def test_names_are_exchanged_in_one_step(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    one.mkdir()
    other.mkdir()
    (one / "a").touch()
    if not exchange(one, other):
        pytest.skip("this file system cannot exchange names")

    assert [file.name for file in other.iterdir()] == ["a"]
    assert list(one.iterdir()) == []
    with pytest.raises(FileNotFoundError):
        exchange(one, tmp_path / "nothing")


@pytest.mark.parametrize("what", ["another run", "a file of others", "a note", "a folder"])
@pytest.mark.parametrize("name", ["out", "out.parquet"])
def test_what_is_not_of_this_run_is_left_as_it_is(tmp_path: Path, what: str, name: str) -> None:
    """Two runs in one folder are one dataset to whatever reads it."""
    target = tmp_path / name
    single = name.endswith(".parquet")
    place = target if single else target / "part-00000.parquet"
    place.parent.mkdir(exist_ok=True)
    if what == "another run":
        write_parquet(table_of([1, 2]), target, OTHER)
    elif what == "a file of others":
        pq.write_table(pa.table({"a": [1]}), place)
    elif what == "a note":
        (place if single else target / "note.txt").write_text("mine")
    else:
        (place if single else target / "sub").mkdir()
    before = {str(file): file.stat().st_mtime_ns for file in tmp_path.rglob("*")}

    said = {"another run": "rows of run 'other'", "a folder": "a folder" if single else "'sub'"}
    with pytest.raises(TargetTaken, match=said.get(what, "that dqlab did not write")):
        write_parquet(table_of(NUMBERS), target, RUN)

    assert {str(file): file.stat().st_mtime_ns for file in tmp_path.rglob("*")} == before


@pytest.mark.parametrize("path", ["s3://bucket/out", "", b"out"])
def test_what_is_no_path_here_is_refused(path: Any) -> None:
    with pytest.raises(BadOption, match="is not a path"):
        write_parquet(table_of(NUMBERS), path, RUN)


class Broken(Pages):
    """Raises on the way."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(NUMBERS)
        self._error = error

    def rows(self, most: int | None = None) -> Any:
        for at, rows in enumerate(super().rows(most)):
            if at == 5 and most is None:
                raise self._error
            yield rows


@pytest.mark.parametrize("error", [KeyError("x"), KeyboardInterrupt(), OSError(28, "No space left on device")])
@pytest.mark.parametrize("name", ["out", "out.parquet"])
@pytest.mark.parametrize("before", [False, True])
def test_a_reading_that_fails_leaves_what_was_there(
    tmp_path: Path, error: BaseException, name: str, before: bool
) -> None:
    """Half a file under the final name would be read as the whole."""
    target = tmp_path / name
    if before:
        write_parquet(table_of(NUMBERS[:9]), target, RUN)

    said = "what stood there is as it was" if before else "nothing stands under that name"
    with pytest.raises(TargetUnwritable if isinstance(error, OSError) else type(error)) as raised:
        write_parquet(RunTable(Broken(error)), target, RUN)

    assert isinstance(error, KeyError | KeyboardInterrupt) or said in str(raised.value)
    assert [file.name for file in tmp_path.iterdir()] == ([name] if before else [])
    assert not before or ds.dataset(target).count_rows() == 9


SLOW = """
import sys, time
from pathlib import Path
from tests.datasets.test_files import *
class Slow(Pages):
    def rows(self, most=None):
        for rows in super().rows(most):
            yield rows
            if most is None:
                print("page", flush=True)
                time.sleep(0.05)
write_parquet(RunTable(Slow(NUMBERS * 4)), Path(sys.argv[1]) / "out", RUN)
"""


@pytest.mark.cluster
def test_a_killed_writer_leaves_nothing_under_the_name_and_the_next_one_writes(tmp_path: Path) -> None:
    """It leaves what it had beside it, which no process reads."""
    writer = subprocess.Popen([sys.executable, "-c", SLOW, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    try:
        assert writer.stdout is not None
        for _ in range(3):
            writer.stdout.readline()
        writer.send_signal(signal.SIGKILL)
    finally:
        writer.kill()
        writer.wait()
        writer.stdout.close()  # type: ignore[union-attr]

    (left,) = tmp_path.iterdir()
    assert left.name.startswith(".out.writing-")
    write_parquet(table_of(NUMBERS), tmp_path / "out", RUN)
    assert sorted(file.name for file in tmp_path.iterdir()) == [left.name, "out"]


def test_a_writer_that_was_overtaken_by_another_run_refuses(tmp_path: Path) -> None:
    """What was free when it began is taken when it ends."""

    class Overtaken(Pages):
        def rows(self, most: int | None = None) -> Any:
            yield from super().rows(most)
            if most is None:
                write_parquet(table_of([1]), tmp_path / "out", OTHER)

    with pytest.raises(TargetTaken, match="rows of run 'other'"):
        write_parquet(RunTable(Overtaken(NUMBERS)), tmp_path / "out", RUN)

    assert run_of(tmp_path / "out" / "part-00000.parquet") == OTHER
