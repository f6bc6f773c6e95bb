"""What a retry changes besides the code: the limits of its processes, and a note on the reason."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from dqlab.cluster.transport.isolation import Executor, Isolation, isolation
from dqlab.cluster.transport.orders import Code
from dqlab.cluster.transport.sealed import blob_hash, with_settings
from dqlab.errors import BadOption
from dqlab.plan import called
from dqlab.rules.book import CodeRecord
from dqlab.texts import one_line

_NOTE = 200
"""Most characters of a note: each version's record has it, in every answer to who waits."""


@dataclass(frozen=True, slots=True)
class Means:
    """The options of a retry that are not about which documents, nor about code; falsy where none is given."""

    memory: int | str | None = None
    timeout: float | str | None = None
    executor: Executor = "auto"
    note: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.note, str):
            raise BadOption(option="note", value=self.note, problem="is a text. Nothing was sent.")

    def __bool__(self) -> bool:
        return bool(self.note) or self._limits

    @property
    def _limits(self) -> bool:
        return self.executor != "auto" or self.memory is not None or self.timeout is not None

    @property
    def words(self) -> str:
        """The note, or else what is given."""
        given = {"memory": self.memory, "timeout": self.timeout, "executor": self.executor}
        said = ", ".join(f"{name}={value}" for name, value in given.items() if value not in (None, "auto"))
        return one_line(self.note or said, _NOTE)

    def applied(
        self,
        code: Code,
        newest: CodeRecord,
        process: dict[str, Any] | None,  # the run's own
        fn: Callable[..., Any] | None,
        known: Callable[[], Callable[..., Any]],  # returns the function that the run has now
    ) -> Code:
        """Return code as a version of its own, which runs with these means, or else those of the newest one."""
        before = Isolation.of(newest.get("process", process))
        limits = self._changed(before, fn, known)
        if fn is not None and limits is not None:
            isolation("process", called(fn))  # raises for a coroutine function
        own = None if limits is None else limits.record()
        record: CodeRecord = {**code.code, "note": self.words, "process": own}
        # Functions are told apart by their bytes, so those of this version differ from the same code with other means.
        blob = with_settings(code.blob, process=own, note=self.words)
        hash = blob_hash(blob)
        return Code(hash, blob, {**record, "blob": hash})

    def _changed(
        self, before: Isolation | None, fn: Callable[..., Any] | None, known: Callable[[], Callable[..., Any]]
    ) -> Isolation | None:
        if not self._limits:
            return before
        function = fn or (known() if before is None and self.executor != "thread" else len)
        asked = isolation(self.executor, called(function), timeout=self.timeout, memory=self.memory)
        if asked is None or before is None:
            return asked
        timeout = before.timeout if asked.timeout is None else asked.timeout
        return replace(before, timeout=timeout, memory=before.memory if asked.memory is None else asked.memory)
