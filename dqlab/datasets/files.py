"""Rows of a run as Parquet files, or published with their failures: whole under their final name, or not there at all.

Files are written under another name beside the target, synced, and put in its place by one system call. A killed
process leaves them there, hidden.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dqlab.datasets.lineage import KEY, ORDINAL
from dqlab.datasets.rows import Shape, warn_of_rest
from dqlab.datasets.table import RunTable
from dqlab.datasets.yielded import PART
from dqlab.errors import BadOption, DqlabError, RunError, UsageError, in_words
from dqlab.numbers import many
from dqlab.platforms import exchange
from dqlab.texts import shown, valid

GROUP_ROWS = 100_000
GROUP_BYTES = 16 << 20
"""Rows, and bytes in memory, at which a row group ends; a reader holds one row group."""
PART_ROWS = 1_000_000
"""Rows after which the next file of a folder begins."""
METADATA = b"dqlab"
"""Key of the run in the metadata of a file's schema."""
_WRITING = ".writing-"


class TargetTaken(UsageError):
    """The target contains something else than rows of this run, and is left unchanged."""

    text = "{path!r} has {what}, and rows of run {run!r} would take its place. Nothing was written. {steps}"


class TargetUnwritable(DqlabError):
    """Rows could not be written, and nothing of them is under the final name."""

    text = (
        "rows of run {run!r} could not be written to {path!r}: {reason}. What was written beside it was deleted, "
        "{before}, and the results in the queue are unaffected. Make room or choose another path, then write again."
    )


@dataclass(frozen=True, slots=True)
class Identity:
    """The run that rows belong to."""

    name: str
    id: str
    """Hex digits."""

    def metadata(self) -> dict[bytes, bytes]:
        """Return the metadata of a schema that names the run."""
        return {METADATA: json.dumps({"run": self.name, "id": self.id}).encode()}


def write_parquet(table: RunTable, path: str | os.PathLike[str], run: Identity) -> Path:
    """Write rows as Parquet, one page at a time, into a folder or one ``.parquet`` file, and return its path."""
    target = local_target(path)
    single = target.suffix == ".parquet"
    check_free(target, run, single=single)
    with staging(target, run) as folder:
        shape = Writer(folder, run, rows_per_file=None if single else PART_ROWS).write(table)
        made = sorted(folder.glob("part-*.parquet"))
        # `check_free` again at the end, because writing takes long.
        put_in_place(made[0] if single else folder, target, run, lambda: check_free(target, run, single=single))
    warn_of_rest(run.name, shape)
    return target


def local_target(path: str | os.PathLike[str]) -> Path:
    """Return a path as an absolute one, or raise `BadOption` for a URL, or for something that is not a path."""
    if not isinstance(path, str | os.PathLike):
        raise BadOption(option="path", value=path, problem="is not a path. Name a folder, such as 'out/'.")
    text = os.fspath(path)
    if not isinstance(text, str) or not text or "://" in text:
        problem = (
            "is not a path on this machine. For a bucket: pyarrow.parquet.write_table(run.table().to_arrow(), ...)."
        )
        raise BadOption(option="path", value=path, problem=problem)
    return Path(text).expanduser().absolute()


class Writer:
    """Writes a table into a folder as ``part-00000.parquet`` and so on, all with the schema after the last row."""

    def __init__(self, folder: Path, run: Identity, *, rows_per_file: int | None) -> None:
        self._folder, self._run, self._rows_per_file = folder, run, rows_per_file

    def write(self, table: RunTable) -> Shape:
        """Write all rows, and return their final shape."""
        reading = table.reading()
        files, shape = self._written("early", reading), reading.shape
        if not files or any(not file.schema.equals(shape.schema) for file in files):
            early, files = files, self._written("whole", _recast(files, shape), shape.schema)
            for file in early:
                file.path.unlink()
        for number, file in enumerate(files):
            file.path.rename(self._folder / f"part-{number:05d}.parquet")
        return shape

    def _written(self, name: str, batches: Iterable[Any], schema: Any = None) -> list[_File]:
        """Write batches into files, another one for each schema; given a schema, one without rows if there are none."""
        files = list[_File]()
        for batch in batches:
            if not files or not files[-1].takes(batch, self._rows_per_file):
                if files:
                    files[-1].close()
                files.append(_File(self._folder / f"{name}-{len(files)}", batch.schema, self._run))
            files[-1].write(batch)
        if not files and schema is not None:
            files.append(_File(self._folder / name, schema, self._run))
        if files:
            files[-1].close()
        return files


def _recast(files: Iterable[_File], shape: Shape) -> Iterator[Any]:
    for file in files:
        with pq.ParquetFile(file.path) as source:
            yield from map(shape.recast, source.iter_batches(GROUP_ROWS))


