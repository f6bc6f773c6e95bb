"""What the contestants of room `documents` read, and the functions that they run; importable by every process."""

from __future__ import annotations

import os
import random
import time
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.kit.pdfs import make_pdf

__all__ = [
    "LATENCY_S",
    "Slow",
    "busy_words",
    "crunched",
    "make_archive",
    "make_pdfs",
    "make_rows",
    "make_texts",
    "pages_of",
    "serve",
    "waiting_words",
    "words_of_member",
    "words_of_part",
    "words_of_row",
]

GROUP = 10_000
"""Rows of a row group."""
LATENCY_S = 0.02
CRUNCH_S = 0.01
"""CPU time of a document that is read from far away."""
_VOCABULARY = [
    f"{stem}{end}" for stem in ("paper", "queue", "river", "method", "light") for end in ("", "s", "ed", "ing")
]


def _texts(n: int, longest: int) -> Iterator[str]:
    draw = random.Random(20_161_121)
    for _ in range(n):
        yield " ".join(draw.choices(_VOCABULARY, k=draw.randint(1, longest)))


def make_rows(path: Path, n: int) -> int:
    """Write a Parquet file of texts with keys; return how many words are in them."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema, words, texts = pa.schema([("id", pa.int64()), ("text", pa.string())]), 0, _texts(n, 60)
    with pq.ParquetWriter(path, schema) as out:
        for lo in range(0, n, GROUP):
            part = [next(texts) for _ in range(min(GROUP, n - lo))]
            words += sum(len(text.split()) for text in part)
            out.write_table(pa.table({"id": range(lo, lo + len(part)), "text": part}, schema=schema))
    return words


def make_archive(path: Path, n: int) -> int:
    """Write a zip of texts; return how many words are in them."""
    words = 0
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out:
        for at, text in enumerate(_texts(n, 60)):
            out.writestr(f"{at % 100:02}/{at:06}.txt", text)
            words += len(text.split())
    return words


def make_pdfs(folder: Path, files: int, pages: int) -> int:
    """Write PDFs of uneven length, a third of all pages in one of them; return the number of pages."""
    draw = random.Random(20_161_121)
    weights = [draw.lognormvariate(0.0, 1.3) for _ in range(files - 1)]
    lengths = [max(1, round(2 / 3 * pages * weight / sum(weights))) for weight in weights]
    lengths.insert(files // 2, max(1, pages - sum(lengths)))
    folder.mkdir()
    lines = list(_texts(45, 12))
    for at, length in enumerate(lengths):
        texts = ("\n".join([f"page {page}", *lines[page % 7 :]]) for page in range(length))
        (folder / f"{at:03}.pdf").write_bytes(make_pdf(*texts))
    return sum(lengths)


def make_texts(folder: Path, n: int) -> None:
    """Write small texts."""
    folder.mkdir()
    for at, text in enumerate(_texts(n, 200)):
        (folder / f"{at:05}.txt").write_text(text)


# --- functions of dqlab's contestants -------------------------------------------------------


def words_of_row(doc: Any) -> dict[str, int]:
    """Count the words of a row."""
    return {"words": len(doc["text"].split())}


def words_of_member(doc: Any) -> int:
    """Count the words of a text."""
    return len(doc.text().split())


def words_of_part(doc: Any) -> tuple[int, int, float]:
    """Return pages of a PDF, the process that read them, and the seconds that it took."""
    start = time.perf_counter()
    count = sum(1 for page in doc.pages() if page.text())
    return count, os.getpid(), time.perf_counter() - start


def crunched(text: str) -> int:
    """Count words for a fixed CPU time."""
    until = time.thread_time() + CRUNCH_S
    words = len(text.split())
    while time.thread_time() < until:
        words = len(text.split())
    return words


def busy_words(doc: Any) -> int:
    """Count the words of a text that is read from near or far; keeps a processor busy."""
    return crunched(doc.text())


def waiting_words(doc: Any) -> int:
    """Count the words of a text that is read from near or far; waits as long for another device, as a model does."""
    text = doc.text()
    time.sleep(CRUNCH_S)
    return len(text.split())


def pages_of(path: str) -> tuple[int, int, float]:
    """Do as `words_of_part` does, with PDFium alone: what a person writes by hand."""
    import pypdfium2

    start = time.perf_counter()
    with pypdfium2.PdfDocument(path) as pdf:
        count = sum(1 for page in pdf if page.get_textpage().get_text_bounded())
    return count, os.getpid(), time.perf_counter() - start


# --- a store that is far away ---------------------------------------------------------------


class Slow(BaseHTTPRequestHandler):
    """Gives the files of a folder, each read `LATENCY_S` late."""

    protocol_version = "HTTP/1.1"
    folder: Path

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        time.sleep(LATENCY_S)
        self.wfile.write(self._answer())

    def _answer(self) -> bytes:
        body = (self.folder / Path(self.path).name).read_bytes()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        return body

    def log_message(self, format: str, *args: object) -> None:
        """Write nothing to stderr."""


class Server(ThreadingHTTPServer):
    """Takes as many connections at once as servers do: beyond Python's five, each waits a second to try again."""

    request_queue_size = 128


def serve(folder: Path) -> ThreadingHTTPServer:
    """Return a server of a folder; its caller runs it."""
    return Server(("127.0.0.1", 0), type("SlowHere", (Slow,), {"folder": folder}))
