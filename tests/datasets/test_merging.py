"""Parts of a sink that are merged: rows are found by the references that they had before."""

from __future__ import annotations

import decimal
import random
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import dqlab as dq
from dqlab.datasets.sink_merging import AT_ONCE, Ladder, Unmergeable, _sweep, compact, merge
from dqlab.datasets.sink_parts import PartMissing, PartUnreadable, Reader, SinkRow, open_parts, referred, writer_of
from dqlab.datasets.sink_targets import Target
from dqlab.datasets.sinks import CLAIM, SinkUnreachable, claim, let_go, sink_of
from tests.kit.sampled import examples

RUN, ID = "numbers", "ab" * 16
VALUES: list[Any] = [{"n": 1}, None, "text", {"n": "other", "more": [1, 2]}, {}, {"n": None}, 2.5]


@pytest.fixture(autouse=True)
def _opens() -> Iterator[None]:
    """Have each test open its own parts: all of them are of one id, which runs never share."""
    open_parts.forget()
    yield
    open_parts.forget()


def value_of(n: int) -> Any:
    value = VALUES[n % len(VALUES)]
    return {**value, "at": n} if isinstance(value, dict) else value


def written(sink: Any, parts: int, rows: int) -> list[tuple[int, bytes]]:
    """Write parts with rows of any ordinals; return the references."""
    claim(sink, RUN, ID)
    writer, ordinals = writer_of(sink, RUN, ID, "here"), list(range(parts * rows))
    random.Random(3).shuffle(ordinals)
    found: list[tuple[int, bytes]] = []
    for at in range(parts):
        mine = ordinals[at * rows : (at + 1) * rows]
        made = [SinkRow(n, f"k{n}", value_of(n), "", "c", 0.1, 1, "consumer", 1e9) for n in mine]
        references = writer.write(f"{ID[:8]}-c0-x-{at:06d}", made)
        found += [(n, each) for n, each in zip(mine, references, strict=True) if isinstance(each, bytes)]
    return sorted(found)


def names_in(sink: Any) -> list[str]:
    names: list[str] = sink.target.names()
    return names


def each(parts: Sequence[str]) -> dict[str, int]:
    """Return parts as what is merged: each has a row at least."""
    return dict.fromkeys(parts, 1)


def check(sink: Any, references: list[tuple[int, bytes]]) -> None:
    open_parts.forget()
    found = Reader(sink, RUN, ID).find([each for _, each in references])
    assert [row if isinstance(row, Exception) else repr(row[0]) for row in found] == [
        repr(value_of(n)) for n, _ in references
    ]


