"""What a cell asks: what to do with a run that has other code or documents, and whether to submit all after a sample.

Each button does what a line or a call does. A report of what was done replaces the buttons and the sentences above
them, with the run, if no other view shows it. Without widgets, the sentences name the lines to type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Sized
from importlib.util import find_spec
from typing import Any

from dqlab.clock import SystemClock
from dqlab.documents import Documents
from dqlab.errors import DqlabError, RunExists
from dqlab.jupyter.messages import is_fresh, warned
from dqlab.jupyter.wrapping import say
from dqlab.live.canvases import has_a_reader
from dqlab.live.display import Mode, in_a_line, look_again, mode, publish, sends_widgets, text_of, watch, watch_in
from dqlab.live.parts import line
from dqlab.live.render import render_html
from dqlab.live.run_picture import code_of_retry
from dqlab.notebook import in_jupyter, shell
from dqlab.numbers import many, minute
from dqlab.runs.run import Run
from dqlab.runs.update.plan import UpdatePlan
from dqlab.stats import Counts, Snapshot
from dqlab.texts import one_line


class Choice:
    """The actions for a run with other code or documents, where `function` is the code that was to be mapped."""

    def __init__(
        self,
        run: Run,
        function: Callable[..., Any],
        start_over: Callable[[], Run],
        keep: Callable[[], Run],
        compare: Callable[[], object] | None,
        update: Callable[[], object] | None = None,
    ) -> None:
        # compare: None where the code is that of the run; update: None where it has nothing to do.
        self.run, self._function, self._start_over, self._keep = run, function, start_over, keep
        self._compare, self._update = compare, update
        self.place: Callable[[Run], object] = watch

    @property
    def labels(self) -> dict[str, Callable[[], str]]:
        """The actions, which return a report, by the labels of their buttons."""
        return {label: act for label, _, act in self._ways()}

    def sentences(self, error: RunExists, function: str, *, defined: bool, plan: UpdatePlan | None) -> Iterator[str]:
        """Yield a line on the other code or documents, then the lines to copy that continue with them."""
        name = self.run.name
        yield f"{name}: this run exists with {error.difference}. Nothing was submitted, and it was left as it is."
        if defined:
            yield f"{function} is defined as in this cell now. Choose:"
        *lines, keep = (line for _, line, _ in self._ways(function, "" if plan is None else plan.summary))
        other_name = "--name NAME    # on this line: keep it, and map under another name"
        yield from (f"    {line}" for line in (*lines, other_name, keep))

    def _ways(self, function: str = "", updated: str = "") -> Iterator[tuple[str, str, Callable[[], str]]]:
        """Yield the label of a button, the line that does the same, and its action, the likeliest first."""
        # No numbers in labels: they stay as they were drawn while more documents fail.
        counts, name, edited = Counts(**self.run.counts), self.run.name, self._compare is not None
        start_over = "Start over", "--on-existing new    # on this line: drop it and start over", self.start_over
        retry, left = f"%dq retry {name} --fn {function}", f"the {many(counts.left, 'document')} that wait or run"
        first = edited and is_fresh(counts)
        if first:
            yield start_over
        if edited and counts.dead:
            failed = f"{retry}    # its {many(counts.dead, 'failed document')} with this code"
            yield "Retry failed documents with this code", failed, self.retry
        if edited and counts.left and counts.dead:
            yield (
                "Retry failed documents, and give the rest this code too",
                f"{retry} --rest    # and {left}",
                self.rest,
            )
        elif edited and counts.left:
            yield "Give the rest this code", f"{retry} --rest    # {left}, with this code", self.rest
        if edited and (counts.acked or counts.dead):
            what = f"%dq compare {name} --fn {function}    # what this code would change, on a sample"
            yield "Compare on a sample", what, self.compare
        if self._update is not None:
            yield "Update", f"--on-existing update    # on this line: {updated}", self.update
        if not first:
            yield start_over
        had = "code" if edited else "documents"
        yield "Keep it", f"%dq attach {name}    # keep it, with the results of the {had} it had", self.keep

    def lost_by(self, act: Callable[[], str]) -> str:
        """Return the label with which a button that drops something asks for a second press, or "" for the others."""
        counts = Counts(**self.run.counts)
        parts = [many(n, noun) for n, noun in ((counts.acked, "result"), (counts.dead, "failure")) if n]
        return f"Drop {' and '.join(parts)}, and start over" if parts and act == self.start_over else ""

    def retry(self) -> str:
        """Retry dead documents with this code, in the view that the cell has of the run, or else in a new one."""
        count = self.run.send_again(self._function)
        self._show()
        return _report_of_retry(self.run, count)

    def rest(self) -> str:
        """Use this code for the rest of the run too."""
        count = self.run.send_again(self._function, rest=True)
        self._show()
        return f"{_report_of_retry(self.run, count)}; the rest has this code too"

    def start_over(self) -> str:
        """Drop the run, and map again."""
        new = self._start_over()
        self.place(new)
        return f"{new.name} was started over at {minute(SystemClock().wall())}"

    def compare(self) -> str:
        """Show what this code would change, and leave the choice."""
        assert self._compare is not None, "as its button is shown"
        return text_of(self._compare())

    def update(self) -> str:
        """Run what is new or has changed with this code, and keep the rest."""
        assert self._update is not None, "as its button is shown"
        self._update()
        self._show()
        return f"Updated at {minute(SystemClock().wall())}, {self.run.updated}"

    def keep(self) -> str:
        """Leave the run as it is, with the code that it had."""
        kept = self._keep()
        self.place(kept)
        return f"{kept.name} was kept, with the results of the code it had"

    def _show(self) -> None:
        """Show a run that goes on, where no view of it can."""
        if not look_again(self.run):  # a second view would leave the first one below it as it was at its end
            self.place(self.run)


def _report_of_retry(run: Run, count: int) -> str:
    """Return a report of a retry."""
    now = minute(SystemClock().wall())
    if count:
        code = code_of_retry(run.versions[-1], newer=False)
        return f"Retried {many(count, 'document')} with {code} at {now}"
    return f"{run.name} has no failed documents: none was sent again at {now}"


class _Shown:
    """The sentences of a choice in a cell, and the buttons below them where widgets can be drawn."""

    def __init__(self, sentences: Sequence[str]) -> None:
        self._sentences = publish({"text/plain": "\n".join(sentences)})
        self._box: Any = None
        self.place: Any = None
        """The output with the buttons, in which a run that one of them starts is shown."""

    def add(self, box: Any, run: Run, labels: list[str]) -> None:
        """Show the buttons."""
        self._box, drawn = box, box._repr_mimebundle_()
        self.place = publish(
            {**(drawn[0] if isinstance(drawn, tuple) else drawn), **_without_kernel(run, labels)},
        )

    def settle(self, said: str) -> None:
        """Replace sentences and buttons by a report."""
        self._sentences.update({"text/plain": said}, raw=True)
        if self._box is not None:
            self.place.update({"text/plain": ""}, raw=True)
            self._box.close()
            self._box = None


def offer(choice: Choice, sentences: Sequence[str], say: Callable[[str], None]) -> None:
    """Show sentences that offer a choice, with buttons where widgets can be drawn, or print them outside Jupyter."""
    if not in_jupyter():
        for sentence in sentences:
            say(sentence)
        return
    shown = _Shown(sentences)
    if can_ask():
        _add_buttons(shown, choice)


def can_ask() -> bool:
    """Return whether buttons can be drawn."""
    return in_jupyter() and mode() is Mode.LIVE and find_spec("ipywidgets") is not None


def _add_buttons(shown: _Shown, choice: Choice) -> None:
    import ipywidgets

    runs: list[Run] = []
    choice.place = runs.append
    said = ipywidgets.Output()
    buttons: list[Any] = []

    def press(act: Callable[[], str], _: object = None) -> None:
        for button in buttons:  # first: a second press would act twice
            button.disabled = True
        said.clear_output()
        with said:
            try:
                with warned() as doubts:
                    report = act()
                chosen = act != choice.compare
            except DqlabError as error:
                report, chosen = f"{type(error).__name__}: {error}", False
            if not chosen:
                say(report)
                for button in buttons:
                    button.disabled = False
                return
        shown.settle("\n".join([report, *doubts]))
        for run in runs:
            watch_in(shown.place, run, " ".join([report, *doubts]))

    def press_or_ask(act: Callable[[], str], button: Any) -> None:
        lost = choice.lost_by(act)
        if not lost or button.description == lost:
            press(act)
        else:
            button.description, button.button_style = lost, "danger"

    for label, act in choice.labels.items():
        button = ipywidgets.Button(description=label, layout=ipywidgets.Layout(width="auto"))
        button.on_click(lambda button, act=act: press_or_ask(act, button))
        buttons.append(button)
    shown.add(ipywidgets.VBox([ipywidgets.HBox(buttons), said]), choice.run, list(choice.labels))


def _without_kernel(run: Run, labels: list[str]) -> dict[str, str]:
    """Return what a notebook keeps of the buttons, which need the kernel that made them."""
    names = ", ".join(f"[{label}]" for label in labels)
    kept = f"{names}: run the cell again for these buttons, or type one of the lines above."
    lines = in_a_line(run), kept
    html = render_html(line(each.replace("  ", " · ")) for each in lines)
    return {"text/plain": "\n".join(lines), "text/html": html}


# --- rehearsing ----------------------------------------------------------------------------

MANY, LONG, SAMPLE = 10_000, 600.0, 30
"""Documents, and expected seconds, above which a cell rehearses by itself, and in how many documents."""
SHOWN = 3
"""Results of the sample that a cell shows."""


def sample_for(
    rehearse: int | None, documents: object, stats: Callable[[], Snapshot], function: Callable[..., Any], *, yes: bool
) -> int | None:
    """Return how many documents a cell tries first: as its line says, else some where it is long and has a reader."""
    if rehearse is not None or yes:
        return rehearse or 0
    if not (can_ask() and has_a_reader(shell())):
        return None
    return SAMPLE if _are_more(documents, min(MANY, _in_time(stats(), getattr(function, "__name__", "")))) else None


def hint(rehearse: int | None, documents: object, *, yes: bool) -> list[str]:
    """Return how to rehearse, where there are many documents and nobody can be asked."""
    if rehearse is not None or yes or not _are_more(documents, MANY):
        return []
    return [f"--rehearse {SAMPLE} tries {SAMPLE} documents first, and says how long all of them take"]


def _are_more(documents: object, n: int) -> bool:
    """Return whether an input is known to have more than `n` documents, without reading it."""
    if isinstance(documents, Documents):
        return documents._more_than(n)
    return isinstance(documents, Sized) and len(documents) > n


def _in_time(snapshot: Snapshot, name: str) -> int:
    """Return how many documents take not too long, by the last run of a function of that name."""
    # Before a single document ran, nothing else is known of how long one takes.
    known = [run for run in snapshot.runs if run.code.name == name and run.mean_seconds]
    last = max(known, key=lambda run: run.started, default=None)
    consumers = max((queue.consumers for queue in snapshot.queues), default=0)
    return MANY if last is None or not last.mean_seconds else int(LONG * max(1, consumers) / last.mean_seconds)


def asked(run: Run, rate: float | None, say: Callable[[str], None], *, yes: bool) -> bool:
    """Report what the sample of a run says, submit the rest or ask, and return whether its view has buttons."""
    run.rate = rate
    rehearsal = run.rehearsal
    for sentence in rehearsal.text(rate).split("\n"):
        say(sentence)
    if yes:
        run.go()
        return False
    done = [each for each in rehearsal.tried if each.outcome == "done"]
    for each in done[:: max(1, len(done) // SHOWN)][:SHOWN]:  # wrong answers are seen by nobody else
        say(f"    {one_line(repr(each.key), 40)}: {one_line(repr(each.value), 100)}")
    if done:
        say("    right or wrong? run.rehearsal.table has all of them; run.marks.right(KEY) and .wrong(KEY) count")
    live = in_jupyter() and mode() is Mode.LIVE and sends_widgets()
    if not live:
        say(f"    {run.name} waits. --yes    # on this line, or run.go() in Python: submit the rest")
    return live
