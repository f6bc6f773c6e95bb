"""Runs that call a service: refusals, limits, threads, and what users may say about them."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

import dqlab as dq
from dqlab.errors import BadOption, RunHalted
from dqlab.rules.flow import Adaptive, FlowTerms, RateLimit
from dqlab.runs.terms import flow_terms


class Refused(Exception):
    """What a client of HTTP raises."""

    def __init__(self, status: int) -> None:
        super().__init__(f"status {status}")
        self.status_code = status


def test_a_service_that_refuses_calls_gets_fewer_and_no_document_pays_for_it(lab: dq.Lab) -> None:
    """With nothing configured; each document has its first attempt still."""
    running: list[int] = []

    async def ask(number: int) -> int:
        if len(running) >= 2:  # of one consumer's process
            raise Refused(429)
        running.append(number)
        await asyncio.sleep(0.01)
        running.remove(number)
        return number

    run = lab.map(ask, range(120), retry=dq.Retry(0))

    assert list(run.results(timeout=60)) == list(range(120))
    assert "were refused" in run.stats().pace


def test_a_wrong_key_pauses_the_run_with_the_reason_and_blames_no_document(lab: dq.Lab) -> None:
    """Each further call would be refused as well."""

    def ask(number: int) -> int:
        raise Refused(401)

    run = lab.map(ask, range(20))

    with pytest.raises(RunHalted, match=r"refuses it: 401 .*run\.resume\(\)"):
        run.wait(timeout=60)
    assert (run.counts["acked"], run.counts["dead"]) == (0, 0)
    run.cancel()


def test_calls_of_a_plain_function_run_at_once_in_threads(lab: dq.Lab) -> None:
    """As many as were asked for, whatever the number of slots."""

    def ask(number: int) -> tuple[float, float]:
        began = time.monotonic()
        time.sleep(0.05)
        return began, time.monotonic()

    calls = list(lab.map(ask, range(160), concurrency=24).results(timeout=60))

    assert 16 < max(sum(began <= at < ended for began, ended in calls) for at, _ in calls) <= 24


@pytest.mark.parametrize("by", ["coroutines", "threads"])
def test_a_cap_holds_for_each_host_over_all_consumers(lab: dq.Lab, by: str) -> None:
    """Sixty pages of one host come first, and none of the others waits for them."""

    async def fetch(url: str) -> tuple[str, float, float]:
        began = time.monotonic()
        await asyncio.sleep(0.02)
        return url, began, time.monotonic()

    def fetch_in_a_thread(url: str) -> tuple[str, float, float]:
        return asyncio.run(fetch(url))

    pages = [f"https://{host}.org/{n}" for host in ("busy", "other") for n in range(60)]
    run = lab.map(fetch if by == "coroutines" else fetch_in_a_thread, pages, cap={"host": 2})
    calls = list(run.results(timeout=60))

    assert [url for url, *_ in calls] == pages
    for host in ("busy", "other"):
        mine = [(began, ended) for url, began, ended in calls if host in url]
        assert max(sum(began <= at < ended for began, ended in mine) for at, _ in mine) <= 2
    assert min(began for _, began, _ in calls[60:]) < max(began for _, began, _ in calls[:60])
    assert "2 at once by host" in run.stats().pace


def test_a_cap_and_a_sink_are_refused_together(lab: dq.Lab, tmp_path: Path) -> None:
    with pytest.raises(BadOption, match="sink="):
        lab.map(abs, [1], cap={"host": 2}, sink=tmp_path)


def test_a_limit_holds_and_can_be_changed_while_the_run_goes_on(lab: dq.Lab) -> None:
    """Half a minute would pass with the first one."""
    run = lab.map(abs, range(30), limit="1/s")
    assert run.stats().pace == "1 calls in 1 s"
    began = time.monotonic()

    run.limit("1k/min").wait(timeout=20)

    assert time.monotonic() - began > 1.0
    assert run.stats().pace == "1,000 calls in 60 s"


def test_a_limit_of_tokens_holds_calls_back_by_what_they_say_they_cost(lab: dq.Lab) -> None:
    """Twenty calls of ten tokens, a hundred tokens a second."""

    async def ask(number: int) -> float:
        dq.spend(tokens=10)
        return time.monotonic()

    run = lab.map(ask, range(20), limit=dq.Limit("llm", tokens="100/s", calls="1k/s"))
    began = sorted(run.results(timeout=60))

    assert max(sum(at <= other < at + 1.0 for other in began) for at in began) <= 11  # leases take a few milliseconds
    assert run.stats().pace.endswith("100 tokens in 1 s; 1,000 calls in 1 s")


@pytest.mark.parametrize(
    ("given", "terms"),
    [
        ({"concurrency": "auto"}, FlowTerms(adaptive=Adaptive(1, 4, 100))),
        ({"concurrency": Adaptive(max=9)}, FlowTerms(adaptive=Adaptive(1, 4, 4))),
        ({"concurrency": 5}, FlowTerms(most=3)),
        ({"limit": "500/min"}, FlowTerms(rates=(RateLimit(250, 60.0),))),
        ({"limit": "1.5k per hour"}, FlowTerms(rates=(RateLimit(750, 3600.0),))),
        ({"limit": dq.Limit("llm", calls="20/s")}, FlowTerms(rates=(RateLimit(10, 1.0, "llm"),))),
        (
            {"limit": {"calls": "20/s", "tokens": "200k/min"}},
            FlowTerms(rates=(RateLimit(10, 1.0), RateLimit(100_000, 60.0, unit="tokens"))),
        ),
        ({}, None),
    ],
)
def test_shards_share_what_a_run_may_do(given: dict[str, Any], terms: FlowTerms | None) -> None:
    """Of two shards each lets half of it through."""
    options: dict[str, Any] = {"concurrency": None, "limit": None, **given}

    assert flow_terms(abs, **options, shards=2, default=True) == terms
    assert terms is None or FlowTerms.of(terms.record()) == terms


@pytest.mark.parametrize(
    "wrong",
    [
        {"limit": "0/min"},
        {"limit": "-5/s"},
        {"limit": "500/fortnight"},
        {"limit": 500},
        {"limit": "nan/s"},
        {"limit": {}},
        {"limit": {"two words": "5/s"}},
        {"limit": {"tokens": "5"}},
        {"limit": "inf/s"},
        {"budget": "20 eur 30 usd"},
        {"budget": {"eur": 20, "usd": 30}},
        {"budget": "-1 eur"},
        {"concurrency": 0},
        {"concurrency": "many"},
        {"concurrency": 4, "executor": "process"},
    ],
)
def test_what_is_no_limit_is_refused_before_anything_is_submitted(lab: dq.Lab, wrong: dict[str, Any]) -> None:
    """With the value, and how one is written."""
    before = len(lab.all_runs())
    with pytest.raises(BadOption, match=r"limit|concurrency|budget"):
        lab.map(abs, [1], **wrong)
    assert len(lab.all_runs()) == before


def test_a_budget_ends_the_run_in_time_and_is_remembered(lab: dq.Lab) -> None:
    """What calls say they cost is recorded with their outcomes."""

    async def ask(number: int) -> int:
        await asyncio.sleep(0.001)
        dq.spend(eur=0.1, tokens=7)
        return number

    run = lab.map(ask, range(40), budget="1 eur")
    with pytest.raises(RunHalted, match=r"1 of 1 eur spent.*run\.budget"):
        run.wait(timeout=60)
    assert run.counts["acked"] == 10
    run.budget("4 eur").wait(timeout=60)

    assert list(run.results()) == list(range(40))
    assert run.spend().spent["eur"] == pytest.approx(4)


@pytest.mark.parametrize("options", [{"executor": "process"}, {"batch": 4}, {"batch": 4, "executor": "process"}])
def test_what_processes_and_batches_spend_is_counted(lab: dq.Lab, options: dict[str, Any]) -> None:
    """A call of a batch spends for all of its documents."""

    def pay(given: Any) -> Any:
        dq.spend(eur=0.5 * len(given) if isinstance(given, list) else 0.5)
        return given

    run = lab.map(pay, range(8), budget="9 eur", **options).wait(timeout=60)

    assert run.spend().spent == {"eur": pytest.approx(4)}


def test_what_a_run_spends_is_told_with_what_it_will_have_spent_and_what_binds(lab: dq.Lab) -> None:
    """While its budget holds it back, and when it is done."""

    async def ask(number: int) -> int:
        dq.spend(eur=0.1 if number % 2 else 0.3, tokens=7)
        return await dq.once(asyncio.sleep, 0.0, number)

    run = lab.map(ask, range(40), budget=dq.Budget(4, "eur", reserve=0.3))
    with pytest.raises(RunHalted):
        run.wait(timeout=60)
    spend = run.spend()
    low, likely, high = spend.in_all["eur"]

    assert 3.7 < spend.spent["eur"] <= 4 + 1e-9
    assert low < likely < high
    assert low < 8 < high
    assert "its budget does not pay" in spend.binds
    run.budget("9 eur").wait(timeout=60)
    spend = run.spend()
    assert spend.in_all["eur"] == pytest.approx((8.0, 8.0, 8.0))
    assert spend.enough
    assert repr(spend).splitlines()[0] == "spent      8 eur, 280 tokens, 40 answers paid"


def test_what_is_no_amount_fails_its_document_without_another_try(lab: dq.Lab) -> None:
    """Nothing is counted in silence, and it is not paid again."""

    def owe(number: int) -> None:
        dq.spend(eur=-1)

    owing = lab.map(owe, [1]).wait(timeout=60)

    assert "eur=-1" in owing.failures()[0].message
    assert owing.failures()[0].deliveries == 1
    with pytest.raises(BadOption, match="20 eur"):
        lab.map(owe, [1], budget="20")


def test_what_a_task_spends_after_the_result_is_refused(lab: dq.Lab, tmp_path: Path) -> None:
    """Nothing would count it, and nobody would know."""
    file = tmp_path / "refused"

    async def late() -> None:
        await asyncio.sleep(0.05)
        try:
            dq.spend(eur=1)
        except dq.Reject as error:
            file.write_text(str(error))

    async def ask(number: int) -> int:
        ask.task = asyncio.create_task(late())  # type: ignore[attr-defined]
        return number

    lab.map(ask, [1]).wait(timeout=60)
    deadline = time.monotonic() + 10
    while not file.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert "has its result" in file.read_text()


@pytest.mark.parametrize("delay", ["soon", float("nan"), float("inf"), -1, "2020-01-01", None, 40 * 86_400])
def test_what_is_no_time_to_wait_is_refused(delay: Any) -> None:
    """Where it is raised, with the value."""
    with pytest.raises(BadOption, match="delay"):
        dq.Later(delay)
