"""Contestants of room `documents`, each in a process of its own, so that its CPU time and memory are its own.

Reads questions, JSON line by line: ``{"do": name, ...}``; answers each with what was measured.
"""

from __future__ import annotations

import inspect
import json
import multiprocessing
import os
import shutil
import sys
import threading
import time
import zipfile
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import dqlab as dq
from benchmarks.documents_work import (
    busy_words,
    pages_of,
    serve,
    waiting_words,
    words_of_member,
    words_of_part,
    words_of_row,
)
from benchmarks.processes import peak_bytes, tree_cpu_s
from benchmarks.stage import SLOTS, dask_cluster

Answer = dict[str, float]


def measured(work: Callable[[], int]) -> Answer:
    """Return the CPU seconds of this process and all below it, the seconds that passed, and the answer."""
    before, start = tree_cpu_s(os.getpid()), time.perf_counter()
    answer = work()
    return {"cpu": tree_cpu_s(os.getpid()) - before, "s": time.perf_counter() - start, "answer": answer}


def unevenness(found: Iterable[tuple[int, int, float]]) -> Answer:
    """Return the share of the busiest process over an even one, and the number of pages."""
    busy: dict[int, float] = defaultdict(float)
    pages = 0
    for count, pid, seconds in found:
        pages += count
        busy[pid] += seconds
    return {"over": max(busy.values()) / (sum(busy.values()) / SLOTS), "answer": pages}


# --- dqlab ----------------------------------------------------------------------------------


def as_users_write_it(lab: dq.Lab, path: str, out: str) -> None:
    # The line of the definition, and of `def words(doc)` with its body, count as lines that a user writes.
    papers = dq.Documents.from_parquet(path, key="id", columns=["text"])
    run = lab.map(words_of_row, papers, name="words")
    run.results().to_frame().to_parquet(out)


class Dqlab:
    """A lab, as a notebook has one."""

    def __init__(self, opened: ExitStack) -> None:
        self.lab = opened.enter_context(dq.connect(n=SLOTS, name="documents"))
        self.lab.map(abs, [-1], name="warm").results()

    def lines(self) -> Answer:
        body = [line for line in inspect.getsource(as_users_write_it).splitlines()[1:] if "#" not in line]
        return {"answer": len(body) + 2}

    def rows(self, path: str, out: str) -> Answer:
        import pyarrow.compute
        import pyarrow.parquet as pq

        def work() -> int:
            as_users_write_it(self.lab, path, out)
            return 0

        found = measured(work)
        self._drop("words")
        return found | {"answer": pyarrow.compute.sum(pq.read_table(out)["words"]).as_py()}

    def first(self, path: str) -> Answer:
        start = time.perf_counter()
        run = self.lab.map(words_of_row, dq.Documents.from_parquet(path, key="id", columns=["text"]), name="first")
        _ = next(iter(run.as_completed(timeout=60)))
        seconds = time.perf_counter() - start
        run.cancel()
        self._drop("first")
        return {"s": seconds}

    def memory(self, path: str) -> Answer:
        _ = dq.Documents.from_parquet(path)[0].row  # what is imported for that is not of the rows
        before = peak_bytes()
        run = self.lab.map(words_of_row, dq.Documents.from_parquet(path, key="id", columns=["text"]), name="memory")
        run.wait()
        grown, count = peak_bytes() - before, run.counts["acked"]
        self._drop("memory")
        return {"bytes": grown, "answer": count}

    def archive(self, path: str) -> Answer:
        documents = dq.Documents.from_archive(path)
        found = measured(lambda: sum(self.lab.map(words_of_member, documents, name="archive").results()))
        self._drop("archive")
        return found

    def opening(self, path: str, n: int) -> Answer:
        documents = list(dq.Documents.from_archive(path)[: n + 1])
        documents[0].bytes()
        start = time.perf_counter()
        for document in documents[1:]:
            document.bytes()
        return {"s": (time.perf_counter() - start) / n}

    def pdfs(self, folder: str, split: int | None) -> Answer:
        documents = dq.Documents.from_glob(f"{folder}/*.pdf")
        run = self.lab.map(words_of_part, documents if split is None else documents.split(split), name="pdfs")
        found = unevenness(run.results())
        self._drop("pdfs")
        return found

    def latency(self, folder: str, busy: bool) -> Answer:
        function = busy_words if busy else waiting_words
        sizes = {path.name: path.stat().st_size for path in sorted(Path(folder).iterdir())}
        names = list(sizes)
        server = serve(Path(folder))
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            took = {}
            for kind, where in (("near", folder), ("far", f"http://127.0.0.1:{server.server_port}")):
                documents = [dq.Document(name, "", f"{where}/{name}", sizes[name]) for name in names]
                start = time.perf_counter()
                self.lab.map(function, documents, name=kind).results()
                took[kind] = time.perf_counter() - start
                self._drop(kind)
        finally:
            server.shutdown()
            thread.join()
            server.server_close()
        return {"of_near": took["near"] / took["far"], "answer": len(names)}

    def _drop(self, name: str) -> None:
        self.lab.attach(name).drop()


