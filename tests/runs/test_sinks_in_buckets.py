"""Sinks in object stores: parts have their final names at once, and secrets stay where they are."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

import dqlab as dq
from dqlab.datasets.sinks import CLAIM, SinkTaken
from tests.documents.test_s3 import SECRET, bucket, endpoint, options  # noqa: F401 - fixtures
from tests.kit.cells import of_a_cell
from tests.kit.waiting import until

pytestmark = pytest.mark.cluster


@of_a_cell
def square(n: int) -> dict[str, int]:
    return {"n": n, "square": n * n}


def test_rows_are_written_into_a_bucket_and_read_from_it(
    queue: dq.QueuePool,
    bucket: tuple[Any, str],  # noqa: F811
    options: dict[str, Any],  # noqa: F811
) -> None:
    """A cluster that shares no disk has a bucket."""
    system, name = bucket
    sink = dq.Parquet(f"s3://{name}/rows", storage_options=options)
    run = queue.map(square, range(500), sink=sink)

    assert list(run.results(timeout=60)) == [{"n": n, "square": n * n} for n in range(500)]
    assert run.table().to_arrow()["square"].to_pylist() == [n * n for n in range(500)]
    names = [each.rpartition("/")[2] for each in system.ls(f"{name}/rows", refresh=True)]
    assert CLAIM in names
    assert all(each == CLAIM or each.endswith(".parquet") for each in names)
    with pytest.raises(SinkTaken):
        queue.map(square, range(5), sink=sink)
    run.drop(data=True)
    assert not system.exists(f"{name}/rows/{CLAIM}")


def test_a_secret_that_workers_lack_holds_the_run_up_until_they_have_it(
    lab: dq.Lab,
    queue: dq.QueuePool,
    bucket: tuple[Any, str],  # noqa: F811
    options: dict[str, Any],  # noqa: F811
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is set where workers start; those that started before have to be given it, and nothing is lost meanwhile."""
    lab.client.run(lambda: os.environ.pop("DQ_TEST_S3"))
    run = queue.map(square, range(50), sink=dq.Parquet(f"s3://{bucket[1]}/late", storage_options=options))
    until(lambda: "the variable DQ_TEST_S3 is not set" in run.stats().why)
    assert run.counts["acked"] == 0

    lab.client.run(lambda: os.environ.update(DQ_TEST_S3="nobody-reads-this"))

    assert len(run.results(timeout=60)) == 50
    told = [repr(run.sink), str(run.sink), json.dumps(run.record(), default=str), run.stats().why, caplog.text]
    assert not any(SECRET in text for text in told)
