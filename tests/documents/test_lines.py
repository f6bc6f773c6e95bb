"""Records of JSON lines and CSV files: where each begins and ends, what it holds, and what is refused."""

from __future__ import annotations

import bz2
import codecs
import csv
import gzip
import io
import json
import lzma
import os
import pickle
import random
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import fsspec
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.spec import AbstractBufferedFile
from hypothesis import given, settings
from hypothesis import strategies as st

import dqlab as dq
from dqlab.documents import lines
from dqlab.errors import (
    BadOption,
    ColumnNotFound,
    DocumentChanged,
    DocumentError,
    FileUnreadable,
    RecordInvalid,
)
from tests.kit.compressed import zstd_compress
from tests.kit.sampled import examples, mostly_slow

COMPRESSED: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstd_compress,
}


@pytest.fixture(autouse=True)
def _nothing_open() -> Iterator[None]:
    lines._FILES.clear()
    yield
    lines._FILES.clear()


def notes(n: int, first: int = 0) -> bytes:
    records = [{"id": f"n{at}", "text": "ä" * (at % 50), "at": at} for at in range(first, first + n)]
    return "".join(f"{json.dumps(each, ensure_ascii=False)}\n" for each in records).encode()


@pytest.mark.parametrize("suffix", COMPRESSED)
def test_every_line_of_json_is_a_document(tmp_path: Path, suffix: str) -> None:
    """Compared with pandas, whatever the compression."""
    path = tmp_path / f"notes.jsonl{suffix}"
    path.write_bytes(COMPRESSED[suffix](notes(200)))
    frame = pd.read_json(io.BytesIO(notes(200)), lines=True)
    for key, keys in (("id", frame["id"].tolist()), ("at", frame["at"].tolist()), (None, None)):
        documents = list(dq.Documents.from_jsonl(path, key=key))

        assert [each.row for each in documents] == frame.to_dict("records")
        assert [each.key for each in documents] == (keys or [f"{path.name}:{at}" for at in range(200)])
        assert [each["at"] for each in reversed(documents)] == list(range(199, -1, -1))
        assert all(json.loads(each.text()) == each.row for each in documents[:9])
        assert all(len(pickle.dumps(each, 5)) <= 300 and pickle.loads(pickle.dumps(each)) == each for each in documents)


CELLS = st.text(st.characters(codec="utf-8", exclude_characters="\0\r"), max_size=8) | st.sampled_from(
    ['"', "\n", ",", '",\n"', " ", "\r\n", "\u2028", "\x0c", "\x85"]
)


@settings(max_examples=examples(150))
@given(
    st.lists(st.lists(CELLS, min_size=3, max_size=3), max_size=8),
    st.sampled_from([",", ";", "\t"]),
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from(["", ".gz"]),
    st.sampled_from([csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC]),
)
def test_records_of_csv_are_those_of_pythons_own_reader(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[list[str]],
    delimiter: str,
    end: str,
    suffix: str,
    quoting: Any,
) -> None:
    """Quoted cells hold line ends, delimiters and quotes."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter=delimiter, lineterminator=end, quoting=quoting)
    writer.writerows([["a", "b", "c"], *rows])
    path = tmp_path_factory.getbasetemp() / f"any.csv{suffix}"
    path.write_bytes(COMPRESSED[suffix](text.getvalue().encode()))
    lines._FILES.clear()
    documents = list(dq.Documents.from_csv(path, delimiter=delimiter))

    assert [list(each.row.values()) for each in documents] == rows
    assert [list(each.row) for each in documents] == [["a", "b", "c"]] * len(rows)


def test_csv_as_other_programs_write_it_is_read(tmp_path: Path) -> None:
    """A mark at its head, blank lines, no line end at its end, quotes inside of cells, other encodings."""
    path = tmp_path / "a.csv"
    path.write_bytes('\ufeffid,size\r\n\r\na,5" pipe\r\n"b ""x""",\r\nc,"1\n2"'.encode())
    assert [each.row for each in dq.Documents.from_csv(path, key="id")] == [
        {"id": "a", "size": '5" pipe'},
        {"id": 'b "x"', "size": ""},
        {"id": "c", "size": "1\n2"},
    ]
    path.write_bytes("id;n\nä;1\n".encode("latin-1"))
    (document,) = dq.Documents.from_csv(path, key="id", delimiter=";", encoding="latin-1")
    assert (document.key, document["n"], document.text(encoding="latin-1")) == ("ä", "1", "ä;1")


