"""Buckets of object stores, listed page by page in the order of their keys, without holding keys that were listed.

Owns how pages are requested, several at a time, and how they are put back in order. fsspec's own `ls` and `isdir` read
a folder to its end first, and keep half a kilobyte per key; stores that this module does not know are left to them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

from dqlab.documents.storage import Stamp, redacted, remote_stamp
from dqlab.imports import loaded

__all__ = ["Bucket", "FoundKey", "bucket_of"]

PAGE = 1000
"""Keys of a page; S3 returns at most this many."""
AHEAD = 8
"""Requests in flight at a time."""
ANSWER_S = 300.0
"""Seconds to wait for one request, including the retries of the store's own package."""
_LAST = "\U0010ffff"
"""Sorts after anything that can follow a folder's name in a key."""


class FoundKey(NamedTuple):
    """An object of a bucket, by its whole key and its stamp."""

    key: str
    stamp: Stamp

    def stamp_now(self) -> Stamp:
        """Return the stamp that the listing brought."""
        return self.stamp


class Page(NamedTuple):
    """Objects and folders of one response, each sorted."""

    objects: list[FoundKey]
    folders: list[str]
    """Whole keys, ending with "/"."""
    token: str | None
    """Requests the next page; None after the last."""


Ask = Callable[..., Awaitable[Page]]
"""Requests a page: ``ask(prefix=, delimiter=, token=, after=, most=)``, with keys greater than `after` only."""


