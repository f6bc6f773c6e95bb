"""Credentials that expire while a client lists its input: the run waits with the reason, and goes on by itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem

import dqlab as dq
from dqlab.documents import buckets
from dqlab.errors import ListingChanged, SubmissionIncomplete
from dqlab.stats import RunState
from tests.sampled import mostly_slow
from tests.stores import Store, s3
from tests.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

KEYS = [f"keys/{at:04}.txt" for at in range(60)]


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """A bucket of several small pages."""
    monkeypatch.setattr(buckets, "PAGE", 10)
    with s3(KEYS) as made:
        yield made


def listing(store: Store) -> dq.Documents:
    given: dict[str, Any] = {"anon": True, "endpoint_url": store.url, "use_listings_cache": False}
    return dq.Documents.from_glob("s3://bucket/keys/**", storage_options=given)


def key(doc: dq.Document) -> str:
    return str(doc.key)


def expire_behind_the_first_page(store: Store) -> None:
    store.refuse_after = store.pages + 5  # twice that the folder exists, and its first page: `map` looks at a document


@pytest.mark.parametrize("made", mostly_slow(["as it is", "where"], "as it is"))
def test_a_run_whose_input_cannot_be_listed_any_more_waits_and_goes_on(
    queue: dq.QueuePool, store: Store, made: str
) -> None:
    """As a token of an hour does, below a bucket that takes longer: the submission does not end."""
    documents = listing(store) if made == "as it is" else listing(store).where("size > 0")
    expire_behind_the_first_page(store)

    run = queue.map(key, documents, name="listed", executor="thread")
    until(lambda: run.stats().state is RunState.WAITING, 60)

    stats = run.stats()
    assert "its documents cannot be read: the rest of its input cannot be listed" in stats.why
    assert "Renew the credentials of the notebook" in stats.why
    assert 0 < stats.counts.acked < len(KEYS)
    assert stats.counts.left == 0
    store.refuse_after = None
    assert list(run.results(timeout=60)) == [each.removeprefix("keys/") for each in KEYS]
    assert run.stats().state is RunState.DONE


def test_a_run_that_waits_for_its_listing_can_be_cancelled(queue: dq.QueuePool, store: Store) -> None:
    documents = listing(store)
    expire_behind_the_first_page(store)
    run = queue.map(key, documents, name="given-up", executor="thread")
    until(lambda: run.stats().state is RunState.WAITING, 60)

    run.cancel()
    run.until_over(30)

    assert run.counts["cancelled"] == 0
    assert run.stats().state is RunState.CANCELLED
    assert list(queue.map(lambda n: n, range(5), name="other").results()) == list(range(5))


def test_a_listing_that_is_another_one_after_the_wait_ends_the_submission(queue: dq.QueuePool, store: Store) -> None:
    documents = listing(store)
    expire_behind_the_first_page(store)
    run = queue.map(key, documents, name="other", executor="thread")
    until(lambda: run.stats().state is RunState.WAITING, 60)

    store.keys = KEYS[1:]
    store.refuse_after = None

    with pytest.raises(ListingChanged, match="its first 10 documents are others"):
        run.wait(timeout=60)


def test_credentials_that_are_refused_from_the_start_end_the_submission(queue: dq.QueuePool, store: Store) -> None:
    """Nothing was listed with them, so somebody looks at it: waiting would tell less than an error."""
    documents = listing(store)
    store.refuse_after = 0

    run = queue.map(key, documents, name="wrong", executor="thread")

    with pytest.raises(SubmissionIncomplete, match="token has expired"):
        run.wait(timeout=60)


class _Locked(LocalFileSystem):  # type: ignore[misc]
    """Files of this machine behind a URL; folders named "locked" are forbidden."""

    protocol = "dq-locked"

    def ls(self, path: str, detail: bool = False, **more: Any) -> Any:
        if path.endswith("/locked"):
            raise PermissionError(f"{path}: access denied")
        return super().ls(path, detail, **more)


def test_a_folder_that_is_forbidden_by_itself_ends_the_submission(queue: dq.QueuePool, tmp_path: Path) -> None:
    """What was listed before can be listed again, so that nothing has expired."""
    fsspec.register_implementation("dq-locked", _Locked, clobber=True)
    for name in ("a", "locked"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.txt").write_text(name)

    run = queue.map(key, dq.Documents.from_glob(f"dq-locked://{tmp_path}/**/*.txt"), name="locked", executor="thread")

    with pytest.raises(SubmissionIncomplete, match=r"FolderUnreadable.* access denied"):
        run.wait(timeout=60)
    until(lambda: run.counts["acked"] == 1)  # what was submitted before goes on
