"""Reports of users' actions to the scheduler, which marks them in every chart."""

from __future__ import annotations

import getpass
import os
from contextlib import suppress
from datetime import datetime
from pathlib import PurePath
from typing import TYPE_CHECKING

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

    async def tell() -> None:
        with suppress(DqlabError):
            arguments = {"cell": cell if cell is not None else running_cell(), "queue": queue, "by": shown(by)}
            await link.scheduler("dq_mark", text=shown(text), timeout=PATIENCE, **arguments)

    with suppress(DqlabError):
        link.start(tell())


def tell(run: Run, text: str = "", *, due: float | None = None) -> None:
    """Report what is done to a run beside its work, and in how many seconds it goes on, without waiting."""

    async def told() -> None:
        with suppress(DqlabError):
            await run.handle.link.scheduler("dq_tell", run=run.id.hex(), text=shown(text), due=due, timeout=PATIENCE)

    with suppress(DqlabError):
        run.handle.link.start(told())


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
