"""What exceptions of clients of services say: wait, wait for ever, or it passes; without an import of any client."""

from __future__ import annotations

import math
import socket
import time
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

import dqlab as dq
from dqlab.documents.servers import ServerBusy, refused_call, what_passes


def error(name: str, base: type[Exception] = Exception, **attributes: Any) -> Exception:
    """An exception of a class of this name."""
    made = type(name, (base,), {})("said")
    for attribute, value in attributes.items():
        setattr(made, attribute, value)
    return made


def caused(outer: Exception, inner: Exception) -> Exception:
    outer.__cause__ = inner
    return outer


def answer(status: int, **headers: str) -> SimpleNamespace:
    return SimpleNamespace(
        status_code=status, headers={name.replace("_", "-"): value for name, value in headers.items()}
    )


@pytest.mark.parametrize(
    ("raised", "after"),
    [
        pytest.param(error("HTTPStatusError", response=answer(429, Retry_After="7")), 7.0, id="httpx"),
        pytest.param(error("HTTPError", response=answer(429)), 0.0, id="requests, without a time"),
        pytest.param(error("ClientResponseError", status=503, headers={"Retry-After": "2"}), 2.0, id="aiohttp"),
        pytest.param(
            error("RateLimitError", status_code=429, response=answer(429, retry_after_ms="1500")),
            1.5,
            id="openai",
        ),
        pytest.param(error("RateLimitError", status_code=429, code="insufficient_quota"), math.inf, id="quota"),
        pytest.param(error("AuthenticationError", status_code=401), math.inf, id="wrong key"),
        pytest.param(error("APIStatusError", status_code=402), math.inf, id="not paid"),
        pytest.param(caused(ValueError("bad"), error("E", status_code=429)), 0.0, id="as a cause"),
    ],
)
def test_a_refusal_is_understood_from_any_client(raised: Exception, after: float) -> None:
    """By the attributes that its exceptions have."""
    refused = refused_call(raised)

    assert refused is not None
    assert refused.after == after


@pytest.mark.parametrize(
    "raised",
    [
        ValueError("429"),
        error("E", status_code=404),
        error("E", status_code=503),
        error("E", status="429"),
        error("ServerBusy", ServerBusy, status_code=429),
    ],
)
def test_other_errors_are_no_refusals_of_calls(raised: Exception) -> None:
    """Texts, other statuses, and a server that gives no document: that has rules of its own."""
    assert refused_call(raised) is None


@pytest.mark.parametrize(
    ("raised", "said"),
    [
        (error("E", status_code=502), "502"),
        (error("E", response=answer(500)), "500"),
        (error("E", status_code=501), ""),
        (ConnectionRefusedError(), "ConnectionRefusedError"),
        (TimeoutError(), "TimeoutError"),
        (socket.gaierror(), "gaierror"),
        (error("ConnectError"), "ConnectError"),
        (error("APIConnectionError"), "APIConnectionError"),
        (error("ReadTimeout"), "ReadTimeout"),
        (ValueError("timeout"), ""),
        (KeyError("503"), ""),
    ],
)
def test_what_time_mends_is_told_in_a_word(raised: Exception, said: str) -> None:
    """An outage is judged by it."""
    assert what_passes(raised) == said


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "7"}, 7.0),
        ({"retry-after-ms": "1500"}, 1.5),
        ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "6m0s"}, 360.0),
        ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "20ms"}, 0.1),
        (
            {
                "x-ratelimit-remaining-requests": "59",
                "x-ratelimit-reset-requests": "60s",
                "x-ratelimit-remaining-tokens": "0",
                "x-ratelimit-reset-tokens": "1.5s",
            },
            1.5,
        ),
        ({"RateLimit-Remaining": "0", "RateLimit-Reset": "12"}, 12.0),
        ({"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "{epoch}"}, 30.0),
        ({"anthropic-ratelimit-tokens-remaining": "0", "anthropic-ratelimit-tokens-reset": "{iso}"}, 30.0),
        ({"X-RateLimit-Remaining": "3", "X-RateLimit-Reset": "30"}, 1.0),
        ({"X-RateLimit-Reset": "soon"}, 1.0),
        ({}, 1.0),
        (None, 1.0),
    ],
)
def test_the_wait_that_an_answer_asks_for_is_read_from_the_headers_in_use(
    headers: dict[str, str] | None, seconds: float
) -> None:
    """Of a response, an error of a client, or the headers themselves; and an error with status 429 needs no line."""
    due = time.time() + 30
    said = {"epoch": f"{due:.3f}", "iso": datetime.fromtimestamp(due, UTC).isoformat().replace("+00:00", "Z")}
    named = None if headers is None else {name: value.format(**said) for name, value in headers.items()}
    response = SimpleNamespace(status_code=429, headers=named)

    for asked in [response, error("E", response=response), named]:
        assert dq.later_from(asked).fields["seconds"] == pytest.approx(seconds, abs=0.5 if seconds == 30.0 else 1e-9)
    refused = refused_call(error("E", response=response))
    assert refused is not None
    assert max(0.1, refused.after or 1.0) == pytest.approx(seconds, abs=0.5 if seconds == 30.0 else 1e-9)
