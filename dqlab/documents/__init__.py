"""Inputs as references: what to process and where it is, never its contents.

Owns listings of files, local or behind fsspec, and reading one of them. Knows nothing of queues,
runs or Dask; fsspec is imported only for URLs.
"""

from dqlab.documents.document import Document
from dqlab.documents.labelled import Labelled, key_text, label_of, labelled, sealed_label
from dqlab.documents.listing import Documents, parsed_natively

__all__ = ["Document", "Documents", "Labelled", "key_text", "label_of", "labelled", "parsed_natively", "sealed_label"]
