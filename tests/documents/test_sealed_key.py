"""The key of a reference, read without running what a pickle names."""

from __future__ import annotations

import os
import pickle
import pickletools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dqlab as dq
from dqlab.documents import Labelled
from dqlab.documents.document import sealed_key
from dqlab.documents.parts import Inline, Line, Member, PageRange, Row
from dqlab.documents.storage import check_options, located

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


STORED_AT = located("s3://b/k", check_options({"anon": True}))


@pytest.mark.parametrize(
    ("element", "names"),
    [
        (dq.Document("a", "v", "/a"), {"document _revive"}),
        (dq.Document("a", "v", STORED_AT), {"document _revive", "storage stored"}),
        (dq.Document("m", "v", "/a.zip", part=Member("m")), {"document _revive", "parts Member"}),
        (dq.Document("a#p1-3", "v", "/a", 3, 3, PageRange(0, 3)), {"document _revive", "parts PageRange"}),
        (dq.Document(7, "v", "/t", part=Row(0, 3)), {"document _row"}),
        (dq.Document("t:3", "v", "/t", 12, part=Line(40, 12)), {"document _line"}),
        (dq.Document(5, "v", "", part=Inline(("a",), (1,))), {"document _inline"}),
        (dq.Document(7, "v", "/t", 9, part=Row(0, 3)), {"document _numbered", "parts Row"}),
        (Labelled("x", 1), {"labelled Labelled"}),
    ],
)
def test_stored_references_name_modules_that_stay(element: object, names: set[str]) -> None:
    """They lie in logs of queues: a name that moves makes messages that were put before it unreadable."""
    named = {str(arg) for op, arg, _ in pickletools.genops(pickle.dumps(element, 2)) if op.name == "GLOBAL"}

    assert named - {"copy_reg __newobj__"} == {f"dqlab.documents.{name}" for name in names}
