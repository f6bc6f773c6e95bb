"""Sinks without a cluster: whose a folder is, what a part keeps of values, and what is said of one that is gone."""

from __future__ import annotations

import dataclasses
import datetime
import fractions
import json
import pickle
import random
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, cast
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import dqlab as dq
from dqlab.datasets.sink_parts import (
    PartMissing,
    PartUnreadable,
    Reader,
    SinkRows,
    _OwnWriter,
    file_name,
    open_parts,
    writer_of,
)
from dqlab.datasets.sinks import SinkTaken, SinkUnreachable, Target, as_sink, claim, let_go, sink_of
from dqlab.datasets.yielded import Yielded
from dqlab.errors import BadOption, ResultRefused, UsageError
from tests.datasets.pages import in_json, same
from tests.kit.sampled import examples

RUN, ID = "numbers", "ab" * 16


def rows_of(values: Sequence[Any], keys: Sequence[Any] | None = None) -> SinkRows:
    n = len(values)
    known = ["v"] * n, ["c0de"] * n, [0.5] * n, [2] * n, ["consumer/q/0"] * n, [1.7e9 + at for at in range(n)]
    return SinkRows([list(range(n)), [None] * n if keys is None else list(keys), list(values), *known])


def through(sink: Any, values: Sequence[Any], keys: Sequence[Any] | None = None) -> list[Any]:
    """Write values as one part; return what is read of it, or errors."""
    claim(sink, RUN, ID)
    references = writer_of(sink, RUN, ID, "here").write("abababab-c0-1-000000", rows_of(values, keys))
    found = iter(read(sink_of(sink.record()), references))
    return [next(found) if isinstance(each, bytes) else each for each in references]


def read(sink: Any, references: Sequence[bytes | Exception]) -> list[Any]:
    """Return the rows of references whose position in the input is that in the list."""
    open_parts.clear()
    there = [(at, each) for at, each in enumerate(references) if isinstance(each, bytes)]
    return Reader(sink, RUN, ID).find([each for _, each in there], [at for at, _ in there])


class Forgetful:
    """A sink of a user's own that returns fewer values than were written."""

    def open(self, part: str) -> str:
        return part

    def write(self, part: str, rows: list[dict[str, Any]]) -> None:
        pass

    def commit(self, part: str) -> None:
        pass

    def read(self, part: str) -> list[int]:
        return [0, 1]


@dataclasses.dataclass
class Paper:
    title: str
    pages: int


UTC = datetime.UTC


PLAIN = st.fixed_dictionaries({"a": st.integers(0, 9)})
ROW = st.fixed_dictionaries({"a": st.integers(0, 9), "_part": st.just("x")})


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.one_of(PLAIN, *(st.lists(each, max_size=4).map(Yielded) for each in (ROW, st.integers(0, 9))))))
def test_rows_that_were_yielded_come_back_as_those_of_their_documents(values: list[Any]) -> None:
    """Beside rows of plain functions, as after a retry with other code; a document without rows, and a part without."""

    def known(row: Any) -> Any:  # rows of one part have all its keys
        return {name: value for name, value in row.items() if value is not None} if type(row) is dict else row

    with TemporaryDirectory() as folder:
        found = through(dq.Parquet(folder), values)
        kept = [pq.read_table(each) for each in Path(folder).glob("*.parquet")]

    assert list(map(type, found)) == list(map(type, values))
    for there, value in zip(found, values, strict=True):
        assert list(map(known, there)) == value if type(value) is Yielded else known(there) == value
    many = [len(each) for each in values if type(each) is Yielded]
    numbers = [each for table in kept if "_part" in table.column_names for each in table["_part"].to_pylist()]
    assert sum(table.num_rows for table in kept) == sum(many) + len(values) - len(many)
    assert [each for each in numbers if isinstance(each, int)] == [at for n in many for at in range(n)]