class Bucket:
    """A bucket that can be listed."""

    def __init__(self, where: str, loop: Any, ask: Ask, *, ranges: bool = True) -> None:
        # `loop` must be fsspec's own, which the sessions are bound to. `ranges`: whether a page can begin after any
        # key; if not, pages are requested one after another.
        self._where, self._loop, self._ask_for, self._cuts = where, loop, ask, ranges

    def holds(self, prefix: str) -> bool:
        """Return with one request whether keys begin with a prefix, or for "" whether the bucket exists."""
        try:
            page = self._answer(self._ask(prefix, most=1))
        except FileNotFoundError:
            return False
        return not prefix or bool(page.objects)

    def entries(self, prefix: str) -> Iterator[FoundKey | str]:
        """Return the objects and folders directly below a prefix, sorted, once the first page has arrived."""
        pages = self._pages(prefix, self._ask(prefix, delimiter="/"), delimiter="/")
        first = next(pages)

        def entries() -> Iterator[FoundKey | str]:
            yield from _merged(first)
            for page in pages:
                yield from _merged(page)

        return entries()

    def below(self, prefix: str) -> Iterator[FoundKey]:
        """Return all objects below a prefix, sorted, once the first page has arrived."""
        first = self._ask(prefix)
        self._answer(first)
        return self._below(prefix, first)

    def _below(self, prefix: str, first: Future[Page]) -> Iterator[FoundKey]:
        page = self._answer(first)
        yield from page.objects
        if page.token is None:
            return
        last = page.objects[-1].key if page.objects else ""
        # Ranges can only be joined again if the store lists keys in order; single-zone buckets do not.
        if not (self._cuts and _is_sorted(page.objects)):
            for more in self._pages(prefix, self._ask(prefix, token=page.token)):
                yield from more.objects
            return
        # The ranges begin at the prefix again, so skip the keys of the first page. Starting a range sends its first
        # request; this keeps `AHEAD` of them in flight.
        started: deque[Iterator[FoundKey]] = deque()
        for start in self._ranges(prefix):
            started.append(start())
            if len(started) > AHEAD:
                yield from (found for found in started.popleft() if found.key > last)
        while started:
            yield from (found for found in started.popleft() if found.key > last)

    def _ranges(self, prefix: str) -> Iterator[Callable[[], Iterator[FoundKey]]]:
        """Split the keys below a prefix at its folders, into parts that are requested when they are called."""
        for page in self._pages(prefix, self._ask(prefix, delimiter="/"), delimiter="/"):
            if len(page.folders) <= AHEAD:
                for entry in _merged(page):
                    if isinstance(entry, FoundKey):
                        yield partial(iter, (entry,))
                    else:
                        yield partial(self._folder, entry)
                continue
            # Objects between and after the folders are inside the ranges below; only those before them are not.
            first = page.folders[0]
            yield partial(iter, [found for found in page.objects if found.key < first])
            size = -(-len(page.folders) // AHEAD)
            end = page.folders[-1] + _LAST
            if page.objects and page.objects[-1].key > end:
                end = page.objects[-1].key + "\0"
            cuts = [*page.folders[::size], end]
            for start, stop in pairwise(cuts):
                yield partial(self._range, prefix, start, stop)

    def _folder(self, folder: str) -> Iterator[FoundKey]:
        return self._below(folder, self._ask(folder))

    def _range(self, prefix: str, start: str, stop: str) -> Iterator[FoundKey]:
        """Yield the objects from the key `start` up to, but without, the key `stop`."""
        first = self._ask(prefix, after=start)

        def found() -> Iterator[FoundKey]:
            for page in self._pages(prefix, first, stop=stop):
                if not _is_sorted(page.objects):
                    raise OSError(f"the store lists keys below {prefix!r} in no order; nothing is missing before that")
                yield from (found for found in page.objects if found.key < stop)

        return found()

    def _pages(
        self, prefix: str, first: Future[Page], *, delimiter: str = "", stop: str | None = None
    ) -> Iterator[Page]:
        """Yield pages, and request the next one while the caller uses this one."""
        asked: Future[Page] | None = first
        try:
            while asked is not None:
                page = self._answer(asked)
                more = page.token is not None and (stop is None or not page.objects or page.objects[-1].key < stop)
                asked = self._ask(prefix, delimiter=delimiter, token=page.token) if more else None
                yield page
        finally:
            if asked is not None:
                asked.cancel()

    def _ask(self, prefix: str, **how: Any) -> Future[Page]:
        how = {"delimiter": "", "token": None, "after": "", "most": PAGE, **how}

        async def ask() -> Page:
            return await self._ask_for(prefix=prefix, **how)

        return asyncio.run_coroutine_threadsafe(ask(), self._loop)

    def _answer(self, asked: Future[Page]) -> Page:
        with redacted(self._where):
            try:
                return asked.result(ANSWER_S)
            except FutureTimeout:
                # TimeoutError is also what the store's own package raises when it gives up, with its own reason.
                if asked.done():
                    return asked.result()
                asked.cancel()
                late = f"{self._where} has not answered a request for {ANSWER_S:g} s, and the listing is not whole"
                raise OSError(f"{late}. Look at the network, then list it again") from None


def _merged(page: Page) -> list[FoundKey | str]:
    entries: list[FoundKey | str] = [*page.objects, *page.folders]
    entries.sort(key=lambda entry: entry if isinstance(entry, str) else entry.key)
    return entries


def _is_sorted(objects: list[FoundKey]) -> bool:
    return all(before.key < after.key for before, after in pairwise(objects))


# --- services ---


def bucket_of(where: str, system: Any, path: str) -> tuple[Bucket, str] | None:
    """Return a path's bucket and the path inside it, which is "" or ends with "/", or None for an unknown store."""
    ask = next((ask for module, kind, ask in _KNOWN if _is_a(system, module, kind)), None)
    name, _, inside = path.strip("/").partition("/")
    # Single-zone buckets (--x-s3) list keys in no order, and the ARNs of access points have a "/" in their names.
    if ask is None or not name or name.endswith("--x-s3") or name.startswith("arn:"):
        return None
    bucket = Bucket(where, system.loop, partial(ask, system, name), ranges=ask is not _ask_azure)
    return bucket, f"{inside}/" if inside else ""


def _is_a(system: Any, module: str, kind: str) -> bool:
    found = loaded(module)
    return found is not None and isinstance(system, getattr(found, kind))


async def _ask_s3(
    system: Any, bucket: str, *, prefix: str, delimiter: str, token: str | None, after: str, most: int
) -> Page:
    asked = {"Prefix": prefix, "Delimiter": delimiter, "ContinuationToken": token, "StartAfter": after}
    given = {name: value for name, value in asked.items() if value}
    # `req_kw` has RequestPayer; only newer versions of s3fs add it by themselves.
    answer = await system._call_s3("list_objects_v2", dict(system.req_kw), Bucket=bucket, MaxKeys=most, **given)
    objects = [
        FoundKey(each["Key"], remote_stamp({"size": each["Size"], "ETag": each.get("ETag"), **_time(each)}))
        for each in answer.get("Contents", ())
    ]
    folders = [each["Prefix"] for each in answer.get("CommonPrefixes", ())]
    return Page(objects, folders, answer.get("NextContinuationToken") if answer.get("IsTruncated") else None)


def _time(found: dict[str, Any]) -> dict[str, Any]:
    return {} if "LastModified" not in found else {"LastModified": found["LastModified"]}


async def _ask_gcs(
    system: Any, bucket: str, *, prefix: str, delimiter: str, token: str | None, after: str, most: int
) -> Page:
    asked = {"prefix": prefix, "delimiter": delimiter, "pageToken": token, "startOffset": after}
    given = {name: value for name, value in asked.items() if value}
    answer = await system._call("GET", "b/{}/o", bucket, maxResults=most, json_out=True, **given)
    objects = [
        FoundKey(each["name"], remote_stamp({**each, "size": int(each["size"])}))
        for each in answer.get("items", ())
        if each["name"] != after
    ]
    return Page(objects, list(answer.get("prefixes", ())), answer.get("nextPageToken"))


async def _ask_azure(
    system: Any, container: str, *, prefix: str, delimiter: str, token: str | None, after: str, most: int
) -> Page:
    from azure.core.exceptions import ResourceNotFoundError

    client = system.service_client.get_container_client(container)
    listing = client.walk_blobs if delimiter else client.list_blobs
    pages = listing(name_starts_with=prefix or None, include=["metadata"], results_per_page=most).by_page(token)
    objects, folders = [], []
    try:
        async for each in await anext(pages):
            if hasattr(each, "prefix"):
                folders.append(each.name)
            # A store with a hierarchical namespace lists its folders as empty blobs, too.
            elif (each.metadata or {}).get("hdi_isfolder") != "true":
                info = {"size": each.size, "etag": each.etag, "last_modified": each.last_modified}
                objects.append(FoundKey(each.name, remote_stamp(info)))
    except ResourceNotFoundError as error:
        raise FileNotFoundError(container) from error
    return Page(objects, folders, pages.continuation_token or None)


_KNOWN: tuple[tuple[str, str, Ask], ...] = (
    ("s3fs", "S3FileSystem", _ask_s3),
    ("gcsfs", "GCSFileSystem", _ask_gcs),
    ("adlfs", "AzureBlobFileSystem", _ask_azure),
)
"""Modules, their file systems, and the functions that request a page from these."""
