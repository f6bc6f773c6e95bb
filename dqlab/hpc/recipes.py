"""Recipes of clusters on batch systems: dqlab's options, checked and turned into those of dask-jobqueue.

Starts nothing. Options of dask-jobqueue are passed on, and checked by name only.
"""

from __future__ import annotations

import inspect
import re
import shlex
import signal
import sys
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from difflib import get_close_matches
from html import escape
from pathlib import Path
from typing import Any

from dqlab.config import nbytes, seconds
from dqlab.errors import BadOption, ExtraMissing, UnknownOption, UsageError
from dqlab.hpc.systems import System, find

__all__ = ["Recipe", "check_interface", "jobqueue", "recipe", "spoken"]

DIRECTORY = "~/.dqlab/jobs"
SHORTEST = 60.0
"""Seconds of the shortest walltime that batch systems accept."""
DRAIN = 180.0
DEATH_TIMEOUT = 300
"""Seconds that a job tries to reach the scheduler: loading Python from a shared disk may take a minute."""
INTERVAL = 2.0
"""Seconds between two checks of how many jobs are needed."""
AHEAD = "60s"
"""Target duration of the backlog: with less work waiting, no more jobs are requested."""
_OF_CLUSTER = {"n_workers", "processes", "scheduler", "name", "config_name", "asynchronous", "loop", "death_timeout"}
"""Options of dask-jobqueue that are set here."""
_importing = threading.Lock()


@dataclass(frozen=True)
class Recipe:
    """A cluster on a batch system that `dq.connect` can start; its repr shows the options. Made by `recipe`.

    Attributes
    ----------
    kind : str
        "slurm", "pbs", "lsf", "sge" or "oar".
    jobs : tuple of int
        Fewest and most jobs.
    walltime, drain : float
        Seconds.
    options : mapping
        Keyword arguments of dask-jobqueue's cluster.
    adaptive : mapping
        Keyword arguments of its `adapt`.
    """

    kind: str
    jobs: tuple[int, int]
    walltime: float
    drain: float
    options: Mapping[str, Any] = field(hash=False)
    adaptive: Mapping[str, Any] = field(hash=False)

    @property
    def system(self) -> System:
        """The batch system."""
        return find(self.kind)

    @property
    def directory(self) -> Path:
        """Where jobs write their logs, and where the keys are that they need."""
        return Path(self.options["log_directory"])

    def job_script(self) -> str:
        """Return the script of its jobs, with words in capitals for what only a running cluster knows."""
        from distributed import Security

        known = {"scheduler_options", "shared_temp_directory", "security"}
        options = {name: value for name, value in self.options.items() if name not in known}
        address = "tcp://SCHEDULER:PORT"
        if self.options.get("security"):
            keys = {"tls_ca_file": "CA", "tls_worker_cert": "CERT", "tls_worker_key": "KEY"}
            options |= {"security": Security(require_encryption=True, **keys), "protocol": "tls://"}
            address = "tls://SCHEDULER:PORT"
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        script: str = jobqueue(self.system).job_cls(address, name="NAME", **options).job_script()
        return script

    def __repr__(self) -> str:
        options = "".join(f"    {name}={value!r},\n" for name, value in self.options.items())
        adaptive = ", ".join(f"{name}={value!r}" for name, value in self.adaptive.items())
        called = f"dask_jobqueue.{self.system.cluster}(\n{options})\ncluster.adapt({adaptive})"
        return f"cluster = {called}\n\n# each job:\n{self.job_script()}"

    def _repr_html_(self) -> str:
        return f"<pre>{escape(repr(self))}</pre>"


