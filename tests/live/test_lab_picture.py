"""What the views of labs and queues say, and when."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dqlab.live.lab_picture import Site, lab_view, queue_view
from dqlab.live.run_picture import Standing
from dqlab.live.style import TextStyle, columns
from dqlab.live.views import Command, Tone
from dqlab.numbers import UNKNOWN
from dqlab.stats import (
    Attention,
    ConsumerStats,
    Counts,
    History,
    QueueState,
    QueueStats,
    RunState,
    RunStats,
    Severity,
    Snapshot,
)
from tests.live.drawn import html_of, screen_of
from tests.live.scenes import many_queues

PAPERS = Site("papers", "http://127.0.0.1:8787/status")


def test_six_figures_answer_for_the_lab(snapshot: Snapshot) -> None:
    """How much waits, runs, leaves, is dead; how busy, how large."""
    view = lab_view(snapshot, place=PAPERS)

    assert view.subtitle == "6 queues · 4 workers · 14 consumers · store runs/ · live 14:22:07"
    assert [(each.label, each.value, each.unit, each.second) for each in view.figures] == [
        ("Waiting", "60,191", "messages", "59,968 ready · 223 delayed"),
        ("Unacked", "104", "messages", "oldest 4 min 12 s"),
        ("Out, last 60 s", "51.9", "messages/s", "in 24.2 messages/s"),
        ("Dead", "215", "messages", "2 queues"),
        ("Busy", "93", "%", "of 14 consumers, last 60 s"),
        ("On disk", "2.2", "GB", "61 % garbage, 1.3 GB"),
    ]


def test_consumers_are_counted_by_the_processes_that_were_asked_for(snapshot: Snapshot) -> None:
    """`-n 4` read "5 workers, 8 consumers": one process is for queues, and each queue has a consumer on each other."""

    def about(place: Site, consumers: int, total: int = 0) -> str:
        some = [replace(snapshot.consumers[0], name=f"c{at}", worker=str(at % 4)) for at in range(consumers)]
        now = replace(snapshot, workers=5, consumers=tuple(some), consumers_total=total or consumers)
        return lab_view(now, place=place).about

    own = replace(PAPERS, embedded=True)
    assert about(own, 4).startswith("6 queues · 4 consumer processes · store")
    assert about(own, 8).startswith("6 queues · 8 consumers on 4 processes · store")
    assert about(own, 1).startswith("6 queues · 1 consumer process · store")
    assert about(PAPERS, 8).startswith("6 queues · 8 consumers on 4 workers · store")
    assert about(own, 8, total=300).startswith("6 queues · 5 workers · 300 consumers · store")
    assert about(own, 0).startswith("6 queues · 5 workers · no consumers yet · store")


def test_row_says_its_state_in_words_with_the_reason(snapshot: Snapshot) -> None:
    """Who paused it, what is wrong, when it was last used."""
    rows = {row.name: row for row in lab_view(snapshot, place=PAPERS).rows}

    assert (rows["pages"].state, rows["pages"].why, rows["pages"].tone) == ("Running", "KeyError spreading", "warn")
    assert (rows["embed"].state, rows["embed"].why, rows["embed"].tone) == ("Paused", "by ana, 13:34", "")
    assert rows["thumbs"].why == "last used 14:05"
    assert (rows["embed"].paused, rows["pages"].paused) == (True, False)


@pytest.mark.parametrize(
    ("queue", "text"),
    [
        (QueueStats("q", "running", Counts(5), lag=9.0, empty_in=713.0), "12 min"),
        (QueueStats("q", "running", Counts(5), lag=9.0, in_rate=2.0, out_rate=2.0, never_empty=True), "never"),
        (QueueStats("q", "waiting", Counts(5), lag=9.0, in_rate=2.0, never_empty=True), "never"),
        (QueueStats("q", "keeping up", Counts(5), lag=0.7, in_rate=2.0, out_rate=1.0), UNKNOWN),
        (QueueStats("q", "paused", Counts(5), lag=9.0), UNKNOWN),
    ],
)
def test_empty_in_is_a_time_or_never_or_unknown(queue: QueueStats, text: str) -> None:
    """Never, when as much comes as leaves."""
    scene = Snapshot(at=0, seq=0, queues=(queue,))

    assert lab_view(scene, place=PAPERS).rows[0].empty_in == text


def test_up_to_twelve_queues_keep_their_order_without_groups(snapshot: Snapshot) -> None:
    """What fits on a screen needs no filter."""
    view = lab_view(snapshot, place=PAPERS)

    assert [row.name for row in view.rows] == ["pages", "ocr", "embed", "index", "thumbs", "default"]


def test_of_many_queues_those_that_need_the_user_stand_first() -> None:
    """Then the deepest, and what rests last."""
    view = lab_view(many_queues(), place=PAPERS)

    assert [row.name for row in view.rows[:6]] == ["ocr-07", "parse-03", "embed-01", "crawl-04", "ner-02", "ship-00"]
    assert [row.tone for row in view.rows[:2]] == ["bad", "warn"]
    assert view.rows[-1].state == "Empty"


def test_a_queue_whose_runs_ended_with_dead_documents_needs_the_user() -> None:
    """Cells of queues with 19, 19, 229 and 17 dead were plain "Empty" ones, in the order of their names."""
    deads = (19, 19, 229, 17)
    queues = [QueueStats(f"q{at:02}", "empty", Counts(acked=9, dead=dead)) for at, dead in enumerate(deads)]
    runs = [
        RunStats(f"r{at}", queue.name, RunState.DONE, queue.counts, total=9 + queue.counts.dead)
        for at, queue in enumerate(queues)
    ]
    queues += [QueueStats(f"z{at:02}", "empty", Counts(acked=9)) for at in range(12)]
    scene = Snapshot(0, 0, queues=tuple(queues), queues_total=16, runs=tuple(runs), runs_total=4)

    view = lab_view(scene, place=PAPERS)

    assert [(row.dead, row.tone) for row in view.rows[:4]] == [(dead, "bad") for dead in ("229", "19", "19", "17")]
    assert view.rows[0].why == "229 dead in run r2, done"
    assert [row.tone for row in view.rows[4:]] == [""] * 12


def test_of_one_kind_of_trouble_the_queue_with_most_of_it_stands_first() -> None:
    """The list is headed "worst first"."""
    queues = [QueueStats(f"q{at:02}", "running", Counts(ready=3, acked=9, dead=at)) for at in range(14)]
    lines = [
        Attention(Severity.PROBLEM, "failing", f"{at} dead", "KeyError", queue=f"q{at:02}", amount=at)
        for at in (2, 7, 5)
    ]
    scene = Snapshot(0, 0, queues=tuple(queues), queues_total=14, attention=tuple(lines))

    assert [row.name for row in lab_view(scene, place=PAPERS).rows[:3]] == ["q07", "q05", "q02"]


def test_only_durable_queues_can_be_compacted_and_only_dead_ones_purged(snapshot: Snapshot) -> None:
    """A button that does nothing is worse than none."""
    scene = replace(snapshot, queues=(*snapshot.queues, QueueStats("fleeting", "running", Counts(3))))
    rows = {row.name: row for row in lab_view(scene, place=PAPERS).rows}

    assert (rows["pages"].durable, rows["fleeting"].durable) == (True, False)
    assert rows["pages"].purge[3] == "Discard 212"
    assert rows["fleeting"].purge == ()
    assert rows["pages"].retries == (("parse-invoices", "Retry 212 dead of parse-invoices"),)


def test_what_needs_the_user_of_no_queue_stands_above_all(snapshot: Snapshot) -> None:
    """A disk that is full has no row of its own."""
    full = Attention(Severity.PROBLEM, "store-full", "StoreFull", "0 bytes left under runs/")
    view = lab_view(replace(snapshot, attention=(full, *snapshot.attention)), place=PAPERS)

    assert (view.notice.text, view.notice.tone) == ("StoreFull 0 bytes left under runs/", Tone.BAD)


def test_silence_of_a_lab_drops_what_is_live(snapshot: Snapshot) -> None:
    """Counts are dated, rates are gone."""
    view = lab_view(snapshot, place=PAPERS, standing=Standing(silence=snapshot.at - 38))

    assert (view.stale, view.live) == (True, "as of 14:22:07")
    assert [view.figures[place].value for place in (0, 2, 4)] == ["60,191", UNKNOWN, UNKNOWN]
    assert [button.command for button in view.buttons] == [Command.ASK]


def test_queue_shows_its_own_needs_runs_and_failures(snapshot: Snapshot, past: History) -> None:
    """And nobody else's."""
    other = Attention(Severity.WARNING, "lag", "ocr", "is behind", "", "", "ocr")
    view = queue_view(replace(snapshot, attention=(other, *snapshot.attention)), past, place=Site("pages"))

    assert (view.chip, view.single) == ("Running", True)
    assert [need.queue for need in view.details.needs] == ["pages"] * 3
    assert [run.name for run in view.runs] == ["parse-invoices"]
    assert view.runs[0].done == "14:34"
    assert view.figures[4] == ("Empty in", "12", "min", "oldest ready: 23 min", "", Tone.PLAIN, True)
    assert len(view.failures) == 4


