"""What a function needs, read from its bytes: nothing of it is executed."""

from __future__ import annotations

import pickle
import textwrap

import cloudpickle
import msgpack
import pytest

from dqlab.cluster.worker.packages import missing_packages, named_in_pickle, named_in_source

NOTEBOOK = """
import json
import msgpack as mp
import concurrent.futures

def inner(x):
    return mp.packb(json.dumps(x))

def outer(x):
    return inner(x), concurrent.futures.ThreadPoolExecutor
"""


def test_modules_that_a_notebooks_function_uses_are_named() -> None:
    names = {"__name__": "__main__"}
    exec(NOTEBOOK, names)

    assert named_in_pickle(cloudpickle.dumps(names["outer"], protocol=5)) == {
        "cloudpickle",
        "concurrent",
        "json",
        "msgpack",
    }


@pytest.mark.parametrize("protocol", range(6))
def test_home_of_an_imported_function_is_named(protocol: int) -> None:
    assert named_in_pickle(pickle.dumps(textwrap.dedent, protocol)) == {"textwrap"}
    assert "msgpack" in named_in_pickle(pickle.dumps([msgpack.Timestamp, textwrap.dedent], protocol))


@pytest.mark.parametrize("sealed", [b"", b"no pickle", pickle.dumps(textwrap.dedent)[:-1]])
def test_what_is_no_whole_pickle_raises_nothing(sealed: bytes) -> None:
    """Bytes come from queues; an examination survives all of them."""
    assert named_in_pickle(sealed) <= {"textwrap"}


def test_imports_of_a_body_are_named_but_not_those_that_are_only_tried() -> None:
    source = """
def parse(x):
    import numpy.linalg, os.path
    from pandas.io import json
    from . import near
    try:
        import fast
    except ImportError:
        fast = None
    if x:
        import winreg
    with suppress(ImportError):
        import orjson
    def later():
        import some_day
"""

    assert named_in_source(source) == {"numpy", "os", "pandas"}
    assert named_in_source("def broken(") == set()


def test_only_what_cannot_be_found_is_missing() -> None:
    assert missing_packages(["json", "no_such_package_anywhere", "msgpack", ""]) == ["no_such_package_anywhere", ""]
