"""Checks that all processes run the same versions, and that dqlab and what functions need is installed everywhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from dqlab.checkup.facts import Facts, Process
from dqlab.checkup.findings import Finding
from dqlab.numbers import many
from dqlab.stats import Severity

__all__ = ["imports", "imports_fine", "plugins", "plugins_fine", "versions", "versions_fine"]

_SERIOUS = ("dask", "distributed", "cloudpickle")
_NONE = "none"


def versions(facts: Facts) -> Iterator[Finding]:
    """Compare every process with this one."""

    def of_package(name: str) -> Callable[[Process], str]:
        return lambda process: _text(process.packages.get(name))

    yield from _differing(facts, "protocol of dqlab", lambda process: _text(process.protocol), Severity.PROBLEM)
    yield from _differing(facts, "dqlab", lambda process: _text(process.version), Severity.WARNING)
    if len({_minor(process.python) for _, process in facts.processes}) > 1:
        yield from _differing(facts, "Python", lambda process: _minor(process.python), Severity.PROBLEM)
    else:
        yield from _differing(facts, "Python", lambda process: process.python, Severity.NOTE)
    for package in sorted(set().union(*(process.packages for _, process in facts.processes))):
        severity = Severity.WARNING if package in _SERIOUS else Severity.NOTE
        yield from _differing(facts, package, of_package(package), severity)


def versions_fine(facts: Facts) -> str:
    """Say which version runs everywhere."""
    ours = facts.client
    where = f"all {len(facts.processes)} processes" if len(facts.processes) > 1 else "this process"
    dask = f", distributed {ours.packages['distributed']}" if ours.packages.get("distributed") else ""
    return f"Python {ours.python}, dqlab {ours.version} (protocol {ours.protocol}){dask} in {where}"


def plugins(facts: Facts) -> Iterator[Finding]:
    """Find out where dqlab is not installed, or not of this version."""
    scheduler = facts.scheduler
    if scheduler is None or scheduler.process is None:
        return
    if scheduler.process.version is None:
        yield _finding(
            Severity.PROBLEM,
            "dqlab cannot be imported on the scheduler",
            "Install it in the scheduler's environment",
            f"pip install 'dqlab=={facts.client.version}'",
        )
        return
    if scheduler.registry is None:
        yield _finding(
            Severity.WARNING,
            "the scheduler has no plugin of this dqlab: nobody has connected to it with this version",
            "Connect once, which installs it on the scheduler and on every worker",
            f"dq.connect({scheduler.address!r})",
        )
        return
    for worker in facts.answering:
        if worker.plugin or worker.process is None:
            continue
        values = {"worker": worker.address}
        if worker.process.version is None:
            what = f"dqlab is not installed on {worker.who}"
            advice, line = "Install it in the worker's environment", f"pip install 'dqlab=={facts.client.version}'"
        else:
            what = f"{worker.who} has dqlab {worker.process.version}, and no plugin of it: it hosts and serves no queue"
            advice, line = "Restart the worker", f"lab.client.restart_workers([{worker.address!r}])"
        yield _finding(Severity.PROBLEM, what, advice, line, **values)


def plugins_fine(facts: Facts) -> str:
    """Say where dqlab is."""
    return f"dqlab's plugins are on the scheduler and on {many(len(facts.answering), 'worker')}"


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
            f"whether {_names(unknown)} can import what open runs need ({', '.join(facts.packages)}) is not known: "
            "nothing was heard of it in time",
            "Give it more time",
            "lab.doctor(timeout='60s')",
            {"packages": list(facts.packages), "workers": unknown},
        )
    for package, workers in lacking.items():
        yield Finding(
            "imports",
            Severity.PROBLEM,
            f"{package} cannot be imported on {_names(workers)}, and functions of open runs need it: documents that "
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


def _differing(facts: Facts, what: str, value: Callable[[Process], str], severity: Severity) -> Iterator[Finding]:
    """Yield one finding that names the processes with another version than this one."""
    ours = value(facts.client)
    others: dict[str, list[str]] = {}
    for who, process in facts.processes:
        if value(process) != ours and not ("dqlab" in what and value(process) == _NONE):  # see `plugins`
            others.setdefault(value(process), []).append(who)
    if not others:
        return
    said = "; ".join(f"{theirs} on {_names(who)}" for theirs, who in others.items())
    advice, line = "Give all of them the same version", ""
    if what == "Python":
        advice = "Functions of a notebook do not cross minor versions of Python: start all in one environment"
        if severity is Severity.NOTE:
            advice = "Usually harmless; one environment for all is safer"
    elif "dqlab" not in what:
        line = f"pip install '{what}=={ours}'" if ours != _NONE else ""
    else:
        advice = "Install the same dqlab in all environments"
        line = f"pip install 'dqlab=={facts.client.version}'"
    values = {"package": what, "here": ours, "elsewhere": others}
    yield Finding("versions", severity, f"{what} is {ours} here, and {said}", advice, line, values)


def _names(who: list[str]) -> str:
    return ", ".join(who[:3]) + (f" and {len(who) - 3} more" if len(who) > 3 else "")


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _text(value: object) -> str:
    return _NONE if value is None else str(value)


def _finding(severity: Severity, what: str, advice: str, command: str, **values: object) -> Finding:
    return Finding("plugins", severity, what, advice, command, values)
