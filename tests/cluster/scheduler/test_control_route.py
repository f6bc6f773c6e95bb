"""The scheduler's control route: statistics and actions for clients that have the token, and for no others."""

from __future__ import annotations

import http.client
import json
import logging
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import dqlab as dq
from dqlab.cluster.scheduler.control import add_routes
from dqlab.cluster.transport import calls
from dqlab.proof import ANSWER, ASK, NONCE, PROOF, mac, nonce
from dqlab.stats import History, Snapshot

pytestmark = pytest.mark.lowest


def fussy(number: int) -> int:
    if number % 3 == 0:
        raise KeyError(number)
    if number % 3 == 1:
        raise ValueError("x" * 1500, "\udcff", number)
    return number


def mended(number: int) -> int:
    return number


Answer = tuple[int, dict[str, Any]]


class Route:
    """Requests to the control route of a lab's scheduler."""

    def __init__(self, lab: dq.Lab) -> None:
        self.lab = lab
        self.port = lab.session.http["port"]

    def __call__(self, method: str, path: str, body: Any = None, *, token: str | None = "right") -> Answer:
        real = self.lab.session.token
        token = real if token == "right" else token
        body = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        number = nonce() if path == "service" else self.challenge()
        return self.send(method, path, number, None if token is None else token, body)

    def challenge(self) -> str:
        """Ask the scheduler who it is, and return the number that the next request has to bear."""
        status, said = self.send("GET", "service", nonce(), self.lab.session.token)
        assert status == 200
        return str(said["challenge"])

    def send(self, method: str, path: str, number: str, token: str | None, body: bytes = b"") -> Answer:
        """Send a request under a number, proved with a token; see that the answer is proved with the real one."""
        address = f"/dqlab/api/{path}"
        headers = {} if token is None else {NONCE: number, PROOF: mac(token, ASK, number, method, address, body=body)}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            connection.request(method, address, body or None, headers)
            answer = connection.getresponse()
            said = answer.read()
            proof = mac(self.lab.session.token, ANSWER, number, method, address, str(answer.status), body=said)
            assert answer.headers.get(PROOF) == (None if answer.status == 403 else proof)
            return answer.status, json.loads(said)
        finally:
            connection.close()

    def act(self, action: str, pool: dq.QueuePool, **more: Any) -> dict[str, Any]:
        """Return what came of an action that is done."""
        status, said = self("POST", "actions", {"action": action, "queue": pool.name, **more})
        assert status == 200, said
        return said

    def refused(self, **action: Any) -> tuple[int, str]:
        status, said = self("POST", "actions", action)
        assert set(said) == {"error", "message"}
        return status, said["error"]


@pytest.fixture
def route(lab: dq.Lab) -> Route:
    return Route(lab)


@pytest.fixture
def paused(lab: dq.Lab, queue_name: str) -> Iterator[dq.QueuePool]:
    """A queue of two shards that no consumer serves for now."""
    pool = lab.queue(queue_name, 2)
    pool.pause()
    yield pool
    pool.close(force=True)


def failing(pool: dq.QueuePool, n: int = 30) -> dq.Run:
    return pool.map(fussy, range(n), name=f"run-{pool.name}", retry=dq.Retry(0))


def states(pool: dq.QueuePool) -> set[str]:
    """Return what the shards of a queue say that they do."""
    return {shard.stats()["state"] for shard in pool}


def shown(said: dict[str, Any], pool: dq.QueuePool) -> Any:
    """Return a queue as the snapshot of an answer shows it."""
    return Snapshot.from_dict(said["snapshot"]).queue(pool.name)


# --- who may --------------------------------------------------------------------------------

ADDRESSES = ["service", "snapshot", "history?span=60", "failures?queue=QUEUE"]


@pytest.mark.parametrize("token", [None, "", "x" * 64, "wröng"])
def test_no_request_gets_in_without_the_token(route: Route, paused: dq.QueuePool, token: str | None) -> None:
    """The dashboard's port is open to everybody on this machine."""
    token = token if token is None else token.encode().decode("latin-1")
    for address in ADDRESSES:
        assert route("GET", address.replace("QUEUE", paused.name), token=token)[0] == 403
    status, said = route("POST", "actions", {"action": "resume", "queue": paused.name}, token=token)
    assert (status, said["error"]) == (403, "Forbidden")
    assert states(paused) == {"paused"}


