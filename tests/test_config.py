"""Options as people write them, turned into plain values or refused with the way out."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.config
import pytest
from distributed import Client
from hypothesis import given
from hypothesis import strategies as st

import dqlab as dq
from dqlab.config import check_directory, check_name, nbytes, option, seconds
from dqlab.errors import BadOption


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (90, 90.0),
        (0.5, 0.5),
        (0, 0.0),
        ("90s", 90.0),
        ("2m", 120.0),
        ("500ms", 0.5),
        ("1h30m", 5400.0),
        ("1m 30s", 90.0),
    ],
)
def test_durations_are_read_as_people_write_them(written: float | str, meant: float) -> None:
    """Everything that takes a duration takes all of these."""
    assert seconds(written) == meant


@pytest.mark.parametrize(
    "written", ["soon", "", "5 parsecs", "1h 2 parsecs", "1h30m!", -1, "-3s", float("nan"), float("inf"), [], object()]
)
def test_what_is_no_duration_is_refused_by_the_options_name(written: object) -> None:
    """A negative or infinite timeout would be found out hours later."""
    with pytest.raises(BadOption, match="visibility_timeout"):
        seconds(written, name="visibility_timeout")  # type: ignore[arg-type]


@pytest.mark.parametrize(("written", "meant"), [(1024, 1024), ("64 KiB", 65536), ("1 GB", 10**9), ("1GiB", 2**30)])
def test_sizes_are_read_as_people_write_them(written: int | str, meant: int) -> None:
    """KiB counts in 1024, kB in 1000."""
    assert nbytes(written) == meant


@pytest.mark.parametrize("written", [0, -5, "many", "", [], "5 apples", 2**63, "1e400", "9e18 kB"])
def test_what_is_no_size_is_refused_by_the_options_name(written: object) -> None:
    """A limit of nothing would refuse every message, and a number above 64 bits cannot be sent."""
    with pytest.raises(BadOption, match="max_bytes"):
        nbytes(written, name="max_bytes")  # type: ignore[arg-type]


def test_nothing_is_refused_where_a_value_is_needed() -> None:
    """It would be noticed in the shard, where nobody who could mend it reads the error."""
    with pytest.raises(BadOption, match="delay=None: not a duration"):
        dq.Later(None)  # type: ignore[arg-type]
    with pytest.raises(BadOption, match="backoff=None: not a duration"):
        dq.Retry(backoff=None)  # type: ignore[arg-type]
    with pytest.raises(BadOption, match="size=None: not a size"):
        nbytes(None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "name",
    [
        "",
        "a/b",
        "../up",
        "two words",
        "tab\t",
        "new\nline",
        "-first",
        ".hidden",
        "_x",
        "ä",
        "x" * 101,
        None,
        7,
        b"x",
        "٣",
    ],
)
def test_other_names_are_refused_with_one_that_works(name: object) -> None:
    """An error that suggests a name is copied into the cell; the name must then pass."""
    with pytest.raises(BadOption) as caught:
        check_name(name, kind="queue")

    assert check_name(caught.value.suggestion, kind="queue")
    assert caught.value.suggestion in str(caught.value)


@pytest.mark.long
@given(st.text(max_size=120) | st.integers() | st.none())
def test_every_suggested_name_passes(name: object) -> None:
    """Whatever a person typed."""
    suggestion = name
    try:
        check_name(name, kind="run")
    except BadOption as error:
        suggestion = error.suggestion

    assert check_name(suggestion, kind="run") == suggestion


def test_unknown_option_is_an_error() -> None:
    """A misspelt key inside dqlab must not silently be None."""
    with pytest.raises(KeyError):
        option("queue.no-such-key")


def reset() -> None:
    dask.config.refresh()


def clear_and_restore() -> None:
    before = dict(dask.config.config)
    dask.config.config.clear()
    dask.config.config.update({key: value for key, value in before.items() if key != "dqlab"})


def leave_a_block() -> None:
    with dask.config.set({"dqlab.queue.max-deliveries": 9}):
        assert option("queue.max-deliveries") == 9


def spoil() -> None:
    dask.config.config["dqlab"] = None


RESETS = (reset, clear_and_restore, leave_a_block, spoil)


def asked_after(change: Callable[[], None]) -> tuple[Any, Any]:
    """Return options of this process after its configuration was changed; what stood there before comes back."""
    before = copy.deepcopy(dask.config.config)
    try:
        option("queue.max-deliveries")
        change()
        return option("queue.max-deliveries"), option("queue")["maxsize"]
    finally:
        dask.config.config.clear()
        dask.config.config.update(before)


@pytest.mark.parametrize("change", RESETS)
def test_defaults_outlive_what_others_do_to_dasks_configuration(change: Callable[[], None]) -> None:
    """Test tools and notebooks reset it; every queue made later used to fail with a KeyError."""
    assert asked_after(change) == (5, 100_000)


def test_defaults_outlive_it_on_scheduler_and_workers_too(client: Client) -> None:
    """Options are read there as well."""
    for change in RESETS:
        assert client.run_on_scheduler(asked_after, change) == (5, 100_000)
        assert set(client.run(asked_after, change).values()) == {(5, 100_000)}


def test_section_has_what_was_said_and_the_defaults_of_the_rest() -> None:
    """One threshold that somebody changes must not cost the others."""
    with dask.config.set({"dqlab.queue.max_deliveries": 9}):
        assert option("queue")["max-deliveries"] == option("queue.max-deliveries") == 9
        assert option("queue")["maxsize"] == 100_000
    assert option("queue")["max-deliveries"] == 5


@pytest.mark.parametrize("store", ["s3://x/y", Path("s3://x/y"), "gs://bucket", ""])
def test_a_store_is_a_directory_on_a_file_system(
    store: str | Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A directory ``s3:`` was made here, and queues were kept in it; "" was the current one."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadOption, match=r"store=.*such as 'runs/'"):
        check_directory(store)
    assert check_directory("a:b/c") == (tmp_path / "a:b" / "c").resolve()


def test_store_that_cannot_be_told_to_others_is_refused_by_its_name(tmp_path: Path) -> None:
    """It goes to the scheduler and workers as text; shown otherwise it would be another directory."""
    with pytest.raises(BadOption, match=r"store='.*caf.*not valid Unicode"):
        check_directory(tmp_path / os.fsdecode(b"caf\xe9"))
    assert check_directory(str(tmp_path / "café")) == (tmp_path / "café").resolve()


@pytest.mark.parametrize("name", ["a\0b", "a\ud800b", "file/below"])
def test_a_store_that_no_directory_can_be_is_refused_before_anything_starts(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadOption, match=r"(?s)^store=.*Name a"):
        check_directory(tmp_path / name)
