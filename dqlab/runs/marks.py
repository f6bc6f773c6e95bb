"""Reports of users' actions to the scheduler, which marks them in every chart."""

from __future__ import annotations

import getpass
import os
from contextlib import suppress
from datetime import datetime
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from dqlab.cluster.transport.link import Link
from dqlab.errors import DqlabError
from dqlab.notebook import running_cell
from dqlab.texts import shown

if TYPE_CHECKING:
    from dqlab.runs.run import Run

PATIENCE = 5.0
"""Seconds that a report may take, while nothing waits for it."""


def mark(link: Link, text: str, queue: str, *, cell: int | None = None, by: str = "") -> None:
    """Report to the scheduler in two or three words what a user did, without waiting and ignoring failures."""
    # `cell` is the number of the notebook cell, by default of the running one; `by` is from `pausing()`, for a pause.
    number = cell if cell is not None else running_cell()
    _report(link, "dq_mark", text=shown(text), cell=number, queue=queue, by=shown(by))


def tell(run: Run, text: str = "", *, due: float | None = None) -> None:
    """Report what is done to a run beside its work, and in how many seconds it goes on, without waiting."""
    _report(run.handle.link, "dq_tell", run=run.id.hex(), text=shown(text), due=due)


def _report(link: Link, method: str, **what: Any) -> None:
    async def report() -> None:
        with suppress(DqlabError):
            await link.scheduler(method, timeout=PATIENCE, **what)

    with suppress(DqlabError):
        link.start(report())


def pausing() -> str:
    """Return the user and the time of a pause made now, such as ``by ana, 13:34``."""
    return f"by {_user()}, {datetime.now().astimezone():%H:%M}"


def owner() -> str:
    """Return the user who makes a run here, with the notebook if there is one, such as ``ana, invoices.ipynb``."""
    notebook = PurePath(os.environ.get("JPY_SESSION_NAME", "")).name  # as Jupyter passes it to its kernels
    return shown(f"{_user()}, {notebook}" if notebook else _user())


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a user without a name, as in some containers
        return "unknown user"
