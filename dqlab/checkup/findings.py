"""What checks find, how bad it is, and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from dqlab.live.checkups import checkup_parts
from dqlab.live.text import render_text
from dqlab.stats import Severity


@dataclass(frozen=True, slots=True)
class Finding:
    """One result of a check.

    Attributes
    ----------
    check : str
        Name of the check, such as "versions".
    severity : Severity
    what : str
        A sentence without its period.
    advice : str
        What to do next, a sentence without its period; "" when there is nothing to do.
    command : str
        A line to copy, for Python, a magic or a shell; "" when there is none.
    values : mapping
        The values in the sentence, JSON-ready.
    """

    check: str
    severity: Severity
    what: str
    advice: str = ""
    command: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON-ready data, with the name of the severity."""
        return asdict(self) | {"severity": self.severity.name.lower(), "values": dict(self.values)}


@dataclass(frozen=True, slots=True, repr=False)
class Checkup:
    """The findings of an examination and the facts of every process, true when there is no problem. Displays itself.

    Attributes
    ----------
    of : str
        What was examined.
    findings : tuple of Finding
        The worst first.
    processes : tuple of mapping
        The facts of every process, JSON-ready and with the same keys, this one first. Sizes are in bytes, times in
        seconds. Empty where only a store was examined.
    at : float
        When it was examined, seconds since 1970 UTC.
    took : float
        Seconds that the examination took.
    """

    of: str
    findings: tuple[Finding, ...]
    processes: tuple[Mapping[str, Any], ...] = ()
    at: float = 0.0
    took: float = 0.0

    def __bool__(self) -> bool:
        return not self.problems

    def __repr__(self) -> str:
        return render_text(checkup_parts(self))

    def having(self, severity: Severity) -> list[Finding]:
        """Return the findings of one severity."""
        return [finding for finding in self.findings if finding.severity is severity]

    @property
    def problems(self) -> list[Finding]:
        """Findings on what does not work, or soon will not."""
        return self.having(Severity.PROBLEM)

    @property
    def warnings(self) -> list[Finding]:
        """Findings on what works, but costs speed or safety."""
        return self.having(Severity.WARNING)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON-ready data."""
        return {
            "schema": 1,
            "of": self.of,
            "healthy": bool(self),
            "at": self.at,
            "took": self.took,
            "findings": [finding.to_dict() for finding in self.findings],
            "processes": [dict(process) for process in self.processes],
        }