def test_blank_lines_and_marks_are_no_records_of_json(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"a": 1}\r\n\n  \n  {"a": 2}  \n{"a": 3}')

    assert [each["a"] for each in dq.Documents.from_jsonl(path)] == [1, 2, 3]
    path.write_bytes(b"")
    assert list(dq.Documents.from_jsonl(path)) == []


def test_whole_numbers_and_texts_that_look_alike_are_two_keys(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b'{"id": 7}\n{"id": "7"}\n{"id": ""}\n{"id": "\\u0000i7"}\n')

    assert [each.key for each in dq.Documents.from_jsonl(tmp_path / "a.jsonl", key="id")] == [7, "7", "", "\0i7"]


# --- versions -------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_a_log_that_grows_keeps_the_versions_of_its_lines_and_they_stay_readable(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / "log"
    path.write_bytes(COMPRESSED[suffix](notes(5).rstrip()))
    before = list(dq.Documents.from_jsonl(path))
    assert before[4]["at"] == 4
    path.write_bytes(COMPRESSED[suffix](notes(9)))
    after = list(dq.Documents.from_jsonl(path))

    assert after[:5] == before
    assert [each["at"] for each in after] == list(range(9))
    assert [each["at"] for each in before] == list(range(5))


def test_an_edited_line_is_another_document_and_the_listed_one_has_changed(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(notes(5))
    before = list(dq.Documents.from_jsonl(path, key="id"))
    path.write_bytes(notes(5).replace(b'"at": 2', b'"at": 7'))

    assert [each["at"] for each in before[:2]] == [0, 1]
    with pytest.raises(
        DocumentChanged,
        match=r"document 'n2' has changed since it was listed.*None of it.*It is a row: map the rows again",
    ):
        before[2]["at"]
    assert [new == old for new, old in zip(dq.Documents.from_jsonl(path, key="id"), before, strict=True)] == [
        *(True, True, False, True, True)
    ]
    path.write_bytes(notes(1))
    with pytest.raises(DocumentChanged):
        before[4].text()
    path.unlink()
    lines._FILES.clear()
    with pytest.raises(FileNotFoundError):
        before[4].text()


def test_other_names_at_the_head_of_a_csv_file_make_other_documents(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("id,x\n1,2\n")
    (before,) = dq.Documents.from_csv(path)
    path.write_text("id,y\n1,2\n")
    (after,) = dq.Documents.from_csv(path)

    assert after.version != before.version
    assert after["y"] == "2"
    with pytest.raises(DocumentChanged):
        before["x"]


# --- refused --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b'{"id": ', "is not JSON: JSONDecodeError"),
        (b"[1, 2]", "is a JSON list, not an object"),
        (b"7", "is a JSON int"),
        (b'{"id": "\xff"}', "is not text in utf-8: .* at its byte 8"),
        (b"[" * 100_000, "is not JSON: RecursionError|is not JSON"),
        (b'{"x":' + b"9" * 5_000 + b"}", "is not JSON: ValueError"),
    ],
)
def test_a_line_that_is_not_json_fails_by_name_and_alone(tmp_path: Path, line: bytes, said: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(notes(2) + line + b"\n" + notes(2, 2))
    documents = list(dq.Documents.from_jsonl(path, key="id"))

    assert [each.key for each in documents] == ["n0", "n1", "a.jsonl:2", "n2", "n3"]
    assert [each["at"] for each in (*documents[:2], *documents[3:])] == [0, 1, 2, 3]
    for asked in (lambda: documents[2].row, lambda: documents[2]["id"]):
        with pytest.raises(
            RecordInvalid, match=rf"document 'a.jsonl:2', [\d,]+ bytes? from byte \d+.*{said}.*Correct the file"
        ):
            asked()
    assert documents[2].bytes() == line.strip()


@pytest.mark.parametrize(
    ("line", "key", "said"),
    [
        (b"x", "x", "has 1 cell, and the first line of the file 2"),
        (b"x,1,2", "x", "has 3 cells"),
        (b"\xff,1", "a.csv:1", "is not text in utf-8"),
        (b"x\ry,1", "a.csv:1", "is not CSV: new-line character"),
    ],
)
def test_a_row_of_csv_with_other_cells_fails_by_name_and_alone(
    tmp_path: Path, line: bytes, key: str, said: str
) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"id,n\na,1\n" + line + b"\nb,2\n")
    documents = list(dq.Documents.from_csv(path, key="id"))

    assert [each.key for each in documents] == ["a", key, "b"]
    assert [documents[at]["n"] for at in (0, 2)] == ["1", "2"]
    with pytest.raises(RecordInvalid, match=said):
        documents[1]["n"]


