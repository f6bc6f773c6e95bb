"""What views show of a run that counts bytes: sizes, as people read them, and counts of documents as ever."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dqlab.live.details import left_chart
from dqlab.live.lab_picture import Site, lab_view, queue_view
from dqlab.live.panels.metrics import metrics
from dqlab.live.run_picture import run_view
from dqlab.live.run_rows import run_rows
from dqlab.live.tables import runs_table
from dqlab.numbers import many
from dqlab.stats import Counts, History, RunStats, Snapshot
from tests.live.drawn import screen_of

GB = 10**9


@pytest.fixture
def weighed(running: RunStats) -> RunStats:
    """The running one, over files: 3.4 GB, of which 1.2 GB are left."""
    units = Counts(ready=GB, leased=GB // 5, acked=2 * GB, dead=GB // 5)
    return replace(running, units=units, weighed_in="bytes", units_rate=12_345_678.0)


def test_the_view_of_a_run_counts_sizes(weighed: RunStats) -> None:
    view = run_view(weighed)

    assert (view.unit, view.percent, view.bar_label) == ("bytes", "64.7 %", "64.7 percent of bytes settled")
    assert [(each.label, each.value, each.unit, each.second) for each in view.figures][:3:2] == [
        ("Left", "1.2", "GB", "16,121 documents"),
        ("Speed, 60 s at work", "12", "MB/s", "23.9 documents/s"),
    ]
    assert "and 1.2 of 3.4 GB left after" in view.sentence
    assert "MB/s, " in view.sentence
    assert view.milestone == "at least 50 percent of bytes settled"
    screen = screen_of(view)
    assert "left   1.2 GB" in screen
    assert "speed  12 MB/s" in screen
    assert " of bytes" in screen


def test_empty_files_that_are_left_are_counted_as_documents(weighed: RunStats, snapshot: Snapshot) -> None:
    """A file of no bytes weighs one, so that progress sees it: "Left 1 B" was read as a billion."""
    one = replace(weighed, units=Counts(ready=1, acked=9), counts=Counts(ready=1, acked=9))

    (left, *_) = run_view(one).figures
    assert (left.value, left.unit, left.second) == ("1", "document", many(one.consumers, "consumer"))
    assert [run.left for run in lab_view(replace(snapshot, runs=(one,)), place=Site("pages")).runs] == ["1 document"]
    two = replace(one, units=Counts(ready=5_000, acked=9))
    assert run_view(two).figures[0][1:4] == ("5.0", "kB", "1 document")


def test_dead_documents_that_weigh_more_than_their_number_are_told_by_both(weighed: RunStats) -> None:
    """ "99.9 % of bytes" stood over a run in which every large document was dead."""
    few = replace(weighed, units=Counts(ready=1, acked=99, dead=900), counts=Counts(ready=1, acked=890, dead=10))

    assert run_view(few).figures[3].second == "1.11 %, 90.0 % of bytes"
    assert run_view(replace(few, units=few.counts)).figures[3].second == "1.11 %"


def test_the_chart_is_of_bytes(weighed: RunStats) -> None:
    """A gigabyte is less to read than 1,200,000,000."""
    history = History(t0=weighed.at - 20, step=10.0, units_left=(2.0e9, 1.5e9, 1.2e9))

    chart = left_chart(weighed, history)

    assert chart.title == "Bytes left"
    assert chart.label.startswith("Bytes left over time: 1.2 GB now")
    assert chart.values[-1] == 1_200_000_000


def test_tables_of_runs_have_sizes_per_second(weighed: RunStats, snapshot: Snapshot) -> None:
    """Beside a run that counts pages each names its own; alone, the head names it."""
    rows = {row.name: row for row in run_rows(replace(snapshot, runs=(weighed, *snapshot.runs[1:])))}
    assert (rows[weighed.name].speed, rows[weighed.name].unit) == ("12 MB/s", "bytes")

    alone = runs_table([weighed])
    assert "bytes/s" in [column.title for column in alone.columns]
    assert "12 MB" in [cell.text for cell in alone.rows[0]]
    both = runs_table([weighed, snapshot.runs[1]])
    assert "per second" in [column.title for column in both.columns]
    assert {"12 MB", "12.0 pages"} <= {cell.text for row in both.rows for cell in row}


def test_the_view_of_a_queue_has_what_is_left_of_a_run_as_a_size(weighed: RunStats, snapshot: Snapshot) -> None:
    view = queue_view(replace(snapshot, runs=(weighed,)), None, place=Site("pages"))

    assert [run.left for run in view.runs] == ["1.2 GB"]


def test_metrics_keep_bytes_and_pages_apart(weighed: RunStats, snapshot: Snapshot) -> None:
    """A sum over all runs of one metric is of one unit."""
    pytest.importorskip("prometheus_client")
    runs = (weighed, *snapshot.runs[1:])
    names = {
        (sample.name, sample.labels["run"])
        for metric in metrics(replace(snapshot, runs=runs))
        for sample in metric.samples
        if sample.name in ("dqlab_run_pages", "dqlab_run_bytes")
    }

    assert ("dqlab_run_bytes", weighed.name) in names
    assert ("dqlab_run_pages", weighed.name) not in names
    assert ("dqlab_run_pages", snapshot.runs[1].name) in names
