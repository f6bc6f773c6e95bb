"""A work-around for another library goes when no allowed version needs it any more.

Its comment ends in `until NAME VERSION`: the first version without the bug. While no version is without it, a test of
the bug itself stands in its place, and fails once the bug is gone: see `test_client_of_dask_fails_while_...`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path

from packaging.version import Version

ROOT = Path(__file__).parents[2]
_UNTIL = re.compile(r"#.*\bUntil (\w[\w.-]*) (\d[\d.]*\d)\b", re.IGNORECASE)


def lowest() -> dict[str, Version]:
    """Return the lowest allowed version of Python and of each library, by its name in small letters."""
    pinned = re.findall(r"^([\w.-]+)==(\S+)", (ROOT / "constraints-lowest.txt").read_text(), re.MULTILINE)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    python = project["requires-python"].removeprefix(">=").partition(",")[0]
    return {"python": Version(python), **{name.lower(): Version(version) for name, version in pinned}}


def over(text: str, allowed: Mapping[str, Version]) -> list[str]:
    """Return the work-arounds in a text that no allowed version needs, and those for what is not known."""
    found = _UNTIL.findall(text)
    return [f"{name} {end}" for name, end in found if allowed.get(name.lower(), Version(end)) >= Version(end)]


def test_a_work_around_is_over_at_its_version_and_not_before() -> None:
    text = "# A bug. Until distributed 2027.1.0.\n"
    assert over(text, {"distributed": Version("2026.12.1")}) == []
    assert over(text, {"distributed": Version("2027.1")}) == ["distributed 2027.1.0"]
    assert over(text, {}) == ["distributed 2027.1.0"], "a name that is not pinned is a slip"


def test_no_work_around_outlives_the_versions_that_need_it() -> None:
    allowed = lowest()
    late = {path.name: said for path in (ROOT / "dqlab").rglob("*.py") if (said := over(path.read_text(), allowed))}
    assert not late, "delete these work-arounds: the lowest allowed version has no such bug"
