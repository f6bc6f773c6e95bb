"""Classifies files by owner: the user's code, or that of dqlab, Python and installed packages."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

_OWN = str(Path(__file__).parent) + os.sep
_STANDARD = (str(Path(os.__file__).parent) + os.sep, "<frozen ")
_INSTALLED = re.compile(r"[/\\](site|dist)-packages[/\\]")


def is_own(file: str) -> bool:
    """Return whether a file is dqlab's."""
    return file.startswith(_OWN)


def is_users(file: str) -> bool:
    """Return whether a file is neither dqlab's, nor Python's, nor an installed package's."""
    return not (file.startswith((_OWN, *_STANDARD)) or _INSTALLED.search(file))


def level_of_user() -> int:
    """Return the `stacklevel` with which a warning of the caller names the user's line, or 1 on an event loop."""
    level, frame = 1, sys._getframe(1)
    while is_own(frame.f_code.co_filename):
        if frame.f_back is None:
            return 1
        level, frame = level + 1, frame.f_back
    # A callback on an event loop has no line of the user below it, only asyncio's.
    return 1 if str(frame.f_globals.get("__name__")).startswith("asyncio.") else level
