"""Finds and sends local modules: those that a person edits, beside a notebook or in a checkout, installed by nobody.

A process imports a module once, and keeps the code that the file had then. So the parts of such a module that a
function uses travel twice: by name with a fingerprint, and by value. The process that opens them uses the names if its
own objects have the same fingerprint, and the values otherwise. The pickling rules are in `sealed`.
"""

from __future__ import annotations

import dis
import sys
import sysconfig
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from importlib import import_module, invalidate_caches
from importlib.machinery import PathFinder
from pathlib import Path
from threading import Lock
from types import CodeType, ModuleType
from typing import Any

from dqlab.errors import DqlabError

_NEVER = sys.stdlib_module_names | {"dqlab", "__main__", "__mp_main__"}
_INSTALLED = tuple({f"{sysconfig.get_path(name)}/" for name in ("stdlib", "platstdlib", "purelib", "platlib")})
_IMPORTS = dis.opmap["IMPORT_NAME"]
_BY_CALL = frozenset({"__import__", "import_module"})
"""Functions that import a module by a text."""
_FOLDERS = ("/site-packages/", "/dist-packages/")


class ModuleDiffers(DqlabError):
    """A consumer has another version of a local module, and the notebook's version cannot be pickled."""

    text = (
        "this consumer has another version of module {module} than the process that submitted, or none, and what is "
        "loaded there cannot be sent: {reason}. The document was not run. Restart the workers (connect again) so "
        "that they import the module as it is now, then retry."
    )


def is_local(module: ModuleType) -> bool:
    """Return whether a module is a user's own file, not of Python, an installed package or dqlab."""
    name = getattr(module, "__name__", None)
    if not isinstance(name, str) or name.partition(".")[0] in _NEVER:
        return False
    file = getattr(module, "__file__", None)
    places = [file] if isinstance(file, str) else list(getattr(module, "__path__", []))
    return bool(places) and all(_is_own(str(place), is_file=isinstance(file, str)) for place in places)


def _is_own(place: str, *, is_file: bool) -> bool:
    if is_file and not place.endswith(".py"):  # built in, compiled, or made at run time
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


_local: tuple[int, list[str]] = (0, [])


# --- imports in a function's body ---------------------------------------------------------------


def lazy_imports(code: CodeType, package: str = "") -> set[str]:
    """Return the local modules that a function imports when it is called, with relative imports from `package`."""
    names = set()
    for level, base, parts in _statements(code):
        if level:
            above = package.split(".")[: len(package.split(".")) - level + 1] if package else []
            base = ".".join([*above, base] if base else above)
        if base and _found_beside(base):
            found = {base, *(each for each in (f"{base}.{part}" for part in parts) if _found_beside(each))}
            # Importing a module runs the packages that it stands in.
            names |= {name.rsplit(".", up)[0] for name in found for up in range(name.count(".") + 1)}
    return names


def package_of(names: dict[str, Any]) -> str:
    """Return the package from which relative imports of a module start, by the module's globals."""
    package, name = names.get("__package__"), names.get("__name__")
    if isinstance(package, str) or not isinstance(name, str):
        return package or ""
    return name if "__path__" in names else name.rpartition(".")[0]


def _statements(code: CodeType) -> Iterator[tuple[int, str, tuple[str, ...]]]:
    """Yield the imports of a function, or of one nested in it, as (level, module, names)."""
    # First look for the opcode: disassembling takes a hundred times as long.
    if _IMPORTS in code.co_code[::2]:
        yield from _disassembled(code)
    if not _BY_CALL.isdisjoint(code.co_names):
        texts = (part for part in code.co_consts if type(part) is str)
        yield from ((0, text, ()) for text in texts if all(part.isidentifier() for part in text.split(".")))
    for nested in code.co_consts:
        if isinstance(nested, CodeType):
            yield from _statements(nested)


@lru_cache(1000)
def _disassembled(code: CodeType) -> list[tuple[int, str, tuple[str, ...]]]:
    instructions = [each for each in dis.get_instructions(code) if each.opname != "EXTENDED_ARG"]
    return [
        (instructions[at - 2].argval or 0, each.argval, tuple(instructions[at - 1].argval or ()))
        for at, each in enumerate(instructions)
        if each.opname == "IMPORT_NAME"
    ]


