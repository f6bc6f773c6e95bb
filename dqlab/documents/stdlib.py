"""The Python standard library as documents: everybody has it, and its sizes are heavy-tailed.

Owns what counts as the standard library: its Python sources, without its tests and without what
was installed beside it.
"""

from __future__ import annotations

import sysconfig
from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from dqlab.documents.document import LINES_PER_PAGE, Document
from dqlab.documents.pattern import Pattern
from dqlab.documents.places import LocalFolder
from dqlab.documents.sources import Glob

__all__ = ["stdlib"]

_TESTS = frozenset({"test", "tests", "idle_test"})


def stdlib() -> Glob:
    """List the sources of the Python that runs this, each with its number of pages.

    Raises
    ------
    FolderNotFound
        This Python came without its sources.
    """
    folder = LocalFolder(sysconfig.get_paths()["stdlib"])
    return Glob(folder, Pattern("**/*.py"), "Documents.stdlib()", enter=_is_library, finish=_with_pages)


def _is_library(folder: str) -> bool:
    # Only packages have names that can be imported: this leaves out site-packages, dist-packages,
    # lib-dynload and the build's config-3.12-x86_64-linux-gnu.
    return folder.isidentifier() and folder not in _TESTS


def _with_pages(document: Document) -> Document:
    with document.open() as stream:
        lines = _count_lines(iter(partial(stream.read, 1 << 16), b""))
    return replace(document, n_pages=max(1, -(-lines // LINES_PER_PAGE)))


def _count_lines(chunks: Iterable[bytes]) -> int:
    ended, last = 0, b"\n"
    for chunk in chunks:
        ended, last = ended + chunk.count(b"\n"), chunk
    return ended + (not last.endswith(b"\n"))
