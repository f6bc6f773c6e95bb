"""Check numbers that users pass as options."""

from __future__ import annotations

import math
from typing import Any

from dqlab.config import MOST
from dqlab.errors import BadOption

__all__ = ["check_count", "check_timeout"]


def check_count(option: str, value: Any, *, least: int = 1) -> None:
    """Raise `BadOption` unless `value` is a whole number of at least `least` that can be sent."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise BadOption(option=option, value=value, problem=f"a whole number, {least} or more.")
    if value > MOST:
        raise BadOption(option=option, value=value, problem=f"is above {MOST:,}, the largest number that can be sent.")


def check_timeout(option: str, value: Any) -> None:
    """Raise `BadOption` unless `value` is a positive, finite number of seconds."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < math.inf:
        raise BadOption(option=option, value=value, problem="a number of seconds above zero.")