def lazy_digests(names: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Return digest and folder of local modules, and of those that they import in turn, for `LazyImports`."""
    files, found = _files(names), {}
    for name, (file, _, _) in files.items():
        # A module refers to the modules that it imports, so its digest covers their files too.
        reached, waiting = set[str](), [name]
        while waiting:
            each = waiting.pop()
            if each in files and each not in reached:
                reached.add(each)
                waiting += files[each][2]
        digest = blake2b(digest_size=16)
        for each in sorted(reached):
            digest.update(b"%s\0%d\0" % (each.encode(), len(files[each][1])) + files[each][1])
        folder = Path(file).parents[name.count(".") + file.endswith("__init__.py")]
        found[name] = digest.hexdigest(), str(folder)
    return found


def _files(names: Iterable[str]) -> dict[str, tuple[str, bytes, set[str]]]:
    found: dict[str, tuple[str, bytes, set[str]]] = {}
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        files = sources_of(name) if name not in found else []
        if files:
            text = _text(files[-1])
            code = _compiled(text)
            package = name if files[-1].endswith("__init__.py") else name.rpartition(".")[0]
            found[name] = files[-1], text, lazy_imports(code, package) if code is not None else set()
            waiting += found[name][2]
    return found


def _text(file: str) -> bytes:
    try:
        return Path(file).read_bytes()
    except OSError:  # deleted since it was found
        return b""


@lru_cache(1000)
def _compiled(text: bytes) -> CodeType | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return compile(text, "<local module>", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # the import will raise it where it runs
        return None


def _found_beside(name: str) -> bool:
    loaded = sys.modules.get(name)
    return is_local(loaded) if loaded is not None else bool(sources_of(name))


def sources_of(name: str) -> list[str]:
    """Return the files of a local module and its packages by name, without importing anything."""
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


# --- opening ----------------------------------------------------------------------------------


class Opened:
    """Opens as what a function returns for some arguments."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self._reduced = function, arguments

    def __reduce__(self) -> tuple[Any, ...]:
        return self._reduced


_expected: dict[str, str] = {}
"""Local module to the digest of its files when it was last imported for a function here."""
_lock = Lock()


# Durable logs keep pickles with the names of this function and `_open_either`: do not rename or move them.
def _open_after(modules: dict[str, tuple[str, str]], sealed: bytes) -> Any:
    """Open a function that imports local modules when it is called."""
    import pickle

    # `modules` has, by name, a digest of the files and the folder for `sys.path`. Those that this process has imported
    # from other files are dropped here, so that the function imports them again.

    with _lock:
        for name, (digest, folder) in modules.items():
            known = folder in sys.path or not Path(folder).is_dir() or PathFinder.find_spec(name.partition(".")[0])
            if not known:
                sys.path.append(folder)
            if _expected.get(name) != digest:
                _expected[name] = digest
                invalidate_caches()
                _forget(name)
    return pickle.loads(sealed)


def _forget(package: str) -> None:
    """Make the next import of a module, and of the modules inside it, run their files again."""
    for name in [name for name in sys.modules if name == package or name.startswith(f"{package}.")]:
        module = sys.modules.get(name)
        if module is not None and is_local(module):
            del sys.modules[name]
            above, _, child = name.rpartition(".")
            holder = sys.modules.get(above)
            # `from package import module` would take the attribute, and import nothing.
            if holder is not None and vars(holder).get(child) is module:
                delattr(holder, child)


@dataclass(frozen=True, slots=True)
class Reached:
    """The fingerprint of some functions, classes and modules, with everything they refer to."""

    digest: bytes | None
    """Equal in two processes only if all code and values are equal; None: unknown."""
    imports: set[str]
    """Local modules that they import when they are called."""


_first_seen: dict[tuple[tuple[str, str], ...], tuple[list[Any], bytes | None]] = {}
"""Names to their objects and fingerprint at the first look. Functions that ran since may have changed them in place."""


def _open_either(
    taken: list[tuple[str, str]],
    fingerprint: bytes | None,
    of: Callable[[list[Any]], Reached],
    named: bytes,
    valued: bytes | None,
    reason: str,
) -> Any:
    """Open a value that is sealed twice, with local modules by name and by value."""
    # `taken` has the parts of local modules that the value uses, (module, name), name "" for the whole module, and
    # `fingerprint` theirs; None: unknown, so the values are used. `of` computes the fingerprint here, and must be
    # importable. `named` and `valued` are the two pickles; `valued` is None for a `reason`.
    import pickle

    # By name where possible: then the function shares the module's state with all others of this process.
    if fingerprint is not None and _digest_here(taken, of) == fingerprint:
        return pickle.loads(named)
    if valued is None:
        raise ModuleDiffers(module=", ".join(sorted({module for module, _ in taken})), reason=reason)
    return pickle.loads(valued)


def _digest_here(taken: list[tuple[str, str]], of: Callable[[list[Any]], Reached]) -> bytes | None:
    """Return the fingerprint of the named objects in this process, or None if one is missing."""
    try:
        values = list(_resolved(taken))
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - importing runs the module's own code, which may even call sys.exit
        return None
    key = tuple(taken)
    known = _first_seen.get(key)
    if known is None or any(one is not other for one, other in zip(known[0], values, strict=True)):
        known = _first_seen[key] = values, of(values).digest
    return known[1]


def _resolved(taken: list[tuple[str, str]]) -> Iterator[Any]:
    for module, name in taken:
        found: Any = import_module(module)
        for part in name.split(".") if name else ():
            found = getattr(found, part)
        yield found