class Keeping(Forgetful):
    """A sink of a user's own that keeps its rows."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def write(self, part: str, rows: list[dict[str, Any]]) -> None:
        self.rows += rows

    def read(self, part: str) -> list[Any]:
        return [row["value"] for row in self.rows]


def test_an_own_sink_gets_a_row_for_each_that_was_yielded() -> None:
    """With its number beside the key, and the value as it was yielded."""
    sink, values = Keeping(), [Yielded([5, {"a": 1}]), "plain", Yielded()]
    references = _OwnWriter(cast("Any", SimpleNamespace(opened=lambda: sink))).write("p", rows_of(values))

    assert [(row["_key"], row.get("_part"), row["value"]) for row in sink.rows] == [
        (0, 0, 5),
        (0, 1, {"a": 1}),
        (1, None, "plain"),
    ]
    reader = Reader(cast("Any", as_sink(Forgetful(), pickle.dumps)), RUN, ID)
    reader._own = sink
    assert reader.find(cast("list[bytes]", references), [0, 1, 2]) == values


def test_a_file_cannot_hold_rows_that_were_yielded(tmp_path: Path) -> None:
    """Which of them would be the file?"""
    (error,) = through(dq.Files(f"{tmp_path}/{{key}}.txt"), [Yielded(["a", "b"])])

    assert isinstance(error, ResultRefused)
    assert "yielded rows" in str(error)


class Mine:
    """An object of a user's own that can be pickled."""


class Raising(Mapping[str, int]):
    """A row that cannot be read."""

    def __getitem__(self, name: str) -> int:
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        raise KeyError("no")

    def __len__(self) -> int:
        return 1


def circle() -> list[Any]:
    made: list[Any] = [1]
    made.append(made)
    return made


OPAQUE = [
    *(Mine(), Mine, len, circle(), range(3), fractions.Fraction(1, 3), object()),
    *(pd.DataFrame({"a": [1, 2]}), pd.Series([1, 2], ["x", "y"]), pa.table({"a": [1]}), np.zeros(2, "i4, f8")),
]
PLAIN = st.one_of(
    *(st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(), st.text(max_size=3), st.binary(max_size=3)),
    *(st.sampled_from(["NaN", "\ud800"]), st.decimals(), st.complex_numbers(), st.uuids(), st.timedeltas(), st.dates()),
    *(st.datetimes(timezones=st.sampled_from([None, UTC, ZoneInfo("Europe/Berlin")])), st.times()),
    *(st.frozensets(st.integers(0, 3)), st.sampled_from([np.arange(2), pd.Series([1, 2]), deque([1])])),
)
FIELDS = st.sampled_from(["a", "b", "value", "_key", "_rest", "_bare"])
ANY = st.recursive(
    PLAIN | st.integers(0, len(OPAQUE) - 1).map(OPAQUE.__getitem__),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(FIELDS, inner, max_size=3),
        st.tuples(inner, inner),
        st.lists(inner, max_size=2).map(deque),
        st.builds(Paper, inner, inner),
    ),
    max_leaves=5,
)


def is_opaque(value: Any) -> bool:
    if any(value is each for each in OPAQUE):
        return True
    parts = vars(value).values() if isinstance(value, Paper) else value.values() if isinstance(value, dict) else value
    return isinstance(value, list | tuple | deque | dict | Paper) and any(map(is_opaque, parts))


def documented(value: Any) -> Any:
    """Return a value with the classes of its containers as a sink gives them back."""
    if isinstance(value, Paper | dict):
        fields = vars(value) if isinstance(value, Paper) else value
        return {name: documented(each) for name, each in fields.items()}
    if isinstance(value, list | tuple | deque):
        return list(map(documented, value))
    return value.tolist() if isinstance(value, np.ndarray | pd.Series) else value


def is_back(came: Any, value: Any) -> bool:
    """Return whether a value came back: as JSON has it, or exactly if a column can hold it."""
    if isinstance(value, dict):  # each column for itself; a name that the row lacks, and another one has, is None
        names = isinstance(came, dict) and came.keys() >= value.keys()
        return names and all(is_cell_back(each, value.get(name)) for name, each in came.items())
    return is_cell_back(came, value)


def is_cell_back(came: Any, value: Any) -> bool:
    return same(came, value) or repr(came) == repr(in_json(value))


@pytest.mark.long
@settings(max_examples=examples(300))
@given(st.lists(ANY, max_size=6))
@example([{"a": Paper("x", OPAQUE[0])}, Paper("x", 1), [OPAQUE[0]]])  # type: ignore[arg-type]
@example([{1: OPAQUE[0], "1": 2}, {"b": 1}])
def test_whatever_is_returned_comes_back_or_is_refused(values: list[Any]) -> None:
    """A table, an object, a set were stored as the first 1,000 characters of their text; nothing warned."""
    with TemporaryDirectory() as folder:
        found = through(dq.Parquet(folder), values)

    for value, came in zip(values, found, strict=True):
        if is_opaque(value):
            assert isinstance(came, ResultRefused), (value, came)
        else:
            assert is_back(came, documented(value)), (value, came)


