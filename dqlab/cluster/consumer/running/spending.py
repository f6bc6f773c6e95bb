"""What calls have cost, as `dqlab.spend` says it: `spent` puts it beside the message's outcome."""

from __future__ import annotations

import math

from dqlab.cluster.consumer.running.execution import message_here
from dqlab.errors import Reject


def spend(**amounts: float) -> None:
    """Say what the call for this document has cost, by unit: of money, of tokens, or of anything else.

    Amounts of one document add up. A run with ``budget=`` counts those of its unit, also of documents that fail then;
    one with ``limit=`` counts those of the limit's units. In a batch, an amount is that of all documents of the call,
    in equal parts. Outside a message of a run it does nothing.

    Parameters
    ----------
    **amounts : float
        By unit, each 0 or more.

    Raises
    ------
    Reject
        An amount is not a number, or is below 0. The document fails, and is not called again for more.

    Examples
    --------
    >>> async def ask(document):
    ...     reply = await call_the_model(document["text"])
    ...     dq.spend(tokens=reply.usage.total_tokens, eur=reply.cost)
    ...     return reply.text
    """
    for unit, amount in amounts.items():
        if isinstance(amount, bool) or not isinstance(amount, int | float) or not 0 <= amount < math.inf:
            raise Reject(f"dq.spend({unit}={amount!r}): not a number of 0 or more, and not counted")
    here = message_here()
    if here is not None and here[1] is not None:
        here[0].pay(here[1], amounts)
