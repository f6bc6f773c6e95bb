"""The questions that a view answers within five seconds, asked of each view in one scene."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from html import unescape
from typing import Any, NamedTuple

import pytest

pytest.importorskip("bokeh", reason="bokeh is in the extra lab")

from dqlab.checkup.examine import judge
from dqlab.live.display import text_of
from dqlab.live.lab_picture import Site, lab_view, queue_view
from dqlab.live.layout import checkup_parts
from dqlab.live.render import render_text
from dqlab.live.run_picture import Focus, run_view
from dqlab.live.tables import failures_table
from dqlab.live.views import QueuesView, RunView
from dqlab.stats import Attention, ClassStats, History, RunStats, Severity, Snapshot
from tests.checkup.planted import HEALTHY
from tests.kit.chromium import needs_chromium
from tests.live.conftest import CODE
from tests.live.drawn import html_of, screen_of, table_text
from tests.live.pages import Show
from tests.live.panels.conftest import cells, words
from tests.live.scenes import lab_history
from tests.test_extension import EXTENSION, VITEST, node

QUESTIONS = ("how much is left", "until when", "what fails", "why", "who is slow", "what is stuck", "what next")
SLOW = Attention(
    Severity.WARNING,
    "slow",
    "c7",
    "does 14.0 pages/s, median 63.5",
    "on worker w-4",
    "show",
    "pages",
    "parse-invoices",
    "c7",
)


class No(NamedTuple):
    """A question that a view leaves to another one, and why."""

    why: str


Answers = tuple[str | No, str | No, str | No, str | No, str | No, str | No, str | No]
FAILS, WHY, STUCK = "128 dead:? PdfError|PdfError", "invalid xref table", r"c5 held one document for 4 min"
OVER = No("nothing runs any more")
LINES = "%dq failed parse-invoices"
ANSWERS: dict[str, Answers] = {
    "run widget": ("315,894 ?pages", "Done at 14:34", FAILS, WHY, "c7 does 14.0 pages/s", STUCK, "Fix & retry"),
    "run widget, ended": ("Left 0 ?pages", "Ended at 14:33:54", FAILS, WHY, OVER, OVER, "Retry 212|Fix & retry"),
    "lab widget": ("Waiting 60,191", "14:34", FAILS, WHY, "1 slow", STUCK, LINES),
    "queue widget": ("Waiting 16,057", "Empty in 12 ?min", FAILS, WHY, "1 slow", STUCK, "Fix & retry"),
    "dashboard, all queues": (
        "Waiting 60,191",
        "empty about 14:34",
        FAILS,
        WHY,
        "c7 does 14.0 pages/s",
        STUCK,
        LINES,
    ),
    "dashboard, one queue": ("315,894 pages", "14:34", FAILS, WHY, "c5 does 14.0 pages/s", STUCK, LINES),
    "sidebar": ("65.4 %", "ends 14:34", FAILS, WHY, "1 slow", STUCK, "Retry 128"),
    "failures tab": (
        No("it is about what is settled"),
        No("it is about what is settled"),
        FAILS,
        WHY,
        No("it is about failures"),
        No("it is about failures"),
        "Retry 212",
    ),
    "%dq status": ("60,191|16,057|65.4 %", "in 9.16 min", FAILS, WHY, "c7 does 14.0 pages/s", STUCK, LINES),
    "%dq failed": (
        No("it is about failures"),
        No("it is about failures"),
        FAILS,
        WHY,
        No("it is about failures"),
        No("it is about failures"),
        "%dq retry parse-invoices",
    ),
    "terminal, a run": ("315,894 pages", "done 14:34", FAILS, WHY, "c7 does 14.0 pages/s", STUCK, LINES),
    "terminal, a run that ended": ("left 0 pages", "done 14:33:54", FAILS, WHY, OVER, OVER, LINES),
    "terminal, a lab": ("waiting 60,191", "in 9.16 min", FAILS, WHY, "1 slow", STUCK, LINES),
    "%dq doctor": (
        No("it is about what is wrong"),
        No("it is about what is wrong"),
        FAILS,
        WHY,
        "queue pages: consumer c7 does 14.0 pages/s",
        r"consumer c5 held one document for 4 min 12 s: acme/2019/ledger-0417.pdf",
        LINES,
    ),
    "saved notebook, a run": (
        "315,894 pages",
        No("a promise of a time that has passed when the notebook is opened"),
        FAILS,
        WHY,
        "c7 does 14.0 pages/s",
        STUCK,
        "%dq attach parse-invoices",
    ),
    "saved notebook, a run that ended": (
        "48,210 documents",
        "to 14:33:54",
        FAILS,
        WHY,
        OVER,
        OVER,
        "%dq attach parse-invoices",
    ),
    "saved notebook, a lab": ("waiting 60,191", "in 9.16 min", FAILS, WHY, "1 slow", STUCK, LINES),
}


@dataclass(frozen=True)
class Scene:
    """One moment of a lab, and ways to draw it."""

    snapshot: Snapshot
    past: History
    running: RunStats
    done: RunStats
    request: pytest.FixtureRequest

    @property
    def run(self) -> RunView:
        """The run in the midst of its work."""
        return run_view(self.running, Focus(self.snapshot, self.past, CODE))

    @property
    def ended(self) -> RunView:
        """The same run at its end."""
        return run_view(self.done, Focus(self.snapshot, self.past, CODE))

    @property
    def lab(self) -> QueuesView:
        """The lab with all of its queues."""
        return lab_view(self.snapshot, lab_history(self.snapshot), place=Site("papers"))

    def widget(self, view: RunView | QueuesView) -> str:
        """Return what a widget shows without a press, in a browser."""
        show: Show = self.request.getfixturevalue("show")
        words: str = show(view, width=1100).inner_text("#out")
        return words

    def dashboard(self, queue: str) -> str:
        """Return all the words of a page of panels."""
        page = self.request.getfixturevalue("open_page")(queue=queue)
        tables = [" ".join(row) for name in TABLES for row in cells(page, name)]
        return "\n".join([plain(words(page)), *tables])


class Dead(list[None]):
    """Failures of a run."""

    def __init__(self, run: RunStats) -> None:
        super().__init__([None] * run.counts.dead)
        self.name, self.classes = run.name, tuple(replace(entry, key="lux/7.pdf") for entry in run.classes)


def plain(html: str) -> str:
    """Return the words of HTML."""
    return unescape(re.sub(r"<[^>]+>", " ", html))


def in_the_page(part: str) -> Callable[[Scene], str]:
    """Return what reads a part of JupyterLab's page; node draws the same scene, without a browser."""

    def read(scene: Scene) -> str:
        words: str = scene.request.getfixturevalue("page_words")[part]
        return words

    return read


