"""Proof that both sides of a request hold the same token, which itself is never sent.

A request carries HMAC(token, request and nonce), and its response HMAC(token, that nonce and the response), so a
stranger can use nothing that it receives. To identify a scheduler, a client sends its own nonce; the response has the
address at which the scheduler was called, and a nonce that the next request must carry.
"""

from __future__ import annotations

import hmac
import ipaddress
import json
import re
import secrets
import socket
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import cache
from hashlib import sha256
from typing import Any

from dqlab import platforms

NONCE, PROOF = "Dqlab-Nonce", "Dqlab-Proof"
"""Headers of requests and responses for the nonce and the code."""
ASK, ANSWER = "dqlab ask 1", "dqlab answer 1"
"""Purpose of a code, so that a code of one direction is never valid in the other."""
ANYWHERE = ("0.0.0.0", "::")
VALID_FOR = 60.0
"""Seconds for which a nonce that a scheduler issued is valid."""
MOST = 4096
"""Most nonces that are valid at once: anybody who reaches the scheduler can ask for one."""
_NONCE = re.compile(r"[0-9a-f]{32}")


def nonce() -> str:
    """Return a random number that has not been used before."""
    return secrets.token_hex(16)


def mac(token: str, purpose: str, nonce: str, *said: str, body: bytes = b"") -> str:
    """Return the code for `said` and `body` under a nonce."""
    # JSON, not a joined string: different lists of texts must never encode alike.
    text = json.dumps([purpose, nonce, *said, sha256(body).hexdigest()])
    return hmac.new(token.encode(), text.encode(), sha256).hexdigest()


def same(said: str, expected: str) -> bool:
    """Compare codes in constant time."""
    return hmac.compare_digest(said.encode(), expected.encode())


class Challenges:
    """Nonces that a scheduler has issued, each valid for one request."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._given: OrderedDict[str, float] = OrderedDict()

    def give(self) -> str:
        """Return a new nonce, and make the oldest one invalid when too many are issued."""
        if len(self._given) >= MOST:
            self._given.popitem(last=False)
        given = nonce()
        self._given[given] = self._clock() + VALID_FOR
        return given

    def spend(self, said: str) -> bool:
        """Use a nonce up, and return whether it was issued recently and had not been used."""
        return self._clock() < self._given.pop(said, 0.0)


def is_nonce(said: str) -> bool:
    """Return whether a text has the form of a nonce."""
    return _NONCE.fullmatch(said) is not None


@cache
def machine() -> str:
    """Return an id of this machine, precise enough to judge 127.0.0.1."""
    return f"{socket.gethostname()} {platforms.boot_id()}"


def loopback(host: str) -> bool:
    """Return whether a host of a URL is the machine of the caller."""
    try:
        return _ip(host).is_loopback
    except ValueError:
        return False


def misplaced(said: Mapping[str, Any], host: str, port: int, *, tunnel: bool = False) -> str:
    """Return why a scheduler's reply did not arrive directly from `host`, or "" where it did."""
    # A process in between could forward our request and the reply, but then the scheduler was called at another address
    # than ours. Through a tunnel, or a port that is published for the scheduler, addresses prove nothing.
    if tunnel:
        return ""
    at, at_port = said["at"]
    if loopback(host) or loopback(at):
        if said["machine"] != machine():
            return "it listens at 127.0.0.1 of another machine"
        if at_port != port or not loopback(host) or not (loopback(at) and (said["anywhere"] or _ip(at) == _ip(host))):
            return f"the scheduler listens at {at}, port {at_port}, and another process stands in between"
        return ""
    try:
        apart = (_ip(at), at_port) != (_ip(host), port)
    except ValueError:  # a host name cannot be compared
        apart = False
    if apart and not said["anywhere"]:  # a scheduler that listens everywhere may be behind address translation
        return f"the scheduler listens at {at}, port {at_port}, and another process stands in between"
    return ""


def _ip(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    ip = ipaddress.ip_address({"localhost": "127.0.0.1"}.get(host, host.strip("[]").partition("%")[0]))
    return getattr(ip, "ipv4_mapped", None) or ip
