"""Failure records tell the truth about any exception, and classes of them add up."""

from __future__ import annotations

import json
import linecache
import math
import sys
from bdb import BdbQuit
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dqlab.errors import FrameCorrupt, MessageError, Reject, ResultRefused, ResultTooLarge
from dqlab.failures.classes import FailureClasses
from dqlab.failures.failure import Failure, retryable

BIG = "x" * 10_000_000


def raised(function: Callable[..., object], *args: object) -> BaseException:
    """Return what a function raises, with this function's frame in front."""
    try:
        function(*args)
    except BaseException as error:  # noqa: BLE001 - it is what the test is about
        return error
    raise AssertionError("nothing was raised")


def failure(function: Callable[..., object], *args: object, key: str | None = None) -> Failure:
    return Failure.from_exception(raised(function, *args), skip=1, when=1.7e9, seconds=0.5, key=key)


def cell(source: str, name: str = "<cell>", shift: int = 0) -> dict[str, Any]:
    """Return what a notebook cell defines; its source is found the way IPython leaves it."""
    text = "\n" * shift + source
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(text, name, "exec"), namespace)
    return namespace


PARSE = """
class Unreadable(Exception):
    pass

def parse(document):
    if document == "locked":
        raise Unreadable(document)
    return {"a": 1}[document]
"""


# --- one record -----------------------------------------------------------------------------


def test_record_says_what_where_and_in_whose_code() -> None:
    """A row of the failures table needs no second look-up."""
    record = failure(cell(PARSE)["parse"], "b", key="b.pdf")

    assert (record.error, record.message, record.at, record.key) == ("KeyError", "'b'", "parse:8", "b.pdf")
    assert (record.when, record.seconds) == (1.7e9, 0.5)
    assert record.traceback.startswith('Traceback (most recent call last):\n  File "<cell>", line 8, in parse\n')
    assert 'return {"a": 1}[document]' in record.traceback


def test_errors_of_the_notebook_go_by_their_plain_name() -> None:
    """`where="error == 'Unreadable'"` is what a person types; Python's tracebacks say the same."""
    assert failure(cell(PARSE)["parse"], "locked").error == "Unreadable"
    assert failure(json.loads, "{").error == "json.decoder.JSONDecodeError"


def test_place_is_the_users_line_and_not_the_librarys() -> None:
    """`raw_decode:355` is in no file the user can edit."""
    load = cell("import json\ndef load(text):\n    return json.loads(text)\n")["load"]

    record = failure(load, "{")

    assert record.at == "load:3"
    assert "raw_decode" in record.traceback


def test_skipped_frames_are_gone_from_the_record() -> None:
    """The executor's own frames are the same in every failure and say nothing."""
    error = raised(cell(PARSE)["parse"], "b")

    assert "in raised" in Failure.from_exception(error, skip=0, when=0.0, seconds=0.0).traceback
    record = Failure.from_exception(error, skip=9, when=0.0, seconds=0.0)
    assert (record.at, record.traceback) == ("", "KeyError: 'b'\n")


def test_leading_frames_of_dqlab_are_skipped_unless_told_otherwise() -> None:
    """Nobody should need to count the executor's frames."""
    call = {"run": lambda function, value: function(value)}
    own = Failure.from_bytes.__func__.__code__.co_filename  # type: ignore[attr-defined]
    exec(compile("def run(function, value):\n    return function(value)\n", own, "exec"), call)
    try:
        call["run"](cell(PARSE)["parse"], "b")
    except KeyError as error:
        error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next
        record = Failure.from_exception(error, when=0.0, seconds=0.0)

    assert "in run" not in record.traceback
    assert record.at == "parse:8"


