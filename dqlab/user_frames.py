"""Classifies files by owner: the user's code, or that of dqlab, of Python and of installed packages."""

from __future__ import annotations

import os
import re
from pathlib import Path

__all__ = ["is_own", "is_users"]

_OWN = str(Path(__file__).parent) + os.sep
_STANDARD = (str(Path(os.__file__).parent) + os.sep, "<frozen ")
_INSTALLED = re.compile(r"[/\\](site|dist)-packages[/\\]")


def is_own(file: str) -> bool:
    """Return whether a file is dqlab's."""
    return file.startswith(_OWN)


def is_users(file: str) -> bool:
    """Return whether a file is neither dqlab's, nor Python's, nor an installed package's."""
    return not (file.startswith((_OWN, *_STANDARD)) or _INSTALLED.search(file))
