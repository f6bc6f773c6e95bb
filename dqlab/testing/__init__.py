"""Fixtures and helpers for tests of code that uses dqlab: time moved by hand, a small cluster.

Name it as a plugin in your ``conftest.py`` to get its fixtures (it needs pytest)::

    pytest_plugins = ["dqlab.testing"]

    def test_word_count(dq_queue):
        assert list(dq_queue.map(count, ["a b", "c"]).results()) == [2, 1]

PYTEST_DONT_REWRITE: there are no assertions to rewrite here, and the module may be imported before pytest sees it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dqlab.testing.clock import FakeClock
from dqlab.testing.signals import Gate, Tally

if TYPE_CHECKING:
    from dqlab.testing.fixtures import dq_clock, dq_lab, dq_queue

__all__ = [
    "FakeClock",
    "Gate",
    "Tally",
    "dq_clock",
    "dq_lab",
    "dq_queue",
]

_FIXTURES = ("dq_clock", "dq_lab", "dq_queue")
"""Imported on first access, so that a process that is sent a `Gate` loads no pytest."""


def __getattr__(name: str) -> Any:
    if name not in _FIXTURES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module("dqlab.testing.fixtures"), name)
    return found


def __dir__() -> list[str]:
    """Return the public names, by which pytest finds the fixtures."""
    return [*__all__, "__doc__", "__file__", "__name__"]
