"""Each thing that can be wrong, planted in the facts of a healthy cluster: it is found, named, and told what to do."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from dqlab import numbers
from dqlab.checkup.alerts import WORDINGS
from dqlab.checkup.examine import CHECKS, judge
from dqlab.checkup.facts import Facts, Process, Queue, StoreFacts
from dqlab.checkup.findings import Finding
from dqlab.log.ownership import Holder
from dqlab.stats import AttentionKind, ClassStats, Counts, RunState, Severity, StopReason, Unacked
from dqlab.stats.attention import brief
from dqlab.store.probe import Probe
from tests.checkup.planted import (
    DIRECTORY,
    HEALTHY,
    PACKAGES,
    a_run,
    actor,
    consumer,
    leaving,
    process,
    queue,
    seen,
    snapshot,
    stopped_run,
    stored,
    with_lease,
    with_log,
    with_process,
    with_queue,
    with_registry,
    with_scene,
    with_scheduler,
    with_shard,
    with_store,
    with_worker,
)

PROBLEM, WARNING, NOTE = Severity.PROBLEM, Severity.WARNING, Severity.NOTE
NFS = {"filesystem": "nfs4", "shared": True}

PLANTED = {
    "scheduler silent": (
        replace(with_scheduler(process=None, silence="nothing within 4.0 s", registry=None), workers=()),
        "answers",
        PROBLEM,
        "the scheduler at tcp://n1:8786 does not answer: nothing within 4.0 s",
    ),
    "worker silent": (
        with_worker(0, process=None, silence="nothing within 10.0 s", silent=42.0, shards=(), probes=()),
        "answers",
        PROBLEM,
        "worker 0 (tcp://n1:0) does not answer: nothing within 10.0 s; its last heartbeat came 42 s ago; it holds "
        "queue pages",
    ),
    "no worker": (
        replace(with_registry(hosts=(), serving=(), actors=(), served=()), workers=()),
        "answers",
        PROBLEM,
        "the cluster has no worker",
    ),
    "function that does not end": (
        with_worker(1, abandoned={"consumer/pages/0": ("a.txt", "b.txt", "c.txt", "d.txt")}),
        "leases",
        WARNING,
        "consumer/pages/0 on worker 1 (tcp://n1:1) still runs 4 functions that were given up: "
        "a.txt, b.txt, c.txt and 1 more",
    ),
    "one function that does not end": (
        with_worker(1, abandoned={"consumer/pages/0": ("a.txt",)}),
        "leases",
        WARNING,
        "still runs 1 function that was given up: a.txt; threads",
    ),
    "protocol": (
        with_process(1, protocol=2),
        "versions",
        PROBLEM,
        "protocol of dqlab is 1 here, and 2 on worker 1 (tcp://n1:1)",
    ),
    "dqlab": (with_process(1, version="0.2.0"), "versions", WARNING, "dqlab is 0.1.0 here, and 0.2.0 on worker 1"),
    "python": (with_process(2, python="3.11.9"), "versions", PROBLEM, "Python is 3.12 here, and 3.11 on worker 2"),
    "python patch": (
        with_process(2, python="3.12.9"),
        "versions",
        NOTE,
        "Python is 3.12.4 here, and 3.12.9 on worker 2",
    ),
    "dask": (
        with_process(1, packages=PACKAGES | {"dask": "2025.1.0"}),
        "versions",
        WARNING,
        "dask is 2026.8.0 here, and 2025.1.0 on",
    ),
    "cloudpickle of the scheduler": (
        with_scheduler(process=process(2, packages=PACKAGES | {"cloudpickle": "2.0"})),
        "versions",
        WARNING,
        "cloudpickle is 3.1.2 here, and 2.0 on the scheduler",
    ),
    "msgpack": (
        with_process(1, packages=PACKAGES | {"msgpack": None}),
        "versions",
        NOTE,
        "msgpack is 1.2.4 here, and none on worker 1",
    ),
    "no plugin on the scheduler": (
        with_scheduler(registry=None),
        "plugins",
        WARNING,
        "the scheduler has no plugin of this dqlab",
    ),
    "no dqlab on the scheduler": (
        with_scheduler(process=Process(python="3.12.4", packages=PACKAGES), registry=None),
        "plugins",
        PROBLEM,
        "dqlab cannot be imported on the scheduler",
    ),
    "no plugin on a worker": (
        with_worker(1, plugin=False),
        "plugins",
        PROBLEM,
        "worker 1 (tcp://n1:1) has dqlab 0.1.0, and no plugin of it",
    ),
    "no dqlab on a worker": (
        with_worker(1, plugin=False, process=Process(python="3.12.4", packages=PACKAGES)),
        "plugins",
        PROBLEM,
        "dqlab is not installed on worker 1",
    ),
    "proxied": (
        with_worker(1, path="proxied"),
        "connections",
        WARNING,
        "this process reaches 1 of 3 workers through the scheduler only (worker 1",
    ),
    "a lab that chose the scheduler": (
        replace(HEALTHY, direct=False),
        "connections",
        WARNING,
        "this lab sends everything through the scheduler",
    ),
    "clock": (
        with_process(1, skew=-90.0, doubt=0.1),
        "clocks",
        WARNING,
        "the clock of worker 1 (tcp://n1:1) is 1 min 30 s",
    ),
    "package": (
        replace(with_worker(1, missing=("pandas",)), packages=("pandas",)),
        "imports",
        PROBLEM,
        "pandas cannot be imported on worker 1",
    ),
    "shared": (with_registry(shared=True), "placement", WARNING, "queues share a worker with functions"),
    "gone": (
        with_registry(actors=(actor("queue/pages/0", 0, gone="its worker is gone."),), served=()),
        "placement",
        PROBLEM,
        "shard 0 of queue pages is gone: its worker is gone",
    ),
    "a log that fails": (
        with_registry(actors=(actor("queue/pages/0", 0, made=False, failure="the cable."),), served=()),
        "placement",
        PROBLEM,
        "the log of shard 0 of queue pages fails: the cable",
    ),
    "beside functions": (
        with_registry(actors=(actor("queue/pages/0", 1),), served=()),
        "placement",
        WARNING,
        "shard 0 of queue pages lives on worker 1 (tcp://n1:1), which runs functions too",
    ),
    "being made": (
        with_registry(actors=(actor("queue/pages/0", 0, epoch=3, made=False),), served=()),
        "placement",
        WARNING,
        "shard 0 of queue pages is being opened, epoch 3",
    ),
    "on a worker that left": (
        with_registry(actors=(actor("queue/pages/0", 9),), served=()),
        "placement",
        PROBLEM,
        "registered on tcp://n1:9, which is not a worker of this cluster",
    ),
    "a worker without a consumer": (
        with_registry(actors=(actor("queue/pages/0", 0), actor("consumer/pages/0", 1))),
        "placement",
        WARNING,
        "queue pages has no consumer on worker 2",
    ),
    "waiting": (
        with_queue(consumers=0, lag=60.0),
        "queues",
        PROBLEM,
        "queue pages has no consumer: 5 messages wait for 1 min",
    ),
    "put, not started yet": (with_queue(consumers=0, lag=1.0), "queues", NOTE, "wait and it has no consumer"),
    "paused": (with_queue(state="paused"), "queues", NOTE, "queue pages is paused, and 6 messages wait"),
    "draining": (with_queue(state="draining"), "queues", NOTE, "queue pages is draining"),
    "put off": (
        with_scene(a_run(counts=Counts(delayed=1, leased=2), at=9.0)),
        "queues",
        NOTE,
        "run count: 1 document put off by its function",
    ),
    "put off for ever": (
        with_scene(a_run(counts=Counts(delayed=12), at=90.0, rate=0.0)),
        "queues",
        WARNING,
        "run count: 12 documents put off by their function with dq.Later, and no document ended in the last 1 min",
    ),
    "full": (with_queue(counts=Counts(ready=1000)), "queues", NOTE, "queue pages is full: 1,000 messages"),
    "full, and nothing leaves": (
        with_queue(counts=Counts(ready=1000), put_waiting=3),
        "queues",
        WARNING,
        "3 puts wait for room: queue pages is full, and nothing leaves it",
    ),
    "nearly full": (with_queue(counts=Counts(ready=950)), "queues", NOTE, "queue pages is nearly full: 950 messages"),
    "dead": (with_queue(counts=Counts(dead=2)), "queues", WARNING, "queue pages has 2 dead letters"),
    "dead at rest": (
        replace(
            HEALTHY,
            snapshot=replace(
                snapshot(queue(counts=Counts(dead=505)), (a_run(state=RunState.DONE, counts=Counts(dead=505)),)),
                runs_total=1,
            ),
        ),
        "queues",
        PROBLEM,
        "queue pages has 505 dead letters, in run count, done",
    ),
    "dead at rest, in runs that are not listed": (
        replace(
            HEALTHY,
            snapshot=replace(
                snapshot(queue(counts=Counts(dead=236, ready=4), failed_runs=8, dead_at_rest=236), (a_run(),)),
                runs_total=30,
            ),
        ),
        "queues",
        PROBLEM,
        "queue pages has 236 dead letters, in 8 runs that have ended",
    ),
    "lost": (with_queue(counts=Counts(lost=1)), "queues", WARNING, "queue pages has lost 1 message"),
    "lost by a run": (
        with_scene(a_run(counts=Counts(lost=3))),
        "queues",
        PROBLEM,
        "run count lacks documents: 3 lost",
    ),
    "results missing": (
        with_scene(missing={"count": 2}),
        "queues",
        PROBLEM,
        "2 results missing of run count, though processed: they were acknowledged, and are not there",
    ),
    "failing": (
        with_scene(a_run(classes=(ClassStats("f1", "KeyError", "'total'", "totals:12", 9, 0, 1.0, 2.0),))),
        "queues",
        PROBLEM,
        "9 dead in run count: KeyError 'total'; totals:12",
    ),
    "growing": (
        replace(
            HEALTHY,
            snapshot=snapshot(queue(lag=60.0, in_rate=9.0), in_lately=9.0, out_lately=3.0, depths=(1.0, 3.0, 5.0)),
        ),
        "queues",
        WARNING,
        "queue pages gets 9.00 messages/s and does 3.00 for 5 min; 5 wait",
    ),
    "behind": (with_queue(lag=3600.0), "queues", WARNING, "queue pages is 1 h behind, and the delay grows"),
    "stopped": (stopped_run(), "queues", PROBLEM, "run count paused itself: no room for more results"),
    "a sink that refuses rows": (
        with_scene(a_run(state=RunState.WAITING, why="its rows cannot be written to out/: No space left on device")),
        "queues",
        PROBLEM,
        "run count waits for its sink: its rows cannot be written to out/: No space left on device",
    ),
    "a storage that refuses documents": (
        with_scene(a_run(state=RunState.WAITING, why="its documents cannot be read: s3://b refuses them")),
        "queues",
        PROBLEM,
        "run count waits for its documents: its documents cannot be read: s3://b refuses them",
    ),
    "held for long": (
        with_lease(held=600.0),
        "leases",
        NOTE,
        "consumer/pages/0#0 holds 3 messages of shard 0 of queue pages for 10 min, longer than the visibility timeout",
    ),
    "a document held for long": (
        replace(with_lease(held=600.0), snapshot=snapshot(queue(), consumers=[consumer(leased=1, oldest_age=590.0)])),
        "leases",
        WARNING,
        "consumer c0 of queue pages held one document for 9 min 50 s: a.pdf",
    ),
    "slow": (
        with_scene(consumers=[consumer(slow=True, units_rate=1.0)], median=9.0),
        "leases",
        WARNING,
        "consumer c0 of queue pages does 1.00 documents/s, median 9.00, on worker w-1",
    ),
    "all consumers silent": (
        with_scene(consumers=[consumer(silent=75.0)], unanswered=75.0, at=1e9),
        "queues",
        PROBLEM,
        f"queue pages has no consumer that answers since {numbers.clock(1e9 - 75)}: c0 on worker w-1 silent for "
        "1 min 15 s; 6 messages left",
    ),
    "one consumer silent": (
        with_scene(consumers=[consumer(silent=75.0), consumer(name="c1")]),
        "leases",
        WARNING,
        "consumer c0 of queue pages has not answered for 1 min 15 s, on worker w-1",
    ),
    "leases that are not renewed": (
        with_scene(unacked=Unacked(ending_20s=3)),
        "leases",
        WARNING,
        "3 leases end within 20 s in queue pages: their consumers do not renew",
    ),
    "a store that fails, on a worker that is silent": (
        with_scene(trouble="the disk died"),
        "leases",
        PROBLEM,
        "queue pages can confirm nothing: the disk died",
    ),
    "a store without room": (
        with_scene(trouble="the disk is full", full=True),
        "leases",
        PROBLEM,
        "queue pages waits for room in its store: the disk is full",
    ),
    "a failed store that both see": (
        replace(with_shard(failure="the disk died."), snapshot=snapshot(queue(), trouble="the disk died")),
        "leases",
        PROBLEM,
        "shard 0 of queue pages can confirm nothing any more: the disk died",
    ),
    "never ended": (
        with_lease(held=90.0, left=-30.0),
        "leases",
        PROBLEM,
        "the lease ended 30 s ago: the shard is stalled",
    ),
    "failed": (with_shard(failure="the disk died."), "leases", PROBLEM, "can confirm nothing any more: the disk died"),
    "results": (with_shard(results_full=True), "leases", PROBLEM, "no room for more results"),
    "not seen here": (
        with_store(Probe(DIRECTORY, error="No such file")),
        "store",
        NOTE,
        "cannot be looked at from this",
    ),
    "not seen there": (
        with_worker(0, probes=(Probe(DIRECTORY, error="No such file"),)),
        "store",
        PROBLEM,
        "worker 0 (tcp://n1:0) would host queues and cannot use store /data/runs: No such file",
    ),
    "another directory": (
        with_worker(0, probes=(seen(marker="missing"),)),
        "store",
        PROBLEM,
        "worker 0 (tcp://n1:0) has another directory under the path /data/runs",
    ),
    "locks of one machine": (
        with_worker(0, probes=(seen(marker="unlocked", **NFS),)),
        "store",
        PROBLEM,
        "does not see locks that this process holds in /data/runs (nfs4)",
    ),
    "no locks": (
        with_worker(0, probes=(seen(lock="unsupported", filesystem="lustre", shared=True, marker="unlocked"),)),
        "store",
        PROBLEM,
        "the file system of /data/runs (lustre) supports no locks",
    ),
    "locks that mean nothing": (with_store(seen(lock="ignored")), "store", PROBLEM, "gives the same lock twice"),
    "not writable": (
        with_worker(0, probes=(seen(writable=False, lock=""),)),
        "store",
        PROBLEM,
        "worker 0 (tcp://n1:0) cannot write to store /data/runs",
    ),
    "network": (with_store(seen(**NFS)), "store", NOTE, "is on a file system that other machines may see (nfs4)"),
    "memory": (with_store(seen(filesystem="tmpfs")), "store", WARNING, "lies in memory (tmpfs)"),
    "little room": (with_store(seen(free=5 * 10**8)), "store", WARNING, "500 MB are free for store /data/runs"),
    "no room": (with_worker(0, probes=(seen(free=10**6),)), "store", PROBLEM, "no new message is taken in"),
    "not looked at": (with_store(error="it did not answer within 4 s"), "files", NOTE, "were not looked at"),
    "unreadable": (
        with_store(shards=(stored(error="LOCK is torn."),)),
        "files",
        PROBLEM,
        "cannot be read: LOCK is torn",
    ),
    "missing": (with_store(shards=(stored(missing=("1.seg",)),)), "files", PROBLEM, "lacks 1 file: 1.seg"),
    "damaged": (
        with_store(shards=(stored(damaged=("ckpt-1",)),)),
        "files",
        WARNING,
        "1 checkpoint of shard 0 of queue",
    ),
    "quarantine": (with_store(shards=(stored(quarantined=2),)), "files", WARNING, "put 2 damaged files aside"),
    "reserve": (
        with_store(seen(free=1000, marker=""), shards=(stored(reserve=False),)),
        "files",
        WARNING,
        "has no reserve, and its disk is full",
    ),
    "held by another": (
        with_store(shards=(stored(holder=Holder("n1", 77, "", held=True)),)),
        "files",
        NOTE,
        "shard 0 of queue pages is open in process 77 on n1, which is not a process of this cluster",
    ),
    "held elsewhere": (
        with_store(shards=(stored(holder=Holder("n9", 77, "", held=None)),)),
        "files",
        NOTE,
        "was last opened by process 77 on n9; whether it still is cannot be seen here",
    ),
    "bypassed": (with_log(lock="bypassed"), "files", WARNING, "lock: bypassed. shard 0 of queue pages was taken over"),
    "opened without a lock": (with_log(lock="unsupported"), "files", WARNING, "is open without a lock"),
    "found damaged": (
        with_log(corrupt=2),
        "files",
        WARNING,
        "opening shard 0 of queue pages found damage: 2 damaged places",
    ),
    "checkpoints lost": (with_log(checkpoint_lost=True), "files", WARNING, "its checkpoints could not be read"),
    "disk full": (with_log(room=False), "files", PROBLEM, "takes in no new message: its disk or quota is full"),
    "descriptors": (
        with_process(1, descriptors=3900),
        "resources",
        WARNING,
        "worker 1 (tcp://n1:1) has 3,900 of 4,096 files and connections open",
    ),
    "few descriptors": (
        replace(HEALTHY, client=process(1, descriptors_max=256)),
        "resources",
        NOTE,
        "this process may open 256 files and connections only",
    ),
    "lag": (with_process(2, lag=0.8), "resources", WARNING, "the event loop of worker 2 (tcp://n1:2) is 0.8 s late"),
    "memory of a worker": (
        with_worker(1, memory=7 * 10**9),
        "resources",
        WARNING,
        "worker 1 (tcp://n1:1) has 7.0 GB of 8.0 GB in memory",
    ),
    "lifetime": (with_worker(1, lifetime_left=7200.0), "resources", NOTE, "worker 1 (tcp://n1:1) ends itself in 2 h"),
    "near its end": (
        with_worker(0, lifetime_left=60.0),
        "resources",
        WARNING,
        "ends itself in 1 min (its lifetime), and the queues on it",
    ),
    "job without a deadline": (
        with_worker(1, batch="Slurm"),
        "jobs",
        WARNING,
        "worker 1 (tcp://n1:1) runs in a job of Slurm and does not say when that ends",
    ),
    "job near its end": (
        with_worker(0, batch="PBS", job_left=240.0),
        "jobs",
        NOTE,
        "1 of 3 workers leaves in 4 min or a little later, because jobs end: 0 first; queue pages moves",
    ),
    "job that its worker leaves now": (
        replace(with_worker(0, batch="PBS", job_left=240.0), snapshot=leaving()),
        "jobs",
        WARNING,
        "1 of 3 workers leaves in 4 min or a little later, because jobs end: 0 first; queue pages moves",
    ),
    "queue on the machine of a job": (
        replace(
            with_worker(0, batch="Slurm", job_left=7200.0),
            scheduler=with_registry(queues=(Queue("pages", 1, None, 10**9),)).scheduler,
        ),
        "jobs",
        WARNING,
        "whose job ends in 2 h: what it holds then is LOST",
    ),
}


def test_nothing_is_found_where_nothing_is_wrong() -> None:
    """A doctor who always finds something is not asked again."""
    checkup = judge(HEALTHY)

    assert checkup
    assert [finding.check for finding in checkup.findings] == [check.name for check in CHECKS if check.applies(HEALTHY)]
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


@pytest.mark.parametrize(
    ("reason", "why", "told", "line"),
    [
        (
            StopReason.ALL_FAILED,
            "all of its first 103 documents failed with KeyError: 'total'",
            "%dq retry count --rest",
            "lab.attach('count').retry(fn=..., rest=True)",
        ),
        (
            StopReason.RESULTS_FULL,
            "no room for more results",
            "return less per document",
            "lab.attach('count').resume()",
        ),
    ],
)
def test_a_run_that_paused_itself_is_advised_by_its_reason(reason: StopReason, why: str, told: str, line: str) -> None:
    """Room for results helps no function with a mistake in it: the rest of its documents would fail as well."""
    found = next(finding for finding in judge(stopped_run(reason, why)).findings if finding.check == "queues")

    assert why in found.what
    assert told in found.advice
    assert found.command == line


def test_dead_letters_of_puts_alone_are_looked_for_in_their_queue() -> None:
    """It named run.failures(), though the queue had no run."""
    dead = queue(counts=Counts(dead=2))

    of_puts = finding_of_the_queue(replace(HEALTHY, snapshot=snapshot(dead)))
    of_a_run = finding_of_the_queue(replace(HEALTHY, snapshot=snapshot(dead, (a_run(counts=Counts(dead=2)),))))

    assert of_puts.command == "lab.queue('pages').dead()"
    assert "run" not in of_puts.advice
    assert of_a_run.command == "lab.attach('count').failures()"


def test_a_document_that_hangs_is_advised_by_what_ends_it_now() -> None:
    """A limit helps the next run; this one waits."""
    stuck = consumer(leased=1, oldest_age=590.0, run="count")
    facts = replace(with_lease(held=600.0), snapshot=snapshot(queue(), consumers=[stuck]))

    found = next(finding for finding in judge(facts).findings if "held one document" in finding.what)

    assert found.command == "lab.attach('count').replace('c0')"
    assert "lab.attach('count').give_up('a.pdf')" in found.advice
    assert found.advice.index("give_up") < found.advice.index("timeout=")


def finding_of_the_queue(facts: Facts) -> Finding:
    return next(finding for finding in judge(facts).findings if "dead letter" in finding.what)


def test_oldest_lease_of_each_queue_is_told() -> None:
    said = next(finding.what for finding in judge(with_lease()).findings if finding.check == "leases")

    assert said == "oldest lease of queue pages for 2.0 s by consumer/pages/0#0"


def test_first_end_of_a_job_is_told_when_nothing_is_wrong() -> None:
    checkup = judge(with_worker(1, batch="Slurm", job_left=7200.0))

    assert next(each.what for each in checkup.findings if each.check == "jobs") == (
        "1 worker in jobs, the first ends in 2 h"
    )


def test_every_check_has_something_planted() -> None:
    assert {check for _, check, _, _ in PLANTED.values()} == {check.name for check in CHECKS}


def test_every_alert_has_a_finding_of_its_own_and_is_no_worse_or_better_there() -> None:
    """What views show in red must not be healthy for the doctor, and nothing is decided twice."""
    alerts = {alert.kind: (alert, facts) for facts, *_ in PLANTED.values() for alert in facts.alerts}

    assert alerts.keys() == WORDINGS.keys() == set(AttentionKind) - {AttentionKind.AT_REST, AttentionKind.OTHER}
    for alert, facts in alerts.values():
        found = [each for each in judge(facts).findings if each.check == WORDINGS[alert.kind].check]
        assert alert.severity in {each.severity for each in found}
        assert brief(alert)


def test_messages_that_are_lost_beside_those_of_a_run_are_counted_too() -> None:
    lossy = snapshot(queue(counts=Counts(lost=500)), (a_run(counts=Counts(lost=3)),))

    said = [finding.what for finding in judge(replace(HEALTHY, snapshot=lossy)).findings if "lost" in finding.what]

    assert said == ["run count lacks documents: 3 lost", "queue pages has lost 497 messages"]


def test_the_worst_comes_first() -> None:
    facts = replace(with_worker(1, process=None, silence="x"), direct=False)

    severities = [finding.severity for finding in judge(facts).findings]

    assert severities == sorted(severities, reverse=True)
    assert severities[0] is PROBLEM


def test_what_a_silent_worker_holds_is_said_to_be_unknown() -> None:
    """Neither as empty, nor as open in a process without a name."""
    facts = with_worker(0, process=None, silence="nothing", shards=(), probes=())

    said = {finding.check: finding.what for finding in judge(facts).findings}

    assert all(said[check].endswith("; of queue pages nothing is known") for check in ("queues", "leases", "imports"))
    assert "1 stored shard whole" in said["files"]


def test_a_worker_that_may_not_host_queues_needs_no_store() -> None:
    """Only a process that opens a log must see its directory."""
    facts = with_worker(1, probes=(Probe(DIRECTORY, error="No such file"),))

    assert judge(facts)


def test_a_store_alone_is_judged_without_a_cluster() -> None:
    facts = Facts("store", Process(), stores=(StoreFacts(DIRECTORY, seen(marker=""), (stored(),)),))

    checkup = judge(facts)

    assert [(finding.check, finding.severity) for finding in checkup.findings] == [
        ("files", NOTE),
        ("store", Severity.OK),
    ]


def test_a_store_alone_that_hangs_is_a_problem() -> None:
    facts = Facts(
        "store", Process(), stores=(StoreFacts(DIRECTORY, Probe(DIRECTORY, error="it did not answer within 1 s")),)
    )

    assert "did not answer" in judge(facts).problems[0].what


@pytest.mark.parametrize("facts", [with_registry(shared=True), replace(HEALTHY, workers=())], ids=["few", "none"])
def test_who_misses_workers_of_a_cluster_that_was_started_here_is_told_to_connect_again(facts: Facts) -> None:
    """`dask worker ADDRESS` is for clusters with a terminal of their own; here it joins none of what was lost."""
    commands = [finding.command for finding in judge(replace(facts, embedded=True)).findings]
    assert "lab.close(); lab = dq.connect(...)" in commands
    assert not any("dask worker" in command for command in commands)
