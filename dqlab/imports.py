"""Imports of large packages that Ctrl-C does not break in the middle, and that no thread sees in the middle."""

from __future__ import annotations

import sys
import threading
from contextlib import suppress
from importlib import import_module
from typing import Any


def loaded(name: str) -> Any:
    """Return a library if this process has loaded it, or None, and wait while another thread imports it."""
    # Not for users' modules: such a thread may wait for us, since a module may map a function while it is imported.
    module = sys.modules.get(name)
    if module is None or not getattr(getattr(module, "__spec__", None), "_initializing", False):
        return module
    with suppress(Exception):  # the import failed, which its own thread has to report
        return import_module(name)  # waits, except in the thread that imports it
    return None


def import_whole(*names: str) -> None:
    """Import modules whole even if Ctrl-C interrupts the wait for them, and raise what importing them raises."""
    left = [name for name in names if loaded(name) is None]
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
