"""The page of the API has every name, line and key there is, as they are."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import dqlab as dq
from dqlab import errors, hpc, testing
from dqlab.jupyter.grammar import COMMANDS

DOCS = Path(__file__).parents[1] / "docs"
PAGE = (DOCS / "reference" / "api.md").read_text()


def _script() -> Any:
    spec = importlib.util.spec_from_file_location("dqlab_docs_api", DOCS / "api.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


API = _script()
ENTRIES = re.findall(r"^- `([\w.]+)(\(.*?\))?`(?=:| |$)", PAGE, re.MULTILINE)
TABLES = re.findall(r"^\| `[\w.]+` \|", PAGE, re.MULTILINE)
OWNERS = {variable: owner for group in API.GROUPS for variable, owner in group.owners if isinstance(owner, type)}


def test_page_is_in_step_with_signatures_and_docstrings() -> None:
    assert API.render() == PAGE, "run `make api`"


def test_every_public_name_is_on_the_page() -> None:
    """There was none: 54 methods of a run were found by `dir()` alone."""
    written = {name for name, _ in ENTRIES}
    wanted = {f"dq.{name}" for name in dq.__all__ if not (inspect.isclass(getattr(dq, name)))}
    for variable, owner in OWNERS.items():
        wanted |= {f"{variable}.{name}" for name in dir(owner) if name[0] != "_"}
    left_out = {f"{variable}.{name}" for variable, owner in OWNERS.items() for name in API.INTERNAL.get(owner, ())}
    inherited = {f"{variable}.{name}" for variable in OWNERS for name in ("index", "count")}  # of every sequence
    made = {name.replace("dq.Documents.", "docs.") for name in written}

    assert wanted - left_out - inherited - written - made == set()
    assert all(f"`dq.{name}" in PAGE for name in dq.__all__)
    assert [name for name in testing.__all__ if f"`dq.testing.{name}" not in PAGE] == []
    classes = [name for name in errors.__all__ if name[0].isupper()]
    assert [name for name in classes if not {f"| `{name}` |", f"| `dq.{name}` |"} & set(TABLES)] == []
    assert [name for name in hpc.__all__ if f"`dq.hpc.{name}" not in PAGE and name not in classes] == []


def test_names_that_are_left_out_exist() -> None:
    """Else a renamed one is on no list."""
    for owner, names in API.INTERNAL.items():
        known = {*dir(owner), *getattr(owner, "__dataclass_fields__", ())}
        assert names - known == set(), owner


@pytest.mark.parametrize(("written", "parameters"), [each for each in ENTRIES if each[1] not in ("", "(...)")])
def test_signature_on_the_page_is_that_of_the_function(written: str, parameters: str) -> None:
    *path, name = written.split(".")
    owner: Any = OWNERS.get(path[0]) if len(path) == 1 and path[0] in OWNERS else dq
    for part in path[1:]:
        owner = getattr(owner, part)
    found = inspect.signature(getattr(owner, name)).parameters.values()

    # A line of Python, with the defaults as they are written there.
    (function,) = ast.parse(f"def f{parameters}: ...").body
    assert isinstance(function, ast.FunctionDef)
    args = function.args
    ours = [each.arg for each in (*args.posonlyargs, *args.args, args.vararg, *args.kwonlyargs, args.kwarg) if each]
    assert ours == [each.name for each in found if each.name not in ("self", "cls")]
    defaults = [ast.unparse(each) for each in (*args.defaults, *args.kw_defaults) if each is not None]
    assert len(defaults) == sum(each.default is not each.empty for each in found)


def test_every_line_and_every_key_is_on_the_page() -> None:
    defaults = (DOCS.parent / "dqlab" / "dqlab.yaml").read_text()

    assert all(f"| `%dq {name}" in PAGE for name in COMMANDS)
    assert all(f"`{command.twin}`" in PAGE for command in COMMANDS.values())
    for key, default in API.leaves(yaml.safe_load(defaults)["dqlab"]):
        assert f"| `dqlab.{key}` | `{default}` |" in PAGE


def test_links_of_the_page_lead_somewhere() -> None:
    for page, anchor in re.findall(r"\]\(\.\./how-to/([\w-]+\.md)#?([\w-]*)\)", PAGE):
        headings = re.findall(r"^#+ (.*)", (DOCS / "how-to" / page).read_text(), re.MULTILINE)
        assert not anchor or anchor in map(API._anchor, headings)


def test_page_names_no_path_of_the_machine_it_was_written_on() -> None:
    assert sys.executable not in PAGE
    assert str(DOCS.parent) not in PAGE
