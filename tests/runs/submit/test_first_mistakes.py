"""The mistakes of a first hour: each is refused before anything is submitted, or named when it shows."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import dqlab as dq
from dqlab.documents import Document
from dqlab.errors import AllFailed, BadOption, DqlabWarning, RunFailed

ONCE = dq.Retry(0)


def same(x: Any) -> Any:
    return x


def nothing_was_submitted(queue: dq.QueuePool) -> bool:
    return sum(queue.counts().values()) == 0


# --- options that do nothing ------------------------------------------------------------------


async def same_soon(x: Any) -> Any:
    return x


def test_concurrency_of_a_plain_function_is_said_to_be_the_number_of_consumers(lab: dq.Lab, queue_name: str) -> None:
    """It was accepted, did nothing and said nothing: two calls in flight instead of twenty."""
    pool = lab.queue(queue_name, concurrency=7)
    with pytest.warns(DqlabWarning, match=rf"coroutine functions.*lab\.queue\('{queue_name}'\)\.scale\(7\)"):
        pool.map(same, [1]).wait(timeout=30)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pool.map(same_soon, [1]).wait(timeout=30)
    pool.close()


# --- keys that repeat -------------------------------------------------------------------------


@pytest.mark.parametrize("labels", [[0, 1, 0, 1], ["a", "b", "b", "c"]])
def test_a_column_whose_index_repeats_is_refused_with_its_labels(queue: dq.QueuePool, labels: list[Any]) -> None:
    """Keys of results would repeat, and `pd.Series(dict(results.items()))` gave rows the values of others."""
    column = pd.Series(["w", "xx", "yyy", "zzzz"], index=labels)

    with pytest.raises(BadOption, match=r"repeats.*reset_index\(drop=True\).*list\(series\)") as caught:
        queue.map(len, column)
    assert repr(next(label for at, label in enumerate(labels) if label in labels[:at])) in str(caught.value)
    assert nothing_was_submitted(queue)


def twice() -> list[Document]:
    return [
        Document("a.txt", "", "/one/a.txt", 1),
        Document("b.txt", "", "/b.txt", 1),
        Document("a.txt", "", "/a.txt", 1),
    ]


def place(document: Document) -> str:
    return document.where


@pytest.mark.parametrize(
    "read", [lambda run: run.results(timeout=30).items(), lambda run: run.as_completed(timeout=30)]
)
def test_keys_that_stand_for_several_documents_are_named_where_pairs_are_read(
    queue: dq.QueuePool, read: Callable[[Any], Iterator[tuple[Any, Any]]]
) -> None:
    """A dict of the pairs keeps one of them."""
    run = queue.map(place, twice(), executor="thread")

    with pytest.warns(DqlabWarning, match=r"'a\.txt' belongs to more than one document") as caught:
        pairs = list(read(run))
    assert len(caught) == 1
    assert sorted(pairs) == [("a.txt", "/a.txt"), ("a.txt", "/one/a.txt"), ("b.txt", "/b.txt")]


def test_whole_numbers_of_one_hash_are_two_keys(queue: dq.QueuePool, recwarn: pytest.WarningsRecorder) -> None:
    """-1 and -2 have one hash in Python, and were said to be one key."""
    frame = pd.DataFrame({"id": [-1, -2, 0, 2**61 - 1, 5]})
    results = queue.map(lambda row: row["id"], dq.Documents.from_frame(frame, key="id")).results(timeout=30)

    assert dict(results.items()) == {number: number for number in frame["id"]}
    assert not [each for each in recwarn if issubclass(each.category, DqlabWarning)]


def test_a_table_has_every_document_of_a_key_that_repeats(queue: dq.QueuePool) -> None:
    results = queue.map(place, twice(), executor="thread").results(timeout=30)

    assert results.to_frame().index.tolist() == list(results.keys()) == ["a.txt", "b.txt", "a.txt"]


# --- options and functions ----------------------------------------------------------------------


@pytest.mark.parametrize("given", ["3", 2.5, [5], RuntimeError])
def test_the_advice_on_a_retry_that_is_none_works(queue: dq.QueuePool, given: Any) -> None:
    """It was `dq.Retry(-1)`, which failed in turn."""
    with pytest.raises(BadOption) as caught:
        queue.map(len, ["a"], retry=given)

    advice = str(caught.value).partition("write 5, or ")[2].partition(")")[0] + ")"
    assert isinstance(eval(advice, {"dq": dq}), dq.Retry)


class Two:
    def method(self, a: Any, b: Any) -> None: ...


def two(a: Any, b: Any) -> Any: ...


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, y: x,
        lambda: 1,
        two,
        Two().method,
        functools.partial(two, b=1, a=2),
        lambda x, *, key: x,
        lambda *, x: x,
    ],
    ids=["two", "none", "function", "method", "partial", "keyword", "by keyword alone"],
)
def test_a_function_that_cannot_take_one_document_is_refused(queue: dq.QueuePool, fn: Callable[..., Any]) -> None:
    """It was submitted, and every document died of a TypeError."""
    with pytest.raises(BadOption, match=r"one document.*Nothing was submitted"):
        queue.map(fn, ["a"])
    assert nothing_was_submitted(queue)


async def awaited(x: Any) -> Any:
    return x


@pytest.mark.parametrize("made", [lambda: None, lambda: 3, lambda: awaited(1)])
def test_what_a_call_returned_in_place_of_a_function_is_refused_with_the_way_out(
    queue: dq.QueuePool, made: Callable[[], Any]
) -> None:
    """`lab.map(f(doc), docs)` was answered by "is not a function", which a user knows to be wrong: f is one."""
    value = made()
    for call in (
        lambda: queue.map(value, ["a"]),
        lambda: queue.submit(value, 1),
        lambda: queue.batch_submit([(value, 1)]),
    ):
        with pytest.raises(BadOption, match=r"Pass the function itself.*Nothing was submitted"):
            call()
    assert nothing_was_submitted(queue)
    if hasattr(value, "close"):
        value.close()


@pytest.mark.parametrize(
    "put",
    [
        lambda queue: queue.submit(two, 1),
        lambda queue: queue.submit(same, 1, key=2),
        lambda queue: queue.submit(functools.partial(two, 1), 2, 3),
        lambda queue: queue.batch_submit([(same, 1), (same, 2, 3)]),
        lambda queue: queue.batch_submit([(two, (1, 2), {}), (two, (1,), {"c": 2})]),
    ],
    ids=["one too few", "a keyword", "a partial", "the second call", "the second one's keyword"],
)
def test_a_call_with_arguments_that_its_function_cannot_take_is_refused(
    queue: dq.QueuePool, put: Callable[[dq.QueuePool], Any]
) -> None:
    """It was put, and died of a TypeError that only its result raised."""
    with pytest.raises(BadOption, match=r"argument.* of call \d.*Its parameters are \(.*Nothing was submitted"):
        put(queue)
    assert nothing_was_submitted(queue)


def test_calls_that_a_function_takes_in_any_way_are_put(queue: dq.QueuePool) -> None:
    results = queue.batch_submit(
        [(two, 1, 2), (two, (1,), {"b": 2}), (functools.partial(two, b=2), 1), (decorated, 1), (dict, (), {"a": 1})]
    )
    assert results.results(timeout=30) == [None, None, None, (1, 2), {"a": 1}]


def test_a_retry_with_a_function_that_cannot_take_one_document_sends_nothing(queue: dq.QueuePool) -> None:
    run = queue.map(int, ["one"], retry=ONCE)
    with pytest.warns(DqlabWarning, match="failed"):
        run.wait(timeout=30)

    with pytest.raises(BadOption, match="one document"):
        run.retry(fn=lambda x, y: x)
    assert run.counts["dead"] == 1


def gives_two(fn: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(fn)
    def wrapper(x: Any) -> Any:
        return fn(x, 2)

    return wrapper


@gives_two
def decorated(a: Any, b: Any) -> Any:
    return (a, b)


class Of:
    """Made from a document."""

    def __init__(self, x: Any) -> None: ...

    def __call__(self, x: Any) -> Any:
        return x


def described(x: Any) -> Any:
    return x


described.__signature__ = "whatever it is for"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "fn",
    [
        lambda *args: args,
        lambda x, y=2: x,
        lambda x, **more: x,
        decorated,
        functools.partial(two, b=1),
        functools.partial(max, 3),
        Of,
        Of(1),
        len,
        str.upper,
        dict,
        described,
        "a".join,
    ],
)
def test_a_function_that_may_take_one_document_is_never_refused(queue: dq.QueuePool, fn: Callable[..., Any]) -> None:
    from dqlab.runs.code.sealing import check_takes_one

    check_takes_one(fn)


# --- nothing to do --------------------------------------------------------------------------------


def used_up() -> Iterator[int]:
    yield from ()


@pytest.mark.parametrize(
    ("documents", "hint"),
    [([], "path or pattern"), (used_up(), "a generator yields"), (iter([]), "a list_iterator yields")],
)
@pytest.mark.parametrize(
    "read",
    [
        lambda run: run.results(timeout=30),
        lambda run: run.wait(timeout=30),
        lambda run: list(run.as_completed(timeout=30)),
    ],
)
def test_an_input_without_elements_is_named_once(
    queue: dq.QueuePool, documents: Any, hint: str, read: Callable[[Any], Any]
) -> None:
    """An iterator that was read before gave an empty result without a word."""
    run = queue.map(same, documents)

    with pytest.warns(DqlabWarning, match=rf"{run.name}.*no documents.*{hint}"):
        read(run)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert list(run.results(timeout=30)) == []


# --- what to mend ---------------------------------------------------------------------------------


def size(path: str) -> int:
    return len(Path(path).read_bytes())


def forbidden(path: str) -> int:
    raise PermissionError(path)


@pytest.mark.parametrize("fn", [size, forbidden])
def test_a_failure_of_the_documents_does_not_advise_to_mend_the_function(
    queue: dq.QueuePool, fn: Callable[[str], int]
) -> None:
    with pytest.raises(RunFailed, match=r"documents.*run\.retry\(\)") as caught:
        queue.map(fn, ["/nowhere/a", "/nowhere/b"], retry=ONCE).results(timeout=30)
    assert "fix the function" not in str(caught.value)

    with pytest.raises(AllFailed, match=r"documents.*run\.retry\(\)") as halted:
        queue.map(fn, [f"/nowhere/{i}" for i in range(5000)], retry=ONCE, stop_if=2).results(timeout=30)
    assert "fix the function" not in str(halted.value)


FRAME = pd.DataFrame({"t": list("abcdef")}).sample(frac=1, random_state=3)


def set_by_name(df: pd.DataFrame, results: Any) -> pd.DataFrame:
    df["u"] = results
    return df


def set_by_loc(df: pd.DataFrame, results: Any) -> pd.DataFrame:
    df.loc[:, "u"] = results
    return df


def set_by_insert(df: pd.DataFrame, results: Any) -> pd.DataFrame:
    df.insert(1, "u", results)
    return df


@pytest.mark.parametrize("rows", [slice(None), slice(2, 5)], ids=["shuffled", "part"])
@pytest.mark.parametrize("documents", [lambda df: df["t"], lambda df: list(df["t"])], ids=["series", "list"])
@pytest.mark.parametrize(
    "given", [{}, {"errors": "return"}, {"merge": lambda parts: parts[0]}], ids=["raise", "return", "merge"]
)
def test_results_become_a_column_in_the_order_of_the_rows(
    queue: dq.QueuePool, rows: slice, documents: Any, given: dict[str, Any]
) -> None:
    """pandas took them for a dict, gave them an index of their own and aligned that: values stood in other rows."""
    df = FRAME.iloc[rows]

    results = queue.map(str.upper, documents(df), executor="thread").results(timeout=30, **given)

    for into in (set_by_name, set_by_loc, set_by_insert, lambda df, results: df.assign(u=results)):
        assert into(df.copy(), results)["u"].tolist() == [text.upper() for text in df["t"]]


@pytest.mark.parametrize("shape", [(20_000,), (5_000, 4)])
def test_an_array_that_changes_in_the_next_line_is_mapped_as_it_was(
    queue: dq.QueuePool, shape: tuple[int, ...]
) -> None:
    """A thread reads it; 20,000 of 20,000 values were those of the next line, in silence."""
    array = np.arange(20_000).reshape(shape)
    expected = [np.sum(row) for row in array]

    run = queue.map(np.sum, array, executor="thread")
    array *= 0

    assert run.results(timeout=30) == expected


@pytest.mark.parametrize("index", [[2, 0, 1], [10, 20, 30]])
def test_a_dict_of_results_has_each_value_under_its_own_key(queue: dq.QueuePool, index: list[Any]) -> None:
    """`dict` looks every key up, and results take a whole number for a position: values came under others' keys."""
    column = pd.Series(["a", "bb", "ccc"], index=pd.Index(index, dtype=object))
    results = queue.map(len, column).results(timeout=30)

    assert dict(results) == dict(zip(index, [1, 2, 3], strict=True))
    assert list(results.keys()) == index
    assert results[0] == 1
    merged = queue.map(len, column).results(timeout=30, merge=lambda parts: parts[0])
    assert dict(merged) == dict(results)
    others = queue.map(same, [5, 6, 7, 8]).results(timeout=30)
    label = next(key for key in results.keys() if key == index[1])  # noqa: SIM118 - a sequence: iterating gives values
    if index[1] < len(others):
        assert others[label] == [5, 6, 7, 8][index[1]]  # elsewhere it is a number, and numbers are positions
    with pytest.raises(TypeError, match=r"dict\(results.items\(\)\)"):
        results["a"]  # type: ignore[call-overload]
