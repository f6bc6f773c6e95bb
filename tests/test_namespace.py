"""What the Tab key offers behind `dq.`."""

from __future__ import annotations

import dqlab as dq


def test_completion_offers_what_users_use_and_nothing_else() -> None:
    """Internal names in the list are taken for an interface."""
    offered = {name for name in dir(dq) if not name.startswith("__")}

    assert offered == {*dq.__all__, "errors", "hpc", "testing"}


def test_everything_offered_is_there() -> None:
    """A name that raises is worse than none."""
    import dqlab.testing

    assert dqlab.testing
    assert all(hasattr(dq, name) for name in dir(dq))
