"""What views learn from the things they show."""

from __future__ import annotations

from contextlib import closing

import dqlab as dq
from dqlab.live.next_lines import cluster_of


def test_labs_queues_and_runs_name_their_cluster(lab: dq.Lab, queue_name: str) -> None:
    """Where none is named, offers about a run of one cluster would apply to that of another."""
    with closing(lab.queue(queue_name)) as queue:
        run = queue.map(abs, range(2), consumers=None)

        for each in (lab, queue, run):
            assert cluster_of(each) == lab.client.scheduler.address
        run.cancel()


def test_what_has_no_connection_names_none() -> None:
    """A view of hand-made numbers is drawn all the same."""
    assert cluster_of(object()) == ""
