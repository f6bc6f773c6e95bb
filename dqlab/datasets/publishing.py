"""A run as a folder that others can use without dqlab: rows, failures, and a manifest of where they come from."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dqlab.datasets.files import Identity, Writer, check_free, local_target, put_in_place, staging, sync
from dqlab.datasets.lineage import KEY, ORDINAL
from dqlab.datasets.rows import Shape, warn_of_rest
from dqlab.datasets.table import RunTable
from dqlab.datasets.yielded import PART
from dqlab.errors import RunError
from dqlab.numbers import many
from dqlab.texts import shown, valid

SCHEMA = 1
"""Version of the manifest's layout."""
RESULTS, FAILURES, MANIFEST = "results.parquet", "failures.parquet", "manifest.json"
LIBRARIES = ("dqlab", "dask", "distributed", "cloudpickle", "numpy", "pandas", "pyarrow")
FAILURES_AT_ONCE = 1_000
_FAILURES = pa.schema(
    [
        (KEY, pa.string()),
        (ORDINAL, pa.int64()),
        ("error", pa.string()),
        ("message", pa.string()),
        ("reason", pa.string()),
        ("at", pa.string()),
        ("traceback", pa.string()),
        ("fingerprint", pa.string()),
        ("deliveries", pa.int64()),
        ("exceptions", pa.int64()),
        ("_code", pa.string()),
        ("_consumer", pa.string()),
        ("_at", pa.timestamp("us", tz="UTC")),
    ]
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
    for name in ("error", "message", "reason", "at", "traceback", "fingerprint"):
        named[name] = getattr(letter, name)
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
