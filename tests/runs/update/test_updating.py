"""A run that is kept current has what a new run over the same documents would have, and runs only the difference."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dqlab as dq
from dqlab.cluster.transport.orders import Reopen
from dqlab.datasets.table import QueryError
from dqlab.errors import BadOption, RunCancelled, RunError, RunExists, UsageError
from dqlab.runs.update import plan as planning
from dqlab.stats import RunState
from dqlab.testing import Tally
from tests.kit.waiting import until

NOTHING = dq.Retry(0)
pytestmark = pytest.mark.filterwarnings("ignore:.*failed. run.failures:dqlab.errors.DqlabWarning")


class Folder:
    """Files that come, change and go, and a function that counts what it runs."""

    def __init__(self, place: Path) -> None:
        self.place, self.tally, self.written = place / "in", Tally(place), 0
        self.place.mkdir()

    def write(self, *names: str, text: str = "") -> None:
        for name in names:
            self.written += 1
            part = self.place / f".{name}"  # renamed when whole: a look in between would take an empty file
            part.write_text(text or f"{name} {self.written}" + "." * self.written)
            part.rename(self.place / name)

    @property
    def documents(self) -> dq.Documents:
        return dq.Documents.from_glob(f"{self.place}/*.txt")

    @property
    def texts(self) -> dict[str, str]:
        return {path.name: path.read_text() for path in self.place.iterdir()}

    @property
    def function(self) -> Callable[[dq.Document], dict[str, str]]:
        tally = self.tally

        def read(document: dq.Document) -> dict[str, str]:
            tally.add(document.key)
            if "bad" in document.text():
                raise ValueError(document.key)
            return {"text": document.text()}

        return read


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    folder = Folder(tmp_path)
    folder.write(*(f"{number:03}.txt" for number in range(40)))
    return folder


@pytest.fixture(params=[False, True], ids=["in the queue", "in a sink"])
def start(
    request: pytest.FixtureRequest, queue: dq.QueuePool, queue_name: str, folder: Folder, tmp_path: Path
) -> Callable[..., dq.Run]:
    sink = {"sink": tmp_path / "rows"} if request.param else {}

    def start(**options: Any) -> dq.Run:
        options = {"name": queue_name, "retry": NOTHING} | sink | options
        return queue.map(options.pop("fn", folder.function), folder.documents, **options)

    return start


def texts_of(run: dq.Run) -> dict[str, str]:
    return {key: value["text"] for key, value in run.results(errors="skip").items()}


def test_an_updated_run_has_what_a_new_one_would_have_and_runs_only_the_difference(
    start: Callable[..., dq.Run], folder: Folder
) -> None:
    """Over several days of files that come, change, fail and go; the oracle is the folder itself."""
    random, run = Random(5), start().wait()
    for _ in range(4):
        before, seen = folder.texts, len(folder.tally.seen())
        for name in random.sample(sorted(before), 3):
            (folder.place / name).unlink()
        folder.write(*random.sample(sorted(folder.texts), 4), *(f"{random.random():.6f}.txt" for _ in range(5)))
        differ = {name for name, text in folder.texts.items() if before.get(name) != text}

        run = start(on_existing="update").wait()

        assert run.updated is not None
        assert (run.updated.gone, len(run.updated.new) + len(run.updated.changed)) == (3, len(differ))
        assert sorted(folder.tally.seen()[seen:]) == sorted(differ)
        assert texts_of(run) == folder.texts
        assert run.counts["acked"] == sum(run.counts.values()) == len(folder.texts)
        assert sorted(run.results().to_frame().index) == sorted(folder.texts)
    assert run.plan(folder.documents).empty


def test_what_is_asked_for_runs_again_with_new_code_and_versions_add_up(
    start: Callable[..., dq.Run], folder: Folder
) -> None:
    run = start().wait()

    def longer(document: dq.Document) -> dict[str, str]:
        return {"text": document.text() + "!"}

    run.update(run.plan(folder.documents, again=["003.txt", "005.txt"]), fn=longer).wait()

    assert {key for key, text in texts_of(run).items() if text.endswith("!")} == {"003.txt", "005.txt"}
    assert [version.results for version in run.versions] == [38, 2]
    run.update(run.plan(folder.documents, again="all"), fn=longer).wait()
    assert all(text.endswith("!") for text in texts_of(run).values())
    assert [version.results for version in run.versions] == [0, 40]


def test_an_update_that_was_killed_between_its_last_document_and_its_end_is_ended_by_the_next_one(
    start: Callable[..., dq.Run], folder: Folder
) -> None:
    run = start().wait()
    link = run.handle.link
    link.sync(run.handle.order(Reopen(run.id, link.client.id, b"of nobody".ljust(16), redo=True)))

    assert texts_of(start(on_existing="update").wait()) == folder.texts


def test_rows_of_a_file_that_was_written_again_run_again_only_where_they_differ(
    queue: dq.QueuePool, queue_name: str, tmp_path: Path
) -> None:
    """Also in a run that was made before its rows had versions, once their file was listed with them."""
    tally, path = Tally(tmp_path), tmp_path / "rows.parquet"

    def documents(texts: list[str], **options: Any) -> dq.Documents:
        if options.pop("write", True):
            pq.write_table(pa.table({"id": range(len(texts)), "text": texts}), path, row_group_size=7)
        return dq.Documents.from_parquet(path, key="id", **options)

    def read(row: dq.Document) -> str:
        tally.add(str(row.key))
        return f"{row['text']}!"

    texts = [f"text {at}" for at in range(20)]
    run = queue.map(read, documents(texts), name=queue_name).wait()
    assert run.plan(documents(texts, write=False, version="*")).empty
    texts[3] = "a longer one"
    plan = run.plan(documents(texts))
    assert "20 changed" in str(plan)
    assert "20 of the changed are all rows of files that were written again" in str(plan)
    run.update(documents(texts, version="*")).wait()
    seen = len(tally.seen())
    texts[5:7] = ["new", "other"]
    texts.append("last")

    plan = run.plan(documents(texts, version="*"))
    run.update(plan).wait()

    assert sorted(tally.seen()[seen:]) == ["20", "5", "6"]
    assert (len(plan.new), len(plan.changed), plan.gone, plan.kept) == (1, 2, 0, 18)
    assert list(run.results()) == [f"{text}!" for text in texts]


def test_keys_with_equal_hashes_are_not_taken_for_each_other(
    start: Callable[..., dq.Run], folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first hash of all keys is the same here; none is found by it alone."""
    run = start().wait()
    folder.write("003.txt", "other.txt")
    (folder.place / "004.txt").unlink()
    monkeypatch.setattr(planning, "hash", lambda text: 7 if text.endswith(".txt") else hash(text), raising=False)

    plan = run.plan(folder.documents)

    assert (plan.gone, plan.kept, [at for at, _ in plan.changed]) == (1, 38, [3])
    assert [document.key for document in plan.new] == ["other.txt"]