DRAWN: Mapping[str, Callable[[Scene], str]] = {
    "run widget": lambda scene: scene.widget(scene.run),
    "run widget, ended": lambda scene: scene.widget(scene.ended),
    "lab widget": lambda scene: scene.widget(scene.lab),
    "queue widget": lambda scene: scene.widget(queue_view(scene.snapshot, scene.past, place=Site("pages"))),
    "dashboard, all queues": lambda scene: scene.dashboard(""),
    "dashboard, one queue": lambda scene: scene.dashboard("pages"),
    "sidebar": in_the_page("sidebar"),
    "failures tab": in_the_page("failures"),
    "%dq status": lambda scene: text_of(scene.snapshot),
    "%dq failed": lambda scene: table_text(failures_table(Dead(scene.done))),
    "terminal, a run": lambda scene: screen_of(scene.run),
    "terminal, a run that ended": lambda scene: screen_of(scene.ended),
    "terminal, a lab": lambda scene: screen_of(scene.lab),
    "%dq doctor": lambda scene: render_text(checkup_parts(judge(replace(HEALTHY, snapshot=scene.snapshot)))),
    "saved notebook, a run": lambda scene: plain(html_of(scene.run)),
    "saved notebook, a run that ended": lambda scene: plain(html_of(scene.ended)),
    "saved notebook, a lab": lambda scene: plain(html_of(scene.lab)),
}
TABLES = ("listed", "held", "consumers", "classes", "failing")
IN_A_BROWSER = {name for name in DRAWN if "widget" in name}
IN_NODE = {"sidebar", "failures tab"}


@pytest.fixture
def scene(request: pytest.FixtureRequest, feed: Any, past: History, running: RunStats, done: RunStats) -> Scene:
    """Return the golden scene with a consumer that is slow, and one that is stuck."""
    snapshot: Snapshot = feed.now
    _, held, failing = snapshot.attention
    totals = replace(snapshot.totals, empty_in=713.0)  # as the last of its queues
    feed.change(attention=(failing, held, SLOW), attention_total=3, totals=totals)
    ended: tuple[ClassStats, ...] = tuple(replace(entry, retrying=0) for entry in done.classes)
    return Scene(feed.now, past, running, replace(done, classes=ended), request)


@pytest.fixture(scope="module")
def page_words(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """Return what the sidebar and the failures tab say, by `extension/tests/words.test.ts`."""
    if not VITEST.exists():
        pytest.skip("the extension's packages are not there: make test fetches them")
    file = tmp_path_factory.mktemp("words") / "words.json"
    done = subprocess.run(
        [node(), str(VITEST), "run", "--reporter=dot", "tests/words.test.ts"],
        cwd=EXTENSION,
        env={**os.environ, "NO_COLOR": "1", "DQLAB_WORDS": str(file)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    words: Mapping[str, str] = json.loads(file.read_text(encoding="utf-8"))
    return words


def marks(name: str) -> list[Any]:
    """Return the marks of a view's test."""
    if name in IN_A_BROWSER:
        return [pytest.mark.browser, needs_chromium]
    return [pytest.mark.cluster, pytest.mark.timeout(120)] if name in IN_NODE else []


@pytest.mark.parametrize("view", [pytest.param(name, marks=marks(name)) for name in DRAWN])
def test_each_view_answers_in_five_seconds(scene: Scene, view: str) -> None:
    """A user who comes back to a screen wants these seven things, and finds them without a click."""
    words = re.sub(r"\s+", " ", DRAWN[view](scene))
    answers = dict(zip(QUESTIONS, ANSWERS[view], strict=True))

    found = {
        question: answer if isinstance(answer, No) else re.search(answer, words) for question, answer in answers.items()
    }
    assert [question for question, each in found.items() if not each] == [], words