@pytest.mark.parametrize(
    "end", [b'"2\nc,3\nd,4\n', b'"2\nc,3\nd,4', b'"2', b'"', b'"2""\n', b'"2\n\n\n', b'"2\r\nc,3\r\n']
)
def test_a_quote_without_an_end_takes_the_rest_and_fails_alone(tmp_path: Path, end: bytes) -> None:
    """Its cell had all rows that follow, and nothing said so."""
    path = tmp_path / "a.csv"
    path.write_bytes(b"id,n\na,1\nb," + end)
    first, second = dq.Documents.from_csv(path, key="id")

    assert (first["n"], second.key) == ("1", "a.csv:1")
    with pytest.raises(RecordInvalid, match=r"is not CSV: unexpected end of data.*doubles quotes"):
        second.row  # noqa: B018


@pytest.mark.parametrize(
    "table",
    [
        pytest.param('1\t"a\n2\t"b\n3\tc\n', id="quotes that quote nothing"),
        pytest.param('1\t"say \\"hi\\""\n2\t"a\t\\"b\\" c"\n3\tc\n', id="backslashes"),
        pytest.param('1\t"a" \n3\tc\n', id="a space behind a quote"),
    ],
)
def test_a_quote_that_ends_before_its_cell_fails_its_row(tmp_path: Path, table: str) -> None:
    """Databases and Spark write such files: cells lost their quotes, two rows became one, and all in silence."""
    (tmp_path / "a.tsv").write_text("id\ttext\n" + table)
    *others, last = dq.Documents.from_csv(tmp_path / "a.tsv", delimiter="\t")

    assert last.row == {"id": "3", "text": "c"}
    assert others
    for each in others:
        with pytest.raises(RecordInvalid, match=r"expected after.*pd\.read_csv"):
            each["text"]


@pytest.mark.parametrize("cell", ['"2"', '"2""x"', 'a"b', 'a"', '"2\n"', '""', '"a\n\n\n"'])
@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_a_last_row_with_quotes_is_read_as_pythons_own_reader_does(tmp_path: Path, cell: str, end: str) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(f"id,n\nb,{cell}{end}".encode())

    (by_hand,) = csv.reader(io.StringIO(f"b,{cell}{end}", newline=""))
    assert [each["n"] for each in dq.Documents.from_csv(path)] == [by_hand[1]]


def test_unknown_names_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(notes(1))
    (tmp_path / "a.csv").write_bytes(b"title,n\na,1\n")

    with pytest.raises(ColumnNotFound, match="Did you mean 'text'"):
        dq.Documents.from_jsonl(tmp_path / "a.jsonl")[0]["txt"]
    with pytest.raises(ColumnNotFound, match=r"Did you mean 'title'.*Nothing was submitted. Columns: 'title', 'n'"):
        dq.Documents.from_csv(tmp_path / "a.csv", key="titel")


