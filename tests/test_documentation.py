"""What the documentation shows is true: its lines parse, its names exist, its recipes run."""

from __future__ import annotations

import ast
import builtins
import doctest
import gzip
import inspect
import json
import os
import re
import shlex
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import dqlab as dq
from dqlab.cli.command import OF_NOTEBOOKS, parser
from dqlab.errors import UsageError
from dqlab.jupyter.grammar import COMMANDS
from dqlab.runs.failures import compile_where
from tests.kit.examples import PAGES, ROOT, Block, blocks, examples
from tests.kit.pdfs import make_pdf

_WHERE = re.compile(r"""where=(["'])(.+?)\1[,)`]|--where "(.+?)"[`\n ]""")
CLASSES = {"lab": dq.Lab, "run": dq.Run, "pool": dq.QueuePool, "queue": dq.QueuePool}


def _lines(kind: str, start: str) -> Iterator[tuple[str, str]]:
    """Yield lines of blocks that begin so, and where they stand; without their comments."""
    for block in blocks(kind):
        for number, line in enumerate(block.text.splitlines()):
            if line.startswith(start):
                yield f"{block.page.relative_to(ROOT)}:{block.line + number}", line.removeprefix(start)


@pytest.mark.parametrize(
    "line", [pytest.param(line, id=where) for start in ("%dq ", "%%dq ") for where, line in _lines("text", start)]
)
def test_every_line_that_the_documentation_shows_is_understood(line: str) -> None:
    """A renamed option breaks what people copy."""
    words = shlex.split(line, comments=True)

    COMMANDS[words[0]].parse(words[1:])


@pytest.mark.parametrize("line", [pytest.param(line, id=where) for where, line in _lines("console", "$ dqlab ")])
def test_every_command_that_the_documentation_shows_is_understood(line: str) -> None:
    words = shlex.split(line, comments=True)
    if words[0] in OF_NOTEBOOKS:
        at = words.index("--at") if "--at" in words else len(words)
        COMMANDS[words[0]].for_shell().parse(words[1:at] + words[at + 2 :])
    else:
        parser().parse_args(words[: words.index("|")] if "|" in words else words)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(match[2] or match[3], id=f"{page.relative_to(ROOT)}:{match.start()}")
        for page in PAGES
        for match in _WHERE.finditer(page.read_text())
        if (match[2] or match[3]) != "..."
        and ".redo(" not in match.string[: match.start()].rpartition("\n")[2]  # that one is of SQL
    ],
)
def test_every_filter_that_the_documentation_shows_can_be_compiled(text: str) -> None:
    compile_where(text)


@pytest.mark.parametrize("block", [pytest.param(block, id=str(block)) for block in blocks("python")])
def test_every_name_and_keyword_in_the_examples_exists(block: Block) -> None:
    for node in ast.walk(ast.parse(block.text)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            owner: Any = dq if node.value.id == "dq" else CLASSES.get(node.value.id)
            assert owner is None or hasattr(owner, node.attr), ast.unparse(node)
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and isinstance(node.func.value, ast.Name)
        ):
            owner = dq if node.func.value.id == "dq" else CLASSES.get(node.func.value.id)
            if owner is not None:
                known = inspect.signature(getattr(owner, node.func.attr)).parameters
                free = any(parameter.kind is parameter.VAR_KEYWORD for parameter in known.values())
                wrong = {word.arg for word in node.keywords if word.arg} - known.keys()
                assert free or not wrong, f"{ast.unparse(node.func)} has no {wrong}"


def test_help_of_the_lab_is_as_whole_as_that_of_the_queue() -> None:
    """`lab.map` is what people call, and ask about."""
    (shared,) = re.findall(r"(Parameters\n-+.*)", inspect.getdoc(dq.QueuePool.map) or "", re.DOTALL)

    assert (inspect.getdoc(dq.Lab.map) or "").endswith(shared)


def test_examples_in_docstrings_are_true(lab: dq.Lab) -> None:
    finder, runner = doctest.DocTestFinder(recurse=False), doctest.DocTestRunner()
    for documented in (dq.QueuePool.map,):
        for test in finder.find(documented, globs={"lab": lab, "dq": dq}):
            assert test.examples
            assert runner.run(test).failed == 0


@pytest.mark.long
def test_every_method_of_a_document_and_a_listing_has_an_example_and_those_that_can_run_are_true() -> None:
    finder, runner = doctest.DocTestFinder(recurse=False), doctest.DocTestRunner()
    for owner in (dq.Documents, dq.Document):
        for name, method in vars(owner).items():
            documented = getattr(method, "__func__", method)
            if name.startswith("_") or not inspect.isfunction(documented):
                continue
            tests = [test for test in finder.find(documented, globs={"dq": dq}) if test.examples]
            assert tests, f"{owner.__name__}.{name} has no example"
            assert all(runner.run(test).failed == 0 for test in tests)