@given(st.lists(ANY, max_size=4))
def test_files_take_texts_and_bytes_and_refuse_whatever_else_is_returned(values: list[Any]) -> None:
    """A dict cannot be a file: its message fails with that reason, and the others do not."""
    with TemporaryDirectory() as folder:
        found = through(dq.Files(f"{folder}/{{key}}.txt"), values)

    for value, came in zip(values, found, strict=True):
        assert came == value if isinstance(value, str | bytes) else isinstance(came, ResultRefused)


def test_rows_beside_those_that_cannot_be_kept_are_written_as_one_part(tmp_path: Path) -> None:
    """Which ones these are is found without a file for each."""
    bad = {1: {"n": 1, "x": [Mine()]}, 2: Raising(), 298: {"n": 298, "x": circle()}}

    found = through(dq.Parquet(tmp_path / "out"), [bad.get(n, {"n": n}) for n in range(300)])

    whole = [{"n": n, "x": None} for n in range(300) if n not in bad]
    assert [each for n, each in enumerate(found) if n not in bad] == whole
    assert [type(found[n]) for n in bad] == [ResultRefused] * 3
    assert "a value of type Mine in 'x'" in str(found[1])
    assert len(list((tmp_path / "out").glob("abababab-*"))) == 1


def test_lineage_of_a_row_is_in_its_part(tmp_path: Path) -> None:
    """The file alone says which document, code and consumer made a row."""
    pq = pytest.importorskip("pyarrow.parquet")
    through(dq.Parquet(tmp_path), [{"n": 1}, {"n": 2}], ["a/b", 7])

    (part,) = tmp_path.glob("*.parquet")
    table = pq.read_table(part)
    assert table["_key"].to_pylist() == ["a/b", "7"]
    assert table["_ordinal"].to_pylist() == [0, 1]
    assert table["_code"].to_pylist() == ["c0de"] * 2
    assert table["_consumer"].to_pylist() == ["consumer/q/0"] * 2
    assert str(table.schema.field("_at").type) == "timestamp[us, tz=UTC]"


# --- Files ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("a/b.pdf", "a%2Fb.pdf.txt"),
        ("50%", "50%25.txt"),
        ("..", "%2E..txt"),
        ("/etc/passwd", "%2Fetc%2Fpasswd.txt"),
        ("a\nb\\c\0", "a%0Ab%5Cc%00.txt"),
        (17, "17.txt"),
        (None, "5.txt"),
        ("ä", "ä.txt"),
    ],
)
def test_a_key_stays_in_its_folder_as_a_name(key: Any, name: str) -> None:
    """A key is a path of the input; in the output it must not lead anywhere else."""
    assert file_name("{key}.txt", key, 5) == name


def test_a_changed_bit_of_a_part_never_gives_another_value(tmp_path: Path) -> None:
    """A third of them did, and nothing was noticed; what changes no value may be read."""
    sink = dq.Parquet(tmp_path)
    claim(sink, RUN, ID)
    values = [{"n": at * 1_234_567, "text": f"text {at} {at * 7919:x}"} for at in range(300)]
    references = writer_of(sink, RUN, ID, "here").write("abababab-c0-1-000000", rows_of(values))
    (part,) = tmp_path.glob("abababab-*")
    data, chance = part.read_bytes(), random.Random(7)
    pages = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    noticed = 0
    for at in (chance.randrange(pages) for _ in range(200)):
        changed = bytearray(data)
        changed[at] ^= 1 << chance.randrange(8)
        part.write_bytes(changed)
        open_parts.clear()
        for row, value in zip(read(sink, references), values, strict=True):
            assert row == value or (isinstance(row, PartUnreadable) and part.name in str(row))
            noticed += isinstance(row, PartUnreadable)
    assert noticed > 150 * len(values)
    part.write_bytes(data)
    open_parts.clear()
    assert through(sink, values) == values


def test_rows_of_other_documents_are_not_given_for_those_that_were_written(tmp_path: Path) -> None:
    """As after a file that was restored under the name of another one."""
    sink = dq.Parquet(tmp_path)
    claim(sink, RUN, ID)
    references = writer_of(sink, RUN, ID, "here").write("p", rows_of([{"n": at} for at in range(9)]))
    there = [each for each in references if isinstance(each, bytes)]

    (error, *_) = Reader(sink, RUN, ID).find(there, [0, 1, 2, 4, 4, 5, 6, 7, 8])

    assert isinstance(error, PartUnreadable)
    assert "it has the row of document 3 where that of document 4 was written" in str(error)
    with pytest.raises(PartUnreadable):
        Reader(sink, RUN, ID).columns(there, range(1, 10))