def test_request_that_is_sent_again_is_refused(route: Route, paused: dq.QueuePool) -> None:
    """A server on the way can keep a request; it is good once, and only as it was."""
    body = json.dumps({"action": "resume", "queue": paused.name}).encode()
    number = route.challenge()
    assert route.send("POST", "actions", number, route.lab.session.token, body)[0] == 200
    paused.pause()
    assert route.send("POST", "actions", number, route.lab.session.token, body)[0] == 403
    assert route.send("POST", "actions", nonce(), route.lab.session.token, body)[0] == 403
    assert route.send("GET", "snapshot", "", route.lab.session.token)[0] == 403
    assert states(paused) == {"paused"}


def test_proof_of_one_request_is_none_of_another(route: Route, paused: dq.QueuePool) -> None:
    """What was said is part of the code: another body, another address, an answer sent back as a question."""
    token = route.lab.session.token
    said = {"action": "resume", "queue": paused.name}
    body = json.dumps(said).encode()
    for purpose, method, address, proved in (
        (ASK, "POST", "/dqlab/api/actions", b"{}"),
        (ASK, "GET", "/dqlab/api/snapshot", b""),
        (ANSWER, "POST", "/dqlab/api/actions", body),
    ):
        number = route.challenge()
        code = mac(token, purpose, number, method, address, body=proved)
        connection = http.client.HTTPConnection("127.0.0.1", route.port, timeout=20)
        with closing(connection):
            connection.request("POST", "/dqlab/api/actions", body, {NONCE: number, PROOF: code})
            assert connection.getresponse().status == 403
    assert states(paused) == {"paused"}


def test_get_changes_nothing(route: Route, paused: dq.QueuePool) -> None:
    """A link that somebody is made to click must not act."""
    before = paused.handle.link.sync(paused.handle.ask_all(calls.StatsCall()))
    for address in [*ADDRESSES, "snapshot?queue=QUEUE"]:
        assert route("GET", address.replace("QUEUE", paused.name))[0] == 200
    assert route("GET", f"actions?action=resume&queue={paused.name}")[0] == 405
    assert route("POST", "snapshot")[0] == 405

    after = paused.handle.link.sync(paused.handle.ask_all(calls.StatsCall()))
    for report in (*before, *after):
        report.at = 0.0
    assert before == after


# --- what is said ---------------------------------------------------------------------------


def test_answers_are_those_that_python_gets(route: Route, queue: dq.QueuePool) -> None:
    """A view in a browser and one in a cell must not disagree."""
    failing(queue).wait(timeout=20)
    status, said = route("GET", f"snapshot?queue={queue.name}&run=run-{queue.name}")
    assert status == 200
    assert Snapshot.from_dict(said).queue(queue.name) is not None
    status, said = route("GET", f"history?span=60&queue={queue.name}")
    assert status == 200
    assert History.from_dict(said).queue == queue.name
    assert route("GET", "service")[1]["scheduler_id"].startswith("Scheduler")


def test_failures_are_paged_exactly(route: Route, lab: dq.Lab, queue_name: str) -> None:
    """Every dead document is on one page, in any shard, also where a page is larger than one frame of Dask."""
    pool = lab.queue(queue_name, 2)
    run = failing(pool, 300).wait(timeout=20)
    letters = {letter.id: letter for letter in run.failures()}
    mark = next(letter.fingerprint for letter in letters.values() if letter.error == "ValueError")

    for filters, expected in (
        ("", set(letters)),
        (f"&run={run.name}", set(letters)),
        (f"&fingerprint={mark}", {id for id, letter in letters.items() if letter.fingerprint == mark}),
        ("&fingerprint=none-such", set()),
    ):
        found: list[dict[str, Any]] = []
        after: str | None = ""
        while after is not None:
            status, page = route("GET", f"failures?queue={pool.name}{filters}&limit=70&after={after}")
            assert (status, page["total"], page["queue"]) == (200, len(expected), pool.name)
            assert len(page["rows"]) <= 70
            found += page["rows"]
            after = page["next"]
        assert sorted(row["id"] for row in found) == sorted(expected)
    same = ("error", "message", "at", "traceback", "fingerprint", "key", "deliveries", "version", "consumer", "when")
    for row in route("GET", f"failures?queue={pool.name}&limit=100")[1]["rows"]:
        letter = letters[row["id"]]
        assert {name: row[name] for name in same} == {name: getattr(letter, name) for name in same}
        assert row["reason"] == letter.reason
    pool.close(force=True)


