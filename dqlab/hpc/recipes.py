"""Recipes of clusters on batch systems: dqlab's options, checked and turned into those of dask-jobqueue.

Starts nothing. Options of dask-jobqueue are passed on, and only their names are checked.
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
from html import escape
from pathlib import Path
from typing import Any

from dqlab.cluster.transport.isolation import needs_of
from dqlab.config import check_count, nbytes, seconds
from dqlab.errors import BadOption, ExtraMissing, UsageError
from dqlab.hpc.systems import System, find
from dqlab.hpc.systems import walltime as as_walltime
from dqlab.keywords import meant

DIRECTORY = "~/.dqlab/jobs"
SHORTEST = 60.0
"""The shortest walltime that batch systems accept, in seconds."""
DRAIN = 180.0
DEATH_TIMEOUT = 300
"""Seconds for which a job tries to reach the scheduler: to load Python from a shared disk may take a minute."""
INTERVAL = 2.0
"""Seconds between two checks of how many jobs are needed."""
AHEAD = "60s"
"""Target duration of the backlog: with less work waiting, no more jobs are requested."""
_OF_CLUSTER = {"n_workers", "processes", "scheduler", "name", "config_name", "asynchronous", "loop", "death_timeout"}
"""Options of dask-jobqueue that users cannot set."""
_importing = threading.Lock()
"""Guards `signal.signal` while it is replaced: two threads would restore each other's replacement."""


@dataclass(frozen=True)
class Recipe:
    """A cluster on a batch system that `dq.connect` can start, made by `recipe`; its repr shows the options.

    Attributes
    ----------
    kind : str
        "slurm" or "pbs".
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
        """Directory of the jobs' logs, and of the keys that jobs need."""
        return Path(self.options["log_directory"])

    def job_script(self) -> str:
        """Return the script of the jobs, with words in capitals for values that only a running cluster has."""
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
    """Return the recipe of a cluster on a batch system, which `dq.connect` takes to start that cluster.

    Parameters
    ----------
    kind : str
        "slurm" or "pbs".
    cores : int
        Cores of each job, which is one process with as many threads. Functions that hold the GIL need
        ``executor="process"`` to use them.
    memory : int or str
        Memory of each job.
    walltime : float or str
        Time after which the batch system ends a job.
    drain : float or str, optional
        Time before that end at which a worker begins to leave. Default: 3 minutes, but at most a tenth of `walltime`.
    jobs : int or (int, int)
        Number of jobs, or the fewest and the most, scaled with the backlog.
    queue, account : str, optional
        Partition of the batch system, and the account that pays.
    interface, scheduler_interface : str, optional
        Network interface of the jobs, such as "ib0", and of the scheduler. Default: the one of the host's name.
    python : str or path
        Command that starts Python in a job, with the same versions of packages as this process.
    directory : path
        Directory for job logs and keys, which the nodes see under the same path. Other users cannot read it.
    local_directory : str
        Directory on each node for data that workers spill, not on a shared file system.
    security : True, False or Security
        True: TLS with keys made for this cluster. False: anyone on the network can run code as you.
    resources : mapping, optional
        Dask resources of each worker. Workers with ``{"dq-queue": 1}`` host queues first.
    idle : float or str
        Time after which an idle job ends.
    job_name : str
    job_script_prologue, job_extra_directives, worker_extra_args : sequence of str
        Further lines of the script, options of the job, and options of ``dask worker``.
    **more
        Further options of dask-jobqueue's cluster.

    Raises
    ------
    BadOption
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
    check_count("cores", cores)
    fewest, most = number_of_jobs(jobs)
    python = str(python) if isinstance(python, Path) else python
    if not isinstance(security, bool | Security | None):
        raise BadOption(option="security", value=security, problem="is True, False or a distributed.Security.")
    place = str(Path(directory).expanduser().absolute())
    if any(letter.isspace() for letter in place):
        raise BadOption(option="directory", value=place, problem="has a space in it, which batch systems do not take.")
    check_lists({"job_script_prologue": job_script_prologue, "worker_extra_args": worker_extra_args})
    check_lists({"job_extra_directives": job_extra_directives})
    check_directives(system, job_extra_directives)
    needs_of(None, resources)
    patience = max(INTERVAL, seconds(idle, name="idle"))
    options: dict[str, Any] = {
        "cores": cores,
        "memory": nbytes(memory, name="memory"),
        "processes": 1,  # with several in one job, adapt() starts and stops jobs without end
        "walltime": as_walltime(lasts),
        "queue": queue,
        "account": account,
        "interface": interface,
        "scheduler_options": _scheduler(scheduler_interface or interface),
        "python": python,
        "job_name": job_name,
        "death_timeout": DEATH_TIMEOUT,
        "local_directory": local_directory,  # the job's shell expands its variables, on the node
        "log_directory": place,
        "shared_temp_directory": place,
        "security": security or None,
        # Nobody reaches dashboards of workers on nodes, and they cost a tenth of the speed of small messages.
        "worker_extra_args": [
            "--preload",
            "dqlab.preload",
            "--no-dashboard",
            *_resources(resources),
            *worker_extra_args,
        ],
        "job_script_prologue": [
            "trap : TERM",  # without it bash dies, and the batch system kills the worker at once
            f"export DQLAB_JOB_DEADLINE=$(( $(date +%s) + {lasts:.0f} ))",
            f"export DQLAB_JOB_DRAIN={drains:g}",
            "export DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED=False",  # it profiles Dask's tasks, and there are none
            *job_script_prologue,
        ],
        "job_extra_directives": [*system.directives, *job_extra_directives],
    }
    _check_names(system, more)
    looks = {"interval": f"{INTERVAL:g}s", "wait_count": round(patience / INTERVAL), "target_duration": AHEAD}
    adaptive = {"minimum_jobs": fewest, "maximum_jobs": most, **looks}
    return Recipe(kind, (fewest, most), lasts, drains, _without_none(options) | more, adaptive)


def jobqueue(system: System) -> Any:
    """Return dask-jobqueue's class for a batch system, or raise `ExtraMissing`."""
    with ExtraMissing.without("dask_jobqueue", what="clusters on a batch system", extra="hpc"), _sigint_as_it_is():
        import dask_jobqueue
    return getattr(dask_jobqueue, system.cluster)


