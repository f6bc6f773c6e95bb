"""Checks that every worker can import what the functions of open runs need."""

from __future__ import annotations

from collections.abc import Iterator

from dqlab.checkup.facts import Facts
from dqlab.checkup.findings import Finding
from dqlab.stats import Severity

__all__ = ["imports", "imports_fine"]


def imports(facts: Facts) -> Iterator[Finding]:
    """Find packages that some workers lack."""
    lacking: dict[str, list[str]] = {}
    serving = () if facts.registry is None else facts.registry.serving
    unknown = []
    for worker in facts.answering:
        if worker.address in serving and facts.packages:
            unknown += [worker.who] if worker.missing is None else []
            for package in worker.missing or ():
                lacking.setdefault(package, []).append(worker.who)
    if unknown:
        yield Finding(
            "imports",
            Severity.NOTE,
            f"whether {_some(unknown)} can import what open runs need ({', '.join(facts.packages)}) is not known: "
            "nothing was heard of it in time",
            "Give it more time",
            "lab.doctor(timeout='60s')",
            {"packages": list(facts.packages), "workers": unknown},
        )
    for package, workers in lacking.items():
        yield Finding(
            "imports",
            Severity.PROBLEM,
            f"{package} cannot be imported on {_some(workers)}, and functions of open runs need it: documents that "
            "come there fail with ImportError",
            "Install it there, then send what failed again with run.retry(). A module of your own must lie where "
            "workers find it",
            f"pip install {package}",
            {"package": package, "workers": workers},
        )


def imports_fine(facts: Facts) -> str:
    """Say what was looked for."""
    if not facts.packages:
        return f"no open run needs a package{facts.unknown}"
    return f"every worker can import what open runs need ({', '.join(facts.packages)}){facts.unknown}"


def _some(workers: list[str]) -> str:
    return ", ".join(workers[:3]) + (f" and {len(workers) - 3} more" if len(workers) > 3 else "")
