"""How results were made, as columns: of settlements, of rows of a sink, and of logs that have nothing of it."""

from __future__ import annotations

import datetime
import gc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest

import dqlab as dq
from dqlab.datasets.lineage import ROW_LINEAGE
from dqlab.datasets.lineage_columns import Gathered, MadeRows, SinkLineage, Unrecorded, lineage_of
from dqlab.datasets.rows import Shape
from dqlab.datasets.sink_parts import Reader, SinkRow, refer_all, writer_of
from dqlab.datasets.sinks import claim
from dqlab.frame import Made, Making, Piece, Settlement
from dqlab.runs.results import OpenedStretch, chosen_columns, frame_of_pages, open_settlements
from tests.kit.memory import allocated_in

AT = 1.7e9
WHEN = datetime.datetime.fromtimestamp(AT, datetime.UTC)
ID = "ab" * 16


def made_of(n: int, **more: Any) -> Made:
    packed = Making("pages/c-0", "3f2a91", AT, [0.5] * n, **more).encode()
    return Made.decode(memoryview(packed), n)


def gathered(*pieces: Any) -> Gathered:
    found = Gathered()
    for piece in pieces:
        found.add(piece)
    return found


def lists(found: Gathered, count: int) -> dict[str, list[Any]]:
    """Return the columns of Arrow; those of pandas have to be the same."""
    arrow = {name: column.to_pylist() for name, column in found.arrow().items()}
    for name in ROW_LINEAGE:
        series = found.pandas(name, pd.RangeIndex(count))
        assert [None if pd.isna(each) else each for each in series.tolist()] == arrow[name]
    assert [str(found.arrow()[name].type) for name in ROW_LINEAGE] == [
        str(Shape(lined=True).schema.field(name).type) for name in ROW_LINEAGE
    ]
    return arrow


def test_pieces_of_every_kind_become_one_column() -> None:
    """A run that was begun by an earlier version, and goes on with this one."""
    row = {"_version": "v9", "_code": "k", "_seconds": 2.0, "_attempts": 3, "_consumer": "c", "_at": WHEN}
    made = made_of(4, attempts=[1, 2, 2, 1], versions=["", "v1", "v1", "v2"], ages=[0.0, 1.0, 2.0, 4.0])

    found = lists(gathered(Unrecorded(2, "old"), MadeRows(made, 1, 4), SinkLineage([row]), Unrecorded(1)), 7)

    assert found["_version"] == [None, None, "v1", "v1", "v2", "v9", None]
    assert found["_code"] == ["old", "old", "3f2a91", "3f2a91", "3f2a91", "k", None]
    assert found["_seconds"] == [None, None, 0.5, 0.5, 0.5, 2.0, None]
    assert found["_attempts"] == [None, None, 2, 2, 1, 3, None]
    assert found["_consumer"] == [None, None, "pages/c-0", "pages/c-0", "pages/c-0", "c", None]
    seconds = datetime.timedelta(seconds=1)
    assert found["_at"] == [None, None, *(WHEN - age * seconds for age in (1, 2, 4)), WHEN, None]


def test_no_pieces_are_no_rows() -> None:
    assert lists(gathered(), 0) == {name: [] for name in ROW_LINEAGE}


def test_names_that_are_no_unicode_are_shown_as_elsewhere() -> None:
    """The version of a document may be a path; Arrow refuses a lone surrogate."""
    made = made_of(1, versions=["caf\udce9"])

    assert gathered(MadeRows(made, 0, 1)).arrow()["_version"].to_pylist() == ["caf\\xe9"]


def test_a_sink_of_a_users_own_gives_values_alone_and_the_settlement_has_the_rest() -> None:
    made = MadeRows(made_of(1), 0, 1)

    assert lineage_of([dict.fromkeys(ROW_LINEAGE)], made) is made
    assert isinstance(lineage_of([{"_code": "k"}], made), SinkLineage)
    assert isinstance(lineage_of([dict.fromkeys(ROW_LINEAGE)], None), SinkLineage)


