"""Options of file systems: they reach what opens a document, and secrets reach nothing else."""

from __future__ import annotations

import asyncio
import io
import os
import pickle
import traceback
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask
import fsspec
import pandas as pd
import pytest
from fsspec.asyn import AsyncFileSystem

import dqlab as dq
from dqlab.cluster.transport.sealed import seal_value
from dqlab.documents import storage
from dqlab.documents.document import sealed_key
from dqlab.errors import BadOption, DocumentError, DqlabError, UsageError

SECRET = "dq-s3cr3t-value"


class Vault(fsspec.AbstractFileSystem):  # type: ignore[misc]
    """Files of a folder, for a process that has the password."""

    protocol = "vault"
    cachable = False

    def __init__(self, root: str = "", password: str = "", region: str = "", **_: Any) -> None:
        super().__init__()
        self.root, self.region = root, region
        if password != os.environ["DQ_TEST_RIGHT"]:
            raise PermissionError(f"password {password!r} is wrong")

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        return [self._info(found, self.root) for found in Path(self.root, path).iterdir()]

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        return self._info(Path(self.root, path), self.root)

    def _info(self, found: Path, root: str) -> dict[str, Any]:
        status = found.stat()
        kind = "directory" if found.is_dir() else "file"
        name = str(found.relative_to(root)).removeprefix(".")
        return {"name": name, "size": status.st_size, "type": kind, "mtime": status.st_mtime}

    def _open(self, path: str, mode: str = "rb", **_: Any) -> Any:
        return Path(self.root, path).open(mode)


@pytest.fixture(autouse=True)
def _vault(monkeypatch: pytest.MonkeyPatch) -> None:
    fsspec.register_implementation("vault", Vault, clobber=True)
    monkeypatch.setenv("DQ_TEST_PASSWORD", SECRET)
    monkeypatch.setenv("DQ_TEST_RIGHT", SECRET)
    monkeypatch.setattr(storage, "_spelled", {})


def options(folder: Path, **more: Any) -> dict[str, Any]:
    return {"root": str(folder), "password": "env:DQ_TEST_PASSWORD", **more}