@pytest.mark.parametrize(
    ("address", "status", "error"),
    [
        ("snapshot?queue=none-such", 404, "QueueNotFound"),
        ("snapshot?run=none-such", 404, "RunNotFound"),
        ("history?queue=none-such", 404, "QueueNotFound"),
        ("history?span=soon", 400, "BadOption"),
        ("history?span=nan", 400, "BadOption"),
        ("failures", 404, "QueueNotFound"),
        ("failures?queue=QUEUE&run=none-such", 404, "RunNotFound"),
        ("failures?queue=QUEUE&limit=0", 400, "BadOption"),
        ("failures?queue=QUEUE&limit=101", 400, "BadOption"),
        ("failures?queue=QUEUE&after=junk", 400, "BadOption"),
        ("failures?queue=QUEUE&after=1-zz-3", 400, "BadOption"),
    ],
)
def test_wrong_questions_are_named(route: Route, queue: dq.QueuePool, address: str, status: int, error: str) -> None:
    """The author of a view needs to see which part of the question was wrong."""
    got, said = route("GET", address.replace("QUEUE", queue.name))
    assert (got, said["error"]) == (status, error)
    assert said["message"].endswith(".")


# --- what is done ---------------------------------------------------------------------------


def test_queue_is_paused_and_resumed(route: Route, queue: dq.QueuePool) -> None:
    """The answer shows the state that it made, who paused it, and leaves a mark in the charts."""
    said = route.act("pause", queue)
    assert shown(said, queue).state == "paused"
    assert "JupyterLab" in shown(said, queue).why
    assert said["count"] is None
    assert said["text"].startswith(f"Queue {queue.name} is paused")
    assert "pause" in [mark.text for mark in Snapshot.from_dict(said["snapshot"]).marks if mark.queue == queue.name]

    assert shown(route.act("resume", queue), queue).state != "paused"


def test_queue_is_scaled(route: Route, queue: dq.QueuePool) -> None:
    """A queue without consumers of its own has nothing to scale, and says so."""
    failing(queue).wait(timeout=20)
    consumers = queue.handle.link.scheduler
    for n, expected in ((3, 3), (1, 1), ("auto", 2)):
        route.act("scale", queue, n=n)
        assert len(queue.handle.link.sync(consumers("dq_consumers", set_id=queue.name))) == expected
    with closing(route.lab.queue(f"{queue.name}-unserved")) as other:
        assert route.refused(action="scale", queue=other.name, n=2) == (409, "UsageError")


def test_run_is_cancelled(route: Route, paused: dq.QueuePool) -> None:
    """What was not processed is counted; a second time there is nothing left."""
    run = failing(paused)
    run.submitter.join()
    said = route.act("cancel", paused, run=run.name)
    assert said["count"] == 30
    assert run.counts["cancelled"] == 30
    assert route.act("cancel", paused, run=run.name)["count"] == 0


def test_failed_documents_are_retried_by_class_and_in_part(route: Route, lab: dq.Lab, queue_name: str) -> None:
    """A canary sends a few; a class, all that match; each with the newest code."""
    pool = lab.queue(queue_name, 2)
    run = failing(pool, 300).wait(timeout=20)
    mark = next(letter.fingerprint for letter in run.failures() if letter.error == "ValueError")

    said = route.act("retry", pool, run=run.name, fingerprints=[mark], limit=7)
    assert said["count"] == 7
    assert "7 documents" in said["text"]
    assert "fussy v1" in said["text"]
    assert run.wait(timeout=20).counts["dead"] == 200

    pool.pause()
    run.retry(mended, where=lambda letter: letter.ordinal == 0)
    pool.resume()
    run.wait(timeout=20)
    said = route.act("retry", pool, run=run.name, fingerprints=[mark])
    assert (said["count"], "mended v2" in said["text"]) == (100, True)
    run.wait(timeout=20)
    assert {letter.error for letter in run.failures()} == {"KeyError"}
    assert route.act("retry", pool, run=run.name, fingerprints=[mark])["count"] == 0
    assert route.act("retry", pool, run=run.name)["count"] == 99
    assert run.wait(timeout=20).counts == {**run.counts, "acked": 300, "dead": 0}
    pool.close(force=True)