def test_a_part_of_an_earlier_version_is_named_and_not_guessed_at(tmp_path: Path) -> None:
    """Its rows had kinds that stand in metadata, and would come back as others."""
    sink = dq.Parquet(tmp_path)
    claim(sink, RUN, ID)
    references = writer_of(sink, RUN, ID, "here").write("p", rows_of([{"n": 1}]))
    about = {"run": RUN, "id": ID, "value": "value", "kinds": [["n"]], "runs": [[0, 1]]}
    table = pq.read_table(tmp_path / "p.parquet")
    pq.write_table(table.replace_schema_metadata({b"dqlab": json.dumps(about)}), tmp_path / "p.parquet")

    (error,) = read(sink, references)

    assert isinstance(error, PartUnreadable)
    assert "an earlier version of dqlab has written it" in str(error)


SPECIAL = {
    "": "%",
    ".": "%2E",
    "..": "%2E%2E",
    "_dqlab.json": "%5Fdqlab.json",
    "_DQLab.JSON": "%5FDQLab.JSON",
    ".part.writing-1": "%2Epart.writing-1",
    "a.": "a%2E",
    "a ": "a%20",
    "%": "%25",
    "a%2E": "a%252E",
    "a": "a",
}


def test_keys_that_no_file_may_be_called_have_other_names() -> None:
    """One called the file that names the run's folder, and every consumer took it for that of another run."""
    assert {key: file_name("{key}", key, 0) for key in SPECIAL} == SPECIAL


def test_documents_with_special_keys_are_written_as_any_other(tmp_path: Path) -> None:
    """The folder stays the run's, and goes with it."""
    sink, keys = dq.Files(f"{tmp_path}/txt/{{key}}"), list(SPECIAL)

    assert through(sink, keys, keys) == keys
    assert let_go(sink, ID, SPECIAL.values()) == len(keys)
    assert not (tmp_path / "txt").exists()


def test_a_document_whose_file_cannot_have_its_name_fails_alone(tmp_path: Path) -> None:
    """A folder has that name: it was tried again for ever, and all others waited."""
    (tmp_path / "txt").mkdir()
    sink = dq.Files(f"{tmp_path}/txt/{{key}}")
    claim(sink, RUN, ID)
    (tmp_path / "txt" / "b" / "more").mkdir(parents=True)

    found = through(sink, ["eins", "zwei", "drei"], ["a", "b", "c"])

    assert [found[0], found[2]] == ["eins", "drei"]
    assert isinstance(found[1], ResultRefused)
    assert f"document b cannot be written to '{tmp_path}/txt/b'" in str(found[1])
    assert not list(tmp_path.glob("txt/.part*"))


def test_repeated_long_keys_with_their_positions_have_names_of_their_own() -> None:
    """The digest was that of the key alone, and the position was cut off."""
    assert len({file_name("{key}-{ordinal}.txt", "x" * 300, at) for at in range(3)}) == 3


def test_long_keys_have_names_of_their_own() -> None:
    """A file system takes 255 bytes, and two long keys often differ in the end alone."""
    names = {file_name("{key}.txt", f"{'ä' * 300}{end}", 0) for end in ("x", "y")}

    assert len(names) == 2
    assert all(len(name.encode()) <= 200 and name.endswith(".txt") for name in names)


def test_two_documents_of_one_key_are_told_apart(tmp_path: Path) -> None:
    """The file of the first one is gone; its result must not be that of the other."""
    found = through(dq.Files(f"{tmp_path}/{{key}}.txt"), ["eins", "zwei"], ["same", "same"])

    assert isinstance(found[0], PartUnreadable)
    assert "another document with this key" in str(found[0])
    assert found[1] == "zwei"


def test_a_part_has_no_more_rows_than_it_may(tmp_path: Path) -> None:
    """Files of a million rows, or of ten, as what reads them wants."""
    assert through(dq.Parquet(tmp_path, rows=4), list(range(10))) == list(range(10))
    assert len(list(tmp_path.glob("*.parquet"))) == 3


# --- whose a folder is ---------------------------------------------------------------------------


