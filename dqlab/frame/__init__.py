"""Batches of messages, and of their outcomes, as bytes.

Owns the layout of the two frames that cross every boundary: a `Frame` carries messages from a client through a queue to
a consumer, and a `Settlement` carries outcomes and results back. Knows no pickles, queues or Dask: payloads are opaque.
All integers are little-endian. Decoding checks every length, so malformed bytes raise `FrameCorrupt` and nothing else.

::

    Frame       72 B header | u32 lengths[count] | u32 weights[count]? | payload
                (numbered: u32 size of the prefix, u32 first number, u32 size of the suffix? | prefix | suffix
                | column?, for all messages; lengths are those of the column's parts)
    Settlement  48 B header | u64 (first, ordinal, n)[pieces] | u8 outcomes[count], padded to 4
                | u32 lengths[count] | u32 key lengths[count]? | payload | keys | made? | (riders | u32 their size)?

`made` records how the results were made; see `dqlab.frame.lineage`. `riders` are side columns by name; see
`dqlab.frame.columns`. Frames and settlements are in logs as they are: a
change of either layout needs a new `VERSION`, and code that reads the old one.
"""

from dqlab.frame.lineage import Made, Making
from dqlab.frame.messages import NO_ID, Frame, Kind, Numbered
from dqlab.frame.settlement import Outcome, Piece, Settlement

__all__ = ["NO_ID", "Frame", "Kind", "Made", "Making", "Numbered", "Outcome", "Piece", "Settlement"]
