"""Who made a run is known to all who look at it."""

from __future__ import annotations

import getpass

import pytest

import dqlab as dq


def test_a_run_names_the_user_and_the_notebook_that_made_it(lab: dq.Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a cluster that several people share, the first question about a run that fails is whose it is."""
    monkeypatch.setenv("JPY_SESSION_NAME", "/home/ana/invoices.ipynb")
    run = lab.queue("owned").map(abs, range(3), name="owned").wait(timeout="60s")

    assert run.stats().owner == f"{getpass.getuser()}, invoices.ipynb"
    (listed,) = [each for each in lab.stats().runs if each.name == "owned"]
    assert listed.owner == run.stats().owner
