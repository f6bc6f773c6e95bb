"""The order of the rooms, and what an import may bring along."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "dqlab"
FORMATS = {"PIL", "charset_normalizer", "fsspec", "lxml", "pyarrow", "pypdfium2", "selectolax", "webencodings"}
"""What opens documents of one kind or another."""
DISPLAY = {"IPython", "anywidget", "bokeh", "ipywidgets", "jupyterlab", "matplotlib", "pandas"}


def imports(module: Path) -> set[str]:
    """Every name a module imports, wherever in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
    return found


@pytest.mark.cluster
def test_every_import_keeps_the_order_of_the_rooms() -> None:
    """A room that imports upwards can no longer be understood, tested or replaced by itself."""
    pytest.importorskip("importlinter", reason="import-linter is in the extra dev")

    linted = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert linted.returncode == 0, linted.stdout + linted.stderr


@pytest.mark.long
def test_rooms_ask_the_package_for_its_version_alone() -> None:
    """`from dqlab import X` inside the package reaches every room at once, past the order they stand in."""
    asked = {
        f"{module.relative_to(ROOT)}: {alias.name}"
        for module in PACKAGE.rglob("*.py")
        if module != PACKAGE / "__init__.py"
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and node.module == "dqlab"
        for alias in node.names
        if alias.name != "__version__" and not (PACKAGE / alias.name).with_suffix(".py").exists()
    }

    assert not asked


@pytest.mark.parametrize("room", ["errors", "clock.py", "failures", "frame", "stats", "log"])
def test_lowest_rooms_need_only_the_standard_library(room: str) -> None:
    """Bytes on disk and on the wire must be readable by a tool that has nothing else installed."""
    place = PACKAGE / room
    modules = [place] if place.suffix else sorted(place.rglob("*.py"))

    foreign = {
        f"{module.relative_to(ROOT)}: {name}"
        for module in modules
        for name in imports(module)
        if name.split(".")[0] not in sys.stdlib_module_names | {"dqlab"}
    }

    assert not foreign


@pytest.mark.cluster
def test_import_on_a_worker_loads_nothing_that_reads_tables() -> None:
    """Half a second and 60 MB for each process: that is the price of a document that is opened with them."""
    names = "dqlab, dqlab.cluster.consumer.running.execution, dqlab.documents, dqlab.documents.frames"
    script = f"import sys, {names}; print(*sorted({{'numpy', 'pandas', 'polars', 'pyarrow'}} & set(sys.modules)))"

    loaded = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True).stdout

    assert loaded.split() == []


@pytest.mark.cluster
@pytest.mark.parametrize("name", ["dqlab", "dqlab.cluster", "dqlab.runs", "dqlab.documents", "dqlab.rules"])
def test_import_on_a_worker_loads_no_display_library(name: str) -> None:
    """A worker starts in a moment and needs no notebook: what draws is loaded where something is drawn."""
    script = f"import sys, {name}; print(*sorted({DISPLAY!r} & set(sys.modules)))"

    loaded = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()

    assert loaded == []


@pytest.mark.cluster
def test_libraries_of_formats_are_loaded_with_the_first_document_that_needs_them() -> None:
    """A run over numbers pays for no PDF; one over text files for nothing but the standard library."""
    script = f"""
import sys, tempfile, pathlib
import dqlab, dqlab.documents, dqlab.documents.listing
folder = pathlib.Path(tempfile.mkdtemp())
(folder / "a.txt").write_text("text")
docs = dqlab.Documents.from_glob(folder / "*").where("size > 0").sample(5, by="pages").longest_first().split(pages=3)
assert [doc.text() for doc in docs] == ["text"]
print(*sorted({FORMATS!r} & set(sys.modules)))
"""
    loaded = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)

    assert loaded.stdout.split() == []