def test_keys_that_are_missing_or_repeat_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    for text, error, said in (
        ('{"id": 1}\n{"x": 1}\n', DocumentError, "row 1 .* 'id' is null"),
        ('{"id": null}\n', DocumentError, "row 0"),
        ('{"id": 1.0}\n', DocumentError, "type float"),
        ('{"id": [1]}\n', DocumentError, "type list"),
        ('{"id": true}\n', DocumentError, "type bool"),
        ('{"id": 1}\n{"id": 2}\n{"id": 1}\n', DocumentError, "1 comes again in a.jsonl:2"),
    ):
        path.write_text(text)
        with pytest.raises(error, match=said):
            list(dq.Documents.from_jsonl(path, key="id"))


@pytest.mark.long
@pytest.mark.parametrize("suffix", mostly_slow([".gz", ".bz2", ".xz", ".zst"], ".gz", ".zst"))
def test_a_compressed_file_that_was_cut_off_ends_the_listing_by_name(tmp_path: Path, suffix: str) -> None:
    random.seed(1)
    text = b"".join(b'{"x": "%030x"}\n' % random.getrandbits(120) for _ in range(50_000))
    path = tmp_path / f"a.jsonl{suffix}"
    path.write_bytes(COMPRESSED[suffix](text)[:-20_000])
    documents = []

    with pytest.raises(
        FileUnreadable, match=rf"a.jsonl{suffix}' cannot be read as JSON lines: .*those before.*cut off"
    ):
        documents.extend(iter(dq.Documents.from_jsonl(path)))
    assert [each.row for each in documents[:3]] == [json.loads(line) for line in text.splitlines()[:3]]


def test_a_compressed_file_that_was_damaged_later_has_changed_or_is_unreadable(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(notes(20_000), 1))
    documents = list(dq.Documents.from_jsonl(path))
    damaged = bytearray(path.read_bytes())
    damaged[-2_000:] = bytes(2_000)
    path.write_bytes(damaged)

    with pytest.raises((FileUnreadable, DocumentChanged), match=r"a.jsonl.gz"):
        _ = documents[-1].row
    assert documents[0]["at"] == 0


def test_an_error_of_the_network_is_not_taken_for_damage() -> None:
    """The file is whole, and need not be fetched or written again."""

    def stream() -> Iterator[bytes]:
        yield b'{"id": 1}\n'
        raise OSError("Server disconnected")

    with pytest.raises(OSError, match=r"^Server disconnected$") as caught:
        list(lines.records(cast(Any, stream()), "", 0, "s3://bucket/a.jsonl"))

    assert type(caught.value) is OSError


@pytest.mark.parametrize(
    ("head", "said"),
    [
        (b"PAR1", "a Parquet file"),
        (b"PK\x03\x04", "a zip archive"),
        (b"\xff\xfe{\0", "text in UTF-16"),
        (b"\xff\xfe\0\0{\0\0\0", "text in UTF-32"),
        (b"\0\0\xfe\xff\0\0\0{", "text in UTF-32"),
    ],
)
def test_files_of_other_formats_in_one_pattern_are_named(tmp_path: Path, head: bytes, said: str) -> None:
    (tmp_path / "a.jsonl").write_bytes(notes(2))
    (tmp_path / "b.bin").write_bytes(head + bytes(100))
    documents = iter(dq.Documents.from_jsonl(tmp_path / "*"))

    assert [next(documents)["at"] for _ in range(2)] == [0, 1]
    with pytest.raises(FileUnreadable, match=rf"b.bin' cannot be read as JSON lines: it is {said}.*Leave it out"):
        next(documents)


