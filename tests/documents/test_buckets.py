"""Buckets are listed folder by folder, in the order of their keys."""

from __future__ import annotations

from collections.abc import Iterator

import fsspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import dqlab as dq
from dqlab.documents.folders import Pattern
from dqlab.errors import InputNotFound, InputUnreadable
from tests.kit.sampled import examples
from tests.kit.stores import Store, s3

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


names = st.lists(st.text("ab.é\U0001f600", min_size=1, max_size=3), min_size=1, max_size=3).map("/".join)
patterns = st.sampled_from(
    ["**", "**/*", "*", "*/*", "a*/**", "**/a*", "a/**/b*", "**/a/*", "*.a", ".*/**", "**/.a/**"]
)


@pytest.mark.long
@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(keys=st.sets(names, max_size=60), pattern=patterns)
@example(keys={"a/b", "b", "a/é/b", "a.b", "a"}, pattern="**")
def test_what_matches_is_listed_once_and_in_the_order_of_its_keys(store: Store, keys: set[str], pattern: str) -> None:
    """Also where a key is the name of a folder, as only object stores have it."""
    store.keys = [*sorted("top/" + key for key in keys), "toq"]
    try:
        found = [document.key for document in listed(store, f"s3://bucket/top/{pattern}")]
    except InputNotFound:
        found = []

    matches = Pattern(pattern).matches
    wanted = sorted(key for key in keys if matches(key))
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


def test_credentials_that_expire_between_two_pages_end_the_listing_with_the_reason(store: Store) -> None:
    store.keys = [f"{folder}/{at:04}.txt" for folder in range(5) for at in range(1_200)]
    documents = listed(store, "s3://bucket/**/*.txt")
    store.refuse_after = store.pages + 4
    found = []

    with pytest.raises(InputUnreadable, match="token has expired"):
        found.extend(iter(documents))
    assert 1_200 <= len(found) < 6_000  # they are submitted
    store.refuse_after = None
    assert len(documents) == 6_000


def test_folder_that_is_not_there_and_bucket_without_keys(store: Store) -> None:
    store.keys = ["a/b.txt"]
    with pytest.raises(InputNotFound, match=r"s3://bucket/c/"):
        listed(store, "s3://bucket/c/*.txt")
    store.keys = []
    assert list(listed(store, "s3://bucket/*")) == []
