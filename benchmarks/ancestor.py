"""`daskqueue`, the ancestor, in an environment of its own: it is installed once and kept in the user's cache."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

from benchmarks.environment import python_with
from benchmarks.processes import Child, ChildFailed

__all__ = ["Ancestor"]


class Ancestor:
    """A process that runs the ancestor's queue and consumers on a cluster of its own.

    Raises
    ------
    ChildFailed
        It cannot be installed or started; says why.
    """

    def __init__(self, say: Callable[[str], None], *, install: bool) -> None:
        python = _python(say, install=install)
        self._child = Child([str(python), str(Path(__file__).with_name("ancestor_child.py"))])
        try:
            self._child.wait_until_ready()
        except ChildFailed:
            self._child.close()
            raise

    def rate(self, n: int) -> float:
        """Return messages per second of `n` additions with all results back; counts results that arrived."""
        answer = self._child.ask(n)
        return float(answer["results"] / answer["seconds"])

    def close(self) -> None:
        """End its process."""
        self._child.close()


def _python(say: Callable[[str], None], *, install: bool) -> Path:
    """Return the Python that has the ancestor and the same Dask as this one."""
    dask = version("distributed")
    packages = ["daskqueue", f"distributed=={dask}", "sortedcontainers", "cloudpickle"]
    return python_with(f"daskqueue-distributed{dask}", packages, say=say, install=install)
