"""A Snapshot whose runs are shown in an order that somebody asked for."""

from __future__ import annotations

from dataclasses import dataclass, fields

from dqlab.live import details
from dqlab.live.display import RUNS_OF_STATUS, table_bundle
from dqlab.live.run_table import SortBy
from dqlab.live.tables import runs_table, status_table
from dqlab.stats import Snapshot

__all__ = ["Status", "sorted_status", "status_bundle"]


@dataclass(frozen=True, slots=True)
class Status(Snapshot):
    """A Snapshot, and what its runs are sorted by where it is shown."""

    by: SortBy = SortBy.NEED


def sorted_status(snapshot: Snapshot, by: SortBy) -> Snapshot:
    """Return a Snapshot that is shown in some order; those that need the user come first by themselves."""
    if by is SortBy.NEED:
        return snapshot
    return Status(**{field.name: getattr(snapshot, field.name) for field in fields(snapshot)}, by=by)


def status_bundle(status: Status, **_: object) -> dict[str, str]:
    """Return it as text and, unless only text is wanted, as HTML."""
    runs = status.runs[:RUNS_OF_STATUS]
    table = runs_table(runs, status.runs_total - len(runs), status.attention, status.by)
    tables = [table, status_table(status)] if runs else [status_table(status)]
    return table_bundle(*tables, needs=details.needs(status.attention, ()))
