"""Checks that every worker can import what the functions of open runs need."""

from __future__ import annotations

from collections.abc import Iterator

from dqlab.checkup.facts import Facts
from dqlab.checkup.findings import Finding, Severity

__all__ = ["imports", "imports_fine"]


def imports(facts: Facts) -> Iterator[Finding]:
    """Find packages that some workers lack."""
    lacking: dict[str, list[str]] = {}
    serving = () if facts.registry is None else facts.registry.serving
    for worker in facts.answering:
        if worker.address in serving:
            for package in worker.missing:
                lacking.setdefault(package, []).append(worker.who)
    for package, workers in lacking.items():
        names = ", ".join(workers[:3]) + (f" and {len(workers) - 3} more" if len(workers) > 3 else "")
        yield Finding(
            "imports",
            Severity.PROBLEM,
            f"{package} cannot be imported on {names}, and functions of open runs need it: documents that come there "
            "fail with ImportError",
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