class Mute(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


class Leaving(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)


class Untellable(Exception):
    @property
    def __notes__(self) -> list[str]:
        raise ValueError("no notes")


def fall() -> None:
    fall()


def exhaust() -> None:
    def ping(n: int) -> None:
        pong(n)

    def pong(n: int) -> None:
        ping(n + 1)

    ping(0)


def raise_(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize(
    ("function", "args", "error", "message"),
    [
        (raise_, (Mute(),), f"{__name__}.Mute", "<str() of it raised ValueError>"),
        (raise_, (Leaving(),), f"{__name__}.Leaving", "<str() of it raised SystemExit>"),
        (raise_, (Untellable("bad"),), f"{__name__}.Untellable", "bad"),
        (fall, (), "RecursionError", "maximum recursion depth exceeded"),
        (exhaust, (), "RecursionError", "maximum recursion depth exceeded"),
        (compile, ("a b", "<text>", "exec"), "SyntaxError", "invalid syntax (<text>, line 1)"),
        (sys.exit, (3,), "SystemExit", "3"),
        (raise_, (KeyboardInterrupt(),), "KeyboardInterrupt", ""),
        (
            raise_,
            (ExceptionGroup("two", [ValueError("a"), KeyError("b")]),),
            "ExceptionGroup",
            "two (2 sub-exceptions)",
        ),
        (raise_, (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"),), "UnicodeDecodeError", "'utf-8' codec can't"),
        (raise_, (ValueError("\udcff"),), "ValueError", "\udcff"),
    ],
)
def test_any_exception_becomes_a_record(
    function: Callable[..., object], args: tuple[object, ...], error: str, message: str
) -> None:
    """A failure that cannot be recorded would kill the consumer that met it."""
    record = failure(function, *args)

    assert record.error == error
    assert record.message.startswith(message)
    assert record.traceback
    assert len(record.traceback.encode("utf-8", "surrogatepass")) <= 16 * 1024
    assert Failure.from_bytes(record.to_bytes()) == record


def test_huge_messages_are_cut_and_keep_their_beginning_and_end() -> None:
    """One document's contents in an exception must not fill the queue's memory."""
    record = failure(raise_, ValueError("first " + BIG + " last"))

    assert len(record.message) == 2_000
    assert record.message.startswith("first xxx")
    assert record.message.endswith("…")
    assert len(record.traceback.encode()) <= 16 * 1024
    assert "in raise_" in record.traceback
    assert "bytes left out" in record.traceback
    assert record.traceback.endswith(" last\n")


def test_causes_stay_in_the_traceback() -> None:
    """The cause is usually what has to be fixed."""
    read = cell(
        "def read(path):\n    try:\n        {}[path]\n    except KeyError as error:\n"
        "        raise OSError(path) from error\n"
    )["read"]

    record = failure(read, "a.pdf")

    assert record.error == "OSError"
    assert record.traceback.index("KeyError: 'a.pdf'") < record.traceback.index("direct cause")


# --- bytes ----------------------------------------------------------------------------------


def test_record_of_a_newer_version_is_read() -> None:
    """Logs outlive the version that wrote them."""
    record = failure(raise_, ValueError("bad"))
    newer = json.loads(record.to_bytes()) | {"page": 7}

    assert Failure.from_bytes(json.dumps(newer).encode()) == record


@pytest.mark.parametrize(
    "junk",
    [b"", b"{", b"[]", b"7", b"{}", b"\xff\xfe", b"[" * 100_000, b'{"error": 1}'],
    ids=lambda junk: repr(junk[:6]),
)
def test_junk_is_refused_as_junk(junk: bytes) -> None:
    """The queue actor reads these bytes; only one error may come out."""
    with pytest.raises(FrameCorrupt, match="failure record"):
        Failure.from_bytes(junk)


def test_fields_of_the_wrong_type_are_refused() -> None:
    """A record with a number for a message would break every view."""
    record = json.loads(failure(raise_, ValueError("bad")).to_bytes()) | {"message": 3}

    with pytest.raises(FrameCorrupt, match="wrong type"):
        Failure.from_bytes(json.dumps(record).encode())


# --- fingerprints ---------------------------------------------------------------------------


def test_fingerprint_is_the_same_for_every_document_and_place() -> None:
    """Thousands of failures are one row, also after the cell moved."""
    here = cell(PARSE)["parse"]
    below = cell(PARSE, name="<other cell>", shift=40)["parse"]

    marks = {failure(here, "b").fingerprint, failure(here, "c").fingerprint, failure(below, "b").fingerprint}

    assert len(marks) == 1
    assert len(marks.pop()) == 8


def test_fingerprints_of_different_classes_and_lines_differ() -> None:
    """Two causes in one row would be retried together."""
    both = cell(
        "def f(x):\n    if x:\n        raise ValueError(x)\n    if x is None:\n        raise ValueError()\n    {}[x]\n"
    )["f"]

    assert len({failure(both, x).fingerprint for x in (1, None, 0)}) == 3


def test_fingerprint_ignores_numbers_addresses_and_paths_in_the_line() -> None:
    """A cell that writes its parameters into the code is still the same cell."""
    first = cell("def f(x):\n    raise OSError('/tmp/a1/x.pdf', 17, 0x7f00)\n", name="<a>")["f"]
    second = cell("def f(x):\n    raise OSError('/tmp/b2/y.pdf', 4.5, 0xab01)\n", name="<b>")["f"]
    third = cell("def f(x):\n    raise OSError(x, 4.5, 0xab01)\n", name="<c>")["f"]

    assert failure(first, 1).fingerprint == failure(second, 1).fingerprint != failure(third, 1).fingerprint


def test_fingerprint_ignores_how_deep_a_recursion_went() -> None:
    """The limit is reached at another depth in each thread."""
    walk = cell("def walk(n):\n    if n:\n        walk(n - 1)\n    else:\n        {}[n]\n")["walk"]

    assert failure(walk, 3).fingerprint == failure(walk, 30).fingerprint


def test_fingerprints_of_different_causes_differ() -> None:
    """`ParseError` around everything is a popular style."""
    read = cell(
        "def read(x):\n    try:\n        int(x)\n    except (TypeError, ValueError) as error:\n"
        "        raise OSError from error\n"
    )["read"]

    assert failure(read, "a").fingerprint == failure(read, "b").fingerprint != failure(read, None).fingerprint


# --- what is worth a retry ------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [
        NameError("x"),
        UnboundLocalError("x"),
        SyntaxError("x"),
        IndentationError("x"),
        ImportError("x"),
        ModuleNotFoundError("x"),
        AttributeError("'NoneType' object has no attribute 'x'"),
        FileNotFoundError(2, "No such file", "a.txt"),
        IsADirectoryError(21, "Is a directory", "a"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
        EOFError("EOF when reading a line"),
        BdbQuit(),
        Reject("empty page"),
        ResultRefused(reason="x"),
        ResultTooLarge(size=1, limit=0),
        MessageError(reason="x"),
        ExceptionGroup("all", [NameError("x"), ImportError("y")]),
    ],
    ids=lambda error: type(error).__name__,
)
def test_failures_that_will_be_met_again_are_not_retried(error: BaseException) -> None:
    """A missing import costs three backoffs per document and cannot mend."""
    assert not retryable(error)


@pytest.mark.parametrize(
    "call",
    [
        lambda: (lambda x: x)(),
        lambda: (lambda x: x)(1, 2),
        lambda: (lambda: 1)(2),
        lambda: (lambda x, y=1: x)(1, 2, 3),
        lambda: (lambda x: x)(1, x=2),
        lambda: (lambda x: x)(1, y=2),
        lambda: (lambda *, x: x)(),
        lambda: (lambda x, /: x)(x=1),
        lambda: abs(1, 2),
        lambda: int(1, 2, 3),
        lambda: divmod(1),
        lambda: dict(1, 2),
        lambda: (1).bit_length(2),
        lambda: sum([1], no=2),
    ],
)
def test_calls_that_do_not_fit_a_signature_are_not_retried(call: Callable[[], object]) -> None:
    """The same call fails the same way for each document, in any function."""
    with pytest.raises(TypeError) as caught:
        call()
    assert not retryable(caught.value)


def fails_its_check(total: int = 1) -> None:
    assert total == 0


def calls_itself() -> None:
    calls_itself()


@pytest.mark.parametrize(
    "mistake",
    [
        lambda: 1 / 0,
        lambda: {}["total"],
        lambda: [][1],
        lambda: "1" + 1,  # type: ignore[operator]
        lambda: len(7),  # type: ignore[arg-type]
        lambda: math.exp(1_000),
        fails_its_check,
        calls_itself,
    ],
)
def test_mistakes_in_a_line_of_the_user_are_not_retried(mistake: Callable[[], object]) -> None:
    """The first red line came after 7 s of backoffs, and a call that costs money was paid four times."""
    with pytest.raises(Exception) as caught:  # noqa: PT011 - of many classes
        mistake()

    assert not retryable(caught.value)


def test_the_same_classes_in_a_library_and_classes_of_its_own_are_retried() -> None:
    """A client of a service reads its answers, and has caches that threads share; nobody here can tell."""
    library: dict[str, Any] = {}
    exec(compile("def asks(answer): return answer['total']", "/env/site-packages/client.py", "exec"), library)

    class Busy(KeyError):
        pass

    def refuses(_: object) -> None:
        raise Busy

    for call in (library["asks"], refuses):
        with pytest.raises(KeyError) as caught:
            call({})
        assert retryable(caught.value)


@pytest.mark.parametrize(
    "error",
    [
        ValueError(),
        TypeError("unsupported operand type(s) for +: 'int' and 'NoneType'"),
        ConnectionError(),
        TimeoutError(),
        OSError(),
        MemoryError(),
        SystemExit(),
        KeyboardInterrupt(),
        ExceptionGroup("mixed", [NameError("x"), OSError()]),
    ],
    ids=lambda error: type(error).__name__,
)
def test_everything_else_is_retried(error: BaseException) -> None:
    """Networks and disks come back."""
    assert retryable(error)


# --- classes --------------------------------------------------------------------------------


def of_class(mark: str, when: float = 0.0) -> Failure:
    return Failure("KeyError", f"'{mark}'", "", "parse:8", mark, f"{mark}.pdf", "", "", "", when, 0.1)


def test_classes_show_the_most_dead_first() -> None:
    """What fails most is what to fix first."""
    classes = FailureClasses()
    for ordinal in range(10):
        classes.add(of_class("b" if ordinal < 7 else "a", when=float(ordinal)), dead=True, ordinal=ordinal)
    classes.add(of_class("c", when=20.0), dead=False, ordinal=10)

    top = classes.top(2)

    assert [(c.fingerprint, c.dead, c.retrying, c.first, c.last) for c in top] == [("b", 7, 0, 0, 6), ("a", 3, 0, 7, 9)]
    assert top[0].to_dict()["key"] == "b.pdf"
    assert classes.other(2) == (1, 0, 1)


@pytest.mark.parametrize(
    ("first", "second", "shown"),
    [
        ("no table at 0x1475a in /data/2016/a.pdf", "no table at 0x99 in /data/b.pdf", "no table at <n> in <n>"),
        ("over 90 s", "over 96.5 s", "over <n> s"),
        ("no total in f-größe-007.txt", "no total in f-größe-012.txt", "no total in f-größe-<n>.txt"),
        ("stopped at 1.5.", "stopped at 2.", "stopped at <n>."),
        ("page 3 of 9", "page 3 of 12", "page 3 of <n>"),
        ("'total'", "'sum'", "'total'"),
        ("it's gone", "it's all gone", "it's gone"),
        ("row 7", "row 7", "row 7"),
    ],
)
def test_a_class_shows_what_its_messages_have_in_common(first: str, second: str, shown: str) -> None:
    """The page and the file of one document stood for all of them, and cut what matters where it was narrow."""
    classes = FailureClasses()
    for ordinal, message in enumerate((first, second, first)):
        classes.add(replace(of_class("a"), message=message), dead=True, ordinal=ordinal)

    assert [each.message for each in classes.top()] == [shown]


def test_a_class_that_fails_again_after_a_retry_shows_what_it_fails_with_now() -> None:
    """The message of the code before stood beside failures of the new one."""
    classes = FailureClasses()
    for ordinal in range(3):
        failed = replace(of_class("a", when=1.0), message="no column 'total'", code="v1")
        classes.add(failed, dead=True, ordinal=ordinal)
    classes.retried(0, 3)
    classes.add(replace(of_class("a", when=9.0), message="no column 'sum'", code="v2", key="z"), dead=True, ordinal=1)

    (now,) = classes.top()
    assert (now.message, now.key, now.first, now.codes, now.dead) == ("no column 'sum'", "z", 9.0, ("v2",), 1)


def test_large_class_that_comes_late_is_shown() -> None:
    """Sixty-four oddities of the first minute must not hide what killed half the run."""
    classes = FailureClasses(described=4)
    for ordinal in range(10):
        classes.add(of_class(f"odd{ordinal}"), dead=True, ordinal=ordinal)
    for ordinal in range(10, 60):
        classes.add(of_class("late"), dead=True, ordinal=ordinal)

    assert (classes.top(1)[0].fingerprint, classes.top(1)[0].dead) == ("late", 50)
    assert (len(classes), classes.other(1)) == (11, (10, 10, 0))


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.sampled_from("abcdef"), st.booleans(), st.integers(0, 30)),
        st.tuples(st.sampled_from(["settled", "retried"]), st.integers(0, 30), st.integers(0, 12)),
    ),
    max_size=60,
)


