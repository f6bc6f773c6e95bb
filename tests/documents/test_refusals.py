"""What a refusal of a storage is, and whether it gives something again."""

from __future__ import annotations

import asyncio
import os
import zipfile
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import fsspec
import pytest

import dqlab as dq
from dqlab.documents import archives, lines, parquet, storage
from dqlab.documents.kept_open import let_go
from dqlab.documents.servers import is_refusal
from dqlab.documents.storage import note_read, refuses, root_of
from tests.documents.test_storage import SECRET, Vault, options
from tests.kit.http_server import serving


class Answered(Exception):
    """An error of a library, with what it knows of the answer."""

    def __init__(self, **known: Any) -> None:
        super().__init__("it did not work")
        for name, value in known.items():
            setattr(self, name, value)


class NoCredentialsError(Exception):
    """As botocore has one."""


def caused_by(cause: BaseException) -> BaseException:
    try:
        raise FileNotFoundError("s3://b/a.txt") from cause
    except FileNotFoundError as error:
        return error


@pytest.mark.parametrize(
    "error",
    [
        PermissionError("Access Denied"),
        Answered(status=401),
        Answered(status_code=403),
        Answered(code="403"),
        Answered(response={"ResponseMetadata": {"HTTPStatusCode": 403}}),
        NoCredentialsError(),
        caused_by(Answered(status=401)),
    ],
)
def test_a_refusal_is_known_whatever_library_reports_it(error: BaseException) -> None:
    assert is_refusal(error)


@pytest.mark.parametrize(
    "error",
    [
        FileNotFoundError("a.txt"),
        ValueError("401"),
        Answered(status=404),
        Answered(code="NoSuchKey"),
        Answered(response={"Error": {"Code": "SlowDown"}, "ResponseMetadata": {"HTTPStatusCode": 503}}),
        Answered(response="401"),
        TimeoutError(),
    ],
)
def test_other_errors_are_no_refusals(error: BaseException) -> None:
    assert not is_refusal(error)


def test_the_file_that_was_read_last_is_known_of_a_few_storages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "_read", {})
    monkeypatch.setattr(storage, "_latest", "")

    for at in range(3 * storage.ROOTS):
        note_read(f"s3://b{at}/first.txt")
        note_read(f"s3://b{at}/last.txt")

    assert len(storage._read) == storage.ROOTS
    assert storage._read[root_of(f"s3://b{at}/x")] == f"s3://b{at}/last.txt"


def test_a_reason_has_no_secret_and_ends_with_the_refusal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some services repeat what they were given."""
    fsspec.register_implementation("vault", Vault, clobber=True)
    monkeypatch.setenv("DQ_TEST_PASSWORD", SECRET)
    monkeypatch.setenv("DQ_TEST_RIGHT", "another")
    (tmp_path / "a.txt").write_text("here")
    name = storage.check_options(options(tmp_path))

    reason = refuses(storage.located("vault://a.txt", name))

    assert "PermissionError: password '***' is wrong" in reason
    assert SECRET not in reason
    monkeypatch.setitem(os.environ, "DQ_TEST_RIGHT", SECRET)
    assert refuses(storage.located("vault://a.txt", name)) == ""
    assert refuses(storage.located("vault://gone.txt", name)) == ""
    assert refuses(storage.located("vault://a.txt", "unknown")) == ""


def test_reading_a_document_behind_a_url_notes_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "_read", {})
    monkeypatch.setattr(storage, "_latest", "")
    with fsspec.open("memory://notes/a.txt", "wb") as stream:
        stream.write(b"here")
    (tmp_path / "b.txt").write_text("local")

    dq.Documents(["memory://notes/a.txt", str(tmp_path / "b.txt")])[1].text()
    assert storage._read == {}
    dq.Documents(["memory://notes/a.txt"])[0].text()
    assert storage._read == {" memory://notes": "memory://notes/a.txt"}


def test_files_are_opened_again_after_a_refusal(tmp_path: Path) -> None:
    """What is open was opened with credentials that have expired."""
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table({"n": range(5)}), tmp_path / "a.parquet")
    (tmp_path / "a.jsonl").write_text('{"n": 7}\n')
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as made:
        made.writestr("a.txt", "packed")

    def read() -> tuple[Any, ...]:
        row, line = (
            dq.Documents.from_parquet(tmp_path / "a.parquet")[3],
            dq.Documents.from_jsonl(tmp_path / "a.jsonl")[0],
        )
        return row["n"], line["n"], dq.Documents.from_archive(tmp_path / "a.zip")[0].text()

    assert read() == (3, 7, "packed")
    kept = (parquet._TABLES, parquet._GROUPS, lines._FILES, archives._kept)
    assert all(each._open for each in kept)
    let_go()
    assert not any(each._open for each in kept)
    assert not parquet._last.names
    assert read() == (3, 7, "packed")


class _OnlyItsHead(BaseHTTPRequestHandler):
    """A web server that states the size of any file, and gives only those that are called good."""

    def do_HEAD(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "9")
        self.end_headers()

    def do_GET(self) -> None:
        self.send_response(200 if "good" in self.path else 403)
        self.send_header("Content-Length", "9")
        self.end_headers()
        self.wfile.write(b"one\ntwo\n\n")


@pytest.mark.parametrize(
    "read",
    [
        lambda doc: doc.text(),
        lambda doc: doc.open().read(),
        lambda doc: doc.open().read(1),
        lambda doc: next(iter(doc.open())),
        lambda doc: doc.open().readline(2),
        lambda doc: doc.open().readinto(bytearray(4)),
        lambda doc: asyncio.run(doc.abytes()),
        lambda doc: doc.bytes(),
    ],
)
def test_a_file_counts_as_read_once_it_has_given_something(read: Callable[[dq.Document], object]) -> None:
    """A file that can be opened and not read made its run wait for credentials that nobody had to renew."""
    with serving(_OnlyItsHead, quiet=True) as url:
        good, bad = dq.Documents([f"{url}/good.txt", f"{url}/bad.txt"])
        with bad.open():
            pass
        with pytest.raises(Exception, match="403"):
            read(bad)
        assert root_of(bad.where) not in storage._read
        read(good)
        assert storage._read[root_of(bad.where)] == good.where
        with pytest.raises(Exception, match="403"):
            read(bad)
        assert storage._read[root_of(bad.where)] == good.where