@contextmanager
def _sigint_as_it_is() -> Iterator[None]:
    """Keep the handler of Ctrl-C while the block imports dask-jobqueue."""
    # Imported in the main thread, its runners set a handler that makes Ctrl-C end the process.
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
    """Return options of the scheduler, with a dashboard that only this machine reaches."""
    here = {"dashboard_address": "127.0.0.1:0"}
    return here if interface is None else here | {"interface": interface}


def _resources(resources: Mapping[str, float] | None) -> list[str]:
    if not resources:
        return []
    return ["--resources", shlex.quote(" ".join(f"{name}={amount:g}" for name, amount in resources.items()))]


def _without_none(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _check_names(system: System, more: Mapping[str, Any]) -> None:
    """Raise `BadOption` for an option that neither this module nor dask-jobqueue knows."""
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
            hint = meant(name, known).strip() or "help(dq.hpc.recipe) lists those there are."
            if name == "processes":
                hint = "A job is one process: ask for more jobs, or map with executor='process'."
            problem = f"dq.hpc.{system.kind}() has no such option. {hint} Nothing was done."
            raise BadOption(option=name, value=more[name], problem=problem)


_NUMBERS = frozenset({"cores"})


def spoken(kind: str, options: str, jobs: str | None) -> Recipe:
    """Return the recipe for options ("cores=8,memory=16GB") and jobs ("20" or "1:20") as `%dq connect` has them."""
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
    """Return whether a value is a whole number of at least 1."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def check_lists(options: Mapping[str, Any]) -> None:
    """Raise `BadOption` for an option that is not a list of texts, since a single text would be split into letters."""
    for name, value in options.items():
        if isinstance(value, str):
            raise BadOption(option=name, value=value, problem=f"is a list of lines. Write {name}=[{value!r}].")
        if not isinstance(value, list | tuple) or not all(isinstance(line, str) for line in value):
            raise BadOption(option=name, value=value, problem=f"is a list of texts, as {name}=['...', '...'].")


def check_directives(system: System, directives: Collection[str]) -> None:
    """Raise `BadOption` for a job array."""
    for directive in directives:
        # All its tasks would be workers of one name, and the scheduler refuses all but the first.
        if re.match(system.array, directive.strip()):
            problem = "asks for a job array, whose tasks all have the same worker's name. Ask for more jobs instead."
            raise BadOption(option="job_extra_directives", value=directive, problem=problem)
