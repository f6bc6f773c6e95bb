"""What cells offer about runs, and what ends it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from dqlab.live.decisions import decided, deciding, is_offered, noticed, offered

RUN = SimpleNamespace(name="parse")
"""Of a cluster without an address."""


@pytest.fixture
def said() -> Any:
    said: list[str] = []
    offered(RUN, "parse", 1, said.append)
    yield said
    decided(RUN, "parse", "")


def test_an_offer_is_settled_once(said: list[str]) -> None:
    """A later retry is another matter: what the cell shows stays what ended its offer."""
    decided(RUN, "parse", "Retried 41 documents")
    decided(RUN, "parse", "Retried 3 documents")

    assert said == ["Retried 41 documents"]
    assert not is_offered(RUN, "parse")


def test_another_run_or_cluster_leaves_an_offer_alone(said: list[str]) -> None:
    """Two clusters may each have a run of that name."""
    decided(RUN, "other", "Retried")
    decided(SimpleNamespace(handle=SimpleNamespace(link=SimpleNamespace(address="tcp://n1:8786"))), "parse", "Retried")

    assert said == []


def test_what_acts_reports_rather_than_what_sees_it(said: list[str]) -> None:
    """The view of the run polls while the retry is under way, and does not know how many documents it sends."""
    with deciding(RUN, "parse") as report:
        noticed(RUN, "parse", 2, "parse has v2")
        assert said == []
        report("Retried 41 documents")

    assert said == ["Retried 41 documents"]


def test_an_act_that_fails_leaves_the_offer(said: list[str]) -> None:
    with pytest.raises(LookupError), deciding(RUN, "parse"):
        raise LookupError

    assert is_offered(RUN, "parse")
    noticed(RUN, "parse", 2, "parse has v2")
    assert said == ["parse has v2"]


def test_news_from_before_an_offer_does_not_end_it(said: list[str]) -> None:
    """A view of a run at rest looks every 15 s: what it has just found may be the code that the cell was edited on."""
    noticed(RUN, "parse", 1, "parse has v1")

    assert said == []
