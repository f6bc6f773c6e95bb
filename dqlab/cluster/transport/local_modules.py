"""Modules that a person edits: those that no package manager installed, beside a notebook or in a checkout.

A process imports a module once, and keeps what the file held then. So what a function takes from such a module
travels twice: by name, with a fingerprint of what the name stands for, and by value. The process that opens it takes
the names when it has the very same under them, and the values otherwise. Knows no pickling rules; `sealed` does.
"""

from __future__ import annotations

import dis
import sys
import sysconfig
from collections.abc import Callable, Iterator
from importlib import import_module, invalidate_caches
from importlib.machinery import PathFinder
from pathlib import Path
from threading import Lock
from types import CodeType, FunctionType, ModuleType
from typing import Any

from dqlab.errors import DqlabError

__all__ = ["Either", "LazyImports", "ModuleDiffers", "is_local", "lazy_imports", "local_modules", "sources_of", "stamp"]

_NEVER = sys.stdlib_module_names | {"dqlab", "__main__", "__mp_main__"}
_INSTALLED = tuple({f"{sysconfig.get_path(name)}/" for name in ("stdlib", "platstdlib", "purelib", "platlib")})
_IMPORTS = dis.opmap["IMPORT_NAME"]
_FOLDERS = ("/site-packages/", "/dist-packages/")


class ModuleDiffers(DqlabError):
    """A consumer has another version of a local module, and what the notebook has cannot travel."""

    text = (
        "this consumer has another version of module {module} than the process that submitted, or none, and what is "
        "loaded there cannot be sent: {reason}. The document was not run. Restart the workers (connect again) so "
        "that they import the module as it is now, then retry."
    )


def is_local(module: ModuleType) -> bool:
    """Return whether a module is somebody's own file: not of Python, not of an installed package, not of dqlab."""
    name = module.__name__
    if name.partition(".")[0] in _NEVER:
        return False
    file = getattr(module, "__file__", None)
    places = [file] if isinstance(file, str) else list(getattr(module, "__path__", []))
    return bool(places) and all(_is_own(str(place), is_file=isinstance(file, str)) for place in places)


def _is_own(place: str, *, is_file: bool) -> bool:
    if is_file and not place.endswith(".py"):  # built in, compiled, or made up
        return False
    return not place.startswith(_INSTALLED) and not any(folder in place for folder in _FOLDERS) and place[:1] != "<"


def local_modules() -> dict[str, ModuleType]:
    """Return the local modules that this process has loaded, by name."""
    global _local
    if _local[0] != len(sys.modules):
        loaded = list(sys.modules.items())
        _local = len(loaded), [name for name, module in loaded if type(module) is ModuleType and is_local(module)]
    found = ((name, sys.modules.get(name)) for name in _local[1])
    return {name: module for name, module in found if type(module) is ModuleType and name not in _NEVER}


def stamp(modules: dict[str, ModuleType]) -> list[object]:
    """Return what these modules hold, and the code of their functions.

    Reloading a module, or giving one of its names another value, replaces an object here. A caller that compares ids
    must keep the objects alive: Python gives the id of a freed object to a new one.
    """
    held: list[object] = [value for module in modules.values() for value in list(vars(module).values())]
    return [*held, *(value.__code__ for value in held if isinstance(value, FunctionType))]


_local: tuple[int, list[str]] = (0, [])


def lazy_imports(code: CodeType) -> set[str]:
    """Return the local modules that a function, or one nested in it, imports when it is called; loaded or not."""
    names = set()
    # Disassembling takes a hundred times as long as looking whether there is anything to find.
    instructions = list(dis.get_instructions(code)) if _IMPORTS in code.co_code[::2] else []
    for at, instruction in enumerate(instructions):
        if instruction.opname == "IMPORT_NAME" and at >= 2 and instructions[at - 2].argval == 0:  # no relative one
            names |= {instruction.argval} if _found_beside(instruction.argval) else set()
    for nested in code.co_consts:
        if isinstance(nested, CodeType):
            names |= lazy_imports(nested)
    return names


def _found_beside(name: str) -> bool:
    loaded = sys.modules.get(name)
    return is_local(loaded) if loaded is not None else bool(sources_of(name))


