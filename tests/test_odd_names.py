"""Documents whose names are not UTF-8, from the listing to every view."""

from __future__ import annotations

import http.client
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import dqlab as dq
from dqlab.live.display import set_mode
from dqlab.runs.reading.dataframes import frame_of, index_of
from dqlab.testing import Gate
from dqlab.texts import shown
from tests.cluster.scheduler.test_control_route import Route
from tests.kit.cells import of_a_cell

NUMBERS = range(20)


@of_a_cell
def read(document: dq.Document) -> str:
    """Fail for some, in words that repeat the name."""
    text = document.text()
    if int(text) % 5 == 3:
        raise ValueError(f"no table in {document.key} \udcff\ud800 \x1b[2J</script>")
    return text


def name(number: int) -> str:
    return os.fsdecode(b"caf\xe9-%d.txt" % number)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Twenty files as a Latin-1 archive leaves them."""
    for number in NUMBERS:
        try:
            (tmp_path / name(number)).write_text(str(number))
        except OSError:  # macOS
            pytest.skip("this file system holds UTF-8 names only")
    return tmp_path


@pytest.fixture
def static() -> Iterator[None]:
    set_mode("static")
    yield
    set_mode(None)


def get(lab: dq.Lab, path: str) -> tuple[int, str]:
    """Return what the scheduler's HTTP server answers, which must be valid UTF-8."""
    connection = http.client.HTTPConnection("127.0.0.1", lab.session.http["port"], timeout=20)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def workers(lab: dq.Lab) -> set[str]:
    return set(lab.client.scheduler_info(n_workers=-1)["workers"])


@pytest.mark.parametrize("executor", ["thread", "process"])
def test_run_over_names_that_are_not_utf_8_ends_and_keeps_their_names(
    folder: Path, queue: dq.QueuePool, lab: dq.Lab, executor: str
) -> None:
    """One such file used to cost every worker, and with it all that transient queues held."""
    before = workers(lab)
    run = queue.map(read, dq.Documents.from_glob(folder / "*.txt"), retry=dq.Retry(0), executor=executor)
    run.wait(timeout=50)
    values = dict(run.results(errors="skip").items())
    failed = run.failures()

    assert workers(lab) == before
    assert values == {name(number): str(number) for number in NUMBERS if number % 5 != 3}
    assert sorted(letter.key for letter in failed) == sorted(name(number) for number in NUMBERS if number % 5 == 3)
    assert failed[0].document.text() in failed[0].key  # and the true name still opens the file
    assert sorted(run.results(errors="return").keys()) == sorted(map(name, NUMBERS))
    assert set(run.failures().to_frame().index) == {letter.key for letter in failed}
    assert run.results(errors="skip").to_frame()["value"].to_dict() == values


@pytest.mark.parametrize("text", ["caf\udce9", "plain"])
def test_tables_hold_any_text_and_numbers_stay_numbers(text: str) -> None:
    """With pyarrow installed, pandas refuses texts that are not valid Unicode: a whole table for one name."""
    frame = frame_of([{"name": text, "n": 1}, {"name": "b", "n": 2}], index_of([text, "b"]))

    assert frame["name"].to_dict() == {text: text, "b": "b"}
    assert frame["n"].dtype == "int64"


def test_every_view_of_such_names_is_valid_text(folder: Path, queue: dq.QueuePool, lab: dq.Lab, static: None) -> None:
    """Text, HTML, the widget's state, metrics, JSON: one lone surrogate breaks each of them for good."""
    gate = Gate(folder)
    run = queue.map(Held(gate), dq.Documents.from_glob(folder / "*.txt"), retry=dq.Retry(0))
    gate.until_arrived(1)
    texts = [*pictures(run, queue, lab), until_named(queue)]
    gate.open()
    run.wait(timeout=50)
    texts += pictures(run, queue, lab)

    for text in texts:
        text.encode()
        assert "\x1b" not in text
    assert any(shown(name(3)) in text for text in texts)


@of_a_cell
class Held:
    """Reads documents, and holds one of them."""

    def __init__(self, gate: Gate) -> None:
        self.gate = gate

    def __call__(self, document: dq.Document) -> str:
        if document.key == name(7):
            self.gate.wait(document.key)
        return read(document)


def until_named(queue: dq.QueuePool) -> str:
    """Wait for a snapshot that names the document that runs; return it as JSON."""
    for _ in range(100):
        snapshot = queue.snapshot(timeout=20)
        if any(consumer.document == shown(name(7)) for consumer in snapshot.consumers):
            return json.dumps(snapshot.to_dict(), ensure_ascii=False)
        time.sleep(0.1)
    raise AssertionError(f"no consumer names its document: {snapshot.consumers}")


def pictures(run: dq.Run, queue: dq.QueuePool, lab: dq.Lab) -> list[str]:
    """Return all that is drawn of a run, its queue and its lab."""
    from dqlab.live import display, run_picture

    snapshot, stats = run.snapshot(timeout=20), run.stats(timeout=20)
    focus = run_picture.Focus(snapshot, run.past(60, timeout=20), run.source)
    things = [run, queue, lab, snapshot, run.failures(), queue.history(), lab.doctor()]
    if stats.ended is not None:
        things.append(run.results(errors="return"))
    texts = [json.dumps(run_picture.run_view(stats, focus=focus).parts(), ensure_ascii=False)]
    for thing in things:
        shown_as = display._BUNDLES[type(thing).__module__, type(thing).__qualname__](thing) or {}
        texts += [*shown_as.values(), repr(thing), str(thing)]
    texts += map(str, run.failures())
    for path in ("snapshot", "history", "failures"):
        status, said = Route(lab)("GET", f"{path}?queue={queue.name}")
        assert status == 200, said
        texts.append(json.dumps(said, ensure_ascii=False))
    status, metrics = get(lab, "/metrics")
    assert status == 200, metrics
    return [*texts, metrics]


ODD_KEYS = ["", "\0i7", "\0s", "7", "\0", "plain"]


@of_a_cell
def own_key(document: dq.Document) -> str:
    if document.where == "3":
        raise ValueError("no table")
    return document.key


@of_a_cell
async def own_key_later(document: dq.Document) -> str:
    return own_key(document)


@of_a_cell
def crash_at_first(document: dq.Document) -> str:
    return os._exit(3) if document.where == "0" else own_key(document)


@pytest.mark.parametrize(
    ("fn", "executor"),
    [(own_key, "thread"), (own_key, "process"), (own_key_later, "auto"), (crash_at_first, "process")],
)
def test_any_text_that_a_document_has_as_its_key_is_the_key_of_its_result(
    queue: dq.QueuePool, fn: Callable[[dq.Document], object], executor: Any
) -> None:
    """An empty key became the position, which may be the key of another row, and one with a mark a number."""
    documents = [dq.Document(key, "1", str(at)) for at, key in enumerate(ODD_KEYS)]
    run = queue.map(fn, documents, retry=dq.Retry(0), executor=executor).wait(timeout=30)
    dead = [0, 3] if fn is crash_at_first else [3]

    items = list(run.results(errors="skip").items())
    assert items == [(key, key) for at, key in enumerate(ODD_KEYS) if at not in dead]
    assert sorted(run.as_completed(timeout=30)) == sorted(items)
    assert [letter.key for letter in run.failures()] == [ODD_KEYS[at] for at in dead]
    assert list(run.results(errors="return").keys()) == ODD_KEYS