def test_a_plan_is_carried_out_once(start: Callable[..., dq.Run], folder: Folder) -> None:
    """Its second time would put its documents twice."""
    run = start().wait()
    folder.write("new.txt")
    plan = run.plan(folder.documents)
    run.update(plan, fn=folder.function).wait()

    with pytest.raises(RunError, match="other documents since the plan was made"):
        run.update(plan, fn=folder.function)
    assert texts_of(run) == folder.texts
    with pytest.raises(RunExists, match="other documents"):  # it is no longer the input that was mapped
        start(on_existing="attach")


def test_what_cannot_be_compared_is_refused_and_nothing_changes(
    queue: dq.QueuePool, queue_name: str, folder: Folder
) -> None:
    run = queue.map(folder.function, folder.documents, name=queue_name).wait()
    twice = [*folder.documents, *folder.documents[:1]]
    numbers = queue.map(len, ["a", "bb"], name=f"{queue_name}-numbers").wait()
    other = numbers.results_now()
    for wrong, error, said in (
        (lambda: run.plan(["a"]), UsageError, "element 0 is 'str'"),
        (lambda: run.plan(twice), UsageError, "two documents have the key '000.txt'"),
        (lambda: numbers.plan(folder.documents), RunError, "no keys"),
        (lambda: numbers.update(run.plan(folder.documents), fn=len), BadOption, "is a plan of run"),
        (lambda: queue.map(len, [], name=queue_name, on_existing="renew"), BadOption, "'update'"),
    ):
        with pytest.raises(error, match=said):
            wrong()
    assert (list(other), texts_of(run)) == ([1, 2], folder.texts)


