"""Word the Python that a run's widget offers, cells to insert, and run none of it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

from dqlab import numbers
from dqlab.live.feeds import cluster_of, is_lab
from dqlab.live.views import Offers
from dqlab.notebook import shell
from dqlab.stats import RunStats
from dqlab.texts import as_word, one_line

CANARY = 100
"""Dead documents above which a retry of so many is offered first; the sidebar has the same number."""


class NotebookNames(NamedTuple):
    """The notebook's names for a run and its lab, empty where it has none."""

    run: str = ""
    lab: str = ""
    magic: bool = False
    """The notebook has `%dq`."""
    cluster: str = ""
    """Address of the scheduler, by which the front end finds the service."""


NO_NAMES = NotebookNames()


def names_here(source: object) -> NotebookNames:
    """Return the notebook's names for a run and its lab."""
    known: Mapping[str, Any] = dict(vars(sys.modules["__main__"])) if "__main__" in sys.modules else {}
    mine = {name: value for name, value in known.items() if not name.startswith("_")}
    runs = [name for name, value in mine.items() if value is source]
    labs = [item for item in mine.items() if is_lab(item[1]) and not isinstance(item[1], type) and not item[1].closed]
    cluster = cluster_of(source)
    # A lab of another cluster cannot attach this run.
    own = [name for name, lab in labs if not cluster or cluster_of(lab) == cluster]
    magics = getattr(shell(), "find_line_magic", None)
    run, lab = min(runs, key=len, default=""), own[0] if own else ""
    return NotebookNames(run, lab, bool(magics and magics("dq")), cluster)


def first(dead: int) -> int:
    """Return how many of many dead documents are retried first, and 0 where all are retried together."""
    return CANARY if dead > CANARY else 0


def offers(stats: RunStats, source: str | None, names: NotebookNames, *, newer: bool = False) -> Offers:
    """Return what can be done with a run in the notebook."""
    run, name = _handle(stats.name, names), stats.code.name
    named = source is not None and name.isidentifier()
    results, without = _results(run, stats, names)
    return Offers(
        cluster=names.cluster,
        queue=one_line(stats.queue, 80),
        run=one_line(stats.name, 80),
        results=f"# {without}\n{results}" if without else results,
        code=(source or "").rstrip("\n") if named else "",
        label=f"Insert cell with {name}(){f' v{stats.code.version}' if newer else ''}" if named else "",
        open="%dq open" if names.magic else f"{names.lab or 'lab'}.panel()",
    )


def _results(run: str, stats: RunStats, names: NotebookNames) -> tuple[str, str]:
    """Return the line that gets the existing results, and words for the missing ones."""
    missing = _missing(stats)
    # Without `--errors skip` the line would raise where documents have no result.
    if names.magic and not names.run:
        return f"%dq results {as_word(stats.name)}{' --errors skip' if missing else ''}", missing
    return run + ('.results(errors="skip").to_frame()' if missing else ".results()"), missing


def _missing(stats: RunStats) -> str:
    """Return which documents have no result and never will, and "" when there are none."""
    counts = stats.counts
    kinds = ("dead", counts.dead), ("cancelled", counts.cancelled), ("lost", counts.lost)
    parts = [f"{numbers.count(amount)} {word}" for word, amount in kinds if amount]
    return f"without the documents that have no result: {', '.join(parts)}" if parts else ""


def run_here(letter: Any, stats: RunStats, names: NotebookNames) -> str:
    """Return the cell that runs a dead document here, under the debugger where it fails."""
    # By key, which any later run has too: a position is valid in one run. A key that is cut may be that of several
    # documents.
    named = type(letter.key) is str and one_line(letter.key) == letter.key and not letter.key.startswith("#")
    word = letter.key if named else f"#{letter.ordinal}"
    if names.magic:
        return f"%dq debug {as_word(word)} {as_word(stats.name)}"
    return f"{_handle(stats.name, names)}.debug({word!r})"


def _handle(name: str, names: NotebookNames) -> str:
    return names.run or f"{names.lab or 'lab'}.attach({name!r})"
