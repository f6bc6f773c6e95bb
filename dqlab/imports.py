"""Imports of large packages that Ctrl-C does not break in the middle."""

from __future__ import annotations

import sys
import threading
from importlib import import_module

__all__ = ["import_whole"]


def import_whole(*names: str) -> None:
    """Import modules, whole even if the wait for them is interrupted; raises what importing them raises.

    A package whose import is interrupted stays broken as long as its process lives: Python forgets the package, keeps
    the submodules that it had imported, and does not bind their names when it is imported again ("module 'pyarrow' has
    no attribute 'lib'"). Signals interrupt the main thread alone, so another one imports, and this one waits.

    Examples
    --------
    >>> import_whole("json.decoder")
    """
    left = [name for name in names if sys.modules.get(name) is None]
    if not left:
        return
    if threading.current_thread() is not threading.main_thread():
        _import(left)
        return
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
