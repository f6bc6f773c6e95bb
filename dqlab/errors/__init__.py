"""Every error dqlab raises on purpose.

An error is a sentence with named gaps, and the values that fill them. The values are attributes, for code; the sentence
is `str(error)`, for people: what failed, what happened to the data, what to do next. All cross process borders.

::

    DqlabError
    ├── UnsupportedSystem · WidgetNotBuilt · ConnectFailed · VersionMismatch ── DaskTooOld
    ├── SchedulerGone · LabClosed · WorkersGone · ActorGone
    │                   CallTimeout · StoreFailed
    ├── PutError ── QueueFull · QueueDraining · PutTimeout · PutFailed · MessageTooLarge
    │               FunctionTooLarge · NotPicklable
    ├── MessagesLost
    ├── FrameCorrupt · ProcessDied · MessageTimeout · MemoryLimit
    ├── RunError ── RunNotFound · RunExists · RunFailed ── CallsFailed · CodeGone
    │               DocumentsLost · ResultsMissing · ResultsForgotten · RunCancelled · RunStalled
    │               SubmissionIncomplete · InputResized · DocumentsNotPut · ResultsFull · AllFailed
    │               WaitTimeout ── NoAnswer
    │               JoinStalled · InputChanged · NotSentAgain
    ├── MessageError ── Reject · NotACall · ResultTooLarge · ResultNotPicklable · ResultUnreadable
    │                   MessageNotFound
    └── UsageError ── BadName · BadOption · UnknownOption · RunsInFlight · QueueNotFound · QueueInUse · QueueClosed
                    FolderNotFound · NotADocument · DocumentsUsedUp · LengthUnknown · InputUsedUp · InputNotHere
"""

from __future__ import annotations

from dqlab.errors.cluster import (
    ActorGone,
    CallTimeout,
    ConnectFailed,
    DaskTooOld,
    LabClosed,
    SchedulerGone,
    StoreFailed,
    UnsupportedSystem,
    VersionMismatch,
    WidgetNotBuilt,
    WorkersGone,
)
from dqlab.errors.messages import (
    MemoryLimit,
    MessageError,
    MessageNotFound,
    MessageTimeout,
    NotACall,
    ProcessDied,
    Reject,
    ResultNotPicklable,
    ResultTooLarge,
    ResultUnreadable,
)
from dqlab.errors.puts import (
    FrameCorrupt,
    FunctionTooLarge,
    MessagesLost,
    MessageTooLarge,
    NotPicklable,
    PutError,
    PutFailed,
    PutTimeout,
    QueueDraining,
    QueueFull,
)
from dqlab.errors.runs import (
    AllFailed,
    CallsFailed,
    CodeGone,
    DocumentsLost,
    DocumentsNotPut,
    InputChanged,
    InputNotHere,
    InputResized,
    InputUsedUp,
    JoinStalled,
    NoAnswer,
    NotSentAgain,
    ResultsForgotten,
    ResultsFull,
    ResultsMissing,
    RunCancelled,
    RunError,
    RunExists,
    RunFailed,
    RunNotFound,
    RunStalled,
    SubmissionIncomplete,
    WaitTimeout,
)
from dqlab.errors.sentence import DqlabError, DqlabWarning, in_words
from dqlab.errors.usage import (
    BadName,
    BadOption,
    DocumentsUsedUp,
    FolderNotFound,
    LengthUnknown,
    NotADocument,
    QueueClosed,
    QueueInUse,
    QueueNotFound,
    RunsInFlight,
    UnknownOption,
    UsageError,
)

__all__ = [
    "ActorGone",
    "AllFailed",
    "BadName",
    "BadOption",
    "CallTimeout",
    "CallsFailed",
    "CodeGone",
    "ConnectFailed",
    "DaskTooOld",
    "DocumentsLost",
    "DocumentsNotPut",
    "DocumentsUsedUp",
    "DqlabError",
    "DqlabWarning",
    "FolderNotFound",
    "FrameCorrupt",
    "FunctionTooLarge",
    "InputChanged",
    "InputNotHere",
    "InputResized",
    "InputUsedUp",
    "JoinStalled",
    "LabClosed",
    "LengthUnknown",
    "MemoryLimit",
    "MessageError",
    "MessageNotFound",
    "MessageTimeout",
    "MessageTooLarge",
    "MessagesLost",
    "NoAnswer",
    "NotACall",
    "NotADocument",
    "NotPicklable",
    "NotSentAgain",
    "ProcessDied",
    "PutError",
    "PutFailed",
    "PutTimeout",
    "QueueClosed",
    "QueueDraining",
    "QueueFull",
    "QueueInUse",
    "QueueNotFound",
    "Reject",
    "ResultNotPicklable",
    "ResultTooLarge",
    "ResultUnreadable",
    "ResultsForgotten",
    "ResultsFull",
    "ResultsMissing",
    "RunCancelled",
    "RunError",
    "RunExists",
    "RunFailed",
    "RunNotFound",
    "RunStalled",
    "RunsInFlight",
    "SchedulerGone",
    "StoreFailed",
    "SubmissionIncomplete",
    "UnknownOption",
    "UnsupportedSystem",
    "UsageError",
    "VersionMismatch",
    "WaitTimeout",
    "WidgetNotBuilt",
    "WorkersGone",
    "in_words",
]

for _name in __all__:  # tracebacks show the name that users import, whatever module defines it
    globals()[_name].__module__ = __name__
