"""Ctrl-C during the import of a large package leaves it whole: the cell that is run again finds it."""

from __future__ import annotations

import builtins
import importlib
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import pytest

from dqlab.datasets.plain import plain
from dqlab.documents.frames import table_of
from dqlab.documents.labelled import labelled
from dqlab.errors import BadOption
from dqlab.imports import import_whole, loaded

INNER = """
import os, signal, threading
if not os.path.exists({flag!r}):
    open({flag!r}, "w").close()
    os.kill(os.getpid(), signal.SIGINT)
    for _ in range(1000):
        pass
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A package that is interrupted once, between one of its submodules and the next."""
    name = f"large_{tmp_path.name}".replace("-", "_")
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").write_text(f"import {name}.inner\nimport {name}.stopping\nready = True\n")
    (tmp_path / name / "inner.py").write_text("value = 7\n")
    (tmp_path / name / "stopping.py").write_text(INNER.format(flag=str(tmp_path / "interrupted")))
    monkeypatch.syspath_prepend(str(tmp_path))
    return name


def test_python_itself_leaves_half_of_it(package: str) -> None:
    """Should this fail one day, `import_whole` has nothing to do any more."""
    with pytest.raises(KeyboardInterrupt):
        importlib.import_module(package)
    assert not hasattr(importlib.import_module(package), "inner")


def test_package_is_whole_after_an_interrupted_import(package: str) -> None:
    with pytest.raises(KeyboardInterrupt):
        import_whole(package)
    import_whole(package)
    module = importlib.import_module(package)
    assert (module.inner.value, module.ready) == (7, True)


def test_errors_of_an_import_reach_the_caller() -> None:
    with pytest.raises(ModuleNotFoundError, match="there_is_none"):
        import_whole("there_is_none")


def test_module_that_another_thread_imports_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Documents failed because `pandas` had no `NaT` yet, and `lab.map` because it had no `Series`."""
    (tmp_path / "pandas.py").write_text(
        "import builtins\nbuiltins.importing.set(); builtins.may_end.wait(30)\n"
        "NaT = NA = None\nclass Timestamp: pass\nTimedelta = Series = Index = DataFrame = Timestamp\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "pandas", raising=False)
    monkeypatch.setattr(builtins, "importing", threading.Event(), raising=False)
    monkeypatch.setattr(builtins, "may_end", threading.Event(), raising=False)
    uses = (lambda: loaded("pandas").Series, lambda: plain({1}), lambda: labelled([1]), lambda: table_of(1))
    with ThreadPoolExecutor() as pool:
        importer = pool.submit(importlib.import_module, "pandas")
        assert builtins.importing.wait(30)  # type: ignore[attr-defined]
        answers = [pool.submit(use) for use in uses]
        early = wait(answers, timeout=0.05).done
        builtins.may_end.set()  # type: ignore[attr-defined]
        module = importer.result(30)
    assert not early
    assert answers[0].result() is module.Series
    assert [each.exception() for each in answers[1:3]] == [None, None]
    assert isinstance(answers[3].exception(), BadOption)  # as for any value that is no frame
    assert loaded("there_is_none") is None


SCRIPT = """
    import os, signal, sys

    class Interrupts:
        def find_spec(self, name, path=None, target=None):
            if name == sys.argv[1]:
                sys.meta_path.remove(self)
                os.kill(os.getpid(), signal.SIGINT)
                for _ in range(1000):
                    pass

    sys.meta_path.insert(0, Interrupts())
    import dqlab as dq
    from dqlab.datasets import needs_pyarrow
    from dqlab.documents.storage import remote
    from dqlab.documents.parquet import _pyarrow_parquet
    from dqlab.imports import import_whole

    DO = {
        "pyarrow.types": needs_pyarrow,
        "pyarrow._parquet": _pyarrow_parquet,
        "fsspec.spec": lambda: remote("memory://a"),
        "pandas.core.series": lambda: import_whole("pandas"),
    }
    do = DO[sys.argv[1]]
    try:
        do()
    except KeyboardInterrupt:
        print("interrupted")
    do()
    if "pyarrow" in sys.modules:
        import pyarrow
        print(pyarrow.lib.__name__, pyarrow.array([1])[0].as_py())
    if "pandas" in sys.modules:
        import pandas
        print(pandas.core.series.Series([1]).sum(), pandas.DataFrame({"a": [1]}).shape)
    print("whole")
"""


@pytest.mark.cluster
@pytest.mark.parametrize("at", ["pyarrow.types", "pyarrow._parquet", "fsspec.spec", "pandas.core.series"])
def test_interrupted_imports_of_what_we_use_are_whole(tmp_path: Path, at: str) -> None:
    """Found by chaos: "module 'pyarrow' has no attribute 'lib'" in every later cell of the notebook."""
    pytest.importorskip(at.partition(".")[0])
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SCRIPT), at],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    words = done.stdout.split()
    assert (words[0], words[-1]) == ("interrupted", "whole"), done.stdout
