"""How results were made, as columns: of settlements, and of logs that have nothing of it."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any

import pandas as pd
import pytest

from dqlab.datasets.lineage import ROW_LINEAGE, Gathered, Lineage
from dqlab.datasets.rows import Shape
from dqlab.frame import Made, Making, Piece, Settlement
from dqlab.runs.reading.results import OpenedStretch, chosen_columns, frame_of_pages, open_settlements

AT = 1.7e9
WHEN = datetime.datetime.fromtimestamp(AT, datetime.UTC)


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
    made = made_of(4, attempts=[1, 2, 2, 1], versions=["", "v1", "v1", "v2"], ages=[0.0, 1.0, 2.0, 4.0])

    found = lists(gathered(Lineage(None, 0, 2, "old"), Lineage(made, 1, 4), Lineage(None, 0, 1)), 6)

    assert found["_version"] == [None, None, "v1", "v1", "v2", None]
    assert found["_code"] == ["old", "old", "3f2a91", "3f2a91", "3f2a91", None]
    assert found["_seconds"] == [None, None, 0.5, 0.5, 0.5, None]
    assert found["_attempts"] == [None, None, 2, 2, 1, None]
    assert found["_consumer"] == [None, None, "pages/c-0", "pages/c-0", "pages/c-0", None]
    seconds = datetime.timedelta(seconds=1)
    assert found["_at"] == [None, None, *(WHEN - age * seconds for age in (1, 2, 4)), None]


def test_no_pieces_are_no_rows() -> None:
    assert lists(gathered(), 0) == {name: [] for name in ROW_LINEAGE}


def test_names_that_are_no_unicode_are_shown_as_elsewhere() -> None:
    """The version of a document may be a path; Arrow refuses a lone surrogate."""
    made = made_of(1, versions=["caf\udce9"])

    assert gathered(Lineage(made, 0, 1)).arrow()["_version"].to_pylist() == ["caf\\xe9"]


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
