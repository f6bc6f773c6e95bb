"""What is said of a process that died: of what, and where in the user's code."""

from __future__ import annotations

import re
import signal
import time
import traceback
from dataclasses import replace
from hashlib import blake2b

from dqlab.cluster.consumer.running.execution import Origin
from dqlab.errors import DqlabError
from dqlab.failures.classes import Failure
from dqlab.texts import kept
from dqlab.user_frames import is_own, is_users

__all__ = ["how_it_ended", "obituary"]

_FRAME = re.compile(r'^  File "(.*)", line (\d+) in (.*)$', re.MULTILINE)


def how_it_ended(status: int) -> str:
    """Return what an exit status says: "died of signal 11 (SIGSEGV)"."""
    if status >= 0:
        return f"ended itself with exit status {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = "unknown"
    by = ", sent by somebody, or by the kernel when memory ran out" if -status == signal.SIGKILL else ""
    return f"died of signal {-status} ({name}){by}"


def obituary(error: DqlabError, stack: str, origin: Origin, *, key: str | None, code: str, seconds: float) -> Failure:
    """Return the record of a failure that nobody in the process could raise.

    Parameters
    ----------
    stack : str
        What `faulthandler` wrote of the thread that ran the message; "" when it did not.
    """
    failure = Failure.from_exception(
        error, key=key, code=code, consumer=origin.consumer, worker=origin.worker, when=time.time(), seconds=seconds
    )
    frames = _users_part(stack)
    if not frames:
        return failure
    last = next((frame for frame in reversed(frames) if is_users(frame.filename)), frames[-1])
    told = "".join(traceback.format_list(frames))
    kind = [failure.error, *dict.fromkeys(frame.name for frame in frames)]
    return replace(
        failure,
        traceback=f"Traceback (most recent call last):\n{told}{failure.traceback}",
        at=f"{last.name}:{last.lineno}",
        fingerprint=blake2b(kept("\n".join(kind)), digest_size=4).hexdigest(),
    )


def _users_part(stack: str) -> list[traceback.FrameSummary]:
    """Return the frames of the first thread that was described, outermost first, without our own."""
    described = stack.partition("most recent call first):")[2].partition("\n\n")[0]
    frames = []
    for file, line, name in _FRAME.findall(described):
        if is_own(file):
            break
        frames.append(traceback.FrameSummary(file, int(line), name))
    return frames[::-1]