class _File:
    """A Parquet file that collects rows into row groups."""

    def __init__(self, path: Path, schema: Any, run: Identity) -> None:
        self.path, self.schema, self.rows = path, schema, 0
        self._writer = pq.ParquetWriter(path, schema.with_metadata(run.metadata()), compression="zstd")
        self._batches: list[Any] = []
        self._held = self._bytes = 0

    def takes(self, batch: Any, most: int | None) -> bool:
        """Return whether a batch has its schema, and there is room."""
        return bool(self.schema.equals(batch.schema)) and (most is None or self.rows < most)

    def write(self, batch: Any) -> None:
        """Add rows."""
        self._batches.append(batch)
        self.rows += batch.num_rows
        self._held, self._bytes = self._held + batch.num_rows, self._bytes + batch.nbytes
        if self._held >= GROUP_ROWS or self._bytes >= GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._batches:
            self._writer.write_table(pa.Table.from_batches(self._batches, self.schema), row_group_size=GROUP_ROWS)
            self._batches, self._held, self._bytes = [], 0, 0
            # Arrow's allocator would keep the buffers of the row group, some 20 MB that nothing needs.
            pa.default_memory_pool().release_unused()

    def close(self) -> None:
        """Write the remaining rows, and sync the file."""
        self._flush()
        self._writer.close()
        sync(self.path)


# --- names ---------------------------------------------------------------------------------------


@contextmanager
def staging(target: Path, run: Identity) -> Iterator[Path]:
    """Yield a temporary folder beside the target, and turn errors of the disk into `TargetUnwritable`."""
    before = "what stood there is as it was" if target.exists() else "nothing stands under that name"
    folder = target.parent / f".{target.name}{_WRITING}{uuid.uuid4().hex[:8]}"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o777)
        yield folder
    except OSError as error:
        reason = error.strerror or in_words(error)
        raise TargetUnwritable(run=run.name, path=str(target), reason=reason, before=before) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def put_in_place(made: Path, target: Path, run: Identity, check: Callable[[], None]) -> None:
    """Give what was made the target's name in one step, in place of what is there, unless `check` refuses."""
    # Check once more: another process may have written there meanwhile. Sync before the rename, so that a power failure
    # leaves the old content or the new.
    check()
    if made.is_file():
        made.replace(target)
    elif target.is_dir() and any(target.iterdir()):
        sync(made)
        if not exchange(made, target):
            what = "rows of this run, and this file system cannot put others in their place at once"
            raise TargetTaken(
                run=run.name, path=str(target), what=what, steps="Delete it first, or choose another path."
            )
    else:
        sync(made)
        made.rename(target)  # replaces an empty folder
    sync(target.parent)


def sync(path: Path) -> None:
    """Sync a file, or the names in a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError:
        if not path.is_dir():  # not every file system syncs folders
            raise
    finally:
        os.close(descriptor)


def run_of(path: Path) -> Identity | None:
    """Return the run of a Parquet file, or None for a file that dqlab did not write."""
    try:
        metadata = pq.read_schema(path).metadata or {}
        said = json.loads(metadata[METADATA])
        return Identity(said["run"], said["id"])
    except (KeyError, TypeError, ValueError, OSError, pa.ArrowException):
        return None


def check_free(target: Path, run: Identity, *, single: bool = False, beside: str = "") -> None:
    """Raise `TargetTaken` for a target with anything but Parquet files of this run, and one called `beside`."""
    if not target.exists():
        return
    if target.is_dir() == single:
        what = "a folder" if single else "a file"
        steps = "Choose another path; one that ends in .parquet is a file, others are folders."
        raise TargetTaken(run=run.name, path=str(target), what=what, steps=steps)
    files = [target] if single else sorted(target.iterdir())
    steps = "Choose another path, or delete it first."
    for file in files:
        found = run_of(file) if file.suffix == ".parquet" else None
        if found is None and (file.name != beside or len(files) == 1):
            what = f"{'a file' if single else repr(file.name)} that dqlab did not write"
            raise TargetTaken(run=run.name, path=str(target), what=what, steps=steps)
        if found is not None and found.id != run.id:
            what = f"rows of run {found.name!r}" if found.name != run.name else "rows of another run of that name"
            raise TargetTaken(run=run.name, path=str(target), what=what, steps=steps)


# --- a run as a folder that others can use without dqlab ---

SCHEMA = 1
"""Version of the manifest's layout."""
RESULTS, FAILURES, MANIFEST = "results.parquet", "failures.parquet", "manifest.json"
LIBRARIES = ("dqlab", "dask", "distributed", "cloudpickle", "numpy", "pandas", "pyarrow")
FAILURES_AT_ONCE = 1_000
_TEXTS = ("error", "message", "reason", "at", "traceback", "fingerprint")
"""What a failure says."""
_KINDS = dict.fromkeys((KEY, *_TEXTS, "_code", "_consumer"), pa.string())
_KINDS |= dict.fromkeys((ORDINAL, "deliveries", "exceptions"), pa.int64()) | {"_at": pa.timestamp("us", tz="UTC")}
_FAILURES = pa.schema(
    [(name, _KINDS[name]) for name in (KEY, ORDINAL, *_TEXTS, "deliveries", "exceptions", "_code", "_consumer", "_at")]
)


