"""The key of a reference, read without running what a pickle names."""

from __future__ import annotations

import os
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dqlab as dq
from dqlab.documents.document import sealed_key

ANY_TEXT = st.text(st.characters(codec=None, categories=None), max_size=40)


class Trap:
    def __reduce__(self) -> tuple[Any, ...]:
        return os._exit, (3,)


@given(ANY_TEXT, ANY_TEXT, st.none() | st.integers(0, 9))
def test_key_of_a_document_is_read(key: str, where: str, pages: int | None) -> None:
    """Whatever its name is made of."""
    assert sealed_key(pickle.dumps(dq.Document(key, "v", where, None, pages), 5)) == key


@pytest.mark.parametrize("value", [Trap(), {"key": Trap()}, "a.txt", 7, None, [dq.Document("a", "", "a")]])
def test_nothing_else_is_opened(value: object) -> None:
    """Elements are anybody's objects, and opening those runs their code."""
    assert sealed_key(pickle.dumps(value, 5)) is None
    assert sealed_key(b"no pickle") is None
