"""Codes prove that a process has the token; what a scheduler says of its address must fit where it was asked."""

from __future__ import annotations

from typing import Any

import pytest

from dqlab import proof
from dqlab.proof import ANSWER, ASK, Challenges, loopback, mac, machine, misplaced, nonce, same
from dqlab.testing import FakeClock


def said(at: str, port: int = 8787, *, anywhere: bool = False, there: str | None = None) -> dict[str, Any]:
    return {"at": [at, port], "anywhere": anywhere, "machine": machine() if there is None else there}


@pytest.mark.parametrize(
    ("answer", "host", "port"),
    [
        (said("127.0.0.1"), "127.0.0.1", 8787),
        (said("127.0.0.1"), "localhost", 8787),
        (said("::ffff:127.0.0.1", anywhere=True), "127.0.0.1", 8787),
        (said("127.0.0.5", anywhere=True), "127.0.0.5", 8787),
        (said("10.0.0.1"), "10.0.0.1", 8787),
        (said("10.0.0.1", there="another"), "10.0.0.1", 8787),
        (said("10.0.0.1"), "login1", 8787),
        (said("172.17.0.2", anywhere=True, there="a container"), "10.0.0.1", 30001),
    ],
)
def test_scheduler_is_believed_where_it_was_asked(answer: dict[str, Any], host: str, port: int) -> None:
    """Names, addresses of all kinds and translated ports of containers are in use."""
    assert misplaced(answer, host, port) == ""


@pytest.mark.parametrize(
    ("answer", "host", "port"),
    [
        (said("127.0.0.1"), "10.0.0.1", 8787),
        (said("127.0.0.1"), "127.0.0.2", 8787),
        (said("127.0.0.1"), "127.0.0.1", 9999),
        (said("127.0.0.1", anywhere=True), "127.0.0.1", 9999),
        (said("127.0.0.1", there="another"), "127.0.0.1", 8787),
        (said("10.0.0.1"), "127.0.0.1", 8787),
        (said("10.0.0.1"), "10.0.0.2", 8787),
        (said("10.0.0.1"), "10.0.0.1", 9999),
        (said("127.0.0.1"), "login1", 8787),
    ],
)
def test_stranger_who_passes_questions_on_is_found_out(answer: dict[str, Any], host: str, port: int) -> None:
    """The proof is the scheduler's own, and true; only the address in it shows that a server stands between."""
    assert misplaced(answer, host, port)


def test_tunnel_leads_elsewhere() -> None:
    """`ssh -L` has the scheduler answer at an address of its own machine, and the how-to recommends it."""
    assert misplaced(said("127.0.0.1", there="head"), "localhost", 9999, tunnel=True) == ""


def test_code_is_for_one_thing_said_once() -> None:
    """Another token, direction, number, text or body has another code, and parts cannot be moved between texts."""
    given = ("token", ASK, "1" * 32, "GET", "/a")
    codes = {
        mac(*given),
        mac("other", *given[1:]),
        mac("token", ANSWER, *given[2:]),
        mac("token", ASK, "2" * 32, "GET", "/a"),
        mac("token", ASK, "1" * 32, "GET/", "a"),
        mac("token", ASK, "1" * 32, "GET", "/a", ""),
        mac(*given, body=b"x"),
    }
    assert len(codes) == 7
    assert same(mac(*given), mac(*given))
    assert not same("wröng", mac(*given))


def test_number_is_good_once_and_for_a_while(clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that was kept on the way is of no use later, and numbers that are not used take no memory."""
    challenges = Challenges(clock.monotonic)
    first, second = challenges.give(), challenges.give()
    assert challenges.spend(first)
    assert not challenges.spend(first)
    assert not challenges.spend(nonce())
    clock.advance(proof.VALID_FOR)
    assert not challenges.spend(second)
    monkeypatch.setattr(proof, "MOST", 2)
    numbers = [challenges.give() for _ in range(3)]
    assert [challenges.spend(number) for number in numbers] == [False, True, True]


@pytest.mark.parametrize(
    ("host", "is_it"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("localhost", True), ("10.0.0.1", False), ("a", False)],
)
def test_loopback_is_the_machine_of_the_caller(host: str, is_it: bool) -> None:
    assert loopback(host) is is_it
