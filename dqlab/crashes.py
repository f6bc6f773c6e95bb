"""Why a message's process had to end before the message did; seen in `failures()`.

No `MessageError`: those are futile to repeat, while a process that died may well live the next time.
"""

from __future__ import annotations

from dqlab.sentence import DqlabError

__all__ = ["MemoryLimit", "MessageTimeout", "ProcessDied"]


class ProcessDied(DqlabError):
    """The process ended in the middle of a message: a crash of native code, `os._exit`, a kill."""

    text = (
        "the process {how}. Only this message lost its attempt; the others went on in a new process. "
        "The traceback says where it was, if that is known."
    )


class MessageTimeout(DqlabError):
    """A message took longer than its run allows."""

    text = (
        "exceeded timeout of {seconds:g} s, so its process was killed; the others went on in a new one. "
        "Map with a longer timeout=, or give the function less to do at a time."
    )


class MemoryLimit(DqlabError):
    """A message's process took more memory than its run allows."""

    text = (
        "used more than {limit}, so its process was killed; the others went on in a new one. "
        "Map with a larger memory=, or give the function less to do at a time."
    )