def test_lineage_of_the_rows_of_a_sink_takes_some_bytes_of_each() -> None:
    """A part has a text of its own for each row, and nearly all of them are equal."""
    n = 5_000

    def rows() -> list[dict[str, Any]]:
        names = ("_code", "_consumer")
        row = {"_version": None, "_seconds": 0.5, "_attempts": 1, "_at": WHEN}
        return [row | {name: f"{name} {n}" for name in names} for _ in range(n)]

    def each_with_a_version(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [row | {"_version": f"v{at}"} for at, row in enumerate(rows)]

    for given, most in ((rows(), 24), (each_with_a_version(rows()), 48)):  # 16 are seconds and times
        found = Gathered()
        with allocated_in("*/dqlab/datasets/*") as kept:
            for at in range(0, n, 1000):
                found.add(SinkLineage(given[at : at + 1000]))
            gc.collect()
            assert 16 * n < kept() < most * n
        assert found.arrow()["_consumer"].to_pylist() == [f"_consumer {n}"] * n
        assert found.arrow()["_version"].to_pylist() == [row["_version"] for row in given]
    assert len(list(SinkLineage(rows()).runs("_code"))) == 1


# --- reading -------------------------------------------------------------------------------------


def page(values: Sequence[bytes], made: Making | None) -> list[OpenedStretch]:
    n = len(values)
    return open_settlements(
        [Settlement.encode([Piece(0, 0, n)], bytes(n), values, run=b"r" * 16, epoch=1, lease=1, made=made)]
    )


def test_what_is_not_asked_for_is_not_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    """A million numbers are read as fast as before."""
    from dqlab.cluster.transport.sealed import seal_value

    values = [seal_value({"n": n}) for n in range(3)]
    for name in ("seconds", "ages", "attempts", "versions"):
        monkeypatch.setattr(Made, name, lambda *_, name=name: pytest.fail(f"{name} were opened"))
    made = Making("c", "k", AT, [0.5] * 3, attempts=[1, 2, 1], versions=["v"] * 3)

    frame = frame_of_pages([page(values, made)], 3, None)
    chosen = chosen_columns("r", [page(values, made)], ["n", "_code"], None, 3, lambda: pytest.fail("asked for"))

    assert frame["n"].tolist() == chosen["n"].tolist() == [0, 1, 2]
    assert chosen["_code"].tolist() == ["k"] * 3


def test_results_of_an_older_log_have_nulls_and_the_only_code() -> None:
    """Nothing that looks like a measurement: no second of 0, and no first attempt."""
    from dqlab.cluster.transport.sealed import seal_value

    values = [seal_value({"n": n}) for n in range(2)]

    frame = chosen_columns("r", [page(values, None)], ["n", *ROW_LINEAGE], None, 2, lambda: "only")

    assert frame["_code"].tolist() == ["only"] * 2
    assert frame.drop(columns=["n", "_code"]).isna().all(axis=None)
    frame = chosen_columns("r", [page(values, None)], ["_code"], None, 2, lambda: None)
    assert frame["_code"].isna().all()


def test_a_result_that_cannot_be_opened_keeps_its_lineage() -> None:
    """It is there, and it took its time; only its value is not readable here."""
    made = Making("c", "k", AT, [1.0, 2.0, 3.0], attempts=[1, 2, 3])

    found = page([b"\x80\x04N.", b"nothing", b"\x80\x04N."], made)

    assert [stretch.unreadable is not None for stretch in found] == [False, True, False]
    columns = gathered(*(stretch.lineage for stretch in found)).arrow()
    assert columns["_seconds"].to_pylist() == [1.0, 2.0, 3.0]
    assert columns["_attempts"].to_pylist() == [1, 2, 3]


def test_pieces_of_a_settlement_have_their_own_rows() -> None:
    """Documents that failed between them are not there, and positions in the columns are no ordinals."""
    from dqlab.cluster.transport.sealed import seal_value

    made = Making("c", "k", AT, [1.0, 2.0, 3.0, 4.0, 5.0], attempts=[1, 2, 3, 4, 5], versions=list("abcde"))
    pieces = [Piece(0, 10, 2), Piece(7, 17, 3)]
    blob = Settlement.encode(
        pieces, bytes(5), [seal_value(n) for n in range(5)], run=b"r" * 16, epoch=1, lease=1, made=made
    )

    first, second = open_settlements([blob])
    part = second.cut(18, 20).cut(19, 20)

    for stretch, seconds, versions in ((first, [1, 2], "ab"), (second, [3, 4, 5], "cde"), (part, [5], "e")):
        assert stretch.lineage is not None
        columns = gathered(stretch.lineage).arrow()
        assert columns["_seconds"].to_pylist() == columns["_attempts"].to_pylist() == seconds
        assert columns["_version"].to_pylist() == list(versions)


# --- parts ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [dq.Parquet, dq.Files])
def test_parts_have_attempts_and_one_from_before_has_nulls(tmp_path: Path, kind: Any) -> None:
    """Rows of a sink that an earlier version has written are read on."""
    sink = kind(tmp_path / ("out/{ordinal}.txt" if kind is dq.Files else "out"))
    claim(sink, "r", ID)
    value = "text" if kind is dq.Files else {"n": 1}
    row = SinkRow(0, None, value, "v", "k", 0.5, 3, "c", AT)
    written = writer_of(sink, "r", ID, "here").write(f"{ID[:8]}-c0-x-0", [row])
    ((found, lineage),) = Reader(sink, "r", ID).find([each for each in written if isinstance(each, bytes)])
    assert (found, lineage) == (value, row.lineage)
    assert lineage["_attempts"] == 3

    if kind is dq.Parquet:
        (file,) = (tmp_path / "out").glob("*.parquet")
        table = pq.read_table(file)
        pq.write_table(table.drop_columns(["_attempts"]), file.with_name(f"{ID[:8]}-c0-x-0.parquet"))
        written = refer_all(f"{ID[:8]}-c0-x-0.parquet", 1)
        reader = Reader(sink, "r", ID)
        ((found, lineage),) = reader.find([each for each in written if isinstance(each, bytes)])
        assert (found, lineage) == (value, row.lineage | {"_attempts": None})
        from dqlab.datasets.rows import Rows

        columns = reader.columns([each for each in written if isinstance(each, bytes)])
        (batch,) = Shape(lined=True).batches(Rows(range(1), None, [], columns=columns), widen=True)
        assert batch["_attempts"].to_pylist() == [None]
        assert batch["_seconds"].to_pylist() == [0.5]