def test_touched_files_run_again_unless_size_is_trusted_or_a_checksum_is_known(
    queue: dq.QueuePool, queue_name: str, folder: Folder
) -> None:
    """A restored backup has other times and the same contents."""
    run = queue.map(folder.function, folder.documents, name=queue_name).wait()
    for path in folder.place.iterdir():
        os.utime(path, (1, 1))
    folder.write("000.txt", "001.txt")
    assert run.plan(folder.documents).reasons == {"size": 2, "time": 38}
    plan = run.plan(folder.documents, trust="size")
    assert (len(plan.changed), plan.kept) == (2, 38)
    run.update(folder.documents, folder.function, trust="size").wait()
    assert texts_of(run) == folder.texts
    assert "(size) it has" in str(run.plan(folder.documents, trust="size"))
    with pytest.raises(BadOption, match="trust"):
        run.plan(folder.documents, trust="name")  # type: ignore[arg-type]

    def packed(day: int) -> dq.Documents:
        with zipfile.ZipFile(folder.place.parent / "all.zip", "w") as archive:
            for name in ("a.txt", "b.txt"):
                archive.writestr(zipfile.ZipInfo(name, (2026, 1, day, 0, 0, 0)), name)
        return dq.Documents.from_archive(folder.place.parent / "all.zip")

    run = queue.map(folder.function, packed(1), name=f"{queue_name}-packed").wait()
    plan = run.plan(packed(2))
    assert plan.empty
    assert "2 documents listed at" in str(plan)
    assert "(ETag or checksum) it has" in str(plan)


def test_a_plan_says_which_code_made_what_it_keeps(start: Callable[..., dq.Run], folder: Folder) -> None:
    run = start().wait()

    def longer(document: dq.Document) -> dict[str, str]:
        return {"text": document.text() + "!"}

    folder.write("new.txt")
    assert "40 kept, made by v1 (the code is v2: compare" in str(run.plan(folder.documents, fn=longer))
    run.update(folder.documents, longer).wait()
    assert "listed" in str(run.plan(folder.documents))
    assert "it has, of them 40 by v1, 1 by v2 (the code is v2" in str(run.plan(folder.documents))
    run.accept_code(folder.function)  # the same results
    assert run.plan(folder.documents, fn=folder.function).older == 0


def test_a_document_without_a_version_is_kept_and_counted(start: Callable[..., dq.Run], folder: Folder) -> None:
    """Whether it has changed cannot be known, so nobody guesses; of the run's own ones neither."""
    run = start().wait()
    folder.write("001.txt", "new.txt")
    unknown = [replace(document, version="") for document in folder.documents]

    plan = run.plan(unknown)

    assert (len(plan.new), len(plan.changed), plan.kept, plan.unknown) == (1, 0, 0, 40)
    assert "40 without a version are kept, changed or not" in str(plan)
    run.update(plan, folder.function).wait()
    assert (run.plan(folder.documents).unknown, len(run.plan(folder.documents).changed)) == (1, 1)


def test_a_plan_counts_rows_that_lack_a_column_of_the_newest_code(start: Callable[..., dq.Run], folder: Folder) -> None:
    """They would have null there for ever; only a sink has columns."""
    run = start().wait()

    def named(document: dq.Document) -> dict[str, str]:
        return {"text": document.text(), "name": document.key}

    folder.write("new.txt")
    assert run.plan(folder.documents, fn=named).lacking == {}  # it has made no row yet
    run.update(folder.documents, named).wait()
    plan = run.plan(folder.documents)
    if run.sink is None:
        assert plan.lacking == {}
        return
    assert plan.lacking == {"name": 40}
    assert "; 40 lack the column 'name'" in str(plan)
    old = run.query("select _key from results where name is null")._key
    assert sorted(old) == sorted(run.results(code=1).keys())
    assert run.redo(named, keys=old, documents=folder.documents) == 40
    assert run.wait().plan(folder.documents).lacking == {}


