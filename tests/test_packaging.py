"""What an installation brings: live widget and JupyterLab extension, once, small, and without a node to build them."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path, PurePosixPath
from types import ModuleType

import pytest

from extension import build

ROOT = Path(__file__).parent.parent
BUILT = ROOT / "dqlab" / "labextension"
LARGEST_EXTENSION = 300_000
"""Bytes, packed."""
EXTENSION = PurePosixPath("share/jupyter/labextensions/dqlab")
WIDGET = {"dqlab/live/static/widget.css", "dqlab/live/static/widget.js"}
JLPM = "#!/bin/sh\ntouch {asked}\nexit 1\n"

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a git checkout")]
built = pytest.mark.skipif(not (BUILT / "package.json").exists(), reason="the extension is not built here: make venv")


def hatchling(target: str, into: Path) -> Path:
    """Build a distribution of this checkout, without an environment of its own."""
    pytest.importorskip("hatchling", reason="hatchling is in the extra dev")
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(into)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=50)
    (made,) = into.iterdir()
    return made


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[zipfile.ZipFile]:
    """What people install, built once."""
    with zipfile.ZipFile(hatchling("wheel", tmp_path_factory.mktemp("wheel"))) as wheel:
        yield wheel


def shared(names: list[str]) -> set[PurePosixPath]:
    """Files that go into the environment's `share` and `etc`, without the wheel's own folders."""
    return {PurePosixPath(*PurePosixPath(name).parts[2:]) for name in names if ".data/data/" in name}


def copied_build(checkout: Path) -> ModuleType:
    """Copy the script that builds, with an empty file for each source, and load it from there."""
    (checkout / "extension").mkdir(parents=True)
    for name in build.SOURCES:
        (checkout / "extension" / name).touch()
    script = checkout / "extension" / "build.py"
    script.write_text(Path(build.__file__).read_text(encoding="utf-8"), encoding="utf-8")
    spec = importlib.util.spec_from_file_location("copied_build", script)
    assert spec is not None
    assert spec.loader is not None
    copy = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(copy)
    return copy


@built
def test_wheel_brings_the_extension_once(wheel: zipfile.ZipFile) -> None:
    """JupyterLab looks in one place; a second copy inside the package only weighs."""
    names = wheel.namelist()

    assert not [name for name in names if "labextension" in name.split("/")[1:2]]
    assert len([name for name in names if "/remoteEntry." in name]) == 1
    assert {EXTENSION / "package.json", EXTENSION / "install.json", EXTENSION / "static/style.js"} <= shared(names)
    assert EXTENSION / "schemas/dqlab/plugin.json" in shared(names)
    assert PurePosixPath("etc/jupyter/jupyter_server_config.d/dqlab.json") in shared(names)
    assert not [name for name in names if name.endswith((".ts", ".map", "yarn.lock"))]


@built
def test_wheel_brings_the_live_widget_beside_the_code_that_sends_it(wheel: zipfile.ZipFile) -> None:
    """Git ignores what is built, and so would the wheel: a notebook would show an error in place of a run."""
    assert set(wheel.namelist()) >= WIDGET
    assert all(wheel.getinfo(name).file_size for name in WIDGET)


@built
def test_extension_adds_little_to_the_wheel(wheel: zipfile.ZipFile) -> None:
    """A notebook is opened over slow lines too, and JupyterLab loads extensions before it shows anything."""
    of_extension = sum(each.compress_size for each in wheel.infolist() if str(EXTENSION) in each.filename)

    assert of_extension <= LARGEST_EXTENSION


@built
def test_versions_of_package_and_extension_agree() -> None:
    """JupyterLab shows the extension's version, pip the package's; two of them would send people astray."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for file in (ROOT / "extension" / "package.json", BUILT / "package.json"):
        assert json.loads(file.read_text())["version"] == project["version"]


def test_extension_asks_for_no_newer_jupyterlab_than_it_needs() -> None:
    """The builder would ask for the newest one, and every older JupyterLab would warn about each of its parts."""
    package = json.loads((ROOT / "extension" / "package.json").read_text())

    shared = {name: wanted["requiredVersion"] for name, wanted in package["jupyterlab"]["sharedPackages"].items()}

    assert shared == package["dependencies"]