def test_csv_files_say_what_is_wrong_with_their_first_line(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("")
    with pytest.raises(FileUnreadable, match=r"a.csv' cannot be read as CSV: it is empty.*Give it a first line"):
        dq.Documents.from_csv(path)
    for first in ('id,"x\n1,2\n3,4\n', '\ufeff"id,x\n1,2\n'):
        path.write_text(first)
        with pytest.raises(FileUnreadable, match=r"quotes in its first line do not pair up.*doubles quotes"):
            dq.Documents.from_csv(path)
    path.write_text("id,x\n")
    assert list(dq.Documents.from_csv(path, key="id")) == []


@pytest.mark.parametrize(
    "options",
    [
        {"delimiter": ""},
        {"delimiter": '"'},
        {"delimiter": ", "},
        {"delimiter": 7},
        {"encoding": "utf-16"},
        {"encoding": "no"},
    ],
)
def test_options_of_csv_are_checked(tmp_path: Path, options: dict[str, Any]) -> None:
    (tmp_path / "a.csv").write_text("id\n1\n")

    with pytest.raises(BadOption, match="Nothing was listed"):
        dq.Documents.from_csv(tmp_path / "a.csv", **options)


def _listed(documents: dq.Documents) -> tuple[list[Any], BaseException]:
    """Return the keys that come before an error, and the error."""
    keys = []
    with pytest.raises((DocumentError, FileUnreadable)) as caught:  # noqa: PT012
        for document in documents:
            keys.append(document.key)
    return keys, caught.value


def _rows_with(path: Path, kind: str, ids: list[Any]) -> dq.Documents:
    """Return a listing of rows with these keys."""
    match kind:
        case "parquet" | "where":
            pq.write_table(pa.table({"id": ids}), path, row_group_size=500)
            rows = dq.Documents.from_parquet(path, key="id")
            return rows.where("version != ''") if kind == "where" else rows
        case "arrow":
            return dq.Documents.from_frame(pa.table({"id": ids}), key="id")
        case "pandas":
            return dq.Documents.from_frame(pd.DataFrame({"id": pd.Series(ids, dtype=object)}), key="id")
        case "index":
            return dq.Documents.from_frame(pd.DataFrame({"n": range(len(ids))}, index=pd.Index(ids, dtype=object)))
        case "jsonl":
            path.write_text("".join(json.dumps({"id": each}) + "\n" for each in ids))
            return dq.Documents.from_jsonl(path, key="id")
    path.write_text("id\n" + "".join(f"{each}\n" for each in ids))
    return dq.Documents.from_csv(path, key="id")


BAD = {
    "missing": (None, DocumentError, "row 3,000 .*rows before it were listed"),
    "twice": (5, DocumentError, "5'? comes again in .*3000.*before it goes on"),
    "float": (1.5, DocumentError, "row 3,000 .*type float.*rows before it were listed"),
}


@pytest.mark.parametrize(
    ("kind", "bad"),
    [
        *((kind, bad) for kind in ("jsonl", "pandas", "index") for bad in BAD),
        *((kind, bad) for kind in ("parquet", "where", "arrow") for bad in ("missing", "twice")),
        ("csv", "twice"),
    ],
)
def test_all_rows_before_a_bad_key_are_listed(tmp_path: Path, kind: str, bad: str) -> None:
    value, error, said = BAD[bad]

    keys, met = _listed(_rows_with(tmp_path / "rows", kind, [*range(3000), value, 9000, value]))

    assert type(met) is error
    assert re.search(said, str(met), re.DOTALL)
    assert list(map(int, keys)) == list(range(3000))


def test_a_key_that_repeats_within_a_block_is_met_behind_what_comes_before(tmp_path: Path) -> None:
    for kind in ("parquet", "arrow"):
        keys, met = _listed(_rows_with(tmp_path / "rows", kind, [7, 8, 8, None, 7]))

        assert (keys, type(met)) == ([7, 8], DocumentError)


def _files_of_each_kind(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    frame = pd.DataFrame({"id": [1, 2]})
    frame.to_parquet(folder / "a.parquet")
    frame.to_json(folder / "a.jsonl", orient="records", lines=True)
    frame.to_csv(folder / "a.csv", index=False)


KINDS = ("parquet", "jsonl", "csv")


@pytest.mark.parametrize("text", [b"a,b\r1,2\r3,4\r", b"a,b\r1,2", b"a,b\rc\n1,2\n"])
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_csv_whose_lines_end_with_a_carriage_return_alone_is_refused_by_name(
    tmp_path: Path, text: bytes, suffix: str
) -> None:
    path = tmp_path / f"a.csv{suffix}"
    path.write_bytes(COMPRESSED[suffix](text))

    with pytest.raises(FileUnreadable, match=r"a\.csv.*' cannot be read as CSV: .*carriage return.*Convert .*newline"):
        dq.Documents.from_csv(path)


def test_a_row_with_a_carriage_return_outside_of_quotes_fails_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b'a,b\n1,2\r3,4\n"5\r",6\n\r\r\n7,8\n')
    first, *others = dq.Documents.from_csv(path)

    with pytest.raises(RecordInvalid, match=r"document 'a.csv:0'.*is not CSV: new-line character.*Correct"):
        _ = first.row
    assert [each.row for each in others] == [{"a": "5\r", "b": "6"}, {"a": "7", "b": "8"}]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("given", [("a.{}", "*.{}"), ("a.{}", "a.{}"), ("a.{}", "./a.{}"), ("*.{}", "x/../a.{}", "**")])
def test_a_file_that_several_patterns_match_is_listed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, given: tuple[str, ...]
) -> None:
    """Twice, its keys would repeat, and results could not be joined with rows."""
    monkeypatch.chdir(tmp_path)
    _files_of_each_kind(tmp_path / "x")
    for other in set(KINDS) - {kind}:
        (tmp_path / "x" / f"a.{other}").unlink()
    (tmp_path / "x" / f"a.{kind}").rename(f"a.{kind}")
    listing = getattr(dq.Documents, f"from_{kind}")([each.format(kind) for each in given])

    assert [each.key for each in listing] == [f"a.{kind}:0", f"a.{kind}:1"]
    assert len(listing) == 2


