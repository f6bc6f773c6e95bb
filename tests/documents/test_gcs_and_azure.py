"""Documents in Google's and in Azure's storage, from servers of this test that answer as those do.

Their services cannot be reached from here: logging in, quotas and true folders are not tested. Skipped where gcsfs or
adlfs is not installed; the extras `gcs` and `azure` bring them.
"""

from __future__ import annotations

import asyncio
import importlib
import pickle
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

import dqlab as dq
from dqlab.errors import InputNotFound
from tests.kit.stores import Store, azure, gcs

pytestmark = pytest.mark.cluster  # Azure's library starts a process, to name the system in what it requests
SECRET = "DefaultEndpointsProtocol=http;AccountName=acc;AccountKey=a2V5;BlobEndpoint={url}/acc;"
KEYS = sorted(["notes/a b.txt", "notes/sub/ü.txt", *(f"many/{at // 10:03}/{at % 10}.txt" for at in range(120))])


class Kind(NamedTuple):
    package: str
    scheme: str
    serve: Callable[[list[str]], Any]
    options: dict[str, Any]


KINDS = {
    "gcs": Kind("gcsfs", "gs", gcs, {"token": "anon", "endpoint_url": "{url}"}),
    "azure": Kind("adlfs", "abfs", azure, {"connection_string": "env:DQ_TEST_AZURE"}),
}


class Place(NamedTuple):
    url: str
    options: dict[str, Any]
    store: Store


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    kind = KINDS[request.param]
    monkeypatch.setenv(
        "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false"
    )  # a second protocol, which the server does not speak
    try:
        importlib.import_module(kind.package)
    except ImportError:
        pytest.skip(f"{kind.package} is not installed")
    with kind.serve(KEYS) as store:
        monkeypatch.setenv("DQ_TEST_AZURE", SECRET.format(url=store.url))
        yield Place(
            f"{kind.scheme}://bucket/",
            {name: value.format(url=store.url) for name, value in kind.options.items()},
            store,
        )


def test_objects_are_listed_and_read(place: Place) -> None:
    documents = dq.Documents.from_glob(f"{place.url}notes/**/*.txt", storage_options=place.options)

    assert [(each.key, each.where, each.text()) for each in documents] == [
        ("a b.txt", f"{place.url}notes/a b.txt", "notes/a b.txt"),
        ("sub/ü.txt", f"{place.url}notes/sub/ü.txt", "notes/sub/ü.txt"),
    ]
    [deep] = dq.Documents.from_glob(f"{place.url}notes/*/*.txt", storage_options=place.options)
    assert deep.key == "sub/ü.txt"
    assert pickle.loads(pickle.dumps(deep)).bytes() == "notes/sub/ü.txt".encode()
    assert asyncio.run(deep.abytes()) == deep.bytes()


def test_versions_of_a_listing_are_those_of_a_single_file(place: Place) -> None:
    """Else every document would be another one after `refreshed`, and each listing by paths another input."""
    [listed] = dq.Documents.from_glob(f"{place.url}notes/*.txt", storage_options=place.options)
    [named] = dq.Documents([f"{place.url}notes/a b.txt"], storage_options=place.options)

    assert listed.version
    assert (listed.version, listed.size) == (named.version, named.size)
    assert (listed.refreshed().version, listed.size) == (listed.version, len(b"notes/a b.txt"))


def test_objects_are_listed_in_the_order_of_their_keys(place: Place) -> None:
    for pattern in ("many/**", "**/[0-9].txt", "many/*/*"):
        found = [each.where for each in dq.Documents.from_glob(place.url + pattern, storage_options=place.options)]
        assert found == [place.url + key for key in KEYS if key.startswith("many/")]


def test_folder_that_is_not_there_is_named_and_no_secret(place: Place) -> None:
    with pytest.raises(InputNotFound, match="nothing") as caught:
        dq.Documents.from_glob(f"{place.url}nothing/*.txt", storage_options=place.options)

    assert "AccountKey" not in str(caught.value)


def test_object_that_is_gone_is_file_not_found(place: Place) -> None:
    [listed] = dq.Documents.from_glob(f"{place.url}notes/*.txt", storage_options=place.options)
    place.store.keys = [key for key in KEYS if key != "notes/a b.txt"]

    with pytest.raises(FileNotFoundError):
        listed.text()
    with pytest.raises(FileNotFoundError):
        asyncio.run(listed.abytes())
    place.store.keys = KEYS