def recipe(
    kind: str,
    *,
    cores: int = 1,
    memory: int | str = "4GB",
    walltime: float | str = "2h",
    drain: float | str | None = None,
    jobs: int | tuple[int, int] = (1, 10),
    queue: str | None = None,
    account: str | None = None,
    interface: str | None = None,
    scheduler_interface: str | None = None,
    python: str | Path = sys.executable,
    directory: str | Path = DIRECTORY,
    local_directory: str = "${TMPDIR:-/tmp}",
    security: Any = True,
    resources: Mapping[str, float] | None = None,
    idle: float | str = "5m",
    job_name: str = "dqlab",
    job_script_prologue: Sequence[str] = (),
    job_extra_directives: Sequence[str] = (),
    worker_extra_args: Sequence[str] = (),
    **more: Any,
) -> Recipe:
    """Return the recipe of a cluster on a batch system; `dq.connect` takes it, and starts that cluster.

    Parameters
    ----------
    kind : str
        "slurm", "pbs", "lsf", "sge" or "oar".
    cores : int
        Of each job: one process with as many threads. Functions that hold the GIL use them with ``executor="process"``.
    memory : int or str
        Of each job.
    walltime : float or str
        Time after which the batch system ends a job.
    drain : float or str, optional
        Time before that end at which a worker begins to leave. Default: 3 minutes, and at most a tenth of `walltime`.
    jobs : int or (int, int)
        Number of jobs; or fewest and most, scaled with the backlog.
    queue, account : str, optional
        Of the batch system: the partition, and the account that pays.
    interface, scheduler_interface : str, optional
        Network interface of the jobs, such as "ib0", and of the scheduler. Default: the one of the host's name.
    python : str or path
        The command that starts Python in a job; it needs the packages of this process, in the same versions.
    directory : path
        For job logs and keys; the nodes must see it under the same path, and no other user can read it.
    local_directory : str
        On each node, for data that workers spill; not on a shared file system.
    security : True, False or Security
        True: TLS with keys made for this cluster. False lets anyone on the network run code as you.
    resources : mapping, optional
        Dask resources of each worker; ``{"dq-queue": 1}`` hosts queues first.
    idle : float or str
        Time after which an idle job is given back.
    job_name : str
    job_script_prologue, job_extra_directives, worker_extra_args : sequence of str
        More lines of the script, more options of the job and of ``dask worker``.
    **more
        Further options of dask-jobqueue's cluster.

    Raises
    ------
    BadOption, UnknownOption
        An option has an invalid value, or is unknown.
    ExtraMissing
        dask-jobqueue is not installed.
    """
    from distributed import Security

    system = find(kind)
    lasts = seconds(walltime, name="walltime")
    if lasts < SHORTEST:
        raise BadOption(option="walltime", value=walltime, problem="must be at least a minute.")
    drains = min(DRAIN, lasts / 10) if drain is None else seconds(drain, name="drain")
    if not 0 < drains <= lasts / 2:
        raise BadOption(option="drain", value=drain, problem="must be above zero, and at most half of walltime.")
    if not is_count(cores):
        raise BadOption(option="cores", value=cores, problem="must be a number of threads, at least 1.")
    fewest, most = number_of_jobs(jobs)
    python = str(python) if isinstance(python, Path) else python
    networks = {"interface": interface, "scheduler_interface": scheduler_interface}
    check_texts({"queue": queue, "account": account, "python": python, "job_name": job_name, **networks})
    if not isinstance(security, bool | Security | None):
        raise BadOption(option="security", value=security, problem="is True, False or a distributed.Security.")
    place = str(Path(directory).expanduser().absolute())
    if any(letter.isspace() for letter in place):
        raise BadOption(option="directory", value=place, problem="has a space in it, which batch systems do not take.")
    check_lists({"job_script_prologue": job_script_prologue, "worker_extra_args": worker_extra_args})
    check_lists({"job_extra_directives": job_extra_directives})
    check_directives(system, job_extra_directives)
    if resources is not None:
        check_resources(resources)
    patience = max(INTERVAL, seconds(idle, name="idle"))
    options: dict[str, Any] = {
        "cores": cores,
        "memory": nbytes(memory, name="memory"),
        "processes": 1,
        "walltime": system.walltime(lasts),
        "queue": queue,
        system.account: account,
        "interface": interface,
        "scheduler_options": _scheduler(scheduler_interface or interface),
        "python": python,
        "job_name": job_name,
        "death_timeout": DEATH_TIMEOUT,
        "local_directory": local_directory,
        "log_directory": place,
        "shared_temp_directory": place,
        "security": security or None,
        # Dashboards of workers are out of reach on nodes, and cost a tenth of the speed of small messages.
        "worker_extra_args": [
            "--preload",
            "dqlab.preload",
            "--no-dashboard",
            *_resources(resources),
            *worker_extra_args,
        ],
        "job_script_prologue": [
            "trap : TERM",  # bash would die of it, and the batch system would kill the worker at once
            f"export DQLAB_JOB_DEADLINE=$(( $(date +%s) + {lasts:.0f} ))",
            f"export DQLAB_JOB_DRAIN={drains:g}",
            "export DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED=False",  # of Dask's tasks, and there are none
            *job_script_prologue,
        ],
        "job_extra_directives": [*system.directives, *job_extra_directives],
        **dict(system.options),
    }
    _check_names(system, more)
    looks = {"interval": f"{INTERVAL:g}s", "wait_count": round(patience / INTERVAL), "target_duration": AHEAD}
    adaptive = {"minimum_jobs": fewest, "maximum_jobs": most, **looks}
    return Recipe(kind, (fewest, most), lasts, drains, _without_none(options) | more, adaptive)