@pytest.mark.parametrize("kind", KINDS)
def test_files_of_one_name_in_several_folders_have_keys_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("x", "y"):
        _files_of_each_kind(tmp_path / name)

    listing = getattr(dq.Documents, f"from_{kind}")([f"x/*.{kind}", f"./y/*.{kind}"])

    assert [each.key for each in listing] == [f"{at}/a.{kind}:{n}" for at in ("x", "./y") for n in (0, 1)]


class InBlocks(fsspec.AbstractFileSystem):  # type: ignore[misc]
    """Files of this machine, read block by block as behind a store, with the size that each had when it was opened."""

    protocol, cachable = "inblocks", False

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        return {"name": path, "size": Path(path).stat().st_size, "type": "file"}

    def _open(self, path: str, mode: str = "rb", **_: Any) -> Any:
        class File(AbstractBufferedFile):  # type: ignore[misc]
            def _fetch_range(self, start: int, end: int) -> bytes:
                return Path(path).read_bytes()[start:end]

        return File(self, path, mode, block_size=4_096, cache_type="readahead")


@pytest.mark.parametrize("scheme", ["", "inblocks://"])
@pytest.mark.parametrize("form", ["jsonl", "csv"])
def test_a_file_that_becomes_shorter_while_it_is_listed_ends_the_listing_by_name(
    tmp_path: Path, form: str, scheme: str
) -> None:
    """What writes a file again empties it first: its listing ended there, and a run over it was complete."""
    fsspec.register_implementation("inblocks", InBlocks, clobber=True)
    path = tmp_path / f"a.{form}"
    text = notes(3_000) if form == "jsonl" else b"id\n" + b"".join(b"%d\n" % at for at in range(100_000))
    path.write_bytes(text)
    documents = iter(getattr(dq.Documents, f"from_{form}")(f"{scheme}{path}"))
    next(documents)
    path.write_bytes(text[:2_000])

    with pytest.raises(FileUnreadable, match=r"ended at byte .* of [\d,]+ .*written again.*wait until it is whole"):
        list(documents)