def test_dead_messages_are_purged(route: Route, queue: dq.QueuePool) -> None:
    """Only what is named is thrown away."""
    run = failing(queue).wait(timeout=20)
    assert route.act("purge", queue, state="ready")["count"] == 0
    said = route.act("purge", queue)
    assert (said["count"], run.counts["dead"], run.counts["cancelled"]) == (20, 0, 20)
    assert shown(said, queue).counts.dead == 0


def test_compaction_is_awaited(route: Route, lab: dq.Lab, queue_name: str, tmp_path: Path) -> None:
    """The answer says what was given back, so it comes when that is known; counts stay as they are."""
    pool = dq.QueuePool(lab.client, 1, dq.Durability.DURABLE, name=queue_name, dirpath=tmp_path)
    run = failing(pool).wait(timeout=20)
    before = run.counts
    assert re.search(r"is compacted: [\d.]+ MB before, [\d.]+ MB after", route.act("compact", pool)["text"])
    assert run.counts == before
    pool.close(force=True)


@pytest.mark.parametrize(
    ("action", "status", "error"),
    [
        ({"action": "explode", "queue": "QUEUE"}, 400, "BadOption"),
        ({"action": "cancel", "queue": "QUEUE"}, 400, "BadOption"),
        ({"action": "purge", "queue": "QUEUE", "run": "r"}, 400, "BadOption"),
        ({"action": "purge", "queue": "QUEUE", "state": "leased"}, 400, "BadOption"),
        ({"action": "pause", "queue": 7}, 400, "BadOption"),
        ({"action": "pause", "queue": "QUEUE", "run": 7}, 400, "BadOption"),
        ({"action": "pause", "queue": "QUEUE", "n": 1}, 400, "BadOption"),
        ({"action": "pause", "queue": "QUEUE", "now": True}, 400, "BadOption"),
        ({"action": ["pause"], "queue": "QUEUE"}, 400, "BadOption"),
        ({"action": "scale", "queue": "QUEUE"}, 400, "BadOption"),
        ({"action": "scale", "queue": "QUEUE", "n": 0}, 400, "BadOption"),
        ({"action": "scale", "queue": "QUEUE", "n": True}, 400, "BadOption"),
        ({"action": "retry", "queue": "QUEUE", "run": "r", "limit": 0}, 400, "BadOption"),
        ({"action": "retry", "queue": "QUEUE", "run": "r", "fingerprints": "all"}, 400, "BadOption"),
        ({"action": "pause", "queue": "none-such"}, 404, "QueueNotFound"),
        ({"action": "retry", "queue": "QUEUE", "run": "none-such"}, 404, "RunNotFound"),
    ],
)
def test_wrong_actions_do_nothing(
    route: Route, queue: dq.QueuePool, action: dict[str, Any], status: int, error: str
) -> None:
    """What is not understood is not guessed."""
    named = {name: queue.name if value == "QUEUE" else value for name, value in action.items()}
    assert route.refused(**named) == (status, error)
    assert states(queue) == {"running"}


@pytest.mark.parametrize("body", [b"", b"{", b"[" * 100_000, b'"pause"', b"\xff", b" " * (2 << 20)])
def test_junk_is_no_action(route: Route, body: bytes) -> None:
    """The route reads bytes from outside."""
    status, said = route("POST", "actions", body)
    assert (status, said["error"]) == (400, "BadOption")


def test_refusal_of_a_shard_comes_through(route: Route, queue: dq.QueuePool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shard's own sentence says more than that something went wrong."""
    scheduler = route.lab._cluster.scheduler
    actions = scheduler.plugins["dqlab"].actions

    async def unknown(queue: Any, name: str) -> bytes:
        return b"no-such-run-here"

    monkeypatch.setattr(actions, "run", unknown)
    status, said = route("POST", "actions", {"action": "retry", "queue": queue.name, "run": "r"})
    assert (status, said["error"]) == (404, "RunNotFound")
    assert "no run named" in said["message"]


def test_scheduler_without_http_server_is_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    """Queues work without it; one line says what is missing."""
    with caplog.at_level(logging.INFO, logger="dqlab.registry"):
        assert add_routes(SimpleNamespace(scheduler=SimpleNamespace())) is None  # type: ignore[arg-type]
    assert [record.getMessage() for record in caplog.records if "control_left_out" in record.getMessage()]