def sources_of(name: str) -> list[str]:
    """Return the files of a local module by its name, without importing anything: its packages' and its own."""
    files: list[str] = []
    path: Any = None
    if name.partition(".")[0] in _NEVER:
        return []
    parts = name.split(".")
    for at in range(len(parts)):
        try:
            spec = PathFinder.find_spec(".".join(parts[: at + 1]), path)
        except (ImportError, AttributeError, ValueError):
            return []
        if spec is None:
            return []
        if spec.origin is not None:
            if not _is_own(spec.origin, is_file=True):
                return []
            files.append(spec.origin)
        path = spec.submodule_search_locations
        if path is None and at + 1 < len(parts):
            return []
    return files


# --- where it is opened -----------------------------------------------------------------------


class LazyImports:
    """Local modules that a function will import when it is called; goes along with the function.

    Opening it forgets those that this process imported when their files held something else.

    Parameters
    ----------
    modules : dict
        By name: a digest of the files, and the folder that the import is found from.
    """

    def __init__(self, modules: dict[str, tuple[str, str]]) -> None:
        self.modules = modules

    def __reduce__(self) -> tuple[Any, ...]:
        return _expect, (self.modules,)


_expected: dict[str, str] = {}
"""Digests of the files of local modules that functions of this process import when they are called."""
_lock = Lock()


def _expect(modules: dict[str, tuple[str, str]]) -> LazyImports:
    with _lock:
        for name, (digest, folder) in modules.items():
            known = folder in sys.path or not Path(folder).is_dir() or PathFinder.find_spec(name.partition(".")[0])
            if not known:
                sys.path.append(folder)
            if _expected.get(name) != digest:
                _expected[name] = digest
                invalidate_caches()
                loaded = sys.modules.get(name)
                if loaded is not None and is_local(loaded):
                    del sys.modules[name]
    return LazyImports(modules)


class Either:
    """Something that was sealed twice: with references to local modules, and with what these hold.

    Parameters
    ----------
    taken : list of (str, str)
        Modules, and names in them, that it takes; "" = the whole module.
    fingerprint : bytes
        Of what these are.
    of : callable
        Returns the fingerprint of such a list of values; importable wherever this is opened.
    named : bytes
        The pickle that refers to them.
    valued : bytes or None
        The pickle that holds them; None where that cannot be made.
    reason : str
        Why it cannot.
    """

    def __init__(
        self,
        taken: list[tuple[str, str]],
        fingerprint: bytes,
        of: Callable[[list[Any]], bytes],
        named: bytes,
        valued: bytes | None,
        reason: str,
    ) -> None:
        self.parts = taken, fingerprint, of, named, valued, reason

    def __reduce__(self) -> tuple[Any, ...]:
        return _open_either, self.parts


_first_seen: dict[tuple[tuple[str, str], ...], tuple[list[Any], bytes]] = {}
"""What names stood for when they were first asked for here, and its fingerprint: what runs may change it later."""


def _open_either(
    taken: list[tuple[str, str]],
    fingerprint: bytes,
    of: Callable[[list[Any]], bytes],
    named: bytes,
    valued: bytes | None,
    reason: str,
) -> Any:
    import pickle

    if _here(taken, of) == fingerprint:
        return pickle.loads(named)
    if valued is None:
        raise ModuleDiffers(module=", ".join(sorted({module for module, _ in taken})), reason=reason)
    return pickle.loads(valued)


def _here(taken: list[tuple[str, str]], of: Callable[[list[Any]], bytes]) -> bytes | None:
    """Return the fingerprint of what the names stand for in this process; None where it has not all of them."""
    try:
        values = list(_resolved(taken))
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - importing runs the module's own code, which may even call sys.exit
        return None
    key = tuple(taken)
    known = _first_seen.get(key)
    if known is None or any(one is not other for one, other in zip(known[0], values, strict=True)):
        known = _first_seen[key] = values, of(values)
    return known[1]


def _resolved(taken: list[tuple[str, str]]) -> Iterator[Any]:
    for module, name in taken:
        found: Any = import_module(module)
        for part in name.split(".") if name else ():
            found = getattr(found, part)
        yield found