def test_a_merge_leaves_nothing_behind_a_run_that_is_dropped_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the list of what was merged: nothing that is written later is deleted by the one who drops the run."""
    sink = dq.Parquet(tmp_path / "out", rows=50)
    written(sink, 3, 7)
    parts = each([name for name in names_in(sink) if name != CLAIM])
    write = Target.write

    def late(target: Target, name: str, data: bytes, **how: Any) -> None:
        if name.endswith(".json") and name != CLAIM:
            let_go(sink, ID)
            target.make()  # as where a file that was listed keeps the folder there
        write(target, name, data, **how)

    monkeypatch.setattr(Target, "write", late)
    merge(sink, RUN, ID, parts)

    assert names_in(sink) == []


def test_a_copy_of_a_store_reads_the_rows_and_deletes_none(tmp_path: Path) -> None:
    """It knows no row that the other store got later; its compaction deleted their parts."""
    original, copied = (sink_of(dq.Parquet(tmp_path).record() | {"store": f"/{name}/q"}) for name in ("runs", "copy"))
    assert claim(original, RUN, ID, "/runs/q")
    references = written(original, 4, 5)
    names = names_in(original)

    calls: list[Callable[[], Any]] = [
        lambda: compact(copied, RUN, ID, references[:3], sweep=names),
        lambda: let_go(copied, ID),
        lambda: writer_of(copied, RUN, ID, "here").write("p", [SinkRow(0, None, 1, "", "c", 0.1, 1, "me", 1e9)]),
    ]
    for call in calls:
        with pytest.raises(SinkUnreachable, match="it belongs to the queue in /runs/q, not to /copy/q"):
            call()
    assert names_in(original) == names
    check(copied, references)
    assert compact(original, RUN, ID, references, sweep=names).merged == 4
    check(copied, references)
    assert let_go(original, ID)


def test_rows_are_found_after_their_parts_were_merged_again_and_again(tmp_path: Path) -> None:
    """The log of the queue keeps the references that it had."""
    sink = dq.Parquet(tmp_path, rows=50)
    references = written(sink, 20, 7)

    said = compact(sink, RUN, ID, references, sweep=names_in(sink))
    assert (said.before, said.merged, said.swept) == (20, 20, 0)
    assert said.after == 3
    check(sink, references)

    more = dq.Parquet(tmp_path, rows=1000)
    said = compact(more, RUN, ID, references, sweep=names_in(sink))
    assert (said.before, said.after) == (3, 1)
    check(sink, references)
    assert len(list(tmp_path.iterdir())) == 3  # the part, what was merged into it, and whose the folder is


def test_a_merge_looks_at_its_own_parts_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run of ten thousand parts has hundreds of merges; each listed the folder and read all lists of the others."""
    sink = dq.Parquet(tmp_path, rows=1000)
    references = written(sink, 8, 5)
    parts = sorted({referred(each)[0] for _, each in references})

    with monkeypatch.context() as patch:
        patch.setattr("dqlab.datasets.sink_targets.Target.names", lambda target: pytest.fail("it lists the folder"))
        first, second = (merge(sink, RUN, ID, each(some)) for some in (parts[:4], parts[4:]))
        merge(sink, RUN, ID, each([first, second]))

    check(sink, references)


def test_what_nothing_refers_to_goes_when_it_may(tmp_path: Path) -> None:
    """Parts of deliveries that did not count, and what killed processes left, take room for ever."""
    sink = dq.Parquet(tmp_path)
    references = written(sink, 4, 5)
    writer_of(sink, RUN, ID, "here").write(f"{ID[:8]}-c1-y-000000", [SinkRow(0, None, 1, "", "", 0.0, 1, "", 0.0)])
    (tmp_path / ".part.writing-123").write_bytes(b"half a part")
    (tmp_path / "mine.txt").write_text("of a user")

    assert compact(sink, RUN, ID, references, sweep=()).swept == 0
    assert len(list(tmp_path.glob(f"{ID[:8]}-c1-y-000000.*"))) == 1
    assert compact(sink, RUN, ID, references, sweep=names_in(sink)).swept == 2
    check(sink, references)
    assert (tmp_path / "mine.txt").exists()
    assert (tmp_path / CLAIM).exists()


def test_a_part_that_is_written_behind_the_listing_is_not_swept(tmp_path: Path) -> None:
    """A retry while a done run is compacted: its rows are settled, and their references were not read."""
    sink = dq.Parquet(tmp_path)
    references = written(sink, 4, 5)
    writer = writer_of(sink, RUN, ID, "here")
    late = [SinkRow(20 + n, None, value_of(20 + n), "", "c", 0.1, 1, "consumer", 1e9) for n in range(3)]
    made: list[bytes | Exception] = []

    def read() -> Iterator[tuple[int, bytes]]:
        yield from references
        made.extend(writer.write(f"{ID[:8]}-c1-y-000000", late))

    assert compact(sink, RUN, ID, read(), sweep=names_in(sink)).swept == 0
    check(sink, [*references, *((20 + n, each) for n, each in enumerate(made) if isinstance(each, bytes))])


