"""What may lie in this repository."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import nbformat
import pytest
from nbval.plugin import get_sanitize_patterns

from dqlab.cluster.transport.protocol import OLDEST_DASK

ROOT = Path(__file__).parent.parent
OF_A_MACHINE = re.compile(r"(?<![\w<./…>~-])(?!/usr/bin/env\b)/[\w.+@-]+/[\w.+@-]|unix:///|://(?!127\.)\d+\.\d+\.")
"""Absolute paths, and addresses that other machines reach."""

# Written in pieces, or this file would be the first to offend.
REGISTRIES = [
    ".".join(parts)
    for parts in (
        ("pypi", "org"),
        ("pypi", "python", "org"),
        ("files", "pythonhosted", "org"),
        ("registry", "npmjs", "org"),
        ("registry", "yarnpkg", "com"),
        ("conda", "anaconda", "org"),
        ("deb", "debian", "org"),
        ("proxy", "golang", "org"),
        ("index", "crates", "io"),
    )
]


LOWEST_EXTRAS = ("lab", "hpc", "documents", "tables")
"""What `make test-lowest` installs; the others are for people who change dqlab."""


@cache
def files() -> tuple[Path, ...]:
    """Every file of the repository, tracked or about to be."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return tuple(path for name in listed.split("\0") if name and (path := ROOT / name).is_file())


def text(path: Path) -> str | None:
    """A file's text, or None where it has none."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return None


def test_no_file_names_a_package_registry() -> None:
    """Where packages come from is the installer's setting; an address written here overrides it or goes stale."""
    offenders = {
        f"{path.relative_to(ROOT)}: {address}"
        for path in files()
        for address in REGISTRIES
        if address in (text(path) or "")
    }

    assert not offenders


def test_no_npm_lock_file() -> None:
    """npm writes the address of its registry into every entry of a lock file."""
    assert not [path for path in files() if path.name in ("package-lock.json", "npm-shrinkwrap.json")]
    for lock in (path for path in files() if path.name == "yarn.lock"):
        assert not re.search(r"https?://|__archiveUrl", text(lock) or "")


@pytest.mark.parametrize("name", ["constraints.txt", "constraints-lowest.txt"])
def test_constraints_are_exact_versions_and_nothing_else(name: str) -> None:
    """An address, a local path or a range makes two installations differ."""
    lines = [line for line in (ROOT / name).read_text().splitlines() if not line.startswith("#")]

    assert lines
    assert not [line for line in lines if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.!+]+", line)]


def test_each_lowest_version_that_is_promised_is_the_one_that_is_tried() -> None:
    """A lower bound that nothing runs with is a guess, which pip believes."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    promised = [*project["dependencies"], *(each for extra in LOWEST_EXTRAS for each in extras[extra])]
    lines = (ROOT / "constraints-lowest.txt").read_text().splitlines()
    tried = {plain(pair[0]): pair[1] for line in lines if len(pair := line.split("==")) == 2}

    wrong = {}
    for requirement in promised:
        name, lowest = re.sub(r"\[.*]", "", requirement.partition(";")[0]).split(">=")
        if numbers(tried.get(plain(name), "0")) != numbers(lowest):
            wrong[requirement] = tried.get(plain(name))
    assert not wrong
    assert f"distributed>={OLDEST_DASK}" in promised
    assert f"dask>={OLDEST_DASK}" in promised


@pytest.mark.cluster
@pytest.mark.parametrize(("target", "extras"), [("lab", {"all"}), ("demo", {"all"}), ("test", {"all", "all,test,dev"})])
def test_make_names_each_step_before_it_takes_long(tmp_path: Path, target: str, extras: set[str]) -> None:
    """The first thing that somebody types was silent for minutes, which it took to install what developers need."""
    command = ["make", "--dry-run", target, f"VENV={tmp_path / 'env'}"]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=30).stdout
    lines = said.splitlines()
    slow = [at for at, line in enumerate(lines) if re.match(r".*(-m venv|pip install|build\.py|bin/dqlab lab)", line)]
    named = set(re.findall(r"-e '\.\[(.*)\]'", said))
    slow = [at for at in slow if not lines[at].startswith("echo")]
    step = re.compile(r'echo "(\d of 4: \w+ing|Building|Starting|Installing) ')

    assert [lines[at] for at in slow if not step.match(lines[at - 1])] == []
    assert len(slow) >= 4
    assert named == extras
    packages = sum("==" in line for line in (ROOT / "constraints.txt").read_text().splitlines())
    assert (f"{packages} packages together" in said) == (target == "test")


def plain(name: str) -> str:
    """A package's name as registries compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def numbers(version: str) -> list[int]:
    """A version's numbers, without zeros at its end: 3 is 3.0.0."""
    found = list(map(int, version.split(".")))
    while found and not found[-1]:
        found.pop()
    return found


def test_links_between_documents_lead_somewhere() -> None:
    """A page that points to nothing sends its reader away."""
    dead = {
        f"{page.relative_to(ROOT)}: {target}"
        for page in files()
        if page.suffix == ".md"
        for target in re.findall(r"\]\(([^)#\s]+)", text(page) or "")
        if "://" not in target and not target.startswith("mailto:") and not (page.parent / target).exists()
    }

    assert not dead


@pytest.mark.parametrize(("page", "least"), [("explanation/guarantees.md", 30), ("how-to/on-a-batch-system.md", 12)])
def test_every_guarantee_names_a_test_that_is_there(page: str, least: int) -> None:
    """A promise whose test was renamed or removed is held by nobody."""
    promised = set(re.findall(r"`(test_\w+)`", (ROOT / "docs" / page).read_text()))
    tests = "\n".join(text(path) or "" for path in files() if path.name.startswith("test_"))
    there = set(re.findall(r"^(?:async )?def (test_\w+)", tests, flags=re.MULTILINE))
    assert len(promised) > least
    assert promised <= there