def test_every_word_of_the_glossary_has_one_entry() -> None:
    """It had *position* twice, with two meanings."""
    headings = re.findall(r"^\*\*(.+?)\*\* \W ", (ROOT / "docs" / "glossary.md").read_text(), re.MULTILINE)
    words = [word for heading in headings for word in heading.split(", ")]

    assert len(words) > 50
    assert [word for word in words if words.count(word) > 1] == []


def test_every_page_is_listed_in_the_index() -> None:
    """A decision that nobody finds is made a second time."""
    index = (ROOT / "docs/index.md").read_text()
    pages = [str(page.relative_to(ROOT / "docs")) for page in PAGES if page.parent != ROOT and page.name != "index.md"]

    assert [page for page in pages if f"({page})" not in index] == []


def test_every_recipe_runs(lab: dq.Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the order of the page, in one notebook, over files that a reader might have."""
    (tmp_path / "texts").mkdir()
    with zipfile.ZipFile(tmp_path / "texts.zip", "w") as archive:
        for number in range(40):
            text = "the word " * number
            (tmp_path / f"texts/{number:02}.txt").write_text(text)
            archive.writestr(f"{number:02}.txt", text)
    pd.DataFrame({"id": range(7), "abstract": ["word " * n for n in range(1, 8)]}).to_csv(tmp_path / "papers.csv")
    notes = [{"id": str(n), "text": "ä" * n} for n in range(12)]
    (tmp_path / "notes.jsonl").write_text("".join(f"{json.dumps(note)}\n" for note in notes), encoding="utf-8")
    pd.DataFrame(notes).to_csv(tmp_path / "notes.csv", index=False)
    monkeypatch.chdir(tmp_path)
    lab.client.run(os.chdir, tmp_path)  # as workers of a notebook's own cluster have it
    names: dict[str, Any] = {"lab": lab, "__name__": "__main__"}

    for block in examples("recipes.md"):
        block.run(names)

    assert names["flat"] == [9 * n for n in range(40)]
    assert list(names["words"]) == [2 * n for n in range(40)]
    assert names["long"]["length"].tolist() == [5 * n for n in range(3, 8)]
    assert names["joined"]["long"].tolist() == [5 * n > 20 for n in range(1, 8)]
    assert names["total"] == {"the": 780, "word": 780}
    assert names["of_json"] == names["of_csv"] == list(range(12))
    assert list(names["counts"]) == list(range(40))
    assert names["beginnings"] == ["", *["the"] * 39]
    assert names["noise"] == [names["noisy"](n) for n in range(50)]
    assert names["answers"] == [2 * n for n in range(100)]
    assert pd.read_parquet("squares.parquet")["square"].tolist() == [n**2 for n in range(2_500)]


def _made(tree: ast.AST) -> Iterator[str]:
    """Yield the names that code makes."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name) | ast.ExceptHandler(name=str(name)):
                yield name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.alias(name=name, asname=given):
                yield given or name.partition(".")[0]


RECIPES = examples("recipes.md")


@pytest.mark.parametrize("block", [pytest.param(block, id=str(block)) for block in RECIPES])
def test_each_recipe_stands_alone(block: Block) -> None:
    """A recipe that was copied into a script failed by names that the one before had made."""
    tree = ast.parse(f"{RECIPES[0].text}\n{block.text}")

    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert used - {*_made(tree), "lab", *dir(builtins)} == set()


def test_the_examples_of_documents_run(lab: dq.Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over archives and PDFs that a reader might have."""
    pages = {f"p/{at}.html": f"<p>page {at}</p><script>x</script>" for at in range(5)}
    (tmp_path / "dumps").mkdir()
    (tmp_path / "papers").mkdir()
    for path in ("dump.zip", "dumps/2024.zip", "dumps/2025.zip"):
        with zipfile.ZipFile(tmp_path / path, "w") as archive:
            for name, text in pages.items():
                archive.writestr(name, text)
    with tarfile.open(tmp_path / "notes.tar.gz", "w:gz") as tar:
        tar.add(tmp_path / "dump.zip", "a/dump.zip")
    for at, count in enumerate((3, 90, 41)):
        (tmp_path / f"papers/{at}.pdf").write_bytes(make_pdf(*(f"paper {at} {n}" for n in range(count))))
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"lab": lab, "__name__": "__main__"}

    for block in examples("documents.md"):
        block.run(names)

    assert dict(names["words"].items()) == dict.fromkeys(pages, 2)
    assert dict(names["of_papers"].items()) == {"0.pdf": 9, "1.pdf": 270, "2.pdf": 123}
    assert names["titles"] == ["paper 0 0", "paper 0 1", "paper 0 2"]
    assert [document.key for document in names["both"]] == [
        f"{year}.zip/{key}" for year in (2024, 2025) for key in pages
    ]
    assert list(names["sizes"]) == [(tmp_path / "dump.zip").stat().st_size]
    assert [document.key for document in names["parts"]] == [
        *("0.pdf", "1.pdf#p1-40of90", "1.pdf#p41-80of90", "1.pdf#p81-90of90", "2.pdf#p1-40of41", "2.pdf#p41-41of41")
    ]
    assert {key: len(lengths) for key, lengths in names["whole"].items()} == {"0.pdf": 3, "1.pdf": 90, "2.pdf": 41}
    assert len(names["small"]) == len(names["some"]) == len(names["long"]) == 3
    assert names["long"][0].key == "1.pdf"


def test_the_examples_of_rows_run(lab: dq.Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the order of the page, in one notebook, over tables that a reader might have."""
    frame = pd.DataFrame({"id": range(100, 140), "title": [f"title {n}" for n in range(40)]})
    frame["abstract"] = ["word " * n for n in range(40)]
    frame[:20].to_parquet(tmp_path / "papers-1.parquet")
    frame[20:].to_parquet(tmp_path / "papers-2.parquet")
    frame.assign(year=range(1980, 2020)).to_csv(tmp_path / "papers.csv", index=False)
    notes = "".join(f'{{"id": "{n}", "text": "{"♥" * n}"}}\n' for n in range(12))
    (tmp_path / "notes.jsonl.gz").write_bytes(gzip.compress(notes.encode()))
    (tmp_path / "broken.jsonl").write_text('{"id": "a", "text": "x"}\n{"id": "b", \n')
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"lab": lab, "__name__": "__main__"}

    for block in examples("map-over-rows.md"):
        block.run(names)

    assert names["joined"]["words"].tolist() == list(range(40))
    assert names["joined"]["title_x"].tolist() == names["joined"]["title_y"].tolist() == frame["title"].tolist()
    assert names["frame"]["short"].tolist() == [5 * n < 20 for n in range(40)]
    assert dict(names["hearts"].items()) == {str(n): n for n in range(12)}
    assert list(names["years"]) == list(range(1980, 2020))
    assert (list(names["good"]), names["reasons"]) == (["x"], {"broken.jsonl:1": "RecordInvalid"})


@pytest.mark.filterwarnings("ignore:values of run 'odd-numbers'")  # the page says so
def test_results_come_out_as_the_page_says(lab: dq.Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the order of the page, in one notebook."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"lab": lab, "__name__": "__main__"}
    for block in examples("results.md"):
        block.run(names)

    assert names["beside"]["value"].tolist() == [5, 7]
    assert names["beside"].index.tolist() == [1, 3]
    assert names["table"].head(3)["n"].to_pylist() == [2, 3, 1]
    assert names["frame"]["n"].to_list() == names["whole"]["n"].to_pylist() == [2, 3, 1, 4]
    assert names["total"] == 10
    assert names["mean"].to_dict("list") == {"year": [2001, 2002], "n": [1.5, 3.5]}
    assert names["joined"]["n"].tolist() == [2, 3, 1, 4]
    assert pd.read_parquet("out").n.tolist() == pd.read_parquet("words.parquet").n.tolist() == [2, 3, 1, 4]
    assert str(names["made"]).endswith("dataset: 4 rows, 0 failures")
    assert names["texts"] == names["from_table"]
    assert [text["n"] for text in names["texts"]] == names["whole"]["n"].to_pylist()
    assert [row["_rest"] for row in names["kept"]] == [None, '{"n":"even"}', None, '{"n":"even"}']


def test_typed_results_are_as_the_page_says(lab: dq.Lab) -> None:
    """In the order of the page, in one notebook."""
    names: dict[str, Any] = {"lab": lab, "__name__": "__main__"}
    for block in examples("typed-results.md"):
        block.run(names)

    assert names["invoices"][1].lines == [names["Line"]("work", 20.0)]
    assert names["table"].schema.field("note").type == "string"
    assert list(names["texts"].results()) == [names["Line"]("a", 1.0), names["Line"]("bc", 2.0)]
    assert [answer.number for answer in names["answers"]] == [9]
    assert names["invalid"].message.startswith("the answer is no Invoice: field 'number': 'unknown' is no int. ")


def test_examples_of_documents_are_true(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    finder, runner = doctest.DocTestFinder(recurse=False), doctest.DocTestRunner()
    constructors = ("from_parquet", "from_frame", "from_dask", "from_hf", "from_jsonl", "from_csv")
    for documented in (*(getattr(dq.Documents, name) for name in constructors), dq.Document.row):
        for test in finder.find(documented, documented.__doc__ and "example", globs={"dq": dq}):
            assert test.examples
            assert runner.run(test).failed == 0


def test_the_examples_of_the_checkup_run(lab: dq.Lab, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {"lab": lab}

    for block in examples("find-out-what-is-wrong.md"):
        block.run(names)

    assert names["checkup"].to_dict()["findings"]
    assert bool(names["checkup"]) is not bool(names["checkup"].problems)
    assert len(capsys.readouterr().out.splitlines()) == len(names["checkup"].problems)


def test_the_example_of_a_busy_service_runs(lab: dq.Lab) -> None:
    """The page is where users with an API look first."""
    names: dict[str, Any] = {"dq": dq, "lab": lab}
    exec(compile(examples("call-an-api.md")[-1].text, "call-an-api.md", "exec"), names)

    assert names["fetched"] == list(range(200))


def test_the_example_of_crashes_runs(lab: dq.Lab, queue_name: str) -> None:
    """Each document has a process around it, and the limits that the page shows."""
    block, more = examples("isolate-crashes.md")
    pool = lab.queue(queue_name)
    names: dict[str, Any] = {"lab": pool, "parse": lambda x: os.getpid(), "docs": list(range(20))}

    block.run(names)

    assert set(names["run"].results(timeout=60)).isdisjoint(lab.client.run(os.getpid).values())
    more.run(names)
    pool.close(force=True)


@pytest.mark.cluster
def test_the_examples_of_queues_on_disk_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In two processes' places: the second lab finds what the first one has left."""
    monkeypatch.chdir(tmp_path)
    first, again, second, _up, close = examples("keep-queues-on-disk.md")
    names: dict[str, Any] = {"count": lambda text: len(text.split()), "docs": ["a b", "c", "d e f"]}
    first.run(names)
    names["run"].wait(timeout=60)
    names.pop("lab").close()
    del names["run"]

    again.run(names)

    try:
        assert list(names["run"].results(timeout=60)) == [2, 1, 3]
        other: dict[str, Any] = {"dq": dq, "address": names["lab"].session.link.address}
        second.run(other)
        assert other["lab"].session.link.address == names["lab"].session.link.address
        assert list(other["lab"].attach("word-count").results(timeout=60)) == [2, 1, 3]
        names["lab"].queue("pages").put([1])
        close.run(names)
        assert [each.name.partition("-")[0] for each in sorted((tmp_path / "runs").iterdir())] == ["default", "pages"]
    finally:
        names["lab"].close()


def test_the_examples_of_logs_of_a_history_and_of_a_script_run(lab: dq.Lab) -> None:
    logs, track, block, script = examples("watch-what-happens.md")
    pool = lab.queue("pages")
    pool.map(abs, range(1_000)).wait(timeout=60)
    names: dict[str, Any] = {"lab": lab, "work": abs, "documents": range(3), "dq": dq}

    logs.run(names)
    assert names["run"].logs(3) == "parsing 3\n"
    names["run"].drop()
    track.run(names)
    block.run(names)
    script.run(names)

    assert len(names["timeline"].to_frame()) == len(names["timeline"]) > 0
    pool.close(force=True)


@pytest.mark.cluster
def test_the_script_of_the_readme_runs_as_it_stands(tmp_path: Path) -> None:
    """It is what people copy first; the standard library's sources are on every machine."""
    (block,) = examples("README.md")
    (tmp_path / "script.py").write_text(block.text)

    ended = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )

    assert ended.returncode == 0, ended.stderr
    assert "'dead': 0" in ended.stdout.splitlines()[-1]


def test_how_to_install_is_the_readmes_and_one_page_lists_the_extras_there_are() -> None:
    """Pages had `'dqlab[lab]'`, which finds nothing before the first installation from a clone."""
    said = {page.name: re.findall(r"pip install '?(?:\.|dqlab)\[", page.read_text()) for page in PAGES}
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = {name for page in PAGES for name in re.findall(r"extras? `(\w+)`", page.read_text())}

    listed = {*re.findall(r"`(\w+)`", (ROOT / "docs/reference/where-it-runs.md").read_text())}
    assert {name for name, found in said.items() if found} == {"README.md", "where-it-runs.md"}
    assert named - extras.keys() == set()
    assert {*named, *extras} - {"test", "dev"} <= listed


def test_a_word_that_no_command_has_is_noticed() -> None:
    with pytest.raises(UsageError):
        COMMANDS["submit"].parse(["--ovr", "docs"])
