"""What shards say of a run, joined: which documents are lost, and what each shard still has."""

from __future__ import annotations

from typing import Any

from dqlab.cluster.transport.progress import Progress, ShardProgress
from dqlab.rules.reports import LaneReport


def shard(acked: int, lost: int, came: list[tuple[int, int]], **more: Any) -> ShardProgress:
    own = {part: more.pop(part) for part in ("submitted", "digest", "beyond") if part in more}
    rest = {"sealed": True, "incomplete": None, "total": 100, "died": []}
    lane = LaneReport(run="", counts=[0, 0, 0, acked, 0, 0, lost], **rest | more)
    return ShardProgress(lane=lane, done=True, came=came, **{"submitted": 100, "digest": "d"} | own)


def test_lost_is_what_no_shard_has_of_a_complete_input() -> None:
    progress = Progress([shard(30, 40, [(0, 10), (60, 80)]), shard(30, 0, [(10, 40)])])

    assert progress.lost == [(40, 60), (80, 100)]


def test_what_was_never_submitted_of_an_incomplete_input_is_not_lost() -> None:
    cut_off = {"incomplete": "the input ended", "submitted": 50, "digest": "d", "beyond": [(60, 80)]}
    progress = Progress([shard(20, 10, [(0, 20)], **cut_off), shard(40, 0, [(30, 50), (60, 80)])])

    assert progress.lost == [(20, 30)]


def test_nothing_is_looked_for_where_nothing_is_lost() -> None:
    assert Progress([shard(0, 0, [])]).lost == []


def test_lost_documents_that_are_put_again_behind_the_recorded_ones_are_counted_once() -> None:
    """Of 25 lost ones the record knows 10; the other 15 are put again by who maps the documents again."""
    progress = Progress([shard(20, 5, [(0, 20)]), shard(10, 20, [(30, 40)])])

    assert sum(progress.kept_of([(0, 40)])) == 20 + 10 + 10
    assert progress.kept_of([(0, 20)]) == [20, 10]


def test_lost_documents_behind_a_gap_are_counted_once_although_they_are_not_put_again() -> None:
    """The record knows that they were taken, while others before them were refused."""
    progress = Progress([shard(20, 30, [(0, 20)]), shard(10, 0, [(60, 70)])])

    assert progress.kept_of([(0, 20), (60, 100)]) == [20 + 30, 10]


def test_documents_that_a_dead_shard_had_not_reported_are_counted_with_it() -> None:
    progress = Progress([shard(20, 0, [(0, 20)]), shard(0, 5, [], died=["tcp://w"])])

    assert progress.kept_of([(0, 40)]) == [20, 20]


def test_how_it_was_lost_names_shards_workers_and_files() -> None:
    progress = Progress([shard(0, 7, [], died=["tcp://w"]), shard(5, 0, [], died=["tcp://v"]), shard(0, 1200, [])])

    said = progress.how_lost("pages", "os")

    assert "7 were in memory, in shard 0 of queue 'pages', and worker tcp://w died" in said
    assert "1,200 were in damaged files of shard 2" in said
    assert "tcp://v" not in said


def test_documents_that_went_with_a_queue_in_memory_were_in_no_file() -> None:
    """Another client closed the queue, and opened it again while a run was being submitted to it."""
    said = Progress([shard(5, 100, [])]).how_lost("pages", "transient")

    assert said == "100 were in memory, in queue 'pages', when a client closed it"
