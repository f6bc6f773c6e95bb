"""What may lie in this repository."""

from __future__ import annotations

import re
import subprocess
import tomllib
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
"""Lines; above that a module has two ideas."""

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


def test_constraints_are_exact_versions_and_nothing_else() -> None:
    """An address, a local path or a range in constraints.txt makes two installations differ."""
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]

    assert lines
    assert not [line for line in lines if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.!+]+", line)]


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


def test_version_is_written_once() -> None:
    """Two places that state a version end up stating two versions."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]

    repeated = [path.relative_to(ROOT) for path in (ROOT / "dqlab").rglob("*.py") if f'"{version}"' in path.read_text()]

    assert not repeated