def jobqueue(system: System) -> Any:
    """Return dask-jobqueue's class for a batch system.

    Raises
    ------
    ExtraMissing
        It is not installed.
    """
    try:
        with _sigint_as_it_is():
            import dask_jobqueue
    except ImportError as error:
        missing = error.name or "dask_jobqueue"
        raise ExtraMissing(
            what="clusters on a batch system", missing=missing, python=sys.executable, install="'dqlab[hpc]'"
        ) from error
    return getattr(dask_jobqueue, system.cluster)


@contextmanager
def _sigint_as_it_is() -> Iterator[None]:
    """Import dask-jobqueue in this block: its runners make Ctrl-C end the process, when imported in the main thread."""
    real = signal.signal

    def guarded(number: int, handler: Any) -> Any:
        return signal.getsignal(number) if number == signal.SIGINT else real(number, handler)

    with _importing:
        signal.signal = guarded  # type: ignore[assignment]
        try:
            yield
        finally:
            signal.signal = real


def _scheduler(interface: str | None) -> dict[str, Any]:
    """Return options of the scheduler; its dashboard is reachable only through this machine."""
    here = {"dashboard_address": "127.0.0.1:0"}
    return here if interface is None else here | {"interface": interface}


def _resources(resources: Mapping[str, float] | None) -> list[str]:
    if not resources:
        return []
    return ["--resources", shlex.quote(" ".join(f"{name}={amount:g}" for name, amount in resources.items()))]