def test_a_listing_that_fails_half_way_changes_nothing(start: Callable[..., dq.Run], folder: Folder) -> None:
    """Nothing counts as gone because it was not listed."""
    run = start().wait()
    folder.write("000.txt")

    class Failing(list[dq.Document]):
        def __iter__(self) -> Any:
            yield from list(folder.documents)[:10]
            raise OSError("the share is gone")

    for update in (run.plan, lambda documents: run.update(documents, folder.function)):
        with pytest.raises(OSError, match="the share is gone"):
            update(Failing())
    assert (len(texts_of(run)), run.counts["acked"], len(run.plan(folder.documents).changed)) == (40, 40, 1)


def test_what_was_cancelled_runs_with_the_next_update(
    start: Callable[..., dq.Run], folder: Folder, queue: dq.QueuePool
) -> None:
    """Of an update, whose results of before stay; and of a run that was cancelled before anything had one."""
    run = start().wait()
    folder.write("new.txt", "001.txt")
    queue.pause()
    run = start(on_existing="update")
    assert run.submitter is not None
    run.submitter.join(20)
    assert run.cancel() == 2
    with pytest.raises(RunCancelled):
        run.results()
    assert len(texts_of(run)) == 40
    early = queue.map(folder.function, folder.documents, name=f"{run.name}-early")
    early.cancel()
    queue.resume()
    for each in (run, early):
        seen = len(folder.tally.seen())
        again = each.update(folder.documents, folder.function).wait()
        assert len(folder.tally.seen()) - seen == (2 if each is run else 41)
        assert texts_of(again) == folder.texts
        assert again.counts["acked"] == sum(again.counts.values()) == 41
        assert again.stats().state is RunState.DONE


def test_updates_retries_and_redos_of_one_run_at_once_leave_what_a_new_run_would_have(
    start: Callable[..., dq.Run], folder: Folder
) -> None:
    """One does it, and the others find nothing to do or a reason; nothing is missing or doubled."""
    folder.write("007.txt", text="bad")
    run = start().wait()
    folder.write("001.txt", "007.txt", "new.txt")
    calls: list[Callable[[], object]] = [
        lambda: start(on_existing="update"),
        lambda: start(on_existing="update"),
        lambda: run.retry(folder.function),
        lambda: run.redo(folder.function, ["002.txt"], documents=folder.documents),
    ]
    with ThreadPoolExecutor(len(calls)) as threads:
        raised = [done.exception() for done in [threads.submit(call) for call in calls]]
    assert all(error is None or isinstance(error, dq.errors.DqlabError) for error in raised), raised
    run = start(on_existing="update").wait()
    assert texts_of(run) == folder.texts
    assert run.counts["acked"] == sum(run.counts.values()) == len(folder.texts)


def test_a_followed_input_is_taken_as_it_comes_and_a_look_that_fails_is_shown_and_tried_again(
    start: Callable[..., dq.Run], folder: Folder, lab: dq.Lab
) -> None:
    """Nothing counts as gone where a listing fails, and views say what is done and when."""
    run = start().wait()
    moved = folder.place.with_name("away")
    following = run.follow(f"{folder.place}/*.txt", every=0.1, fn=folder.function)
    try:
        folder.write("000.txt", "new.txt")
        until(lambda: following.taken == 2 and run.done)
        until(lambda: run.stats().state is RunState.FOLLOWING)
        assert ", 2 taken, " in run.stats().why
        assert "following" in str(lab.stats())
        folder.place.rename(moved)
        until(lambda: bool(following.failure))
        until(lambda: "last look: " in run.stats().why)
        assert (run.counts["acked"], len(texts_of(run))) == (41, 41)
        moved.rename(folder.place)
        folder.write("newer.txt")
        until(lambda: following.taken == 3 and not following.failure)
    finally:
        following.stop()
    assert texts_of(run.wait()) == folder.texts
    until(lambda: run.stats().state is RunState.DONE)
    assert repr(following).startswith("<Stopped following")


def test_following_ends_with_its_run_and_refuses_what_cannot_be_listed_again(
    queue: dq.QueuePool, queue_name: str, folder: Folder
) -> None:
    run = queue.map(folder.function, folder.documents, name=queue_name).wait()
    for wrong, said in (({"every": 0}, "0.1 s or more"), ({"every": "often"}, "every"), ({}, "only once")):
        with pytest.raises(BadOption, match=said):
            run.follow(iter(folder.documents), fn=folder.function, **wrong)
    following = run.follow(folder.documents, every=0.1, fn=folder.function)
    queue.pause()
    folder.write("new.txt")
    until(lambda: run.counts["ready"] == 1)
    run.cancel()
    queue.resume()
    until(lambda: following.stopped)
    assert run.counts["cancelled"] == 1
    following = run.follow(folder.documents, every=0.1, fn=folder.function)
    until(lambda: run.counts["acked"] == 41)
    run.drop()
    until(lambda: following.stopped)


