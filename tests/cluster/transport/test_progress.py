"""What shards say of a run, joined: which documents are lost, and what each shard still has."""

from __future__ import annotations

from typing import Any

from dqlab.cluster.transport.reports import Progress, ShardProgress
from dqlab.rules.reports import LaneReport


def shard(acked: int, lost: int, came: list[tuple[int, int]], **more: Any) -> ShardProgress:
    own = {part: more.pop(part) for part in ("submitted", "digest", "beyond") if part in more}
    rest = {"sealed": True, "incomplete": None, "total": 100}
    lane = LaneReport(run="", counts=[0, 0, 0, acked, 0, 0, lost], **rest | more)
    return ShardProgress(lane=lane, done=True, came=came, **{"submitted": 100, "digest": "d"} | own)


def test_lost_is_what_no_shard_has_of_a_complete_input() -> None:
    progress = Progress([shard(30, 40, [(0, 10), (60, 80)]), shard(30, 0, [(10, 40)])])

    assert progress.lost == [(40, 60), (80, 100)]


def test_what_was_never_submitted_of_an_incomplete_input_is_not_lost() -> None:
    cut_off = {"incomplete": "the input ended", "submitted": 50, "digest": "d", "beyond": [(60, 80)]}
    progress = Progress([shard(20, 10, [(0, 20)], **cut_off), shard(40, 0, [(30, 50), (60, 80)])])

    assert progress.lost == [(20, 30)]