def test_a_list_that_another_merge_deletes_while_parts_are_swept_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A consumer merges what was merged before, between the listing of names and the reading of lists."""
    sink = dq.Parquet(tmp_path)
    references = written(sink, 6, 5)
    parts = sorted({referred(each)[0] for _, each in references})
    first, second = merge(sink, RUN, ID, each(parts[:3])), merge(sink, RUN, ID, each(parts[3:]))
    names = Target.names

    def merged_behind(target: Target) -> list[str]:
        found = names(target)
        monkeypatch.setattr(Target, "names", names)
        merge(sink, RUN, ID, each([first, second]))
        return found

    listed = names_in(sink)
    monkeypatch.setattr(Target, "names", merged_behind)
    _sweep(sink.target, ID, listed, set(parts))

    check(sink, references)


def test_rows_are_found_that_are_merged_again_while_they_are_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader that had listed the folder found no list, and named a part that is gone."""
    sink = dq.Parquet(tmp_path)
    references = written(sink, 6, 5)
    parts = sorted({referred(each)[0] for _, each in references})
    first, second = merge(sink, RUN, ID, each(parts[:3])), merge(sink, RUN, ID, each(parts[3:]))
    names = Target.names

    def merged_behind(target: Target) -> list[str]:
        found = names(target)
        monkeypatch.setattr(Target, "names", names)
        merge(sink, RUN, ID, each([first, second]))
        return found

    monkeypatch.setattr(Target, "names", merged_behind)
    check(sink, references)


def test_a_merge_that_is_under_way_is_not_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its part would be deleted a moment before what was merged into it is."""
    sink = dq.Parquet(tmp_path)
    references = written(sink, 4, 5)
    parts = sorted(path.name for path in tmp_path.glob("*.parquet"))
    write = Target.write

    def swept_between(target: Target, name: str, data: bytes, **more: Any) -> None:
        if name.endswith(".json"):  # the merged part is there, and nothing refers to it yet
            monkeypatch.setattr(Target, "write", write)
            compact(dq.Parquet(tmp_path, rows=1), RUN, ID, references, sweep=names_in(sink))
        write(target, name, data, **more)

    monkeypatch.setattr(Target, "write", swept_between)
    merge(sink, RUN, ID, each(parts))

    check(sink, references)


def test_parts_that_a_consumer_merges_meanwhile_are_found_where_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A compaction of a run that goes on: what it has listed may be merged before it is read."""
    sink = dq.Parquet(tmp_path)
    references = written(sink, 6, 5)
    parts = sorted(path.name for path in tmp_path.glob("*.parquet"))
    look = Reader.look_for_moved

    def merged_behind(reader: Reader) -> bool:
        found = look(reader)
        monkeypatch.setattr(Reader, "look_for_moved", look)
        merge(sink, RUN, ID, each(parts[:3]))
        return found

    monkeypatch.setattr(Reader, "look_for_moved", merged_behind)
    said = compact(sink, RUN, ID, references, sweep=names_in(sink))

    assert said.after == 1
    check(sink, references)


def test_large_parts_are_not_read_to_be_left_as_they_are(tmp_path: Path) -> None:
    """A compaction of a terabyte, with a few small parts at its end."""
    sink = dq.Parquet(tmp_path, rows=10)
    references = written(sink, 3, 9)
    for path in tmp_path.glob("*.parquet"):
        path.write_bytes(b"not even a part")
    open_parts.forget()

    assert compact(sink, RUN, ID, references, sweep=()).merged == 0


class _Killed(BaseException):
    """Stands for the end of the process."""


