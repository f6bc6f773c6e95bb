"""The blocks of code that README and docs show."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A fenced block, and where it stands."""

    page: Path
    line: int
    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    def run(self, names: dict[str, Any]) -> None:
        """Run it as a cell of a notebook that has these names."""
        exec(compile(self.text, str(self), "exec"), names)


def blocks(*kinds: str) -> list[Block]:
    found = []
    for page in PAGES:
        text = page.read_text()
        for match in _BLOCK.finditer(text):
            if match[1] in kinds:
                found.append(Block(page, text.count("\n", 0, match.start()) + 2, match[1], match[2]))
    return found


def examples(page: str) -> list[Block]:
    """Return the examples in Python of one page, in order."""
    return [block for block in blocks("python") if block.page.name == page]