def test_queue_that_the_cluster_does_not_know_says_so(snapshot: Snapshot) -> None:
    """It was closed, or its name is another."""
    view = queue_view(snapshot, place=Site("nowhere"))

    assert "no queue named 'nowhere'" in view.notice.text
    assert view.figures == ()


def test_a_lab_that_is_saved_as_text_is_dated_before_what_is_cut(snapshot: Snapshot) -> None:
    """Behind the path of its store there was no room for the time."""
    view = lab_view(replace(snapshot, store="/srv/data/projects/archive/of/invoices/runs"), place=PAPERS)

    assert screen_of(view.as_saved(), TextStyle(width=80)).startswith("papers  as of 14:22:07 · 6 queues")
    assert screen_of(view, TextStyle(width=80)).startswith("papers  6 queues")


def test_lab_as_text_fits_its_terminal(snapshot: Snapshot) -> None:
    """Figures, table, and what needs somebody."""
    lines = screen_of(lab_view(snapshot, place=PAPERS)).split("\n")

    assert lines[0].startswith("papers  6 queues · 4 workers")
    assert lines[1] == "waiting 60,191 messages, unacked 104 messages, out 51.9 messages/s, last 60 s"
    assert lines[2] == "dead 215 messages, busy 93 % (1 slow), on disk 2.2 GB"
    assert lines[4].startswith("pages  running     15,846")
    assert any(line.startswith("parse-invoices") for line in lines)  # a queue's numbers do not tell which run failed
    assert lines[-5].startswith("✕  61 dead   KeyError 'total'")
    assert lines[-2:] == ["  %dq failed parse-invoices", "  lab.queue('pages').unacked()"]
    assert max(map(columns, lines)) <= 80
    assert screen_of(lab_view(snapshot, place=PAPERS), TextStyle(unicode=False)).isascii()