def test_rows_that_no_file_can_hold_together_fail_their_documents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None of them is refused by itself, so their run would stand still with them for ever."""

    def refuse(*args: Any, **how: Any) -> None:
        raise ValueError("not these")

    monkeypatch.setattr(pq, "write_table", refuse)

    found = through(dq.Parquet(tmp_path / "out"), list(range(8)))

    assert list(map(str, found)) == ["not these"] * 8


def test_a_sink_of_ones_own_that_returns_too_few_values_is_named_with_how_many() -> None:
    writer = writer_of(sink := as_sink(Forgetful(), pickle.dumps), RUN, ID, "here")
    (error, *_) = read(sink, writer.write("p", rows_of(range(3))))

    assert isinstance(error, PartUnreadable)
    assert "it has 2 rows, and 3 were written at least" in str(error)


def test_a_folder_belongs_to_one_run(tmp_path: Path) -> None:
    """Two runs in one folder would mix their rows."""
    sink = dq.Parquet(tmp_path / "out")

    assert claim(sink, RUN, ID)
    assert not claim(sink, RUN, ID)  # as when it is mapped again
    with pytest.raises(SinkTaken, match="rows of run 'numbers'"):
        claim(sink, "others", "cd" * 16)
    with pytest.raises(SinkTaken, match="another run of that name"):
        claim(sink, RUN, "cd" * 16)


def test_files_of_others_are_left_alone(tmp_path: Path) -> None:
    """What was in the folder before must not be taken for rows, nor deleted with them."""
    (tmp_path / "notes.md").write_text("mine")

    with pytest.raises(SinkTaken, match=r"'notes\.md'"):
        claim(dq.Parquet(tmp_path), RUN, ID)
    (tmp_path / "notes.md").unlink()
    claim(dq.Parquet(tmp_path), RUN, ID)
    through(dq.Parquet(tmp_path), [1])
    (tmp_path / "notes.md").write_text("mine")
    assert let_go(dq.Parquet(tmp_path), "cd" * 16) == 0
    assert let_go(dq.Parquet(tmp_path), ID) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["notes.md"]


@pytest.mark.parametrize("kind", [dq.Parquet, lambda path: dq.Files(f"{path}/{{ordinal}}.txt")])
def test_a_part_that_is_written_while_its_run_is_dropped_does_not_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Any
) -> None:
    """The folder would be refused to the next run, as having files of nobody."""
    sink = kind(tmp_path / "out")
    claim(sink, RUN, ID)
    writer, rows = writer_of(sink, RUN, ID, "here"), rows_of(["a", "b", "c"])
    writer.write(f"{ID[:8]}-c0-1-000000", rows.cut(0, 2))
    listed = Target.names

    def late(target: Target) -> list[str]:
        found = listed(target)
        with pytest.raises(SinkUnreachable):
            writer.write(f"{ID[:8]}-c0-1-000001", rows.cut(2, 3))
        return found

    monkeypatch.setattr(Target, "names", late)
    let_go(sink, ID, ["0.txt", "1.txt"])

    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("step", range(6))
def test_a_drop_that_is_killed_at_any_step_can_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """The folder was nobody's while its files were deleted: what was left then stayed, without an error."""
    sink = dq.Parquet(tmp_path / "out")
    claim(sink, RUN, ID)
    writer = writer_of(sink, RUN, ID, "here")
    for part in range(3):
        writer.write(f"{ID[:8]}-c0-1-{part:06}", rows_of([part]))
    left = [step]

    def killed(does: Any) -> Any:
        def do(*args: Any, **options: Any) -> Any:
            if not left[0]:
                raise KeyboardInterrupt
            left[0] -= 1
            return does(*args, **options)

        return do

    with monkeypatch.context() as patch:
        for name in ("write", "delete", "remove"):
            patch.setattr(Target, name, killed(getattr(Target, name)))
        with pytest.raises(KeyboardInterrupt):
            let_go(sink, ID)

    let_go(sink, ID)
    assert sink.target.names() == []


def test_a_path_that_is_a_file_is_refused(tmp_path: Path) -> None:
    """A sink is a folder."""
    (tmp_path / "out").write_text("x")

    with pytest.raises(SinkTaken):
        claim(dq.Parquet(tmp_path / "out"), RUN, ID)


# --- what is gone --------------------------------------------------------------------------------


def test_rows_in_a_format_of_an_earlier_version_are_named_with_their_place() -> None:
    """A store may have runs whose rows are lines of JSON: their files are there, and nothing reads them here."""
    with pytest.raises(UsageError, match="jsonl files in /data/out, which only an earlier version of dqlab reads"):
        sink_of({"kind": "jsonl", "rows": 5, "where": "/data/out", "storage": ""})


