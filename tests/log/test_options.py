from __future__ import annotations

from typing import Any

import pytest

from dqlab.errors import BadOption
from dqlab.log.writer import LogOptions


def test_a_commit_is_synced_unless_told_otherwise() -> None:
    assert LogOptions().sync == "always"


@pytest.mark.parametrize(
    "wrong",
    [
        {"sync": "never"},
        {"interval": -1.0},
        {"segment_bytes": 0},
        {"compact_below": 1.5},
        {"reserve_bytes": -1},
    ],
)
def test_an_option_out_of_range_names_itself(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadOption) as caught:
        LogOptions(**wrong)
    assert caught.value.option == next(iter(wrong))
