"""The collector of a scheduler without a cluster."""

from __future__ import annotations

import pytest

from tests.cluster.statistics.test_collector import Hall


@pytest.fixture
def hall() -> Hall:
    return Hall()