def test_every_trap_of_batch_systems_is_held_by_a_test() -> None:
    """A row of that table is a promise as well."""
    page = (ROOT / "docs/how-to/on-a-batch-system.md").read_text()
    rows = re.search(r"^\| trap .*\n\|[-|]+\n((?:\|.*\n)+)", page, flags=re.MULTILINE)

    assert rows is not None
    assert not [row for row in rows[1].splitlines() if "`test_" not in row]


def code_cells() -> list[tuple[str, nbformat.NotebookNode]]:
    """Every code cell of the notebooks, with where it stands."""
    books = sorted((ROOT / "notebooks").glob("*.ipynb"))
    cells = [(book, cell) for book in books for cell in nbformat.read(book, as_version=4).cells]
    return [(f"{book.name}: {cell.id}", cell) for book, cell in cells if cell.cell_type == "code"]


def shown(cell: nbformat.NotebookNode) -> list[str]:
    """The texts that a cell's outputs show."""
    data = [item for output in cell.outputs for item in output.get("data", {}).items()]
    return [text for kind, text in data if kind.startswith("text/")] + [
        output.text for output in cell.outputs if "text" in output
    ]


def compared(output: str) -> str:
    """Return what the notebooks' tests compare of an output."""
    for pattern, instead in get_sanitize_patterns((ROOT / "tests" / "notebooks.cfg").read_text()):
        output = re.sub(pattern, instead, output)
    return output


def test_notebooks_show_nothing_of_the_machine_they_were_run_on() -> None:
    """Where somebody keeps their files is nobody's business, and differs in every copy; `make notebooks` leaves it."""
    found = [(where, OF_A_MACHINE.search(text)) for where, cell in code_cells() for text in shown(cell)]

    assert not [f"{where}: {told[0]}" for where, told in found if told]


def test_what_the_cells_of_notebooks_show_is_compared() -> None:
    """A cell that shows something else than it did is a broken promise, and passed while its outputs were ignored."""
    cells = code_cells()
    loose = [
        where
        for where, cell in cells
        if "nbval-check-output" not in cell.metadata.get("tags", ()) and (cell.outputs or "nbval" in str(cell.metadata))
    ]

    assert len(cells) > 30
    assert not loose
    assert not [where for where, cell in cells if cell.execution_count is None], "never run: make notebooks"


def test_the_speed_of_a_run_is_not_compared_since_a_fast_one_has_none() -> None:
    """The same notebook shows one on some machines and none on others: below half a second there is none."""
    texts = [text for _, cell in code_cells() for text in shown(cell)]
    speeds = re.compile(r"(?<= in )([\d.,]+ (?:ms|s|min)): .*/s$", re.M)
    slow = [text for text in texts if speeds.search(text)]

    assert slow
    assert [compared(speeds.sub(r"\1", text)) for text in slow] == [compared(text) for text in slow]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_lab_on_the_quickstart_leaves_a_clone_clean(tmp_path: Path) -> None:
    """`make lab` is what a contributor types first, and runs and saves the notebook."""
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True, timeout=60)
    homes = {f"JUPYTER_{name}_DIR": str(tmp_path / name) for name in ("RUNTIME", "CONFIG", "DATA")}
    command = [sys.executable, "-m", "dqlab", "lab", "--no-browser", "--allow-root", "--ServerApp.port=0"]
    with subprocess.Popen(
        command, cwd=clone, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=os.environ | homes
    ) as server:
        assert server.stdout is not None
        log = []
        for line in server.stdout:  # it ends with the process; the test's own limit ends a process that is silent
            log.append(line)
            if "/lab?token=" in line or "is running at" in line:
                break
        server.terminate()
        server.communicate(timeout=30)
    assert (clone / "quickstart.ipynb").exists(), "".join(log)

    execute = [sys.executable, "-m", "nbconvert", "--to", "notebook", "--execute", "--inplace", "quickstart.ipynb"]
    subprocess.run(execute, cwd=clone, check=True, timeout=240, capture_output=True, env=os.environ | homes)

    status = subprocess.run(["git", "status", "--porcelain"], cwd=clone, check=True, capture_output=True, text=True)
    assert status.stdout == ""


def test_version_is_written_once() -> None:
    """Two places that state a version end up stating two versions."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]

    repeated = [path.relative_to(ROOT) for path in (ROOT / "dqlab").rglob("*.py") if f'"{version}"' in path.read_text()]

    assert not repeated


@pytest.mark.long
def test_contributing_names_functions_that_exist() -> None:
    """The way of a document is how a newcomer learns the house; a name that is gone sends them searching."""
    said = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = re.findall(r"`([a-z_/]+\.py) ([A-Za-z_.]+)`", said.replace("\n", " ").replace("   ", " "))
    known = {Path(place).name: place for place, _ in named}
    bare = [(place, name) for name in re.findall(r"`([A-Z]\w+\.\w+)`", said) for place in known.values()]
    gone = [f"{place} {name}" for place, name in named if not _defines(place, name)]

    assert len(named) > 20
    assert not gone
    assert {name for _, name in bare} <= {name for place, name in bare if _defines(place, name)}


@cache
def _body(place: str) -> list[ast.stmt]:
    return ast.parse((ROOT / "dqlab" / place).read_text(encoding="utf-8")).body


def _defines(place: str, name: str) -> bool:
    body = _body(place)
    for part in name.split("."):
        found = [node for node in body if getattr(node, "name", None) == part]
        if not found:
            return False
        body = getattr(found[0], "body", [])
    return True
