"""Ctrl-C during the import of a large package leaves it whole: the cell that is run again finds it."""

from __future__ import annotations

import importlib
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from dqlab.imports import import_whole

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
