"""Inputs as references: what to process and where it is, never its contents.

Owns listings of documents, local or behind fsspec, and reading one of them. Knows nothing of queues, runs or Dask;
fsspec is imported only for URLs.

::

    where functions run                          in the client
    document   a reference, how it is read       listing    what users iterate, and what is in it after a moment
    parts      where in its file it lies         sources    what is listed, and choosing from that
    storage    opening a path or a URL           row_files  rows of Parquet, JSON lines and CSV
    archives, formats            of files        frames     rows of frames in memory
    parquet, lines               of rows         folders    patterns, and the files that match them
    kept_open  what a process keeps open         labelled   elements of a Series
    servers    what errors of servers mean       keys       keys and versions of rows, names of columns
                                                 spans      neighbours that one message stands for

Logs of queues contain names of `document`, `parts`, `storage`, `labelled` and `named_rows`, so these must not be
renamed or moved.
"""

from dqlab.documents.document import Document
from dqlab.documents.labelled import Labelled, key_text, key_texts, label_of, labelled, labels_of, sealed_label
from dqlab.documents.listing import Documents, options_of, parsed_natively

__all__ = [
    "Document",
    "Documents",
    "Labelled",
    "key_text",
    "key_texts",
    "label_of",
    "labelled",
    "labels_of",
    "options_of",
    "parsed_natively",
    "sealed_label",
]
