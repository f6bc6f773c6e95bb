"""Runs and tables in terminals, notebooks without HTML, and logs."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dqlab.jupyter.grammar import split
from dqlab.live.run_picture import Focus, Standing, absent_view, run_view
from dqlab.live.style import TextStyle, columns, cut
from dqlab.live.tables import documents_table, failures_table, leases_table, results_table, runs_table, status_table
from dqlab.numbers import UNKNOWN
from dqlab.runs.queue_rows import leases_of
from dqlab.stats import ClassStats, ConsumerStats, Counts, RunState, RunStats, Snapshot
from dqlab.texts import as_word, one_line
from tests.live.drawn import html_of, screen_of, table_text

COLOUR, ASCII = TextStyle(colour=True), TextStyle(unicode=False)


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def test_screen_of_a_running_run(running: RunStats) -> None:
    """One screen answers everything; this is what `run` shows in a terminal."""
    assert screen_of(run_view(running)).split("\n")[:6] == [
        "parse-invoices  running   parse v4 on queue pages, 8 consumers",
        " 65.4 % ██████████████████████████████████████▚▌░░░░░░░░░░░░░░░░░░░░░░ of pages",
        "left   315,894 pages  16,121 documents  done  14:34 (14:32\N{EN DASH}14:38)",
        "speed  451 pages/s    60 s at work      dead  212 (0.66 %)",
        "● acked 31,877  ✕ dead 212  ◐ unacked 64  ○ ready 15,846  ◔ delayed 211",
        "dead  failure                              raised at",
    ]


def test_ascii_says_the_same(running: RunStats) -> None:
    """Old terminals and log viewers turn blocks into question marks."""
    screen = screen_of(run_view(running), ASCII)

    assert screen.isascii()
    assert re.search(r"65\.4 % \[#+x\*\.+\] of pages", screen)
    assert "acked 31,877  x dead 212  * unacked 64" in screen


def test_kinds_of_failures_that_are_not_listed_are_found_by_the_line_that_lists_them(
    running: RunStats, done: RunStats, snapshot: Snapshot
) -> None:
    """ "and 1 more: %dq doctor" stood below an ended run; the doctor counts dead letters, and names no kind of them."""
    crowded = replace(snapshot, attention_total=7)
    over, going = (run_view(stats, Focus(crowded)) for stats in (done, running))

    for text in (screen_of(over), html_of(over)):
        assert f"and 1 more: %dq failed {done.name}" in text
        assert "doctor" not in text
    assert "and 4 more: %dq doctor" in screen_of(going)


def test_colours_add_nothing_but_colour(running: RunStats) -> None:
    """A colour is never alone: without it the text is the same."""
    view = run_view(running)

    assert re.sub(r"\x1b\[\d*m", "", screen_of(view, COLOUR)) == screen_of(view)


@given(
    counts=st.lists(st.integers(0, 10**9), min_size=7, max_size=7),
    state=st.sampled_from(RunState),
    name=st.text(max_size=300),
    width=st.integers(20, 80),
    silent=st.booleans(),
)
def test_no_line_is_wider_than_the_terminal(
    counts: list[int], state: RunState, name: str, width: int, silent: bool
) -> None:
    """A line that wraps breaks the redraw in place."""
    stats = RunStats(name, name, state, Counts(*counts), total=sum(counts), why=name, at=10.0)
    view = run_view(stats, standing=Standing(silence=1 if silent else None))

    for style in (TextStyle(width=width, moves=True), TextStyle(width=width, moves=True, unicode=False)):
        assert all(columns(line) <= width for line in screen_of(view, style).split("\n"))


def test_a_run_that_goes_on_is_dated_where_it_is_saved_as_text(running: RunStats, done: RunStats) -> None:
    """A notebook on GitHub, or printed as text, said "running" and "48.1 documents/s" for ever."""
    saved = screen_of(run_view(running).as_saved()).split("\n")[0]

    assert saved == "parse-invoices  running   parse v4 on queue pages, as of 21 Nov 2026, 14:22:07"
    assert "as of" not in screen_of(run_view(running))
    assert "as of" not in screen_of(run_view(done).as_saved())


def test_first_screen_before_any_answer() -> None:
    """Nothing is shown as zero."""
    assert "asking for the first numbers" in screen_of(absent_view("x"))


@pytest.mark.parametrize(
    ("environ", "unicode", "colour", "moves"),
    [
        ({"TERM": "xterm", "LANG": "en_US.UTF-8"}, True, True, True),
        ({"TERM": "xterm", "LANG": "C"}, False, True, True),
        ({"TERM": "xterm", "LANG": "C", "LC_ALL": "en_US.UTF-8"}, True, True, True),
        ({"TERM": "xterm", "NO_COLOR": "1"}, True, False, True),
        ({"TERM": "dumb"}, True, False, False),
        ({}, True, False, False),
    ],
)
def test_terminals_are_taken_at_their_word(environ: dict[str, str], unicode: bool, colour: bool, moves: bool) -> None:
    """LANG, NO_COLOR and TERM are how people say what their terminal can do."""
    style = TextStyle.detect(Terminal(), environ)

    assert (style.unicode, style.colour, style.moves) == (unicode, colour, moves)


def test_a_pipe_gets_neither_colours_nor_cursor_moves() -> None:
    """Logs are read by grep."""
    style = TextStyle.detect(io.StringIO(), {"TERM": "xterm"})

    assert (style.colour, style.moves) == (False, False)


def test_status_lists_busy_queues_and_sums_them(snapshot: Snapshot) -> None:
    """Empty queues share a line; the total is exact."""
    lines = table_text(status_table(snapshot)).split("\n")

    assert lines[0] == "queue  state        ready  delayed  unacked  dead  in/s  out/s     lag    disk"
    assert lines[1] == "pages  running     15,846      211       64   212  0.40   23.9  23 min  1.8 GB"
    assert lines[3] == f"embed  paused      41,200        0        0     0     {UNKNOWN}      {UNKNOWN}  48 min   96 MB"
    assert lines[5] == "2 empty: thumbs, default"
    assert lines[6] == "in/s and out/s: mean of the last 60 s, rest included"
    assert lines[7] == "total              59,968      223      104   215  24.2   51.9          2.2 GB"


def test_a_queue_in_which_nothing_waits_has_no_lag(snapshot: Snapshot) -> None:
    """The status had "0 s" where the view of the lab had a dash."""
    held = replace(snapshot.queues[0], counts=Counts(leased=3), lag=0.0)
    table = status_table(replace(snapshot, queues=(held,)))

    (row,) = table.rows
    assert dict(zip([column.title for column in table.columns], row, strict=True))["lag"].text == UNKNOWN


@pytest.mark.parametrize("only", ["", "pages"])
def test_status_names_the_time_of_its_rates_while_they_are_known(snapshot: Snapshot, only: str) -> None:
    """A run of 22.6/s stood beside 5.53 out/s of its queue: one at work, the other over a minute."""
    over = "in/s and out/s: mean of the last 60 s, rest included"

    assert over in status_table(snapshot, only=only).notes
    assert over not in status_table(snapshot, only=only, stale=True).notes
    assert over not in status_table(replace(snapshot, queues=()), only=only).notes


def test_runs_are_a_table_that_says_what_it_leaves_out(running: RunStats) -> None:
    """Share, end, dead, speed and code at a glance."""
    lines = table_text(runs_table([running], hidden=3)).split("\n")

    assert lines[0].split() == ["run", "state", "done", "end", "dead", "pages/s", "code", "took"]
    assert lines[1].startswith(running.name)
    assert f"{running.code.name} v{running.code.version}" in lines[1]
    assert lines[-2:] == ["pages/s: 60 s at work", "and 3 more: %dq runs"]
    assert table_text(runs_table([])) == "no runs yet"


def test_speeds_of_runs_name_their_time(snapshot: Snapshot, running: RunStats, done: RunStats) -> None:
    """That of an ended run, over all of it, stood below those of the last minute."""
    assert runs_table([running]).notes[0] == "pages/s: 60 s at work"
    assert runs_table([done]).notes[0].startswith("pages/s: whole run")
    assert runs_table(snapshot.runs).notes[0] == "per second: 60 s at work, of ended runs the whole run"
    assert runs_table([replace(running, rate=None, units_rate=None)]).notes == ()


def test_status_of_nothing_is_a_sentence() -> None:
    """A head without rows looks like a failure to load."""
    assert table_text(status_table(Snapshot(at=0, seq=0))) == "no queues yet"


def test_what_consumers_hold_is_a_table_with_what_to_type() -> None:
    """It was a list of dataclasses without the document, and the line for one that is stuck led there."""
    rows = [["consumer/pages/1#0", 9.0, 50.0, 1, 0, 1, b"r"], ["consumer/pages/0#0", 600.0, 41.0, 1, 30, 2, b"r"]]
    staff = [
        ConsumerStats("c0", "pages", "w", document="inv 7.pdf", oldest_age=370.0),
        ConsumerStats("c1", "pages", "w"),
    ]
    leases = leases_of(rows, queue="pages", runs={b"r": "count"}, consumers=staff, now=52_127.0)

    lines = table_text(leases_table(leases)).split("\n")

    assert " ".join(lines[0].split()) == "document run consumer leased runs for lease ends in delivery"
    assert " ".join(lines[1].split()) == "inv 7.pdf count c0 14:18:47 6 min 41 s 2"
    assert "  lab.attach('count').replace('c0')    # its documents are retried" in lines
    assert any("lab.attach('count').give_up('inv 7.pdf')" in line for line in lines)
    assert repr(leases[0]) == "<c0 runs 'inv 7.pdf' of run 'count' for 6 min 10 s, delivery 2, at 14:18:47>"
    assert repr(leases[1]) == "<c1 holds 1 message of run 'count', for 9.0 s since delivery 1, at 14:28:38>"
    assert table_text(leases_table(leases_of([], queue="pages", runs={}, consumers=[], now=0.0))).endswith("anything")


def test_failures_show_the_first_and_count_the_rest() -> None:
    """A sample says that it is one."""
    one = SimpleNamespace(key="a/b.pdf", error="KeyError", message="'total'", at="f:1", deliveries=4, version="a41f9c")
    text = table_text(documents_table([one] * 25))

    assert "a/b.pdf   KeyError  'total'  f:1           4  a41f9c" in text
    assert text.endswith("the first 10 of 25 dead documents")
    assert table_text(documents_table([])) == "no dead documents"


def test_no_failures_name_their_run() -> None:
    """It read "no dead documents", as if no run had any."""
    assert table_text(failures_table(Dead(0, ()))) == "no dead documents of my run"


class Dead(list[object]):
    name = "my run"

    def __init__(self, dead: int, classes: tuple[ClassStats, ...]) -> None:
        super().__init__([None] * dead)
        self.classes = classes
        self.letters: dict[str, object] = {}

    def example(self, fingerprint: str) -> object:
        return self.letters.get(fingerprint)


KEY = "archive/2016/scans/acme-holding-and-daughters/inv-00777-second-copy.pdf"
CLASSES = (
    ClassStats("f1", "PdfError", "invalid xref table", "parse:31", 90, 0, 0.0, 0.0, KEY),
    ClassStats("f2", "KeyError", "'total'", "totals:12", 30, 0, 0.0, 0.0, "it's.pdf"),
)


def test_failures_are_one_row_per_class_with_the_lines_to_type_next() -> None:
    """The first ten documents were all of one class, and their keys were cut."""
    lines = table_text(failures_table(Dead(130, CLASSES))).split("\n")

    assert lines[0].split() == ["dead", "share", "error", "message", "at"]
    assert lines[1].split() == ["90", "69.2", "%", "PdfError", "invalid", "xref", "table", "parse:31"]
    assert lines[2].split()[:2] == ["30", "23.1"]
    assert lines[3].strip() == "10 more: run.failures() has all"
    assert f"  %dq show {KEY} 'my run'    # PdfError" in lines
    assert "  %dq show \"it's.pdf\" 'my run'    # KeyError" in lines
    assert "  %dq retry 'my run' --where \"error == 'PdfError'\"" in lines


def test_failures_of_a_run_that_goes_on_are_no_fewer_than_those_of_their_classes() -> None:
    """28 dead, 100 %, and 1 dead, 3.6 %, stood above "28 dead documents": the classes were of a moment later."""
    text = table_text(failures_table(Dead(90, CLASSES)))

    assert "120 dead documents of my run" in text
    assert [line.split()[1] for line in text.split("\n")[1:3]] == ["75.0", "25.0"]


def test_documents_whose_consumers_died_have_the_way_out_below_them() -> None:
    """A function that ends its process, as `os._exit` does, is met again by a retry."""
    died = replace(CLASSES[0], error="NoAnswer", message="its consumer died 5 times")

    assert 'executor="process"' in table_text(failures_table(Dead(90, (died,))))
    assert "executor" not in table_text(failures_table(Dead(130, CLASSES)))


@pytest.mark.parametrize(("key", "named"), [("archive/25.pdf", "archive/25.pdf"), (25, "'#25'")])
def test_a_document_whose_consumer_died_is_named_by_its_key_where_it_has_one(key: object, named: str) -> None:
    """It was "#25" in `%dq failed`, and had its key in the widget."""
    gone = Dead(1, (replace(CLASSES[0], dead=1, key="#25"),))
    gone.letters = {"f1": SimpleNamespace(key=key, ordinal=25)}

    assert f"  %dq show {named} 'my run'    # PdfError" in table_text(failures_table(gone)).split("\n")


def test_lines_to_type_are_words_that_a_line_reads_back() -> None:
    """A key with a blank, a quote or a bracket is one word too."""
    for key in ("a b.pdf", "it's.pdf", 'a"b', "x[1", "{y}", "#3", "-n", "plain/a-b.pdf", "\"'"):
        assert split(f"show {as_word(key)} run") == ["show", key, "run"]


class Results(list[object]):
    def keys(self) -> list[str]:
        return [f"doc-{place}" for place in range(len(self))]


def test_results_show_short_values_with_their_keys() -> None:
    """A result can be a megabyte; its picture is not."""
    text = table_text(results_table(Results(["x" * 10**6, {"pages": 3}])))

    assert "doc-1     {'pages': 3}" in text
    assert max(map(len, text.split("\n"))) <= 80
    assert text.endswith("2 results")


def test_the_widest_column_gives_way() -> None:
    """Figures keep their room; messages are cut."""
    long = SimpleNamespace(key="a.pdf", error="KeyError", message="m" * 200, at="f:1", deliveries=4, version="a41f9c")
    lines = table_text(documents_table([long])).split("\n")

    assert max(map(columns, lines)) <= 80
    assert lines[1].endswith("4  a41f9c")
    assert "…" in lines[1]


def test_failures_name_the_code_that_made_them() -> None:
    """After a retry of a part, what is left failed with the code before."""
    lines = table_text(failures_table(Dead(90, (replace(CLASSES[0], versions=("parse v1",)),)))).split("\n")

    assert lines[0].split()[-1] == "code"
    assert lines[1].endswith("parse v1")


ANY_TEXT = st.text(st.characters(codec=None, categories=None), max_size=400)


@given(ANY_TEXT, st.integers(1, 100))
def test_one_line_is_short_printable_and_can_be_sent(text: str, limit: int) -> None:
    """A surrogate breaks the message to the front end, an escape sequence breaks the terminal."""
    line = one_line(text, limit)

    line.encode("utf-8")
    assert len(line) <= limit
    assert not any(character in line for character in "\n\r\t\x1b\x00\u202e\u2066")


def test_a_megabyte_is_cut_before_it_is_read() -> None:
    """Exceptions can carry whole documents."""
    assert one_line("x" * 10**6, 10) == "xxxxxxxxx…"


@given(st.text(max_size=50), st.integers(0, 60))
def test_cut_fits_whatever_the_letters(text: str, limit: int) -> None:
    """Letters of some scripts take two columns, accents take none."""
    assert columns(cut(text, limit)) <= limit


def test_wide_letters_count_twice() -> None:
    """Else a table of Japanese file names loses its columns."""
    assert columns("請求書.pdf") == 10
    assert cut("請求書.pdf", 6) == "請求…"