@pytest.mark.parametrize("harm", ["missing", "cut", "empty", "other bytes"])
def test_a_part_that_is_gone_or_damaged_is_named(tmp_path: Path, harm: str) -> None:
    """A gap must never be silent: rows that were acked are there, or it is said where they should be."""
    chosen = dq.Parquet(tmp_path)
    claim(chosen, RUN, ID)
    references = writer_of(chosen, RUN, ID, "here").write("abababab-c0-1-000000", rows_of([{"n": n} for n in range(9)]))
    (part,) = tmp_path.glob("abab*")
    if harm == "missing":
        part.unlink()
    elif harm == "cut":
        part.write_bytes(part.read_bytes()[:-3])
    else:
        part.write_bytes(b"" if harm == "empty" else b"something else\n" * 3)
    open_parts.clear()

    found = read(chosen, references[:4])

    kind = PartMissing if harm == "missing" else PartUnreadable
    assert all(isinstance(each, kind) for each in found)
    said = str(found[0])
    assert part.name in said
    assert "4 rows of run 'numbers'" in said


# --- what users give -----------------------------------------------------------------------------


@pytest.mark.parametrize("given", [5, object(), dict, dq.Parquet], ids=["number", "object", "class", "kind of sink"])
def test_what_is_no_sink_says_what_is_one(given: Any) -> None:
    """It would fail on the workers, with the first row."""
    with pytest.raises(BadOption, match=r"dq\.Parquet"):
        as_sink(given, pickle.dumps)


@pytest.mark.parametrize(
    "path", ["", "txt/{name}.txt", "txt/all.txt", "{key}/a.txt", "txt/"], ids=lambda path: path or "empty"
)
def test_a_pattern_has_to_name_each_document(path: str) -> None:
    """All results would go into one file."""
    with pytest.raises(BadOption):
        dq.Files(path)


def test_secrets_do_not_travel_with_a_sink() -> None:
    """The record of a run is in the log of its queue, and in what views show."""
    with pytest.raises(UsageError):
        dq.Parquet("s3://bucket/out", storage_options={"secret": "hush"})
    with pytest.raises(UsageError):
        dq.Parquet("ftp://me:hush@host/out")
    sink = dq.Parquet("s3://bucket/out", storage_options={"secret": "env:HUSH", "anon": False})
    assert "HUSH" not in repr(sink)
    assert sink_of(sink.record()).record() == sink.record()


def test_a_sink_can_be_behind_a_url(tmp_path: Path) -> None:
    """Object stores have no rename: a part has its final name at once, and its references decide."""
    pytest.importorskip("fsspec")
    sink = dq.Parquet("memory://sinks/out")

    assert through(sink, [{"n": 1}]) == [{"n": 1}]
    names = Target("memory://sinks/out").names()
    assert [name.partition(".")[0] for name in names] == ["_dqlab", "abababab-c0-1-000000"]
    with pytest.raises(SinkTaken):
        claim(sink, "others", "cd" * 16)
    assert let_go(sink, ID) == 1


def test_a_part_that_functions_wait_for_is_written_faster_and_reads_the_same(tmp_path: Path) -> None:
    """A run whose functions take microseconds took twice as long with a sink as without one."""
    read, codecs = [], []
    for hurried in (False, True):
        sink = dq.Parquet(tmp_path / str(hurried))
        claim(sink, RUN, ID)
        writer_of(sink, RUN, ID, "here").write("abababab-c0-1-000000", rows_of([{"t": "a" * 99}] * 9), hurried=hurried)
        (part,) = (tmp_path / str(hurried)).glob("abababab-c0-1-000000.parquet")
        file = pq.ParquetFile(part)
        codecs.append(file.metadata.row_group(0).column(2).compression)
        read.append(file.read())
    assert codecs == ["ZSTD", "SNAPPY"]
    assert read[0].equals(read[1])


def test_rows_of_a_durable_queue_alone_wait_for_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What refers to rows of a queue in memory is gone with a machine that loses its power; flushes took a quarter."""
    flushed = list[int]()
    monkeypatch.setattr("os.fsync", flushed.append)
    for durable in (False, True):
        sink = dq.Parquet(tmp_path / str(durable))
        claim(sink, RUN, ID)
        flushed.clear()
        writer_of(sink, RUN, ID, "here", durable=durable).write("abababab-c0-1-000000", rows_of([1, 2]))
        assert len(flushed) == (2 if durable else 0)  # the file, and its name