def old(x: int) -> int:
    return x


def new(x: int) -> int:
    if x == 7:
        raise KeyError("seven")
    return x + 1000


def test_documents_run_again_in_their_places(queue: dq.QueuePool, queue_name: str) -> None:
    run = queue.map(old, range(50), name=queue_name, retry=dq.Retry(0)).wait()
    assert run.redo(new, keys=[3, 7, 40]) == 3
    run.wait()
    expected: list[Any] = [x + 1000 if x in (3, 40) else x for x in range(50)]
    assert list(run.results(errors="return")) == list(run.results(errors="skip")) == expected
    assert run.counts["acked"] == 49
    assert [letter.ordinal for letter in run.failures()] == [7]
    assert [(each.version, each.results) for each in run.versions] == [(1, 47), (2, 2)]
    assert sorted(x for _, x in run.as_completed()) == sorted(expected)
    assert queue.map(old, range(50), name=run.name).id == run.id  # its documents are the same as before
    assert run.redo(old, keys=[7]) == 1
    run.wait()
    assert list(run.results()) == expected
    assert run.redo(old) == 50
    assert list(run.wait().results()) == list(range(50))


@pytest.mark.parametrize("keyed", [False, True])
def test_documents_whose_results_meet_a_condition_run_again(
    queue: dq.QueuePool, queue_name: str, *, keyed: bool
) -> None:
    rows = [{"id": f"k{x}", "x": x} for x in range(20)]
    documents = dq.Documents.from_frame(pd.DataFrame(rows), key="id") if keyed else rows
    run = queue.map(lambda row: {"x": row["x"], "by": "old"}, documents, name=queue_name).wait()
    assert run.redo(lambda row: {"x": row["x"], "by": "new"}, where="x % 7 == 3") == 3
    assert [row["x"] for row in run.wait().results() if row["by"] == "new"] == [3, 10, 17]
    with pytest.raises(BadOption, match="keys="):
        run.redo(keys=[3], where="x == 3")
    with pytest.raises(QueryError, match="nope"):
        run.redo(where="nope == 3")


def test_a_run_in_batches_takes_new_code_after_its_end(queue: dq.QueuePool, queue_name: str) -> None:
    """Its plan stands beside the newest function, which the queue keeps although nothing is left to run."""
    run = queue.map(lambda xs: xs, range(30), name=queue_name, batch=7).wait()
    run.accept_code(lambda xs: [x + 0 for x in xs])
    assert not run.compare(lambda xs: list(xs), sample=10).changed
    other = dq.Run(run.name, run.id, run.handle, None, run.on_drop, run.beside, run.updates)  # as in another process
    assert other.redo(lambda xs: [x + 1 for x in xs], keys=[3], documents=range(30)) == 1
    assert list(other.wait().results()) == [x + (x == 3) for x in range(30)]


def test_a_redo_that_cannot_be_right_runs_nothing(queue: dq.QueuePool, queue_name: str) -> None:
    run = queue.map(old, range(5), name=queue_name).wait()
    with pytest.raises(RunExists, match="other documents"):
        run.redo(new, documents=range(1, 6))
    with pytest.raises(BadOption, match="has no result"):
        run.redo(new, keys=[99])
    with pytest.raises(BadOption, match="in a list"):
        run.redo(new, keys="a.pdf")
    run.cancel()
    assert list(run.results()) == list(range(5))
    assert len(run.versions) == 1


def test_a_run_whose_input_can_be_read_only_once_asks_for_it(queue: dq.QueuePool, queue_name: str) -> None:
    run = queue.map(old, iter(range(5)), name=queue_name).wait()
    with pytest.raises(RunError, match="only once"):
        run.redo(new)
    assert run.redo(new, keys=[1], documents=range(5)) == 1
    assert list(run.wait().results()) == [0, 1001, 2, 3, 4]