@pytest.mark.parametrize("step", range(12))
def test_a_merge_that_is_killed_at_any_step_costs_no_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """It deletes what was there; another one has to be there before."""
    sink = dq.Parquet(tmp_path, rows=20)
    references = written(sink, 6, 5)
    compact(sink, RUN, ID, references, sweep=())  # merged parts, which are merged again
    left = step

    def counted(method: Any) -> Any:
        def call(*args: Any, **more: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                raise _Killed
            return method(*args, **more)

        return call

    with monkeypatch.context() as patch:
        patch.setattr(Target, "write", counted(Target.write))
        patch.setattr(Target, "delete", counted(Target.delete))
        try:
            compact(dq.Parquet(tmp_path, rows=1000), RUN, ID, references, sweep=names_in(sink))
        except _Killed:
            pass
        else:
            assert step > 5
    check(sink, references)
    compact(dq.Parquet(tmp_path, rows=1000), RUN, ID, references, sweep=names_in(sink))
    check(sink, references)


def test_two_merges_of_the_same_parts_leave_all_rows(tmp_path: Path) -> None:
    """A consumer merges its own parts, and a client all of them, at the same time."""
    sink = dq.Parquet(tmp_path)
    references = written(sink, 4, 5)
    parts = sorted(path.name for path in tmp_path.glob("*.parquet"))
    kept = {name: (tmp_path / name).read_bytes() for name in parts}

    merge(sink, RUN, ID, each(parts))
    for name, data in kept.items():  # as the other one sees them
        (tmp_path / name).write_bytes(data)
    merge(sink, RUN, ID, each(parts))

    check(sink, references)
    compact(sink, RUN, ID, references, sweep=names_in(sink))
    check(sink, references)


def test_a_part_that_is_gone_is_not_merged(tmp_path: Path) -> None:
    """Its neighbours stay where they are."""
    sink = dq.Parquet(tmp_path)
    references = written(sink, 3, 4)
    next(tmp_path.glob("*-000001.*")).unlink()
    open_parts.forget()

    with pytest.raises(PartMissing, match="000001"):
        compact(sink, RUN, ID, references, sweep=names_in(sink))
    assert len(list(tmp_path.glob("*.parquet"))) == 2


@pytest.mark.parametrize("damage", ["cut off", "of fewer rows", "empty", "of other bytes"])
def test_a_damaged_part_is_named_and_nothing_of_it_is_merged(tmp_path: Path, damage: str) -> None:
    """A part that ended at a line's end was merged and deleted: its references stood for rows of its neighbours."""
    sink = dq.Parquet(tmp_path)
    references = written(sink, 3, 4)
    (path,) = tmp_path.glob("*-000001*")
    data = path.read_bytes()
    if damage == "of fewer rows":
        table = pq.read_table(path)
        pq.write_table(table.slice(0, 2), path)
    else:
        path.write_bytes({"cut off": data[:-1], "empty": b"", "of other bytes": b"{]\n" * 4}[damage])
    open_parts.forget()
    there = {file: file.read_bytes() for file in tmp_path.iterdir()}

    with pytest.raises(PartUnreadable, match=path.name) as raised:
        compact(sink, RUN, ID, references, sweep=names_in(sink))
    assert RUN in str(raised.value)
    parts = {name: 4 for name in names_in(sink) if name != CLAIM}
    with pytest.raises(PartUnreadable, match=path.name):
        merge(sink, RUN, ID, parts)
    assert {file: file.read_bytes() for file in tmp_path.iterdir()} == there


def test_a_damaged_list_of_merged_parts_is_named(tmp_path: Path) -> None:
    """Without it nothing is known of the rows that were merged."""
    sink = dq.Parquet(tmp_path)
    references = written(sink, 3, 4)
    compact(sink, RUN, ID, references, sweep=())
    (path,) = tmp_path.glob("*-m-*.json")
    path.write_bytes(path.read_bytes()[:-5])
    open_parts.forget()

    with pytest.raises(PartUnreadable, match=path.name):
        compact(sink, RUN, ID, references, sweep=names_in(sink))
    for row in Reader(sink, RUN, ID).find([each for _, each in references]):
        assert isinstance(row, PartUnreadable)
        assert path.name in str(row)


@given(st.lists(st.integers(1, 600), max_size=300))
def test_a_ladder_leaves_few_parts_and_writes_no_row_often(sizes: list[int]) -> None:
    """As many parts as there are steps, times sixteen; each row once for each step."""
    ladder, there, again = Ladder(500), dict[str, int](), 0
    for at, rows in enumerate(sizes):
        ladder.add(f"p{at}", rows)
        there[f"p{at}"] = rows
        while taken := ladder.take():
            assert len(taken) >= AT_ONCE
            rows = sum(n for _, n in taken)
            assert rows == sum(there.pop(part) for part, _ in taken)
            again += rows
            there[f"m{at}-{rows}"] = rows
            ladder.add(f"m{at}-{rows}", rows)
    assert sum(there.values()) == sum(sizes)
    assert sum(rows < 500 for rows in there.values()) < 3 * AT_ONCE
    assert again <= 3 * sum(sizes)


LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=3)
    | st.binary(max_size=3)
    | st.decimals(allow_nan=False, allow_infinity=False, places=2, min_value=-99, max_value=99)
    | st.dates()
)
NESTED = LEAVES | st.lists(LEAVES, max_size=2) | st.dictionaries(st.sampled_from("xy"), LEAVES, max_size=2)
ANY = NESTED | st.dictionaries(st.sampled_from("ab"), NESTED, max_size=2)


