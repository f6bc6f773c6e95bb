"""Runs over documents of a file system that needs options."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.cluster

OPTIONS = {"client_kwargs": {"headers": {"X-Region": "eu"}}}
