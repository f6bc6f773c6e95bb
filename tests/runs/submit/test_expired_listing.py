"""Credentials that expire while a client lists its input end the submission; the same call goes on with it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import dqlab as dq
from dqlab.errors import SubmissionIncomplete
from dqlab.stats import RunState
from tests.kit.stores import Store, s3
from tests.kit.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

KEYS = [f"keys/{folder}/{at}.txt" for folder in range(6) for at in range(10)]


@pytest.fixture
def store() -> Iterator[Store]:
    """A bucket of several folders."""
    with s3(KEYS) as made:
        yield made


def listing(store: Store) -> dq.Documents:
    given: dict[str, Any] = {"anon": True, "endpoint_url": store.url, "use_listings_cache": False}
    return dq.Documents.from_glob("s3://bucket/keys/**", storage_options=given)


def key(doc: dq.Document) -> str:
    return str(doc.key)


def expire_behind_the_first_folders(store: Store) -> None:
    store.refuse_after = store.pages + 7  # `map` looks at the first document, and then lists from the start


def test_an_input_that_cannot_be_listed_any_more_ends_its_submission_and_goes_on_when_mapped_again(
    queue: dq.QueuePool, store: Store
) -> None:
    """As a token of an hour does, below a bucket that takes longer."""
    documents = listing(store)
    expire_behind_the_first_folders(store)

    run = queue.map(key, documents, name="listed", executor="thread")

    with pytest.raises(SubmissionIncomplete, match="token has expired"):
        run.wait(timeout=60)
    until(lambda: run.counts["acked"] == 20)
    store.refuse_after = None
    again = queue.map(key, documents, name="listed", executor="thread")
    assert list(again.results(timeout=60)) == [each.removeprefix("keys/") for each in KEYS]
    assert again.stats().state is RunState.DONE


def test_credentials_that_are_refused_from_the_start_end_the_submission(queue: dq.QueuePool, store: Store) -> None:
    """Nothing was listed with them, so somebody looks at it: waiting would tell less than an error."""
    documents = listing(store)
    store.refuse_after = 0

    run = queue.map(key, documents, name="wrong", executor="thread")

    with pytest.raises(SubmissionIncomplete, match="token has expired"):
        run.wait(timeout=60)
