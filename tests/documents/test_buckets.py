"""Buckets are listed page by page: in order, several requests at a time, and the first document leaves at once."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest
from fsspec.asyn import get_loop
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import dqlab as dq
from dqlab.documents import buckets
from dqlab.documents.folders import Pattern
from dqlab.errors import FolderNotFound
from tests.sampled import examples, mostly_slow
from tests.stores import Store, s3
from tests.waiting import until

ROOT = Path(__file__).parents[2]
OPTIONS = {"anon": True}


@pytest.fixture(scope="module")
def server() -> Iterator[Store]:
    with s3([]) as store:
        yield store


@pytest.fixture
def store(server: Store) -> Store:
    """The server, without keys; sessions stay, because making one takes longer than a test."""
    server.keys, server.latency, server.refuse_after = [], 0.0, None
    server.pages = server.most = 0
    return server


def listed(store: Store, pattern: str) -> dq.Documents:
    return dq.Documents.from_glob(pattern, storage_options=OPTIONS | {"endpoint_url": store.url})


names = st.text("ab.é/\U0001f600", min_size=1, max_size=5)
patterns = st.sampled_from(
    ["**", "**/*", "*", "*/*", "a*/**", "**/a*", "a/**/b*", "**/a/*", "*.a", ".*/**", "**/.a/**"]
)


@pytest.mark.long
@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(keys=st.sets(names, max_size=60), pattern=patterns, page=st.integers(1, 7), ahead=st.integers(1, 3))
@example(keys={"a/b", "b", "a/é/b"}, pattern="a/**/b*", page=1, ahead=1)
def test_what_matches_is_listed_once_and_in_order_whatever_the_pages(
    store: Store, keys: set[str], pattern: str, page: int, ahead: int
) -> None:
    store.keys = [*sorted("top/" + key for key in keys), "toq"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(buckets, "PAGE", page)
        patch.setattr(buckets, "AHEAD", ahead)
        try:
            found = [document.key for document in listed(store, f"s3://bucket/top/{pattern}")]
        except FolderNotFound:
            found = []

    matches = Pattern(pattern).matches
    wanted = sorted(key for key in keys if not key.endswith("/") and matches(key))
    assert found == [key.removeprefix("a/") if pattern.startswith("a/") else key for key in wanted]  # below its folder


def test_versions_and_places_are_those_of_the_store(store: Store) -> None:
    store.keys = ["notes/a b.txt", "notes/sub/ü.txt"]
    system = fsspec.filesystem("s3", endpoint_url=store.url, **OPTIONS)

    flat, deep = listed(store, "s3://bucket/notes/**/*.txt"), listed(store, "s3://bucket/notes/*/*.txt")

    assert [(each.key, each.where, each.text()) for each in flat] == [
        ("a b.txt", "s3://bucket/notes/a b.txt", "notes/a b.txt"),
        ("sub/ü.txt", "s3://bucket/notes/sub/ü.txt", "notes/sub/ü.txt"),
    ]
    assert list(deep) == list(flat)[1:]
    info = system.ls("bucket/notes", detail=True, refresh=True)[0]
    assert flat[0].version == info["ETag"].strip('"')
    assert flat[0].size == info["size"]


def test_a_small_bucket_costs_a_request_or_two(store: Store) -> None:
    store.keys = sorted(f"{folder}/{at}.txt" for folder in range(30) for at in range(20))
    documents = listed(store, "s3://bucket/**/*.txt")
    store.pages = 0

    assert sum(1 for _ in documents) == 600
    assert store.pages == 2  # whether there is a bucket, and everything in it


@pytest.mark.parametrize("keys", [20_000, 200_000])
def test_the_first_document_leaves_before_the_rest_is_listed(store: Store, keys: int) -> None:
    store.keys = [f"flat/{at:07}.txt" for at in range(keys)]
    list(listed(store, "s3://bucket/none*"))  # a session
    store.latency, store.pages = 0.05, 0
    start = time.perf_counter()

    for pattern in ("s3://bucket/flat/*.txt", "s3://bucket/**/*.txt"):
        documents = iter(listed(store, pattern))
        assert next(documents).where == "s3://bucket/flat/0000000.txt"
        documents.close()  # type: ignore[attr-defined]

    assert store.pages < 20
    assert time.perf_counter() - start < 2 * 2


@pytest.mark.long
@pytest.mark.parametrize(("folders", "each"), mostly_slow([(10, 1_200), (1_500, 4)], (1_500, 4)))
def test_pages_are_requested_side_by_side(store: Store, folders: int, each: int) -> None:
    """One after another, each waits for the store's answer."""
    store.keys = [f"{folder:05}/{at:04}" for folder in range(folders) for at in range(each)]
    store.latency = 0.02

    found = [document.where for document in listed(store, "s3://bucket/**")]

    assert found == [f"s3://bucket/{key}" for key in store.keys]
    assert store.most >= 4
    assert store.pages < 2.6 * len(store.keys) / 1000 + 2 * buckets.AHEAD


def test_credentials_that_expire_between_two_pages_end_the_listing_with_the_reason(store: Store) -> None:
    store.keys = [f"{at:05}.txt" for at in range(5_000)]
    store.refuse_after = 3
    found = []

    with pytest.raises(PermissionError, match="token has expired"):
        found.extend(iter(listed(store, "s3://bucket/*.txt")))
    assert 1_000 <= len(found) < 5_000  # they are submitted
    store.refuse_after = None
    assert len(listed(store, "s3://bucket/*.txt")) == 5_000


def test_folder_that_is_not_there_and_bucket_without_keys(store: Store) -> None:
    store.keys = ["a/b.txt"]
    with pytest.raises(FolderNotFound, match=r"s3://bucket/c/"):
        listed(store, "s3://bucket/c/*.txt")
    store.keys = []
    assert list(listed(store, "s3://bucket/*")) == []


MEASURED = """
    import sys
    import dqlab as dq
    from benchmarks.processes import peak_bytes

    options = {"anon": True, "endpoint_url": sys.argv[1]}
    for pattern in sys.argv[2:]:
        documents = iter(dq.Documents.from_glob(pattern, storage_options=options))
        for _ in range(2_000):
            next(documents)
        before = peak_bytes()
        count = 2_000 + sum(1 for _ in documents)
        print(count, peak_bytes() - before, flush=True)
"""


@pytest.mark.slow
@pytest.mark.cluster
@pytest.mark.timeout(300)
@pytest.mark.parametrize("pattern", ["s3://bucket/**/*.txt", "s3://bucket/0/*.txt"])
def test_listing_many_keys_holds_few_pages(store: Store, pattern: str) -> None:
    """In a process of its own, without the server's keys."""
    n = 100_000
    store.keys = [f"0/{at:07}.txt" for at in range(n)]

    command = [sys.executable, "-c", textwrap.dedent(MEASURED), store.url, pattern]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=300).stdout

    count, most = map(int, said.split())
    assert count == n
    assert most < 20e6


def test_store_that_does_not_answer_ends_its_listing_with_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would wait as long as the store's own package does, which may be forever."""
    monkeypatch.setattr(buckets, "ANSWER_S", 0.05)
    asked = []

    async def never(**how: object) -> buckets.Page:
        asked.append(asyncio.current_task())
        await asyncio.Event().wait()
        raise AssertionError

    bucket = buckets.Bucket("s3://papers/a/", get_loop(), never)
    for listing in (bucket.entries, bucket.below, bucket.holds):
        with pytest.raises(OSError, match=r"s3://papers/a/ has not answered a request for 0\.05 s"):
            listing("a/")  # type: ignore[operator]
    until(lambda: all(task.done() for task in asked), 5)
