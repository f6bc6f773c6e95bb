"""Errors of the cluster and of this installation: connecting, missing parts, and processes that are gone."""

from __future__ import annotations

from dqlab.errors.sentence import DqlabError

__all__ = [
    "ActorGone",
    "CallTimeout",
    "ConnectFailed",
    "DaskTooOld",
    "LabClosed",
    "SchedulerGone",
    "StoreFailed",
    "UnsupportedSystem",
    "VersionMismatch",
    "WidgetNotBuilt",
    "WorkersGone",
]


class ConnectFailed(DqlabError):
    """No scheduler answered at the given address."""

    text = (
        "no scheduler answered at {address!r} within {seconds:g} s ({reason}). Nothing was started. Check the "
        "address, start one with `dask scheduler`, or call dq.connect() without one for a cluster on this machine."
    )


class UnsupportedSystem(DqlabError, ImportError):
    """dqlab was imported on a system that it cannot run on."""

    text = (
        "dqlab does not run on {system}: it needs Linux or macOS. Nothing was imported. Install the Windows Subsystem "
        "for Linux, WSL, with `wsl --install`, then install and start dqlab and Jupyter inside it."
    )


class WidgetNotBuilt(DqlabError, ImportError):
    """A live widget cannot be shown: its files were not built when dqlab was installed."""

    text = (
        "the live widget has not been built: {file} is missing. Queues and runs are not touched by this, and their "
        "tables are there without it. In a checkout run `make extension`; elsewhere install dqlab again, without "
        "SKIP_JUPYTER_BUILDER."
    )


class VersionMismatch(DqlabError):
    """Client, scheduler or a worker run different protocol versions of dqlab."""

    text = (
        "this process speaks dqlab protocol {ours} (dqlab {our_version}), {who} speaks {theirs} (dqlab {their_version}"
        "). Nothing was sent. Install the same version in both places: pip install 'dqlab=={their_version}'"
    )


class DaskTooOld(VersionMismatch, ImportError):
    """The Dask of this process, of the scheduler or of a worker is older than dqlab can work with."""

    text = (
        "{who} runs Dask {found}, and dqlab needs {oldest} or newer. No queue was opened and nothing was sent. Install "
        "a newer one in that environment, pip install 'dask>={oldest}' 'distributed>={oldest}', and start it again."
    )


class SchedulerGone(DqlabError):
    """The scheduler stopped answering; every transient queue is lost with it."""

    text = (
        "the scheduler at {address} is gone ({reason}). If its process has ended, transient queues went with it; "
        "durable ones are in their store. Start again, dq.connect() or dq.connect(store=...), and map them again."
    )


class LabClosed(DqlabError):
    """The lab, or its Dask client, was closed; objects made with it can no longer be used."""

    text = "lab {lab!r} was closed, so {what} cannot be asked any more. {left}"


class WorkersGone(DqlabError):
    """No worker process of an embedded cluster is left."""

    text = (
        "no worker process of lab {lab!r} is left, and what its transient queues held went with them; durable ones "
        "are in their store. Connect again, lab = dq.connect() or %dq connect -o lab, then map or attach again."
    )


class ActorGone(DqlabError):
    """A queue or consumer is not registered with the scheduler, or its process died."""

    text = (
        "{name!r} is gone: {reason}. If it was transient, its messages and results are lost; if it was durable, "
        "they are in its store. Connect again, with lab = dq.connect() or %dq connect -o lab, and map or attach again."
    )


class StoreFailed(ActorGone):
    """The files of a durable queue have been failing for a while."""

    text = (
        "{name!r} cannot be opened: {reason} What was confirmed is on disk. The log is opened again by itself, once a "
        "minute at least, and runs go on then; lab.queue(NAME) tries it at once."
    )


class CallTimeout(DqlabError):
    """A queue or consumer did not answer in time; the call may or may not have taken effect."""

    text = (
        "{name!r} did not answer {call}() within {seconds:g} s; it may still act on the call. "
        "Look at lab.stats(), then call again: puts and settles that arrive twice count once."
    )
