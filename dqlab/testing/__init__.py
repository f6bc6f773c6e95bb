"""For tests of code that uses dqlab: time moved by hand, a small cluster, leak checks.

Name it as a plugin in your ``conftest.py`` to get its fixtures (it needs pytest)::

    pytest_plugins = ["dqlab.testing"]

    def test_word_count(dq_queue):
        assert list(dq_queue.map(count, ["a b", "c"]).results()) == [2, 1]

PYTEST_DONT_REWRITE: there are no assertions to rewrite here, and the module may be imported before pytest sees it.
"""

from dqlab.testing.clock import FakeClock
from dqlab.testing.fixtures import dq_clock, dq_lab, dq_no_leaks, dq_queue
from dqlab.testing.leaks import Footprint, Leaked, no_leaks
from dqlab.testing.signals import Gate, Tally

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
