"""Inputs as references: what to process and where it is, never its contents.

Owns listings of documents, local or behind fsspec, and reading one of them. Knows nothing of queues, runs or Dask;
fsspec is imported only for URLs.

::

    where functions run                          in the client
    document   a reference, how it is read       listing    what users iterate; `summary` counts it
    parts      where in its file it lies         choosing   fewer documents, another order, counted pages
    storage    opening a path or a URL           sources    what is listed: patterns, elements, members of archives
    archives, decoding, pdf      of files        row_files  rows of Parquet, JSON lines and CSV
    parquet, lines               of rows         frames     rows of frames in memory
    kept_open  what a process keeps open         folders    patterns, and the files that match them
    servers    what errors of servers mean       labelled   elements of a Series
                                                 keys       keys of rows, names of columns
                                                 spans      neighbours that one message stands for

Logs of queues contain names of `document`, `parts`, `storage` and `labelled`, so these must not be renamed or moved.
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
