"""A lab that is closed, or a connect that fails, leaves nothing, also when somebody presses Ctrl-C in the middle."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from dqlab.errors import ConnectFailed
from dqlab.lab import Lab


class Step:
    """One step of closing: notes that it was taken, and fails as often as it is told."""

    def __init__(self, taken: list[str], name: str, *errors: BaseException) -> None:
        self.taken, self.name, self.errors = taken, name, list(errors)

    def close(self, **_: Any) -> None:
        self.taken.append(self.name)
        if self.errors:
            raise self.errors.pop(0)


def lab_of(taken: list[str], **failing: BaseException) -> Lab:
    """Return a lab that started its cluster; closing that cluster fails once in those steps."""
    lab = Lab.__new__(Lab)
    steps = {name: Step(taken, name, *([failing[name]] if name in failing else [])) for name in ("queue", "client")}
    cluster = Step(taken, "cluster", *([failing["cluster"]] if "cluster" in failing else []))
    link = SimpleNamespace(here=True, connected=False, leave=lambda: None)
    session = SimpleNamespace(pools={"q": steps["queue"]}, link=link)
    vars(lab).update(session=session, client=steps["client"], closed=False)
    lab._cluster, lab._own_client, lab._announced, lab._batch = cluster, True, None, False
    return lab


@pytest.mark.parametrize("step", ["queue", "client", "cluster"])
@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("unexpected"), OSError("disk")])
def test_close_ends_the_cluster_whatever_fails(step: str, error: BaseException) -> None:
    """Worker processes that stay hold the locks of the store until the kernel ends."""
    taken: list[str] = []
    lab = lab_of(taken, **{step: error})
    with pytest.raises(type(error)):
        lab.close()
    assert taken == ["queue", "client", "cluster"]
    assert lab.closed is (step != "cluster")
    lab.close()
    assert taken.count("cluster") == (2 if step == "cluster" else 1), "a second close goes on where the first ended"
    assert lab.closed


def test_close_passes_over_what_cannot_be_asked() -> None:
    """A queue whose worker is gone is no reason to raise."""
    taken: list[str] = []
    lab_of(taken, queue=ConnectFailed(address="a", seconds=1, reason="r")).close()
    assert taken == ["queue", "client", "cluster"]
