"""Each thing that can be wrong, planted in the facts of a healthy cluster: it is found, named, and told what to do."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from dqlab.checkup.checks import ADVICE
from dqlab.checkup.examine import judge
from dqlab.checkup.facts import Facts, Registered
from dqlab.stats import Attention, AttentionKind, ClassStats, Counts, RunState, Severity, StopReason
from dqlab.store.probe import Probe
from tests.checkup.planted import (
    DIRECTORY,
    HEALTHY,
    PACKAGES,
    a_run,
    actor,
    consumer,
    queue,
    seen,
    snapshot,
    stopped_run,
    with_actors,
    with_queue,
    with_scene,
    with_scheduler,
    with_store,
    with_worker,
)

PROBLEM, WARNING, NOTE = Severity.PROBLEM, Severity.WARNING, Severity.NOTE
NFS = {"filesystem": "nfs4", "shared": True}
SILENT = with_worker(0, silence="nothing within 10.0 s", silent=42.0, stores=())
TRANSIENT = replace(HEALTHY, registry=replace(HEALTHY.registry, directories={"pages": None}))

PLANTED = {
    "scheduler silent": (
        replace(with_scheduler(silence="nothing within 4.0 s"), workers=(), registry=Registered()),
        "answers",
        PROBLEM,
        "the scheduler at tcp://n1:8786 does not answer: nothing within 4.0 s",
    ),
    "worker silent": (
        SILENT,
        "answers",
        PROBLEM,
        "worker 0 (tcp://n1:0) does not answer: nothing within 10.0 s; its last heartbeat came 42 s ago; it holds "
        "queue pages",
    ),
    "no worker": (replace(with_actors(), workers=()), "answers", PROBLEM, "the cluster has no worker"),
    "gone": (
        with_actors(actor("queue/pages/0", 0, gone="its worker is gone.")),
        "shards",
        PROBLEM,
        "shard 0 of queue pages is gone: its worker is gone",
    ),
    "a log that fails": (
        with_actors(actor("queue/pages/0", 0, made=False, failure="the cable.")),
        "shards",
        PROBLEM,
        "shard 0 of queue pages cannot open its log: the cable",
    ),
    "being made": (
        with_actors(actor("queue/pages/0", 0, made=False)),
        "shards",
        WARNING,
        "shard 0 of queue pages is being opened",
    ),
    "on a worker that left": (
        with_actors(actor("consumer/pages/0", 9)),
        "shards",
        PROBLEM,
        "consumer 0 of queue pages is registered on tcp://n1:9, which is not a worker of this cluster",
    ),
    "no dqlab": (
        with_worker(1, version=None, protocol=None, plugin=False),
        "versions",
        PROBLEM,
        "dqlab is not installed on worker 1 (tcp://n1:1)",
    ),
    "no plugin on a worker": (
        with_worker(1, plugin=False),
        "versions",
        PROBLEM,
        "worker 1 (tcp://n1:1) has no plugin of this dqlab",
    ),
    "protocol": (
        with_worker(1, protocol=2),
        "versions",
        PROBLEM,
        "protocol of dqlab is 1 here, and 2 on worker 1 (tcp://n1:1)",
    ),
    "dqlab": (with_worker(1, version="0.2.0"), "versions", WARNING, "dqlab is 0.1.0 here, and 0.2.0 on worker 1"),
    "python": (with_worker(2, python="3.11.9"), "versions", PROBLEM, "Python is 3.12 here, and 3.11 on worker 2"),
    "cloudpickle": (
        with_scheduler(packages=PACKAGES | {"cloudpickle": "2.0"}),
        "versions",
        WARNING,
        "cloudpickle is 3.1.2 here, and 2.0 on the scheduler",
    ),
    "lag": (with_worker(2, lag=0.8), "resources", WARNING, "the event loop of worker 2 (tcp://n1:2) is 0.8 s late"),
    "memory": (
        with_worker(1, memory=7 * 10**9),
        "resources",
        WARNING,
        "worker 1 (tcp://n1:1) has 7.0 GB of 8.0 GB in memory",
    ),
    "queue on the machine of a job": (
        with_worker(0, TRANSIENT, batch="Slurm", job_left=7200.0),
        "jobs",
        WARNING,
        "whose job ends in 2 h: what it holds then is LOST",
    ),
    "not seen here": (with_store(Probe(DIRECTORY, error="No such file")), "store", NOTE, "this process cannot use"),
    "not seen there": (
        with_worker(0, stores=(Probe(DIRECTORY, error="No such file"),)),
        "store",
        PROBLEM,
        "worker 0 (tcp://n1:0) cannot use store /data/runs: No such file",
    ),
    "another directory": (
        with_worker(0, stores=(seen(marker="missing"),)),
        "store",
        PROBLEM,
        "worker 0 (tcp://n1:0) has another directory under the path /data/runs",
    ),
    "locks of one machine": (
        with_worker(0, stores=(seen(marker="unlocked"),)),
        "store",
        PROBLEM,
        "does not see locks that this process holds in /data/runs (ext4)",
    ),
    "no locks": (
        with_worker(0, stores=(seen(lock="unsupported", filesystem="lustre", marker="unlocked"),)),
        "store",
        PROBLEM,
        "the file system of /data/runs (lustre) supports no locks",
    ),
    "locks that mean nothing": (with_store(seen(lock="ignored")), "store", PROBLEM, "gives the same lock twice"),
    "not writable": (
        with_worker(0, stores=(seen(writable=False, lock=""),)),
        "store",
        PROBLEM,
        "worker 0 (tcp://n1:0) cannot write to store /data/runs",
    ),
    "network": (with_store(seen(**NFS)), "store", NOTE, "is on a file system that other machines may see (nfs4)"),
    "little room": (with_store(seen(free=5 * 10**8)), "store", WARNING, "500 MB are free for store /data/runs"),
    "no room": (with_worker(0, stores=(seen(free=10**6),)), "store", PROBLEM, "no new message is taken in"),
    "paused": (with_queue(state="paused"), "queues", NOTE, "queue pages is paused, and 6 messages wait"),
    "no consumer": (
        with_queue(consumers=0, lag=60.0),
        "queues",
        PROBLEM,
        "pages has no consumer: 5 messages wait for 1 min",
    ),
    "dead puts": (with_queue(counts=Counts(dead=2)), "queues", WARNING, "queue pages: 2 dead of submit or put"),
    "dead at rest": (
        with_queue(a_run(state=RunState.DONE, counts=Counts(dead=505)), counts=Counts(dead=505)),
        "queues",
        PROBLEM,
        "505 dead in run count, done",
    ),
    "lost": (with_scene(a_run(counts=Counts(lost=3))), "queues", PROBLEM, "3 lost of run count"),
    "failing": (
        with_scene(a_run(classes=(ClassStats("f1", "KeyError", "'total'", "totals:12", 9, 0, 1.0, 2.0),))),
        "queues",
        PROBLEM,
        "run count: 9 dead: KeyError 'total': totals:12",
    ),
    "slow": (
        with_scene(consumers=[consumer(slow=True, units_rate=1.0)], median=9.0),
        "queues",
        WARNING,
        "queue pages: consumer c0 does 1.00 documents/s, median 9.00: on worker w-1",
    ),
    "a store that fails": (
        with_scene(trouble="the disk died."),
        "queues",
        PROBLEM,
        "can confirm nothing: the disk died",
    ),
}


def test_nothing_is_found_where_nothing_is_wrong() -> None:
    """A doctor who always finds something is not asked again."""
    checkup = judge(HEALTHY)

    assert checkup
    assert [finding.what for finding in checkup.findings] == ["/data/runs on ext4, locks work, 100 GB free"]
    assert {finding.severity for finding in checkup.findings} == {Severity.OK}


@pytest.mark.parametrize(("facts", "check", "severity", "said"), PLANTED.values(), ids=PLANTED)
def test_what_is_planted_is_found_and_nothing_else_by_its_check(
    facts: Facts, check: str, severity: Severity, said: str
) -> None:
    checkup = judge(facts)
    [found] = [finding for finding in checkup.findings if finding.check == check]

    assert said in found.what
    assert found.severity is severity
    assert found.advice
    assert not found.what.endswith(".")
    assert not found.advice.endswith(".")
    assert bool(checkup) is not any(finding.severity is PROBLEM for finding in checkup.findings)
    json.dumps(checkup.to_dict())


@pytest.mark.parametrize("kind", AttentionKind)
def test_every_alert_of_the_views_is_a_finding_as_bad_as_there(kind: AttentionKind) -> None:
    """What views show in red must not be healthy for the doctor, and nothing is decided twice."""
    for severity in (PROBLEM, WARNING):
        alert = Attention(severity, kind, "subject", "words of a view", "detail · more", queue="pages", run="count")
        facts = replace(HEALTHY, snapshot=replace(snapshot(queue()), attention=(alert,)))

        [found] = [each for each in judge(facts).findings if each.check == "queues"]

        assert found.what.endswith("words of a view: detail; more")
        assert (found.severity, found.values["kind"]) == (severity, kind)
        assert found.advice
    assert kind in ADVICE or kind in (AttentionKind.HELD, AttentionKind.OTHER)


@pytest.mark.parametrize(
    ("reason", "told", "line"),
    [
        (StopReason.ALL_FAILED, "%dq retry count --rest", "%dq failed count"),
        (StopReason.RESULTS_FULL, "return less per document", "%dq resume count"),
        (StopReason.REFUSED, "Renew the credentials", "%dq resume count"),
    ],
)
def test_a_run_that_paused_itself_is_advised_by_its_reason(reason: StopReason, told: str, line: str) -> None:
    """Room for results helps no function with a mistake in it: the rest of its documents would fail as well."""
    why = "its documents cannot be read: 401" if reason is StopReason.REFUSED else "why it did"
    found = next(each for each in judge(stopped_run(reason, why)).findings if each.check == "queues")

    assert f"count paused itself: {why}" in found.what
    assert told in found.advice
    assert found.command == line


def test_dead_documents_are_looked_for_in_their_run_or_in_their_queue() -> None:
    """It named run.failures(), though the queue had no run."""
    commands = [
        next(finding.command for finding in judge(PLANTED[name][0]).findings if finding.check == "queues")
        for name in ("dead puts", "dead at rest")
    ]

    assert commands == ["lab.queue('pages').dead()", "%dq failed count"]


def test_a_document_that_hangs_is_advised_by_what_ends_it_now() -> None:
    """A limit helps the next run; this one waits."""
    stuck = consumer(leased=1, oldest_age=590.0, run="count")

    found = next(each for each in judge(with_scene(consumers=[stuck])).findings if "held one document" in each.what)

    assert found.command == "lab.attach('count').replace('c0')"
    assert "lab.attach('count').give_up('a.pdf')" in found.advice
    assert found.advice.index("give_up") < found.advice.index("timeout=")


def test_the_worst_comes_first() -> None:
    severities = [finding.severity for finding in judge(with_worker(2, SILENT, lag=9.0)).findings]

    assert severities == sorted(severities, reverse=True)
    assert severities[0] is PROBLEM


def test_a_worker_that_may_not_host_queues_needs_no_store() -> None:
    """Only a process that opens a log must see its directory."""
    assert judge(with_worker(1, stores=(Probe(DIRECTORY, error="No such file"),)))


def test_who_misses_workers_of_a_cluster_that_was_started_here_is_told_to_connect_again() -> None:
    """`dask worker ADDRESS` is for clusters with a terminal of their own; here it joins none of what was lost."""
    commands = [each.command for each in judge(replace(with_actors(), workers=(), embedded=True)).findings]

    assert "lab.close()" in commands
    assert not any("dask worker" in command for command in commands)


def test_every_process_is_a_row_with_the_same_keys() -> None:
    """A table, or a data frame, of them has no holes; what is gone has a row too."""
    rows = judge(with_worker(1, SILENT, direct=False, job_left=60.0, lifetime_left=90.0)).processes

    assert [row["process"] for row in rows] == ["this process", "the scheduler", "worker 0", "worker 1", "worker 2"]
    assert len({tuple(row) for row in rows}) == 1
    assert [row["answers"] for row in rows[2:]] == ["nothing within 10.0 s", "through the scheduler", "directly"]
    assert rows[2]["shards"] == ["pages/0"]
    assert (rows[3]["consumers"], rows[3]["leaves_in"], rows[3]["dask"]) == (["pages"], 60.0, "2026.8.0")