@dataclass(frozen=True, slots=True)
class Published:
    """What was published, and where.

    Attributes
    ----------
    path : Path
        The folder, with ``results.parquet``, ``failures.parquet`` and ``manifest.json``.
    rows, failures : int
        Numbers of rows and failures.
    in_rest : int
        Rows with values in ``_rest``.
    nbytes : int
        Size of the files, in bytes.
    """

    path: Path
    rows: int
    failures: int
    in_rest: int
    nbytes: int

    def __str__(self) -> str:
        rest = f", {self.in_rest:,} of them with values in _rest" if self.in_rest else ""
        return f"{self.path}: {many(self.rows, 'row')}{rest}, {many(self.failures, 'failure')}"


def publish(
    table: RunTable,
    failures: Iterable[Any],
    path: str | os.PathLike[str],
    run: Identity,
    facts: Callable[[], Mapping[str, Any]],
) -> Published:
    """Write a run's rows, failures and manifest into a folder, and return what was written."""
    target = local_target(path)
    check_free(target, run, beside=MANIFEST)
    with staging(target, run) as folder:
        shape = Writer(folder, run, rows_per_file=None).write(table)
        (part,) = folder.glob("part-*.parquet")
        part.rename(folder / RESULTS)
        dead = _write_failures(failures, folder / FAILURES, run)
        # Ask for the facts after all rows and failures are written: only then do unchanged counts prove that the run
        # did not change meanwhile.
        rows, about = pq.read_metadata(folder / RESULTS).num_rows, dict(facts())
        counts = about["counts"]
        results = table.count() if PART in shape.schema.names else rows  # a document may have several rows
        if (counts["acked"], counts["dead"]) != (results, dead):
            raise RunError(
                run=run.name,
                reason=f"it changed while it was published: {many(rows, 'row')} and {many(dead, 'failure')} were read, "
                f"and it now has {counts['acked']:,} and {counts['dead']:,}. Nothing stands under the final name. Wait "
                "until it is no longer retried, then publish it again.",
            )
        _write_manifest(folder, run, shape, rows, dead, about)
        nbytes = sum(file.stat().st_size for file in folder.iterdir())
        put_in_place(folder, target, run, lambda: check_free(target, run, beside=MANIFEST))
    warn_of_rest(run.name, shape)
    return Published(target, rows, dead, shape.in_rest, nbytes)


def _write_failures(failures: Iterable[Any], path: Path, run: Identity) -> int:
    count = 0
    with pq.ParquetWriter(path, _FAILURES.with_metadata(run.metadata()), compression="zstd") as writer:
        page: list[dict[str, Any]] = []
        for letter in failures:
            page.append(_failure(letter))
            count += 1
            if len(page) == FAILURES_AT_ONCE:
                writer.write_table(pa.Table.from_pylist(page, _FAILURES))
                page.clear()
        writer.write_table(pa.Table.from_pylist(page, _FAILURES))
    sync(path)
    return count


def _failure(letter: Any) -> dict[str, Any]:
    named = {KEY: str(letter.key), ORDINAL: letter.ordinal, "_code": letter.version, "_consumer": letter.consumer}
    named |= {name: getattr(letter, name) for name in _TEXTS}
    texts = {name: shown(text) if isinstance(text, str) else text for name, text in named.items()}
    when = None if letter.when is None else round(letter.when * 1e6)
    return texts | {"deliveries": letter.deliveries, "exceptions": letter.exceptions, "_at": when}


def _write_manifest(folder: Path, run: Identity, shape: Shape, rows: int, failures: int, about: dict[str, Any]) -> None:
    sizes = {name: (folder / name).stat().st_size for name in (RESULTS, FAILURES)}
    said = {
        "schema": SCHEMA,
        "run": {"name": run.name, "id": run.id, **about.pop("run", {})},
        **about,
        "results": {
            "file": RESULTS,
            "rows": rows,
            "bytes": sizes[RESULTS],
            "rows_with_rest": shape.in_rest,
            "columns": {field.name: str(field.type) for field in shape.schema},
        },
        "failures": {"file": FAILURES, "rows": failures, "bytes": sizes[FAILURES]},
        "versions": {"python": platform.python_version()} | _versions(),
    }
    path = folder / MANIFEST
    path.write_text(json.dumps(valid(said), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    sync(path)


def _versions() -> dict[str, str]:
    found = {}
    for name in LIBRARIES:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found