def test_what_a_browser_loads_is_as_new_as_its_sources() -> None:
    """Other tests draw what was built, whatever its sources hold by now."""
    assert not build.stale(), "make extension"


def test_build_is_due_while_one_of_its_files_is_missing_or_older(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Widget and extension are built together; one that is there must not pass for both."""
    source, widget, extension = (tmp_path / name for name in ("source.ts", "widget.js", "package.json"))
    monkeypatch.setattr(build, "MADE", (widget, extension))
    monkeypatch.setattr(build, "_sources", lambda: iter((source,)))
    for at, path in enumerate((source, extension, widget)):
        path.touch()
        os.utime(path, (at, at))
    assert not build.stale()

    os.utime(source, (2, 2))
    assert build.stale()

    os.utime(source, (0, 0))
    widget.unlink()
    assert build.stale()


@pytest.mark.parametrize("status", [0, 1])
def test_widget_stays_while_it_is_built_and_counts_as_new_after_a_good_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    """Kernels read it at any time, also in the minute that a build takes; a bundler may keep equal files."""
    checkout = copied_build(tmp_path / "checkout")
    for path in checkout.MADE:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        os.utime(path, (1, 1))
    jlpm = tmp_path / "bin" / "jlpm"
    jlpm.parent.mkdir()
    jlpm.write_text(f"#!/bin/sh\ntest -e {checkout.WIDGET}/widget.js && exit {status}\n")
    jlpm.chmod(0o755)
    monkeypatch.setenv("PATH", f"{jlpm.parent}{os.pathsep}{os.environ['PATH']}")

    with nullcontext() if status == 0 else pytest.raises(subprocess.CalledProcessError):
        checkout.build()

    assert all(path.exists() for path in checkout.MADE)
    assert checkout.stale() == bool(status)


@pytest.mark.slow
@built
@pytest.mark.timeout(120)
def test_source_distribution_installs_without_npm(tmp_path: Path) -> None:
    """Who installs from source has Python; what a browser loads is built already."""
    source = hatchling("sdist", tmp_path / "source")
    with tarfile.open(source) as archive:
        names = [PurePosixPath(*PurePosixPath(name).parts[1:]) for name in archive.getnames()]
    assert PurePosixPath("dqlab/labextension/static/style.js") in names
    assert {PurePosixPath(name) for name in WIDGET} <= set(names)
    assert PurePosixPath("extension/yarn.lock") in names
    assert not [name for name in names if "node_modules" in name.parts]

    asked = tmp_path / "asked"
    stub = tmp_path / "bin" / "jlpm"
    stub.parent.mkdir()
    stub.write_text(JLPM.format(asked=asked))
    stub.chmod(0o755)
    environ = {**os.environ, "PATH": f"{stub.parent}{os.pathsep}{os.environ['PATH']}"}
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-q", "-w", str(tmp_path)]
    subprocess.run([*command, str(source)], env=environ, check=True, capture_output=True, timeout=100)

    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as made:
        assert EXTENSION / "static/style.js" in shared(made.namelist())
        assert set(made.namelist()) >= WIDGET
    assert not asked.exists()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_checkout_installs_with_python_alone(tmp_path: Path) -> None:
    """Node comes as a Python package, into the environment of the build alone."""
    source = tmp_path / "source"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(source)], check=True, timeout=60)
    without_node = [
        folder
        for folder in os.environ["PATH"].split(os.pathsep)
        if not any((Path(folder) / name).exists() for name in ("node", "npm", "jlpm"))
    ]
    environ = {**os.environ, "PATH": os.pathsep.join(without_node)}
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True, timeout=120)
    command = [str(python), "-m", "pip", "wheel", "--no-deps", "-q", "-w", str(tmp_path / "made"), str(source)]
    built = subprocess.run(command, env=environ, check=False, capture_output=True, text=True, timeout=500)

    assert built.returncode == 0, built.stderr
    (wheel,) = (tmp_path / "made").iterdir()
    with zipfile.ZipFile(wheel) as made:
        assert EXTENSION / "static/style.js" in shared(made.namelist())
        assert set(made.namelist()) >= WIDGET
