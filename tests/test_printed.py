"""What is kept of a document's output: its beginning, its end, and how much is missing between them."""

from __future__ import annotations

import pickle
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dqlab.printed import HALF, Logs, Ring
from tests.kit.sampled import examples


def ring_of(*parts: bytes) -> Logs:
    ring = Ring()
    for part in parts:
        ring.write(part)
    return ring.logs()


def parted(data: bytes, ends: list[int]) -> list[bytes]:
    cuts = sorted({0, len(data), *(end % (len(data) + 1) for end in ends)})
    return [data[a:b] for a, b in pairwise(cuts)]


lines = st.lists(st.text("ab \n", max_size=3000), max_size=30).map("".join)


@given(lines, st.lists(st.integers(0, 10**6), max_size=8))
@settings(max_examples=examples(100))
def test_the_beginning_and_the_end_are_kept_and_the_rest_is_counted(text: str, ends: list[int]) -> None:
    """However it is written: a print is two writes, and C writes what its buffer holds."""
    logs = ring_of(*parted(text.encode(), ends))

    if len(text) <= 2 * HALF:
        assert (logs, logs.cut) == (text, 0)
    else:
        cut = len(text) - 2 * HALF
        assert (logs, logs.cut) == (f"{text[:HALF]}\n... {cut:,} bytes left out ...\n{text[-HALF:]}", cut)


@given(st.lists(st.tuples(st.floats(0, 5), st.text("ab \n", max_size=5000)), max_size=12), st.floats(0, 30))
@settings(max_examples=examples(100))
def test_of_the_last_seconds_at_most_one_more_is_shown_and_nothing_is_missing(
    written: list[tuple[float, str]], seconds: float
) -> None:
    clock = [100.0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dqlab.printed.monotonic", lambda: clock[0])
        ring, said = Ring(), list[tuple[float, str]]()
        for wait, text in written:
            clock[0] += wait
            ring.write(f"{text}\n".encode())
            said.append((clock[0], f"{text}\n"))
        logs = ring.logs(seconds)

    lately = "".join(text for at, text in said if at > clock[0] - seconds)
    perhaps = "".join(text for at, text in said if at > clock[0] - seconds - 2)
    if logs.cut:
        assert len(lately) <= len(logs) + logs.cut
        assert logs.endswith(perhaps[-HALF + 4 :])
    else:
        assert logs.endswith(lately)
        assert perhaps.endswith(logs)


@given(st.lists(st.text("ab", min_size=1, max_size=5), min_size=1, max_size=9), st.lists(st.integers(0, 99)))
def test_a_progress_bar_leaves_its_last_state(states: list[str], ends: list[int]) -> None:
    """A bar of a thousand states would push out all else."""
    written = "begin\n" + "".join(f"\r{state}" for state in states) + "\nend\r\n"

    assert ring_of(*parted(written.encode(), ends)) == f"begin\n{states[-1]}\nend\n"


@pytest.mark.parametrize(
    ("written", "said"),
    [
        (b"\x1b[31mred\x1b[0m \x1b]8;;http://x\x07link\x1b]8;;\x07", "red link"),
        (b"\xff\xfe\x00\x01", "\N{REPLACEMENT CHARACTER}" * 4),
        (b"left \r", "left "),
        ("ä".encode() * HALF, None),
        (b"\x80" * 5 * HALF, None),
        (b"x" * 10_000_000, None),
    ],
    ids=["ansi", "binary", "returned", "cut in a character", "no text", "ten megabytes"],
)
def test_whatever_is_written_becomes_printable_text(written: bytes, said: str | None) -> None:
    logs = ring_of(b"before\n", written)

    assert said is None or logs == f"before\n{said}"
    assert all(each.isprintable() or each == "\n" for each in logs)
    assert len(logs) <= 2 * HALF + 60
    assert logs.startswith("before\n")


@given(st.text(st.characters()), st.integers(0, 2**64 - 1))
def test_logs_travel_with_how_much_is_missing(text: str, cut: int) -> None:
    logs = Logs.of(text, cut)

    for arrived in (Logs.from_bytes(logs.to_bytes()), pickle.loads(pickle.dumps(logs))):
        assert (arrived, arrived.cut) == (text, cut)
