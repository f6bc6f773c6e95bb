"""Does something as soon as a module is imported that nobody may need: it costs nothing until then."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType

__all__ = ["after_import"]


def after_import(name: str, then: Callable[[], object]) -> None:
    """Call `then` once the module `name` has been imported; at once if it has been.

    Parameters
    ----------
    name : str
        Dotted. Nothing is imported for it, and one that is never imported is no error.
    then : callable
        Must not raise: the importing code has not asked for it.
    """
    if name in sys.modules:
        then()
    else:
        sys.meta_path.insert(0, _Waiting(name, then))


class _Waiting(MetaPathFinder):
    def __init__(self, name: str, then: Callable[[], object]) -> None:
        self._name, self._then = name, then

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Following(spec.loader, self._then)
        return spec


class _Following(Loader):
    """A loader that does something afterwards, and then stands back for the real one."""

    def __init__(self, real: Loader, then: Callable[[], object]) -> None:
        self._real, self._then = real, then

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._real.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._real
        module.__loader__ = self._real
        self._real.exec_module(module)
        self._then()
