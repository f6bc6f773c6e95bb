"""One set of numbers, wherever it is looked at."""

from __future__ import annotations

import re
from urllib.request import urlopen

import pytest

import dqlab as dq
from dqlab.live.run_picture import run_view
from tests.browser.test_panels import TEXT
from tests.kit.chromium import chromium, needs_chromium

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120), needs_chromium]


def fails_for_some(x: int) -> int:
    if x % 25 == 0:
        raise ValueError("no total")
    return x


def metric(text: str, name: str, **labels: str) -> float:
    wanted = ",".join(f'{key}="{value}"' for key, value in labels.items())
    found = re.search(rf"^{name}{{{wanted}}} (\S+)$", text, re.MULTILINE)
    assert found, f"no {name}{{{wanted}}}"
    return float(found[1])


def figure(said: str, label: str) -> str:
    """Return the number behind a label of the page's first row."""
    found = re.search(rf"{label} ([\d,]+) ", said)
    assert found, said
    return found[1]


def test_widget_panel_metrics_and_stats_say_the_same_at_a_quiet_moment(lab: dq.Lab, queue: dq.QueuePool) -> None:
    """A user who compares two views and finds a difference trusts neither."""
    run = queue.map(fails_for_some, range(200), retry=dq.Retry(0)).wait(timeout=30)

    stats = run.stats()
    snapshot = queue.snapshot()
    with urlopen(f"{lab.panel().rsplit('/', 1)[0]}/metrics") as answer:
        metrics = answer.read().decode()
    with chromium() as browser:
        page = browser.new_page()
        page.goto(f"{lab.panel()}?queue={queue.name}")
        page.wait_for_function(f"() => ({TEXT})().includes('Ended at')", timeout=20_000)
        said = page.evaluate(TEXT)

    (dead,) = [each.documents for each in run_view(stats).counters if each.state == "dead"]
    assert dead == "8"
    assert stats.counts == snapshot.queue(queue.name).counts  # type: ignore[union-attr]
    assert snapshot.failures.dead == sum(entry.dead for entry in snapshot.failures.classes) == 8
    assert metric(metrics, "dqlab_queue_messages", queue=queue.name, state="dead") == 8
    assert metric(metrics, "dqlab_queue_messages", queue=queue.name, state="acked") == 192
    assert (figure(said, "Dead"), figure(said, "Left")) == ("8", "0")