def test_options_reach_what_lists_and_what_opens(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    for name in ("a.txt", "sub/b.txt"):
        (tmp_path / name).write_text(name)
    (tmp_path / "n.jsonl").write_text('{"id": "x", "n": 1}\n')
    (tmp_path / "n.csv").write_text("id,n\nx,1\n")
    given = options(tmp_path)

    found = list(dq.Documents.from_glob("vault://**/*.txt", storage_options=given))

    assert [(each.key, each.where, each.text()) for each in found] == [
        ("a.txt", "vault://a.txt", "a.txt"),
        ("sub/b.txt", "vault://sub/b.txt", "sub/b.txt"),
    ]
    assert dq.Documents.from_jsonl("vault://n.jsonl", key="id", storage_options=given)[0]["n"] == 1
    assert dq.Documents.from_csv("vault://n.csv", key="id", storage_options=given)[0]["n"] == "1"
    assert dq.Documents(["vault://a.txt"], storage_options=given)[0].bytes() == b"a.txt"
    assert found[0].refreshed().text() == "a.txt"


def test_reference_names_its_options_and_travels_without_them(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("here")
    [document] = dq.Documents.from_glob("vault://*.txt", storage_options=options(tmp_path, region="eu"))

    payload = seal_value(document)

    assert len(payload) < 300
    assert sealed_key(payload) == "a.txt"
    back = pickle.loads(payload)
    assert (back, back.text()) == (document, "here")
    assert (back.where, repr(back.where)) == ("vault://a.txt", "'vault://a.txt'")


class Telling(Vault):
    """Its streams end with an error that repeats the password."""

    protocol = "telling"

    def _open(self, path: str, mode: str = "rb", **_: Any) -> Any:
        class Stream(io.BytesIO):
            def read(self, size: int | None = -1) -> bytes:
                raise PermissionError(f"token {SECRET} has expired")

        return Stream()


def test_a_secret_that_was_renewed_stays_out_of_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream that was opened with the earlier one still names it."""
    fsspec.register_implementation("telling", Telling, clobber=True)
    (tmp_path / "a.txt").write_text("here")
    [document] = dq.Documents.from_glob("telling://*.txt", storage_options=options(tmp_path))

    with document.open() as stream:
        monkeypatch.setenv("DQ_TEST_PASSWORD", "quite another one")
        with pytest.raises(PermissionError) as raised:
            stream.read()

    assert str(raised.value) == "token *** has expired"


def test_options_arrive_where_nothing_was_listed(tmp_path: Path) -> None:
    """A process that opens a document gets its options with it, and resolves secrets by itself."""
    (tmp_path / "a.txt").write_text("here")
    [document] = dq.Documents.from_glob("vault://*.txt", storage_options=options(tmp_path))
    payload = seal_value(document)

    storage._spelled.clear()

    assert pickle.loads(payload).text() == "here"
    assert SECRET.encode() not in payload


def test_reference_has_the_name_alone_of_options_that_travel_otherwise(tmp_path: Path) -> None:
    """Whatever the options are; what the same thread pickles besides has them, for it may go anywhere."""
    (tmp_path / "a.txt").write_text("here")
    [document] = dq.Documents.from_glob("vault://*.txt", storage_options=options(tmp_path, region="eu" * 5_000))
    spelled = storage.spelled_out([storage.storage_of(document.where)])
    seal = storage.naming(seal_value, spelled)

    payload = seal(document)

    assert len(payload) < 300
    assert len(seal_value(document)) > 10_000
    assert sealed_key(payload) == "a.txt"
    storage._spelled.clear()
    back = pickle.loads(payload)
    with pytest.raises(DocumentError, match="not known in process"):
        back.text()
    assert pickle.loads(pickle.dumps(back)) == back
    storage.learn(spelled)
    assert back.text() == "here"


@pytest.mark.parametrize(
    "given",
    [
        {"secret": SECRET},
        {"password": SECRET},
        {"token": SECRET},
        {"key": SECRET},
        {"client_kwargs": {"aws_secret_access_key": SECRET}},
        {"account_key": SECRET},
        {"connection_string": SECRET},
        {"sas_token": SECRET},
        {"token": {"private_key": SECRET}},
        {"token": [SECRET]},
        {"client_kwargs": {"headers": {"Authorization": SECRET}}},
    ],
)
def test_secret_itself_is_refused_and_not_repeated(given: dict[str, Any]) -> None:
    """A queue's log is a file that is copied, sent to colleagues, and kept for years."""
    with pytest.raises(UsageError) as caught:
        dq.Documents.from_glob("s3://b/*", storage_options=given)

    assert "env:" in str(caught.value)
    assert SECRET not in "".join(traceback.format_exception(caught.value))
    assert storage._spelled == {}


@pytest.mark.parametrize(
    "list_them",
    [
        lambda url: dq.Document("a.txt", "", url + "a.txt"),
        lambda url: dq.Documents.from_glob(url + "*.txt"),
        lambda url: dq.Documents.from_archive(url + "a.zip"),
        lambda url: list(dq.Documents([url + "a.txt"])),
        lambda url: list(dq.Documents.from_parquet(url + "a.parquet")),
        lambda url: list(dq.Documents.from_jsonl(url + "a.jsonl")),
        lambda url: list(dq.Documents.from_csv("simplecache::" + url + "a.csv")),
    ],
)
def test_password_in_a_url_is_refused_and_not_repeated(list_them: Callable[[str], object]) -> None:
    with pytest.raises(UsageError) as caught:
        list_them(f"ftp://me:{SECRET}@host.example.org/")

    assert "ftp://***@host.example.org/" in str(caught.value)
    assert "env:" in str(caught.value)
    assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_url_with_a_name_alone_or_an_at_sign_in_its_path_is_taken() -> None:
    for url in ("ftp://me@host.example.org/a.txt", "s3://bucket/a:b@c.txt", "memory://a.txt?x=1:2@3"):
        assert dq.Document("a.txt", "", url).where == url


def test_options_that_cannot_travel_are_refused() -> None:
    for given in (3, [("anon", True)], {"session": object()}, {1: 2}, " "):
        with pytest.raises(BadOption, match="storage_options"):
            dq.Documents.from_glob("s3://b/*", storage_options=given)  # type: ignore[arg-type]
    assert storage.check_options({"token": "anon", "anon": True, "key": None}) != ""
    assert storage.check_options({}) == storage.check_options(None) == ""


class Keyring(Vault):
    """Credentials that its library finds by itself, once, as it does where no options name them."""

    protocol = "keyring"
    cachable = True

    def __init__(self, **_: Any) -> None:
        self.found = os.environ["DQ_TEST_PASSWORD"]
        super().__init__(os.environ["DQ_TEST_ROOT"], os.environ["DQ_TEST_RIGHT"])

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        self._check()
        return super().info(path)

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        self._check()
        return super().ls(path)

    def _open(self, path: str, mode: str = "rb", **_: Any) -> Any:
        self._check()
        return super()._open(path, mode)

    def _check(self) -> None:
        if self.found != os.environ["DQ_TEST_RIGHT"]:
            raise PermissionError("the token has expired")


@pytest.mark.parametrize(
    "list_them",
    [
        lambda: dq.Documents.from_glob("keyring://*.txt"),
        lambda: dq.Documents.from_glob("keyring://a.txt"),
        lambda: dq.Documents.from_glob("keyring://sub/**/*.txt"),
        lambda: dq.Documents.from_jsonl("keyring://*.jsonl", key="n"),
        lambda: dq.Documents.from_jsonl("keyring://n.jsonl"),
        lambda: dq.Documents.from_archive("keyring://z.zip"),
        lambda: dq.Documents.from_parquet("keyring://*.parquet"),
    ],
)
@pytest.mark.parametrize("again", [False, True])
def test_a_listing_has_renewed_credentials_that_its_file_system_finds_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, list_them: Callable[[], dq.Documents], again: bool
) -> None:
    """fsspec keeps a file system with the credentials that it was opened with, for a listing of a new cell, too."""
    fsspec.register_implementation("keyring", Keyring, clobber=True)
    Keyring.clear_instance_cache()
    monkeypatch.setenv("DQ_TEST_ROOT", str(tmp_path))
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "b.txt").write_text("below")
    (tmp_path / "a.txt").write_text("here")
    (tmp_path / "n.jsonl").write_text('{"n": 1}\n')
    with zipfile.ZipFile(tmp_path / "z.zip", "w") as made:
        made.writestr("c.txt", "packed")
    pd.DataFrame({"n": [1]}).to_parquet(tmp_path / "n.parquet")
    kept = list_them()
    assert len(list(kept)) == 1

    for name in ("DQ_TEST_PASSWORD", "DQ_TEST_RIGHT"):
        monkeypatch.setenv(name, "another one")
    [document] = list_them() if again else kept

    assert document.where.startswith("keyring://")
    monkeypatch.setenv("DQ_TEST_RIGHT", "one that is not there")
    with pytest.raises((PermissionError, DqlabError)):
        list(kept)


