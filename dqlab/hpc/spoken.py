"""Recipes as they are written in one line: ``--slurm cores=8,walltime=2h --jobs 1:20``."""

from __future__ import annotations

from dqlab.errors import UsageError
from dqlab.hpc.recipes import Recipe, recipe

__all__ = ["spoken"]

_NUMBERS = frozenset({"cores"})


def spoken(kind: str, options: str, jobs: str | None) -> Recipe:
    """Return the recipe that a line names.

    Parameters
    ----------
    options : str
        As "cores=8,memory=16GB".
    jobs : str, optional
        As "20" or "1:20".

    Raises
    ------
    UsageError
        It cannot be read.
    BadOption, UnknownOption
        As `recipe`.
    """
    given: dict[str, object] = {}
    for part in filter(None, options.split(",")):
        name, equals, value = part.partition("=")
        if not equals or not value:
            raise UsageError(
                reason=f"--{kind} {options}: {part!r} is no option with its value. Write --{kind} cores=8,walltime=2h. "
                "Nothing was submitted."
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
