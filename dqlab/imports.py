"""Imports of large packages that Ctrl-C does not break in the middle."""

from __future__ import annotations

import sys
import threading
from importlib import import_module

__all__ = ["import_whole"]


def import_whole(*names: str) -> None:
    """Import modules whole even if Ctrl-C interrupts the wait for them, and raise what importing them raises."""
    left = [name for name in names if sys.modules.get(name) is None]
    if not left:
        return
    if threading.current_thread() is not threading.main_thread():
        _import(left)
        return
    # An interrupted import breaks a package for good: Python forgets the package, keeps its imported submodules, and
    # does not bind their names the next time ("module 'pyarrow' has no attribute 'lib'"). Signals reach the main thread
    # only.
    errors: list[BaseException] = []
    importing = threading.Thread(target=_import, args=(left, errors), name="dqlab-import", daemon=True)
    importing.start()
    importing.join()
    if errors:
        raise errors[0]


def _import(names: list[str], errors: list[BaseException] | None = None) -> None:
    try:
        for name in names:
            import_module(name)
    except BaseException as error:
        if errors is None:
            raise
        errors.append(error)
