"""Fixtures and helpers for tests of code that uses dqlab: time moved by hand, a small cluster, leak checks.

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
    from dqlab.testing.fixtures import dq_clock, dq_lab, dq_no_leaks, dq_queue
    from dqlab.testing.leaks import Footprint, Leaked, no_leaks

__all__ = [
    "FakeClock",
    "Footprint",
    "Gate",
    "Leaked",
    "Tally",
    "dq_clock",
    "dq_lab",
    "dq_no_leaks",
    "dq_queue",
    "no_leaks",
]

_HOMES = {
    "Footprint": "dqlab.testing.leaks",
    "Leaked": "dqlab.testing.leaks",
    "dq_clock": "dqlab.testing.fixtures",
    "dq_lab": "dqlab.testing.fixtures",
    "dq_no_leaks": "dqlab.testing.fixtures",
    "dq_queue": "dqlab.testing.fixtures",
    "no_leaks": "dqlab.testing.leaks",
}
"""Modules of names that are imported on first access, so that a process that is sent a `Gate` loads no pytest."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return found


def __dir__() -> list[str]:
    """Return the public names, by which pytest finds the fixtures."""
    return [*__all__, "__doc__", "__file__", "__name__"]