def _without_none(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _check_names(system: System, more: Mapping[str, Any]) -> None:
    """Raise for options that neither this module nor dask-jobqueue knows."""
    if not more:
        return
    cluster = jobqueue(system)
    known: set[str] = set(inspect.signature(recipe).parameters) - {"kind", "more"}
    for cls in (*cluster.__mro__, *cluster.job_cls.__mro__):
        if cls.__module__.startswith("dask_jobqueue"):
            known |= set(inspect.signature(cls.__init__).parameters)
    known -= _OF_CLUSTER
    for name in more:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f"Did you mean {near[0]!r}?" if near else "help(dq.hpc.recipe) lists those there are."
            if name == "processes":
                hint = "A job is one process: ask for more jobs, or map with executor='process'."
            raise UnknownOption(function=f"dq.hpc.{system.kind}", option=name, hint=hint)


_NUMBERS = frozenset({"cores"})


def spoken(kind: str, options: str, jobs: str | None) -> Recipe:
    """Return the recipe that a line describes.

    Parameters
    ----------
    options : str
        As "cores=8,memory=16GB".
    jobs : str, optional
        As "20" or "1:20".

    Raises
    ------
    UsageError
        The text cannot be parsed.
    BadOption, UnknownOption
        As `recipe`.
    """
    given: dict[str, object] = {}
    for part in filter(None, options.split(",")):
        name, equals, value = part.partition("=")
        if not equals or not value:
            raise UsageError(
                reason=f"--{kind} {options}: {part!r} is not an option with its value. Write --{kind} "
                "cores=8,walltime=2h. Nothing was submitted."
            )
        name = name.strip().replace("-", "_")
        given[name] = int(value) if name in _NUMBERS and value.isdecimal() else value
    if jobs is not None:
        given["jobs"] = _jobs(jobs)
    return recipe(kind, **given)  # type: ignore[arg-type]


def _jobs(text: str) -> int | tuple[int, int]:
    fewest, colon, most = text.partition(":")
    if not fewest.isdecimal() or (colon and not most.isdecimal()):
        raise UsageError(reason=f"--jobs {text}: write how many, or fewest and most, as 1:20. Nothing was submitted.")
    return (int(fewest), int(most)) if colon else int(fewest)


def number_of_jobs(jobs: Any) -> tuple[int, int]:
    """Return the fewest and the most jobs."""
    pair = (jobs, jobs) if is_count(jobs) else jobs
    try:
        fewest, most = pair
        good = is_count(fewest) and is_count(most) and fewest <= most
    except (TypeError, ValueError):
        good = False
    if not good:
        problem = "is a number of jobs, or the fewest and the most, as (1, 20): at least 1, in which queues live."
        raise BadOption(option="jobs", value=jobs, problem=problem)
    return fewest, most


def is_count(value: Any) -> bool:
    """Return whether something is a whole number of at least 1."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def check_texts(options: Mapping[str, Any]) -> None:
    """Raise for options that must be a text or None, and are not."""
    for name, value in options.items():
        if value is not None and (not isinstance(value, str) or not value.strip()):
            raise BadOption(option=name, value=value, problem="is a text, as on the command line of the batch system.")


def check_lists(options: Mapping[str, Any]) -> None:
    """Raise for options that are not lists of texts: a single text would be split into letters."""
    for name, value in options.items():
        if isinstance(value, str):
            raise BadOption(option=name, value=value, problem=f"is a list of lines. Write {name}=[{value!r}].")
        if not isinstance(value, list | tuple) or not all(isinstance(line, str) for line in value):
            raise BadOption(option=name, value=value, problem=f"is a list of texts, as {name}=['...', '...'].")


def check_directives(system: System, directives: Collection[str]) -> None:
    """Raise for job arrays: all tasks of one would be workers of the same name, and all but one would be refused."""
    for directive in directives:
        if re.match(system.array, directive.strip()):
            problem = "asks for a job array, whose tasks all have the same worker's name. Ask for more jobs instead."
            raise BadOption(option="job_extra_directives", value=directive, problem=problem)


def check_resources(resources: Any) -> None:
    """Raise for resources that are not amounts by name."""
    amounts = resources.values() if isinstance(resources, Mapping) else [None]
    if any(isinstance(amount, bool) or not isinstance(amount, int | float) for amount in amounts):
        problem = "is numbers by name, as resources={'dq-queue': 1}."
        raise BadOption(option="resources", value=resources, problem=problem)


def check_interface(options: Mapping[str, Any], there: Collection[str]) -> None:
    """Raise when the scheduler is to listen on a network interface that its machine does not have.

    Parameters
    ----------
    options : mapping
        Options of dask-jobqueue's cluster.
    there : collection of str
        The interfaces of this machine.
    """
    asked = options["scheduler_options"].get("interface")
    if asked is None or asked in there:
        return
    named = ", ".join(sorted(there)) or "none"
    if asked == options.get("interface"):
        problem = (
            f"is not a network interface of this machine, which has {named}. If the nodes have it, name the one of "
        )
        problem += "this machine that they reach: scheduler_interface=..."
        raise BadOption(option="interface", value=asked, problem=problem)
    problem = f"is not a network interface of this machine, which has {named}."
    raise BadOption(option="scheduler_interface", value=asked, problem=problem)
