"""Options, durations, sizes and names, turned into plain values once, at the edge.

The only module below `cluster` that reads Dask's configuration, and only on demand.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from dqlab.errors import BadOption, in_words
from dqlab.texts import shown

MOST = 2**63 - 1
"""The largest number that can be sent."""

# Names become directory names and parts of URLs, hence the narrow alphabet.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", re.ASCII)
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/(?=.)")
_PART = re.compile(r"\d+(?:\.\d*)?\s*[a-zA-Z]+")
_SEVERAL = re.compile(r"\s*(?:\d+(?:\.\d*)?\s*[a-zA-Z]+\s*){2,}")


def option(key: str) -> Any:
    """Return one configured value as it was written, by its dotted key below ``dqlab`` (``"queue.max-bytes"``)."""
    import dask.config

    default = dask.config.get(key, config=_defaults())
    configured = dask.config.get(f"dqlab.{key}", default)
    both = isinstance(default, Mapping) and isinstance(configured, Mapping)
    return dask.config.merge(default, configured) if both else configured


def entry(key: str) -> Any:
    """Return the value of a key of Dask's configuration that is not ours, or None where it is not set."""
    import dask.config

    return dask.config.get(key, None)


@cache
def _defaults() -> dict[str, Any]:
    """Return the defaults of all options, as `dqlab.yaml` has them."""
    import yaml

    # Not registered with `dask.config`: others clear, restore and refresh it, and our defaults would go with it.
    with Path(__file__).with_name("dqlab.yaml").open() as file:
        defaults: dict[str, Any] = yaml.safe_load(file)["dqlab"]
    return defaults


def seconds(value: float | str, *, name: str = "duration") -> float:
    """Return a duration in seconds from a number or "1h30m", or raise `BadOption` if it is negative or not finite."""
    from dask.utils import parse_timedelta

    try:
        if isinstance(value, str) and _SEVERAL.fullmatch(value):  # `parse_timedelta` knows a single unit only
            result = float(sum(parse_timedelta(part) for part in _PART.findall(value)))
        else:
            result = float(parse_timedelta(value))
    except (ValueError, KeyError, TypeError, AttributeError, IndexError):
        if _is_below_zero(value):
            raise BadOption(
                option=name, value=value, problem="must be zero or more. Write seconds, or '90s'."
            ) from None
        raise BadOption(
            option=name, value=value, problem="not a duration. Write seconds, or '90s', '2m', '1h30m'."
        ) from None
    if not math.isfinite(result) or result < 0:
        raise BadOption(option=name, value=value, problem="must be finite, and zero or more.")
    return result


def _is_below_zero(value: object) -> bool:
    """Return whether a value would be a duration without its minus sign."""
    if isinstance(value, str) and value.strip().startswith("-"):
        with suppress(BadOption):
            return seconds(value.strip()[1:]) > 0
    return isinstance(value, int | float) and value < 0


def seconds_or_none(value: float | str | None, *, name: str = "duration") -> float | None:
    """Return a duration in seconds, or None for None."""
    return None if value is None else seconds(value, name=name)


def nbytes(value: int | str, *, name: str = "size") -> int:
    """Return a size in bytes from an int or "64 KiB", or raise `BadOption` unless it is positive and can be sent."""
    from dask.utils import parse_bytes

    try:
        result = int(parse_bytes(value)) if value != "" else 0
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
        raise BadOption(option=name, value=value, problem="not a size. Write bytes, or '64 KiB', '1 GB'.") from None
    if result <= 0:
        raise BadOption(option=name, value=value, problem="a size is above zero.")
    if result > MOST:
        raise BadOption(option=name, value=value, problem=f"is above {MOST:,}, the largest number that can be sent.")
    return result


def nbytes_or_none(value: int | str | None, *, name: str = "size") -> int | None:
    """Return a size in bytes, or None for None."""
    return None if value is None else nbytes(value, name=name)


def check_directory(path: str | os.PathLike[str]) -> Path:
    """Return the absolute path of a store's directory, or raise `BadOption` if no store can be there."""
    if not isinstance(path, str | os.PathLike):
        raise BadOption(option="store", value=path, problem="is not a path. Name a directory; it is made if need be.")
    named = os.fsdecode(path)
    if not named:
        problem = "names no directory. Nothing was made. Name one, such as 'runs/'; '.' is the current one."
        raise BadOption(option="store", value=path, problem=problem)
    if _URL.match(named):
        problem = (
            "is a URL, and a store is a directory on a file system that all workers reach. Nothing was made. Name a "
            "directory, such as 'runs/'; documents can be read from URLs: dq.Documents.from_glob(URL)."
        )
        raise BadOption(option="store", value=named, problem=problem)
    try:
        resolved = Path(path).expanduser().resolve()
        made = resolved.exists()
    except (ValueError, OSError, RuntimeError) as error:  # a null character, half a surrogate pair, links in a circle
        problem = f"cannot be a directory: {in_words(error)}. Nothing was made. Name another one."
        raise BadOption(option="store", value=path, problem=problem) from error
    if made and not resolved.is_dir():
        raise BadOption(option="store", value=str(resolved), problem="is a file. Name a directory, new or a store's.")
    above = next(folder for folder in (resolved, *resolved.parents) if folder.exists())
    if not above.is_dir():
        problem = f"cannot be made, for {str(above)!r} is a file. Name a directory, new or a store's."
        raise BadOption(option="store", value=str(resolved), problem=problem)
    if shown(str(resolved)) != str(resolved):  # it could not be sent to other processes unchanged
        problem = "is not valid Unicode (its name is in another encoding than UTF-8). Rename it, or take another."
        raise BadOption(option="store", value=str(resolved), problem=problem)
    return resolved


def check_name(name: object, *, kind: str) -> str:
    """Return a queue's or run's name, or raise `BadOption` with a valid suggestion."""
    if isinstance(name, str) and _NAME.fullmatch(name):
        return name
    text = name if isinstance(name, str) else repr(name)
    suggestion = re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-._")[:100] or "my-" + kind
    if not isinstance(name, str):
        problem = f"is a {type(name).__name__}, not a string"
    elif not name:
        problem = "is empty"
    elif len(name) > 100:
        problem = f"has {len(name)} characters"
    else:
        bad = sorted({c for c in name if not re.match(r"[A-Za-z0-9._-]", c, re.ASCII)})
        problem = f"contains {', '.join(map(repr, bad))}" if bad else f"starts with {name[0]!r}"
    rule = "Names are 1-100 characters: letters, digits, '.', '_' and '-', starting with a letter or digit."
    raise BadOption(
        option=f"{kind} name", value=name, problem=f"{problem}. {rule} Try {suggestion!r}.", suggestion=suggestion
    )


def check_count(option: str, value: Any, *, least: int = 1) -> None:
    """Raise `BadOption` unless `value` is a whole number of at least `least` that can be sent."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:  # True is an int
        raise BadOption(option=option, value=value, problem=f"a whole number, {least} or more.")
    if value > MOST:
        raise BadOption(option=option, value=value, problem=f"is above {MOST:,}, the largest number that can be sent.")


def check_timeout(option: str, value: Any) -> None:
    """Raise `BadOption` unless `value` is a positive, finite number of seconds."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < math.inf:
        raise BadOption(option=option, value=value, problem="a number of seconds above zero.")