def test_secret_that_is_not_set_names_its_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.txt").write_text("here")
    [document] = dq.Documents.from_glob("vault://*.txt", storage_options=options(tmp_path))
    monkeypatch.delenv("DQ_TEST_PASSWORD")

    with pytest.raises(DocumentError, match=f"DQ_TEST_PASSWORD is not set in process {os.getpid()}"):
        document.text()


def test_secrets_come_from_dasks_config_by_name(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("here")
    with dask.config.set({"vaults.mine": {"root": str(tmp_path), "password": SECRET}, "word": SECRET}):
        whole = dq.Documents.from_glob("vault://*.txt", storage_options="vaults.mine")
        one = dq.Documents.from_glob("vault://*.txt", storage_options=options(tmp_path, password="config:word"))
        assert (whole[0].text(), one[0].text()) == ("here", "here")
        assert SECRET not in str(storage._spelled)
        document, other = whole[0], one[0]
    with pytest.raises(DocumentError, match=r"'vaults\.mine' as a section"):
        document.text()
    with pytest.raises(DocumentError, match="DASK_WORD"):
        other.text()


def test_error_of_a_file_system_does_not_repeat_the_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would stand in the failure's record, in the log, and on the screen of who looks over a shoulder."""
    (tmp_path / "a.txt").write_text("here")
    [document] = dq.Documents.from_glob("vault://*.txt", storage_options=options(tmp_path))
    monkeypatch.setenv("DQ_TEST_PASSWORD", "an-old-secret")

    with pytest.raises(PermissionError) as caught:
        document.text()

    told = "".join(traceback.format_exception(caught.value))
    assert "password '***' is wrong" in told
    assert "an-old-secret" not in told


def test_error_of_a_coroutine_that_reads_does_not_repeat_the_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Leaky(AsyncFileSystem):  # type: ignore[misc]
        protocol = "leaky"
        cachable = False

        def __init__(self, password: str = "", **more: Any) -> None:
            super().__init__(**more)
            self.password = password

        async def _info(self, path: str, **_: Any) -> dict[str, Any]:
            return {"name": path, "size": 1, "type": "file"}

        async def _cat_file(self, path: str, start: Any = None, end: Any = None, **_: Any) -> bytes:
            raise PermissionError(f"{self.password} may not read {path}")

    fsspec.register_implementation("leaky", Leaky, clobber=True)
    [document] = dq.Documents(["leaky://a.txt"], storage_options={"password": "env:DQ_TEST_PASSWORD"})

    with pytest.raises(PermissionError, match=r"\*\*\* may not read") as caught:
        asyncio.run(document.abytes())

    assert SECRET not in "".join(traceback.format_exception(caught.value))


@pytest.mark.long
def test_one_url_of_two_stores_is_two_documents(tmp_path: Path) -> None:
    """Caches of open files go by place: the other store's file would be read."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    tables = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        pq.write_table(pa.table({"n": [name]}), tmp_path / name / "t.parquet")
        os.utime(tmp_path / name / "t.parquet", (1, 1))
        tables.append(dq.Documents.from_parquet("vault://t.parquet", storage_options=options(tmp_path / name)))

    assert [table[0]["n"] for table in tables for _ in range(2)] == ["one", "one", "two", "two"]