def test_a_log_that_grows_while_it_is_listed_is_listed(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(notes(30_000))
    documents = iter(dq.Documents.from_jsonl(path, key="id"))
    first = next(documents).key
    with path.open("ab") as log:
        log.write(notes(10, 30_000))

    assert [first, *(each.key for each in documents)][:30_000] == [f"n{at}" for at in range(30_000)]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes have no names here")
def test_a_pipe_is_refused_rather_than_waited_for(tmp_path: Path) -> None:
    """Opening one waits until somebody writes into it, and it cannot be listed again."""
    os.mkfifo(tmp_path / "a.jsonl")

    for make in (dq.Documents.from_jsonl, dq.Documents.from_csv, dq.Documents.from_parquet):
        with pytest.raises(BadOption, match=r"neither a file nor a folder.*Write what it gives to a file"):
            make(tmp_path / "a.jsonl")


# --- cost -----------------------------------------------------------------------------------


def test_ascending_reads_of_a_compressed_file_never_start_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And going back starts over, and is right all the same."""
    monkeypatch.setattr(lines, "BLOCK", 1 << 12)
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(notes(3_000)))
    documents = list(dq.Documents.from_jsonl(path))
    found: list[int] = []
    threads = [
        threading.Thread(target=lambda at=at: found.extend(d["at"] for d in documents[at::3])) for at in range(3)
    ]
    assert [each["at"] for each in documents] == list(range(3_000))
    (file,) = [slot.value for slot in lines._FILES._open.values()]
    assert file._forward.starts == 1

    assert [documents[at]["at"] for at in (2_999, 0, 2_000, 1_000)] == [2_999, 0, 2_000, 1_000]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == list(range(3_000))
    assert file._forward.starts <= 6


def test_odd_files_are_read_as_they_are(tmp_path: Path) -> None:
    """Several streams in one gzip file, a name that lies about compression, nothing at all."""
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(b'{"a": 1}\n') + gzip.compress(b'{"a": 2}\n'))
    (tmp_path / "b.jsonl.gz").write_bytes(b'{"a": 3}\n')
    (tmp_path / "c.jsonl.gz").write_bytes(b"")
    (tmp_path / "[d].jsonl").write_bytes(b'{"a": 4}\n')

    assert [each["a"] for each in dq.Documents.from_jsonl(tmp_path / "*.gz")] == [1, 2, 3]
    assert [each["a"] for each in dq.Documents.from_jsonl(tmp_path / "[d].jsonl")] == [4]


@pytest.mark.parametrize(
    ("encoding", "mark"),
    [("utf-8", codecs.BOM_UTF8), ("latin-1", codecs.BOM_UTF8), ("gb18030", "\ufeff".encode("gb18030"))],
)
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_a_mark_before_names_in_quotes_is_no_part_of_them(
    tmp_path: Path, encoding: str, mark: bytes, suffix: str
) -> None:
    """As Excel and others write it."""
    path = tmp_path / f"a.csv{suffix}"
    text = mark + b'"title, short","id"\r\n"x, y","1"\r\n'
    path.write_bytes(COMPRESSED[suffix](text))

    (found,) = dq.Documents.from_csv(path, key="id", encoding=encoding)

    assert (found.key, found.row) == ("1", {"title, short": "x, y", "id": "1"})


@settings(max_examples=examples(100))
@given(st.lists(st.sampled_from(["", "a", "a.1", "a.1.1", "Unnamed: 1", "Unnamed: 1.1", "b c"]), min_size=1))
def test_columns_are_named_as_by_pandas(names: list[str]) -> None:
    """Two empty names, as line ends of Excel leave them, made a file unreadable, with advice for frames."""
    rows = [names, [str(at) for at in range(len(names))], *([[*"x" * len(names)]] * 2)]
    text = "".join(",".join(f'"{cell}"' for cell in row) + "\n" for row in rows)
    expected = pd.read_csv(io.StringIO(text), index_col=False, dtype=str)
    stream = io.BufferedReader(io.BytesIO(text.encode()))  # type: ignore[arg-type]

    assert lines.header_of(stream, ",utf-8", "a.csv").names == tuple(expected.columns)


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("delimiter", [";", "\t", ","])
@pytest.mark.parametrize("line", ["sep={}\n", "\ufeffsep={}\r\n", '"SEP={}"\n'])
def test_the_delimiter_that_a_file_names_for_excel_is_its_own(
    tmp_path: Path, line: str, delimiter: str, suffix: str
) -> None:
    """Its line was taken for the names of the columns."""
    rows = 'id;"a;b"\n1;"x;\ny"\n2;"z\tz"\n'.replace(";", delimiter)
    (tmp_path / f"a.csv{suffix}").write_bytes(COMPRESSED[suffix]((line.format(delimiter) + rows).encode()))
    (tmp_path / f"b.csv{suffix}").write_bytes(COMPRESSED[suffix](b"id|a;b\n3|sep=;\n"))
    expected = pd.read_csv(io.StringIO(rows), sep=delimiter, dtype=str).to_dict("records")
    (first, *_) = names = list(expected[0])

    documents = dq.Documents.from_csv(tmp_path / f"*{suffix}", key=first, delimiter="|")
    found = pickle.loads(pickle.dumps(list(documents)))

    assert [each.key for each in found] == ["1", "2", "3"]
    assert [each.row for each in found[:2]] == expected
    assert [each[name] for each in found[:2] for name in names] == [row[name] for row in expected for name in names]
    assert found[2].row == {"id": "3", "a;b": "sep=;"}


def test_a_file_in_another_encoding_names_the_option(tmp_path: Path) -> None:
    """ "Correct the file" said of a file that needs no correction."""
    (tmp_path / "a.csv").write_bytes("id,name\n1,Zoë\n".encode("latin-1"))

    with pytest.raises(RecordInvalid, match=r"is not text in utf-8.*from_csv\(\.\.\., encoding='latin-1'\)"):
        next(iter(dq.Documents.from_csv(tmp_path / "*.csv"))).row  # noqa: B018
    assert next(iter(dq.Documents.from_csv(tmp_path / "*.csv", encoding="latin-1"))).row == {"id": "1", "name": "Zoë"}


def test_rows_whose_keys_are_in_another_encoding_are_called_by_their_places(tmp_path: Path) -> None:
    """Müller and Möller had one key, and repeated keys ended the listing; none of its words was about encodings."""
    (tmp_path / "a.csv").write_bytes("name,n\nMüller,1\nMöller,2\nSmith,ö\n\ufffd,4\n".encode("latin-1", "replace"))
    documents = list(dq.Documents.from_csv(tmp_path / "a.csv", key="name"))

    assert [each.key for each in documents] == ["a.csv:0", "a.csv:1", "Smith", "?"]
    with pytest.raises(RecordInvalid, match=r"'a.csv:0'.*from_csv\(\.\.\., encoding='latin-1'\)"):
        documents[0].row  # noqa: B018
    (tmp_path / "a.csv").write_text("name\n\ufffd\n")
    assert [each.key for each in dq.Documents.from_csv(tmp_path / "a.csv", key="name")] == ["\ufffd"]


def test_names_in_another_encoding_are_refused_at_once(tmp_path: Path) -> None:
    """A column was called 'Gr\ufffd\ufffde', and two of them the same."""
    (tmp_path / "a.csv").write_bytes("Größe,n\n1,2\n".encode("latin-1"))

    with pytest.raises(
        FileUnreadable, match=r"first line is not text in utf-8.*from_csv\(\.\.\., encoding='latin-1'\)"
    ):
        dq.Documents.from_csv(tmp_path / "a.csv")
    assert dq.Documents.from_csv(tmp_path / "a.csv", encoding="latin-1")[0].row == {"Größe": "1", "n": "2"}
    (tmp_path / "a.csv").write_text("a\ufffd,n\n1,2\n")
    assert dq.Documents.from_csv(tmp_path / "a.csv")[0].row == {"a\ufffd": "1", "n": "2"}


@pytest.mark.parametrize("indent", [1, 4])
@pytest.mark.parametrize("value", [[{"a": 1}, {"a": 2}], {"a": 1, "b": 2}])
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_a_file_that_is_one_json_document_is_refused_once(tmp_path: Path, value: Any, indent: int, suffix: str) -> None:
    """Each of its lines failed by itself, 26 times "Expecting value"."""
    path = tmp_path / f"a.jsonl{suffix}"
    path.write_bytes(COMPRESSED[suffix](json.dumps(value, indent=indent).encode()))

    with pytest.raises(FileUnreadable, match=r"one JSON document.*from_frame\(pd\.read_json\(.*json\.load"):
        list(dq.Documents.from_jsonl(path))
