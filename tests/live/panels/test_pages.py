"""What pages of panels say, in each state of the world, and what they must never say."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest

pytest.importorskip("bokeh", reason="bokeh is in the extra lab")

from bokeh.document import Document
from bokeh.models import Div
from bokeh.resources import Resources

from dqlab.live.panels import axis
from dqlab.live.panels.look import DARK, LIGHT, drawing
from dqlab.live.panels.page import PANELS
from dqlab.live.panels.scene import WHOLE, Request, request
from dqlab.live.panels.serving import APPLICATIONS
from dqlab.live.panels.throughput import _thinned
from dqlab.numbers import clock
from dqlab.stats import Compaction, ConsumerStats, Counts, Eta, Held, History, Mark, Snapshot, Unacked
from tests.logs import lines_of

pytestmark = pytest.mark.lowest

EVIL = '<script>alert("$$x$$")</script>'
Open = Callable[..., Any]


def words(page: Any) -> str:
    """All the HTML of a page."""
    return "\n".join(model.text for model in page.doc.select({"type": Div}))


def answers(page: Any) -> dict[str, str]:
    return {panel.name: page.doc.get_model_by_name(f"{panel.name}-answer").text for panel in page.panels}


@pytest.mark.long
@pytest.mark.parametrize("names", [tuple(PANELS), *((name,) for name in PANELS)])
def test_each_page_has_all_the_roots_its_template_places(open_page: Open, names: tuple[str, ...]) -> None:
    """A page whose template and models disagree is a white one."""
    page = open_page(*names, theme="dark")

    roots = {root.name for root in page.doc.roots}
    assert {name for each in names for name in (each, f"{each}-answer")} <= roots
    assert (len(names) == 1) != ({"where", "queues", "spans", "stamp", "hold", "summary"} <= roots)


def test_the_figures_count_stuck_consumers_as_every_other_view_does(open_page: Open, feed: Any) -> None:
    """They counted slow ones only: a stuck one was slow at first, and then nothing."""
    first, *others = feed.now.consumers
    feed.change(consumers=(replace(first, slow=False, stuck=True), *(replace(each, slow=False) for each in others)))

    assert 'class="lab warn">1 stuck, ' in open_page().doc.get_model_by_name("summary").text


def test_title_lines_answer_in_words(open_page: Open) -> None:
    """Who reads nothing else knows how long, what fails, who is slow, what is stuck."""
    assert answers(open_page(queue="pages")) == {
        "depth": "fell by 22.7 messages/s, last 20 s · empty about 14:34",
        "unacked": "1 of 64 messages past 1 min",
        "throughput": "c5 does 14.0 pages/s, median 63.5",
        "failures": "9 deliveries failed in the last minute, 4 classes in all",
        "runs": "1 running",
        "storage": "61 % garbage, more than 50 % · compacts itself at the next checkpoint",
    }


def test_seven_figures_are_those_of_the_run_that_is_looked_at(open_page: Open) -> None:
    """A figure of another queue is worse than none."""
    text = open_page(queue="pages").doc.get_model_by_name("summary").text

    for figure in (
        "16,121",
        "315,894 pages",
        "14:34",
        "14:32\N{EN DASH}14:38",
        "451",
        "4 min 12 s",
        "0.66 % of what ran",
        "2.2",
    ):
        assert figure in text


def test_names_and_messages_of_users_stay_text(open_page: Open, feed: Any) -> None:
    """A queue named like a script must not run in the browser of a user who looks at it."""
    now: Snapshot = feed.now
    evil_class = replace(now.failures.classes[0], error=EVIL, message=EVIL)
    feed.change(
        lab=EVIL,
        units=EVIL,
        queues=(replace(now.queues[0], name=EVIL, why=EVIL), *now.queues),
        runs=tuple(replace(run, name=EVIL, why=EVIL) for run in now.runs),
        consumers=tuple(replace(each, name=f"{EVIL}{at}", worker=EVIL) for at, each in enumerate(now.consumers)),
        unacked=replace(now.unacked, oldest=(Held(EVIL, 300.0, 5.0, document=EVIL),)),
        failures=replace(
            now.failures,
            classes=(evil_class,),
            documents=tuple(replace(each, key=EVIL, error=EVIL) for each in now.failures.documents),
        ),
    )
    feed.past = replace(feed.past, consumers={}, marks=(Mark(feed.past.end - 60, EVIL, 3, EVIL),))

    page = open_page(queue=EVIL, wall=True)

    assert "<script" not in words(page)
    assert words(page).count("&lt;script") > 15
    assert all(div.disable_math for div in page.doc.select({"type": Div}))


def test_an_empty_lab_has_axes_and_one_sentence_in_each_panel(open_page: Open, feed: Any, caplog: Any) -> None:
    """A white rectangle could as well be a broken one."""
    feed.now, feed.past = Snapshot(at=feed.now.at, seq=1), History(t0=feed.now.at, step=1.0)

    with caplog.at_level(logging.ERROR):
        said = words(open_page())

    for sentence in (
        "No message has come in this window",
        "No consumer works here",
        "No message has failed in this window",
        "Nothing has been mapped here yet",
        "Queues here are transient",
    ):
        assert sentence in said
    assert not lines_of(caplog)


def test_a_page_loads_what_draws_and_no_more() -> None:
    """Formulas, tables and WebGL are more than half of BokehJS."""
    parts = {"bokeh", "bokeh-gl", "bokeh-widgets", "bokeh-tables", "bokeh-mathjax"}
    scripts = Resources(mode="server").js_files
    tags = "\n".join(f'<script type="text/javascript" src="{script}?v=1"></script>' for script in scripts)

    def named(text: str) -> set[str]:
        return {part for part in parts if f"/{part}.min.js" in text}

    assert named(tags) == parts
    assert named(drawing(tags)) == {"bokeh", "bokeh-widgets"}
    assert "<script" not in drawing(tags).replace("<script", "", 2)


def test_without_dqlab_a_page_says_what_to_do() -> None:
    """The pages exist before anybody has connected."""

    class Bare:
        plugins: Mapping[str, Any] = MappingProxyType({})
        address = "tcp://10.0.0.1:8786"

    doc = Document()

    assert APPLICATIONS["/dq"](Bare(), {"prefix": "/"}, doc) is None

    said = doc.template_variables["absent"]
    assert "dqlab is not on this scheduler yet" in said
    assert "tcp://10.0.0.1:8786" in said


def test_consumers_of_several_queues_are_told_apart(open_page: Open, feed: Any) -> None:
    """Each queue numbers its own from 0; four of them read "bad/…", as the end of a name is what is cut."""
    consumers = tuple(ConsumerStats("c0", queue, "0", 3, 100, rate=at, units_rate=at) for at, queue in enumerate("ab"))
    feed.now = replace(feed.now, of_queue="", of_run="", consumers=consumers, consumers_total=2)
    feed.past = replace(feed.past, consumers={"a/c0": (1.0,) * 9, "b/c0": (2.0,) * 9}, idle={})

    said = words(open_page("throughput"))

    assert said.count("<b>c0</b>") == 2
    assert all(f'<span class="mut">{queue} \N{MIDDLE DOT} worker 0</span>' in said for queue in "ab")
    assert "more worker" not in said


@pytest.mark.parametrize(("fastest", "scale"), [(0.3, "0.3"), (1.4, "1.6"), (451.0, "500"), (3_900.0, "4,000")])
def test_scale_of_consumers_ends_where_the_chart_does(open_page: Open, feed: Any, fastest: float, scale: str) -> None:
    """Slow ones stood on a scale from 0 to 0."""
    feed.past = replace(feed.past, consumers=dict.fromkeys(feed.past.consumers, (fastest,) * 300))

    said = words(open_page("throughput")).splitlines()
    assert [line for line in said if f"same scale 0\N{EN DASH}{scale} \N{MIDDLE DOT} figures: last 60 s<" in line]


def test_an_end_that_is_sure_to_the_minute_is_one_time(open_page: Open, feed: Any) -> None:
    """A range from 14:33 to 14:33 is none."""
    run = feed.now.runs[0]
    at = run.eta.p50 // 60 * 60
    feed.change(runs=(replace(run, eta=Eta(at - 20, at, at + 20)),))

    assert open_page("runs").panels[0]._bands.data["sure"][0] == clock(at)[:5]


def test_a_mark_without_a_cell_begins_with_its_word(open_page: Open, feed: Any) -> None:
    """What was pressed has no cell: of six marks in a chart all that fitted was six dots."""
    end = feed.past.end
    feed.past = replace(feed.past, marks=(Mark(end - 90, "retry, parse v4", None, ""), Mark(end - 60, "pause", 7, "")))

    above = open_page("depth").panels[0]._above.text

    assert "<b>retry</b><span>parse v4</span>" in above
    assert "<b>[7]</b><span>pause</span>" in above
    assert "·" not in above


def test_more_consumers_than_rows_are_said_with_their_number(open_page: Open, feed: Any, crowd: Any) -> None:
    """A list that is cut without a word is taken for the whole."""
    feed.now, feed.past = crowd.now, crowd.past

    said = words(open_page())

    assert "and 24 more workers" in said
    assert "all 200" in said


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({}, Request()),
        ({"theme": [b"dark"], "queue": [b"q"], "run": [b"r"], "wall": [b"1"]}, Request("dark", "q", "r", wall=True)),
        ({"span": [b"7200"]}, Request(span=7200.0)),
        ({"span": [b"run"]}, Request(span=WHOLE)),
        ({"span": [b"1e99"]}, Request(span=86_400.0)),
        ({"span": [b"nan"], "theme": [b"\xff"], "wall": [b"0"]}, Request()),
    ],
)  # fmt: skip
def test_addresses_are_read_and_nonsense_in_them_is_passed_over(
    query: dict[str, list[bytes]], expected: Request
) -> None:
    """Addresses are typed by hand, and kept in bookmarks for years."""
    assert request(query) == expected


def test_both_themes_name_all_colours() -> None:
    """A variable that one theme lacks is black on black."""
    assert {pair.split(":")[0] for pair in LIGHT.css.split(";")} == {pair.split(":")[0] for pair in DARK.css.split(";")}


def test_an_axis_ends_at_a_round_number_above_all_values() -> None:
    """The highest bar is seen whole."""
    assert [axis.nice(value) for value in (0, 0.7, 3, 48_210)] == [1.0, 0.8, 3.0, 50_000.0]
    assert [axis.nice(value, whole=True) for value in (1, 5, 9, 23)] == [2.0, 6.0, 10.0, 24.0]


def test_thinned_lines_keep_all_data_and_stand_still() -> None:
    """A peak between two points must not blink as time goes on."""
    import numpy as np

    line = np.arange(1000, dtype=np.float32)
    past = History(t0=5000.0, step=1.0, ready=tuple(line.tolist()))
    later = replace(past, t0=5001.0)

    at, means = _thinned(past, line)
    at_later, means_later = _thinned(later, np.append(line[1:], np.float32(1000)))

    assert len(means) <= 101
    assert at[-1] == past.end
    shared = sorted(set(at.tolist()) & set(at_later.tolist()))[2:-2]
    assert len(shared) > 90
    same = [means[list(at).index(each)] == means_later[list(at_later).index(each)] for each in shared]
    assert all(same)


def test_compactions_are_marked_with_what_they_freed(open_page: Open, feed: Any) -> None:
    """Why the curve falls there is asked at once."""
    at = feed.past.end - 600
    feed.change(storage=replace(feed.now.storage, compactions=(Compaction(at, 900_000_000, 0.8),)))

    assert "\N{MINUS SIGN}900 MB" in words(open_page("storage"))


def test_messages_without_a_name_do_not_pass_for_documents(open_page: Open, feed: Any) -> None:
    """ "2 messages" stood among the documents, in their face."""
    oldest = (Held("c0", 2.0, 50.0, 2), Held("c1", 1.0, 50.0, 1, "a.pdf", running=1.0))
    feed.change(unacked=replace(feed.now.unacked, oldest=oldest))

    said = words(open_page("unacked", queue="pages"))
    assert '<span class="mut">2 messages, since delivery</span>' in said
    assert '<span class="mono">a.pdf</span>' in said
    assert '<span class="mono"><span class="mut">' not in said


def test_it_is_shown_that_no_consumer_holds_a_message(open_page: Open, feed: Any) -> None:
    """No bars could mean no answer."""
    queue = replace(feed.now.queues[0], counts=Counts(ready=3))
    feed.change(unacked=Unacked(), queues=(queue,))

    page = open_page("unacked", queue="pages")

    assert answers(page) == {"unacked": "none · queue pages"}
    assert "No message is held by a consumer" in words(page)
