"""What the Tab key offers behind `dq.`."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from types import FunctionType
from typing import Any

import pytest

import dqlab as dq
from dqlab.keywords import SuggestsAttributes


def test_completion_offers_what_users_use_and_nothing_else() -> None:
    """Internal names in the list are taken for an interface."""
    offered = {name for name in dir(dq) if not name.startswith("__")}

    assert offered == {*dq.__all__, "errors", "hpc", "testing"}


def same(x: Any) -> Any:
    return x


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda lab, queue: dq.Document5, "dqlab has no 'Document5'. Did you mean Document"),
        (lambda lab, queue: dq.zzz, "dqlab has no 'zzz'. dir(dqlab) lists"),
        (lambda lab, queue: lab.run, "Lab has no 'run'. Did you mean runs?"),
        (lambda lab, queue: queue.map(same, [1]).result, "Run has no 'result'. Did you mean results?"),
        (lambda lab, queue: queue.map(same, [1]).zzz, "Run has no 'zzz'. dir(...) lists what it has."),
    ],
)
@pytest.mark.cluster
def test_name_that_is_not_there_is_answered_by_the_one_that_was_meant(
    lab: dq.Lab, queue: dq.QueuePool, ask: Callable[[Any, Any], Any], said: str
) -> None:
    """IPython shows no guess of Python's; it is an AttributeError, and `hasattr` is false."""
    with pytest.raises(AttributeError) as caught:
        ask(lab, queue)

    assert said in str(caught.value)


def test_private_name_that_is_not_there_is_a_plain_error(lab: dq.Lab) -> None:
    """IPython and pickle ask every object for such names."""
    for holder in (dq, lab):
        with pytest.raises(AttributeError) as caught:
            holder._repr_mimebundle_of_  # type: ignore[attr-defined]  # noqa: B018
        assert type(caught.value) is AttributeError


def test_property_that_raises_keeps_its_own_error() -> None:
    class Broken(SuggestsAttributes):
        @property
        def address(self) -> str:
            raise AttributeError("the client has none")

    with pytest.raises(AttributeError, match="the client has none"):
        Broken().address  # noqa: B018


def test_everything_offered_is_there() -> None:
    """A name that raises is worse than none."""
    import dqlab.testing

    assert dqlab.testing
    assert all(hasattr(dq, name) for name in dir(dq))


def test_functions_that_users_store_refer_to_the_package_and_not_to_a_module_of_it() -> None:
    """A module may be renamed, and a store outlives that."""
    functions = [found for name in dq.__all__ if isinstance(found := getattr(dq, name), FunctionType)]

    assert {dq.once, dq.cancelled, dq.same} <= set(functions)
    for function in functions:
        assert pickle.dumps(function, 0) == f"cdqlab\n{function.__name__}\np0\n.".encode()
