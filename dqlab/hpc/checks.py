"""Checks of a recipe's options; pure. Those of dask-jobqueue are passed on, and checked by name only."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from dqlab.errors import BadOption
from dqlab.hpc.systems import System

__all__ = [
    "check_directives",
    "check_interface",
    "check_lists",
    "check_resources",
    "check_texts",
    "is_count",
    "number_of_jobs",
]


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