def test_a_lab_lists_its_runs_and_names_the_way_to_the_rest(snapshot: Snapshot) -> None:
    """After five runs it listed queues alone, and `%dq status` said that one was empty."""
    view = lab_view(snapshot, place=PAPERS)

    assert view.runs_title == "5"
    assert [(run.name, run.queue, run.state, run.share) for run in view.runs][:2] == [
        ("parse-invoices", "pages", "Running · 61 dead KeyError 'total'", "65.4 %"),
        ("index-build", "index", "Submitting · follows parse-invoices", UNKNOWN),
    ]
    assert view.runs_more == ""

    many = tuple(replace(snapshot.runs[0], name=f"r{n:02}", started=snapshot.at - n) for n in range(20))
    crowded = lab_view(replace(snapshot, runs=many, runs_total=37, attention=()), place=PAPERS)
    assert [run.name for run in crowded.runs] == [f"r{n:02}" for n in range(8)], "the newest first"
    assert crowded.runs_more == "and 29 more: %dq runs"
    assert "and 17 more: %dq runs" in screen_of(crowded, TextStyle())
    assert "and 17 more: %dq runs" in html_of(crowded)


def test_runs_of_one_name_in_two_queues_are_two_rows(snapshot: Snapshot) -> None:
    """A widget that keeps rows by name shows one of them twice."""
    twin = replace(snapshot.runs[0], queue="ocr")
    view = lab_view(replace(snapshot, runs=(snapshot.runs[0], twin), runs_total=2), place=PAPERS)

    assert len({run.key for run in view.runs}) == 2


def test_consumers_of_a_lab_are_as_busy_as_their_rows(snapshot: Snapshot) -> None:
    """Both were held up by one document each, 0 % idle in the dashboard, and the lab said "Busy 49 %"."""
    stuck = [
        ConsumerStats(f"c{at}", "pages", f"{at}", leased=1, busy_share=0.49, oldest_age=75.0, document="a.pdf")
        for at in range(2)
    ]
    now = replace(snapshot, busy_share=0.49, consumers=tuple(stuck), consumers_total=2)
    busy = next(each for each in lab_view(now, place=PAPERS).figures if each.label == "Busy")

    assert (busy.value, busy.unit) == ("100", "%")


@pytest.mark.parametrize("state", [state for state in QueueState if state is not QueueState.TOTAL])
def test_queue_in_each_state_has_a_row_with_its_word(state: QueueState) -> None:
    """A state without an icon would end the view of all queues."""
    scene = Snapshot.from_dict(Snapshot(at=0, seq=0, queues=(QueueStats("q", state, Counts(5)),)).to_dict())

    [row] = lab_view(scene, place=PAPERS).rows

    assert scene.queues[0].state is state
    assert (row.state.lower(), row.paused) == (state.value, state is QueueState.PAUSED)
