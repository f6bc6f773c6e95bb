"""Servers that speak as object stores do, whose keys exist in a list alone: a million cost nothing."""

from __future__ import annotations

import json
import threading
import time
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import NamedTuple
from urllib.parse import parse_qs, quote, unquote, urlsplit
from xml.sax.saxutils import escape

from tests.kit.http_server import serving

__all__ = ["Store", "azure", "gcs", "s3"]

WHEN = "2024-05-17T12:00:00.000Z"


class Answer(NamedTuple):
    keys: list[str]
    folders: list[str]
    token: str


class Store:
    """One bucket of any name.

    Attributes
    ----------
    keys : sequence of str
        Sorted, as the store would list them.
    latency : float
        Seconds until a request is answered.
    pages : int
        Listings that were requested.
    most : int
        Requests that were under way at a time.
    refuse_after : int or None
        Listings that are answered before credentials expire; None: they do not.
    """

    def __init__(self, keys: Sequence[str]) -> None:
        self.keys, self.latency, self.url = keys, 0.0, ""
        self.pages = self.most = self._now = 0
        self.refuse_after: int | None = None
        self._lock = threading.Lock()

    @contextmanager
    def request(self) -> Iterator[None]:
        with self._lock:
            self._now += 1
            self.most = max(self.most, self._now)
        try:
            time.sleep(self.latency)
            yield
        finally:
            with self._lock:
                self._now -= 1

    def expired(self) -> bool:
        return self.refuse_after is not None and self.pages >= self.refuse_after

    def listed(self, prefix: str, delimiter: str, after: str, *, inclusive: bool, most: int) -> Answer:
        """Return a page as the documentation of S3 has it: what is rolled up counts as one."""
        self.pages += 1
        at = max(bisect_left(self.keys, prefix), (bisect_left if inclusive else bisect_right)(self.keys, after))
        keys: list[str] = []
        folders: list[str] = []
        while at < len(self.keys) and self.keys[at].startswith(prefix):
            key = self.keys[at]
            if len(keys) + len(folders) == most:
                last = max(keys[-1:] + [folder + "\U0010ffff" for folder in folders[-1:]])
                return Answer(keys, folders, last)
            cut = key.find(delimiter, len(prefix)) if delimiter else -1
            if cut < 0:
                keys.append(key)
                at += 1
            else:
                folders.append(key[: cut + 1])
                at = bisect_left(self.keys, key[: cut + 1] + "\U0010ffff")
        return Answer(keys, folders, "")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    store: Store

    def log_message(self, format: str, *args: object) -> None:
        """Write nothing to stderr."""

    def answer(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def asked(self) -> dict[str, str]:
        return {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}


class _S3(_Handler):
    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        with self.store.request():
            parts = unquote(urlsplit(self.path).path).strip("/").split("/", 1)
            if len(parts) == 2 and parts[1]:
                self.answer(200, parts[1].encode(), "text/plain")
            elif self.store.expired():
                body = b"<Error><Code>ExpiredToken</Code><Message>The provided token has expired.</Message></Error>"
                self.answer(400, body, "application/xml")
            else:
                self.answer(200, self.listing(self.asked()).encode(), "application/xml")

    def listing(self, asked: dict[str, str]) -> str:
        after = asked.get("continuation-token") or asked.get("start-after", "")
        most = int(asked.get("max-keys", 1000))
        prefix, delimiter = asked.get("prefix", ""), asked.get("delimiter", "")
        found = self.store.listed(prefix, delimiter, after, inclusive=False, most=most)
        spelled = quote if asked.get("encoding-type") == "url" else escape
        contents = "".join(
            f"<Contents><Key>{spelled(key)}</Key><LastModified>{WHEN}</LastModified>"
            f'<ETag>"{abs(hash(key)):032x}"</ETag><Size>{len(key.encode())}</Size></Contents>'
            for key in found.keys
        )
        folders = "".join(
            f"<CommonPrefixes><Prefix>{spelled(each)}</Prefix></CommonPrefixes>" for each in found.folders
        )
        token = f"<NextContinuationToken>{escape(found.token)}</NextContinuationToken>" if found.token else ""
        return (
            '<?xml version="1.0" encoding="UTF-8"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
            f"<Name>bucket</Name><IsTruncated>{str(bool(found.token)).lower()}</IsTruncated>"
            f"<EncodingType>{asked.get('encoding-type', '')}</EncodingType>"
            f"{contents}{folders}{token}</ListBucketResult>"
        )


class _Gcs(_Handler):
    def do_GET(self) -> None:
        with self.store.request():
            path, asked = urlsplit(self.path).path, self.asked()
            inside = path.partition("/o/")[2]
            if inside:
                key = unquote(inside)
                plain = key if "alt" in asked or "/download/" in path else json.dumps(self.item(key))
                self.answer(200 if key in self.store.keys else 404, plain.encode(), "application/json")
                return
            after = asked.get("pageToken", "")
            found = self.store.listed(
                asked.get("prefix", ""),
                asked.get("delimiter", ""),
                after or asked.get("startOffset", ""),
                inclusive=not after,
                most=int(asked.get("maxResults", 1000)),
            )
            answer = {"kind": "storage#objects", "prefixes": found.folders}
            body = {**answer, "items": [self.item(key) for key in found.keys]}
            self.answer(
                200, json.dumps(body | ({"nextPageToken": found.token} if found.token else {})).encode(), "json"
            )

    def item(self, key: str) -> dict[str, str]:
        more = {
            "updated": WHEN,
            "timeCreated": WHEN,
            "generation": "1",
            "metageneration": "1",
            "etag": f"CL{len(key)}=",
        }
        return {"kind": "storage#object", "name": key, "bucket": "bucket", "size": str(len(key.encode()))} | more


class _Azure(_Handler):
    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        with self.store.request():
            container, _, key = unquote(urlsplit(self.path).path).strip("/").partition("/")[2].partition("/")
            asked = self.asked()
            if key:
                self.blob(key)
                return
            after = asked.get("marker", "")
            found = self.store.listed(
                asked.get("prefix", ""),
                asked.get("delimiter", ""),
                after,
                inclusive=False,
                most=int(asked.get("maxresults", 5000)),
            )
            blobs = "".join(
                f"<Blob><Name>{escape(key)}</Name><Properties><Last-Modified>Fri, 17 May 2024 12:00:00 GMT"
                f"</Last-Modified><Etag>0x8{len(key):015X}</Etag><Content-Length>{len(key.encode())}</Content-Length>"
                "<BlobType>BlockBlob</BlobType></Properties></Blob>"
                for key in found.keys
            )
            folders = "".join(f"<BlobPrefix><Name>{escape(each)}</Name></BlobPrefix>" for each in found.folders)
            marker = f"<NextMarker>{escape(found.token)}</NextMarker>" if found.token else "<NextMarker/>"
            listed = f"<Blobs>{blobs}{folders}</Blobs>{marker}"
            body = f'<EnumerationResults ContainerName="{container}">{listed}</EnumerationResults>'
            self.answer(200, body.encode(), "application/xml")

    def blob(self, key: str) -> None:
        body = key.encode()
        if key not in self.store.keys:
            self.answer(404, b"", "text/plain")
            return
        self.send_response(206 if "x-ms-range" in self.headers else 200)
        for name, value in (
            ("Content-Length", len(body)),
            ("Content-Range", f"bytes 0-{len(body) - 1}/{len(body)}"),
            ("ETag", f'"0x8{len(key):015X}"'),
            ("Last-Modified", "Fri, 17 May 2024 12:00:00 GMT"),
            ("x-ms-blob-type", "BlockBlob"),
        ):
            self.send_header(name, str(value))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


@contextmanager
def _served(keys: Sequence[str], kind: type[_Handler]) -> Iterator[Store]:
    store = Store(keys)
    # A listing that ends early hangs up.
    with serving(type("Handler", (kind,), {"store": store}), quiet=True) as store.url:
        yield store


def s3(keys: Sequence[str]) -> contextmanager[Store]:  # type: ignore[type-arg]
    """Serve keys as S3 does; what an object holds is its key."""
    return _served(keys, _S3)  # type: ignore[return-value]


def azure(keys: Sequence[str]) -> contextmanager[Store]:  # type: ignore[type-arg]
    """Serve keys as Azure's blobs, in any container of any account; what a blob holds is its key."""
    return _served(keys, _Azure)  # type: ignore[return-value]


def gcs(keys: Sequence[str]) -> contextmanager[Store]:  # type: ignore[type-arg]
    """Serve keys as Google's storage does; what an object holds is its key."""
    return _served(keys, _Gcs)  # type: ignore[return-value]