# --- by hand --------------------------------------------------------------------------------


def words_of_group(task: tuple[str, int, str]) -> int:
    """Count the words of a row group, and write them beside those of others."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path, group, out = task
    table = pq.ParquetFile(path).read_row_group(group, columns=["id", "text"])
    words = [len(text.split()) for text in table["text"].to_pylist()]
    pq.write_table(pa.table({"id": table["id"], "words": words}), f"{out}/{group:05}.parquet")
    return sum(words)


def words_of_members(task: tuple[str, list[str]]) -> int:
    """Count the words of some members of a zip, opened once for them."""
    path, names = task
    with zipfile.ZipFile(path) as archive:
        return sum(len(archive.read(name).decode().split()) for name in names)


class Pool:
    """A pool of processes, and the glue that people write around it."""

    CHUNK = 500

    def __init__(self, opened: ExitStack) -> None:
        self.pool = opened.enter_context(multiprocessing.get_context("spawn").Pool(SLOTS))
        self.pool.map(abs, range(100))

    def rows(self, path: str, out: str) -> Answer:
        import pyarrow.parquet as pq

        shutil.rmtree(out, ignore_errors=True)
        Path(out).mkdir()
        groups = pq.ParquetFile(path).num_row_groups
        return measured(lambda: sum(self.pool.map(words_of_group, [(path, at, out) for at in range(groups)], 1)))

    def archive(self, path: str) -> Answer:
        def work() -> int:
            with zipfile.ZipFile(path) as archive:
                names = archive.namelist()
            tasks = [(path, names[at : at + self.CHUNK]) for at in range(0, len(names), self.CHUNK)]
            return sum(self.pool.map(words_of_members, tasks, 1))

        return measured(work)

    def pdfs(self, folder: str, split: int | None) -> Answer:
        return unevenness(self.pool.imap_unordered(pages_of, sorted(map(str, Path(folder).glob("*.pdf")))))


class Dask:
    """A cluster of Dask without dqlab, and `map_partitions`."""

    def __init__(self, opened: ExitStack) -> None:
        from distributed import Client

        cluster = opened.enter_context(dask_cluster(SLOTS))
        self.client = opened.enter_context(Client(cluster))
        self.client.gather(self.client.map(abs, range(100)))

    def rows(self, path: str, out: str) -> Answer:
        import dask.dataframe as dd
        import pyarrow.compute
        import pyarrow.parquet as pq

        shutil.rmtree(out, ignore_errors=True)

        def work() -> int:
            frame = dd.read_parquet(path, columns=["id", "text"], split_row_groups=True)
            counted = frame.map_partitions(words_of_frame, meta={"id": "int64", "words": "int64"})
            counted.to_parquet(out, write_index=False)
            return 0

        return measured(work) | {"answer": pyarrow.compute.sum(pq.read_table(out)["words"]).as_py()}

    def pdfs(self, folder: str, split: int | None) -> Answer:
        futures = self.client.map(pages_of, sorted(map(str, Path(folder).glob("*.pdf"))), pure=False)
        return unevenness(self.client.gather(futures))


def words_of_frame(part: Any) -> Any:
    """Count the words of a partition."""
    return part.assign(words=[len(text.split()) for text in part["text"]])[["id", "words"]]


# --- listings -------------------------------------------------------------------------------


class Listing:
    """A process that lists a bucket, once: memory that was freed is used again."""

    def __init__(self, opened: ExitStack) -> None:
        import s3fs  # noqa: F401 - part of what a process has before

    def bucket(self, url: str, by: str) -> Answer:
        import s3fs

        options = {"anon": True, "endpoint_url": url}
        for _ in dq.Documents.from_glob("s3://bucket/warm/*", storage_options=options):
            pass
        before, start = peak_bytes(), time.perf_counter()
        if by == "dqlab":
            keys = iter(dq.Documents.from_glob("s3://bucket/keys/**", storage_options=options))
        else:
            keys = iter(s3fs.S3FileSystem(**options).find("bucket/keys", detail=True).items())
        _ = next(keys)
        first = time.perf_counter() - start
        count = 1 + sum(1 for _ in keys)
        return {"first": first, "bytes": peak_bytes() - before, "answer": count}


class Server:
    """A bucket of so many keys, in a process of its own."""

    def __init__(self, opened: ExitStack) -> None:
        self._opened = opened

    def serve(self, keys: int) -> Any:
        from tests.kit.stores import s3

        names = sorted(["warm/1.txt", *(f"keys/{at // 1000:04}/report-{at:08}.pdf" for at in range(keys))])
        served: AbstractContextManager[Any] = s3(names)
        return {"url": self._opened.enter_context(served).url}


KINDS: dict[str, type] = {"dqlab": Dqlab, "pool": Pool, "dask": Dask, "listing": Listing, "server": Server}


def main(kind: str) -> None:
    """Answer questions until the input ends."""
    with ExitStack() as opened:
        contestant = KINDS[kind](opened)
        print('"ready"', flush=True)
        for line in sys.stdin:
            asked = json.loads(line)
            answer = getattr(contestant, asked.pop("do"))(**asked)
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
