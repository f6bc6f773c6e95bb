"""Which pages a dashboard has that make a tab of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["OURS", "panels"]

ALL = "dq"
OURS = {
    "individual-dq-depth": "Queue depth",
    "individual-dq-unacked": "Unacked",
    "individual-dq-throughput": "Throughput",
    "individual-dq-failures": "Failures",
    "individual-dq-runs": "Runs",
    "individual-dq-storage": "Storage",
}
"""Titles by path, in the order of the page that has all of them."""


def panels(plots: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return {path, name, ours} of each page, ours first; from what Dask's ``individual-plots.json`` says."""
    paths = {str(path).strip("/"): str(name).removeprefix("Individual ") for name, path in plots.items()}
    ours = [{"path": path, "name": title, "ours": True} for path, title in OURS.items() if path in paths]
    if ours:
        ours.insert(0, {"path": ALL, "name": "All six", "ours": True})
    others = sorted((name, path) for path, name in paths.items() if path not in OURS)
    return [*ours, *({"path": path, "name": name, "ours": False} for name, path in others)]
