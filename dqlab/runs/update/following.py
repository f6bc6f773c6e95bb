"""Follows an input without an end: a look every so often, each a plan that is carried out."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from dqlab.cluster.transport.orders import Code
from dqlab.config import seconds
from dqlab.documents import Documents
from dqlab.errors import BadOption, RunNotFound, in_words
from dqlab.numbers import many
from dqlab.runs.marks import tell
from dqlab.runs.submit.elements import repeats
from dqlab.runs.update.plan import Trust

if TYPE_CHECKING:
    from dqlab.runs.run import Run

SHORTEST = 0.1
"""Seconds between two looks, at least."""


class Following:
    """Keeps a run current until `stop`, the end of this process, or a cancel or drop of what the run does.

    Attributes
    ----------
    taken : int
        Documents that were new or had changed, in all looks.
    looks : int
        Looks that were made.
    failure : str
        Why the last look failed, or "". The next one tries again.
    """

    def __init__(
        self, run: Run, given: Iterable[Any] | str, code: Code, every: float | str, trust: Trust, *, keep_gone: bool
    ) -> None:
        is_pattern = isinstance(given, str | os.PathLike)
        self.what = str(given) if is_pattern else "its input"
        self._documents = Documents.from_glob(given) if isinstance(given, str | os.PathLike) else given
        self.every = seconds(every, name="every")
        if self.every < SHORTEST:
            raise BadOption(option="every", value=every, problem=f"must be {SHORTEST} s or more. Nothing is followed.")
        if not repeats(self._documents):
            problem = "can be read only once. Pass a pattern, dq.Documents or a list. Nothing is followed."
            raise BadOption(option="documents", value=given, problem=problem)
        self.taken, self.looks, self.failure = 0, 0, ""
        self._run, self._code, self._terms = run, code, {"trust": trust, "keep_gone": keep_gone}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._follow, name=f"dqlab-follow-{run.name}", daemon=True)

    def start(self) -> None:
        """Begin with the first look."""
        self._thread.start()

    def stop(self) -> None:
        """Make no further look; what a look has sent runs on."""
        self._stopped.set()
        tell(self._run)

    @property
    def stopped(self) -> bool:
        """Whether no further look is made."""
        return self._stopped.is_set() or not self._thread.is_alive()

    def __str__(self) -> str:
        return f"following {self.what}, {self.taken:,} taken{f'; last look: {self.failure}' if self.failure else ''}"

    def __repr__(self) -> str:
        return f"<{'Stopped ' if self.stopped else ''}{self} in {many(self.looks, 'look')}>"

    def _follow(self) -> None:
        while not self._stopped.is_set():
            try:
                if self.looks and self._run._progress().cancelled:
                    break
                self._look()
                self.failure = ""
            except RunNotFound:
                break
            except Exception as error:  # noqa: BLE001 - a listing may raise anything; the next look tries again
                self.failure = in_words(error)
                if self._run.handle.link.closed:
                    break
            self.looks += 1
            if not self._stopped.is_set():
                tell(self._run, str(self), due=self.every)
            self._stopped.wait(self.every)
        self._stopped.set()

    def _look(self) -> None:
        run = self._run
        assert run.updates is not None, "every run of a lab has it"
        run.updates(run, self._documents, self._code, waits=True, **self._terms)
        assert run.updated is not None, "as the update has left it"
        self.taken += len(run.updated.new) + len(run.updated.changed)