@given(STEPS)
def test_counts_are_exact_whatever_happens(steps: list[tuple[Any, ...]]) -> None:
    """Figures that drift are worse than none; few seats make classes come and go."""
    classes, truth = FailureClasses(described=2), dict[int, tuple[str, bool]]()
    for step in steps:
        match step:
            case ("add", mark, dead, ordinal):
                classes.add(of_class(mark), dead=dead, ordinal=ordinal)
                truth[ordinal] = mark, dead
            case ("settled", first, n):
                classes.settled_well(first, n)
                truth = {o: s for o, s in truth.items() if not first <= o < first + n}
            case ("retried", first, n):
                classes.retried(first, n)
                truth = {o: s for o, s in truth.items() if not (first <= o < first + n and s[1])}

    states = list(truth.values())
    assert classes.dead == sum(dead for _, dead in states)
    assert classes.retrying == len(states) - classes.dead
    assert len(classes) == len({mark for mark, _ in states})
    for shown in classes.top():
        assert shown.dead == states.count((shown.fingerprint, True))
        assert shown.retrying == states.count((shown.fingerprint, False))
        assert shown.message == f"'{shown.fingerprint}'"
    rest = classes.other()
    assert rest.dead + sum(shown.dead for shown in classes.top()) == classes.dead


def test_class_names_the_code_versions_whose_failures_still_stand() -> None:
    """After a partial retry the failures of v1 that were left were shown as failures of v2."""
    classes = FailureClasses()
    for ordinal in range(4):
        classes.add(replace(of_class("a"), code="v1"), dead=True, ordinal=ordinal)
    classes.retried(0, 2)
    assert classes.top()[0].codes == ("v1",)

    classes.add(replace(of_class("a"), code="v2"), dead=True, ordinal=0)
    assert classes.top()[0].codes == ("v1", "v2")

    classes.settled_well(2, 2)
    assert classes.top()[0].codes == ("v2",)