def values_of(sink: Any, references: list[bytes]) -> list[Any]:
    open_parts.forget()
    reader = Reader(sink, RUN, ID)
    reader.look_for_moved()
    found = reader.find(references)
    assert not [row for row in found if isinstance(row, Exception)]
    return [row[0] for row in found if not isinstance(row, Exception)]


def equal(one: Any, other: Any, *, nested: bool = False) -> bool:
    """Whether two values are equal, a whole number and the same with a point too; the columns in the same order."""
    if isinstance(one, dict):  # of a struct the column has the order
        alike = isinstance(other, dict) and (one.keys() == other.keys() if nested else list(one) == list(other))
        return alike and all(equal(one[name], other[name], nested=True) for name in one)
    if isinstance(one, list):
        return isinstance(other, list) and len(one) == len(other) and all(map(partial(equal, nested=True), one, other))
    if isinstance(one, int | float) and isinstance(other, int | float) and bool not in (type(one), type(other)):
        return one == other or (one != one and other != other)
    return type(one) is type(other) and one == other


@pytest.mark.long
@settings(max_examples=examples(150))
@given(parts=st.lists(st.lists(ANY, min_size=1, max_size=4), min_size=2, max_size=4))
@example(parts=[[{"c": {"x": 1, "y": 2}}, {"c": "s"}], [{"c": b"abc"}]])
@example(parts=[[decimal.Decimal("1.1")], ["a"], [b"x"]])
@example(parts=[[{"v": {"p": 1}}], [{"v": {"q": 1}}]])
@example(parts=[[1], [0.5], [2**53 + 1]])
@example(parts=[[{"b": {"x": 1, "y": 2}}], [{"b": {"y": 2, "x": 1}}]])
def test_a_merge_changes_no_value_or_is_not_made(parts: list[list[Any]]) -> None:
    """Bytes among the rest got the fields of other rows' dicts, decimals became texts, when somebody looked later."""
    with TemporaryDirectory() as folder:
        sink = dq.Parquet(folder, rows=1000)
        claim(sink, RUN, ID)
        writer, references, names = writer_of(sink, RUN, ID, "here"), list[bytes](), list[str]()
        for at, values in enumerate(parts):
            rows = [SinkRow(n, None, value, "", "c", 0.1, 1, "consumer", 1e9) for n, value in enumerate(values)]
            written = [each for each in writer.write(f"{ID[:8]}-c0-x-{at}", rows) if isinstance(each, bytes)]
            references += written
            names.append(referred(written[0])[0])
        before, files = values_of(sink, references), set(Path(folder).iterdir())
        try:
            merge(sink, RUN, ID, each(names))
        except Unmergeable:
            assert set(Path(folder).iterdir()) == files
        after = values_of(sink, references)
        assert all(map(equal, before, after)), (before, after)


def test_parts_that_cannot_be_merged_stay_and_the_others_are_merged(tmp_path: Path) -> None:
    """One odd value costs its group, not the compaction."""
    sink = dq.Parquet(tmp_path, rows=4)
    claim(sink, RUN, ID)
    writer, references = writer_of(sink, RUN, ID, "here"), list[tuple[int, bytes]]()
    for n, value in enumerate(["a", decimal.Decimal("1.1"), 3, 4, 5, 6, 7, 8]):
        (reference,) = writer.write(f"{ID[:8]}-c0-x-{n}", [SinkRow(n, None, value, "", "c", 0.1, 1, "consumer", 1e9)])
        assert isinstance(reference, bytes)
        references.append((n, reference))

    said = compact(sink, RUN, ID, references, sweep=())

    assert (said.before, said.after, said.merged) == (8, 5, 4)
    assert values_of(sink, [each for _, each in references]) == ["a", decimal.Decimal("1.1"), 3, 4, 5, 6, 7, 8]
