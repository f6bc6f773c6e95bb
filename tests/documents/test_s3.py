"""Documents in a bucket: a server that speaks S3 on this machine, and consumers that read from it."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

import dqlab as dq
from dqlab.errors import DocumentChanged, DocumentError
from tests.kit.s3_server import serving_s3

pytestmark = pytest.mark.cluster

SECRET = "nobody-reads-this"


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """A server of its own, which ends with these tests."""
    with serving_s3() as address:
        yield address


@pytest.fixture
def options(endpoint: str, monkeypatch: pytest.MonkeyPatch, lab: dq.Lab) -> Iterator[dict[str, Any]]:
    """What opens the bucket, here and where functions run."""
    monkeypatch.setenv("DQ_TEST_S3", SECRET)
    lab.client.run(lambda: os.environ.update(DQ_TEST_S3=SECRET))
    yield {"endpoint_url": endpoint, "key": "env:DQ_TEST_S3", "secret": "env:DQ_TEST_S3"}
    lab.client.run(lambda: os.environ.pop("DQ_TEST_S3", None))


@pytest.fixture
def bucket(endpoint: str) -> tuple[Any, str]:
    """A file system, and the name of a new bucket."""
    import s3fs

    system = s3fs.S3FileSystem(
        endpoint_url=endpoint, key="k", secret="s", skip_instance_cache=True, use_listings_cache=False
    )
    name = f"b-{uuid.uuid4().hex[:12]}"
    system.mkdir(name)
    return system, name


def test_objects_of_a_bucket_are_read_by_consumers(
    queue: dq.QueuePool, bucket: tuple[Any, str], options: dict[str, Any]
) -> None:
    system, name = bucket
    texts = {f"{n % 3}/{n:03}.txt": "word " * n for n in range(60)}
    for path, text in texts.items():
        system.pipe_file(f"{name}/notes/{path}", text.encode())

    docs = dq.Documents.from_glob(f"s3://{name}/notes/**/*.txt", storage_options=options)
    run = queue.map(lambda doc: len(doc.text().split()), docs)

    assert [doc.key for doc in docs] == sorted(texts)
    assert all(doc.version and doc.size == len(texts[doc.key]) for doc in docs)
    assert dict(run.results().items()) == {path: len(text.split()) for path, text in texts.items()}


def test_an_object_with_two_colons_in_its_key_is_read(bucket: tuple[Any, str], options: dict[str, Any]) -> None:
    """Two colons chain URLs; "unexpected keyword argument 'target_options'" was all that its failure had."""
    system, name = bucket
    system.pipe_file(f"{name}/notes/a::b.txt", b"text")
    (document,) = dq.Documents.from_glob(f"s3://{name}/notes/*", storage_options=options)

    assert (document.key, document.text(), asyncio.run(document.abytes())) == ("a::b.txt", "text", b"text")
    assert document.open().read() == document.refreshed().bytes() == b"text"


def test_object_that_changes_after_it_was_listed_is_a_failure_of_that_document_alone(
    queue: dq.QueuePool, bucket: tuple[Any, str], options: dict[str, Any]
) -> None:
    system, name = bucket
    for path in ("a", "b", "c"):
        system.pipe_file(f"{name}/{path}.txt", b"old words")
    listed = list(dq.Documents.from_glob(f"s3://{name}/*.txt", storage_options=options))
    system.pipe_file(f"{name}/b.txt", b"new words")  # as long as it was

    run = queue.map(lambda doc: doc.text(), listed)

    run.wait()
    assert dict(run.results("skip").items()) == {"a.txt": "old words", "c.txt": "old words"}
    [failure] = run.failures()
    assert (failure.key, failure.error) == ("b.txt", DocumentChanged.__name__)
    assert queue.map(lambda doc: doc.refreshed().text(), [listed[1]]).results()[0] == "new words"


def test_secret_that_workers_lack_is_named_and_never_shown(
    lab: dq.Lab, queue: dq.QueuePool, bucket: tuple[Any, str], options: dict[str, Any]
) -> None:
    system, name = bucket
    system.pipe_file(f"{name}/a.txt", b"words")
    docs = dq.Documents.from_glob(f"s3://{name}/*.txt", storage_options=options)
    lab.client.run(lambda: os.environ.pop("DQ_TEST_S3", None))

    run = queue.map(lambda doc: doc.text(), docs, retry=dq.Retry(0))

    run.wait()
    [failure] = run.failures()
    assert failure.error == DocumentError.__name__
    assert "DQ_TEST_S3" in failure.message
    assert SECRET not in failure.traceback
