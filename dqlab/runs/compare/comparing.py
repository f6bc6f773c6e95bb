"""Compares new code with a run's results: draws a sample, runs the new code alone over it, and pairs the two.

The new code runs as a run of its own on the same queue, which is dropped at the end; the old results are read from the
run. So is the old code for the noise: a function that is not deterministic changes results by itself.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from random import Random
from types import CodeType
from typing import TYPE_CHECKING, Any

from dqlab.cluster.transport.orders import Code
from dqlab.config import check_count
from dqlab.errors import BadOption, DqlabError, RunError
from dqlab.plan import called
from dqlab.rules.ranges import Ranges
from dqlab.runs.compare.comparison import Became, Compared, Comparison
from dqlab.runs.compare.equality import Equal, same_row, same_value
from dqlab.runs.failures import DeadLetter
from dqlab.runs.reading.results import InPlace, OpenedStretch
from dqlab.runs.submit.elements import key_of
from dqlab.runs.submit.sampling import draw_placed
from dqlab.runs.update.plan import input_of, placed
from dqlab.stats.sample import Pick
from dqlab.texts import one_line
from dqlab.waits import shown

if TYPE_CHECKING:
    from dqlab.cluster.transport.reports import Progress
    from dqlab.runs.run import Run

REPEATS = 30
"""Documents on which the old code runs again where it may not be deterministic."""
FEWEST = 10
"""Of a sample, one of so many documents at least is a dead one, as far as there are such."""
_UNSURE = frozenset(
    {"random", "secrets", "uuid", "uuid4", "uuid1", "now", "utcnow", "today", "time_ns", "shuffle", "default_rng"}
    | {"requests", "httpx", "aiohttp", "urllib", "urlopen", "openai", "OpenAI", "anthropic", "Anthropic", "litellm"}
)
"""Names whose use in a function shows that it may return something else when it is called again."""
_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class _Made:
    """What became of a document under one code."""

    value: Any = None
    error: str = ""
    """Why it failed, or "" if it did not."""
    seconds: float = math.nan
    attempts: int = 1
    code: str = ""
    absent: bool = False
    """Whether there is neither a result that can be read, nor a failure."""


@dataclass
class _Plan:
    """What is compared, and how."""

    run: Run
    picks: Sequence[tuple[Pick, bool]]
    """The documents of the sample, and whether they had failed, by ordinal."""
    marks: Mapping[int, bool]
    """Which of their old results are marked as right and wrong, by ordinal."""
    equal: Equal
    score: Callable[[Any, Any], Any] | None
    before: dict[int, _Made] = field(default_factory=dict)

    def pair(self, at: int, made: _Made, *, again: bool = False) -> Compared:
        """Return the document at a position of the sample beside what the new code made of it."""
        pick, failed = self.picks[at]
        key, old = key_of(pick.element, pick.at), self.before[pick.at]
        became = self._became(key, old, made)
        scored = self.score is not None and not again and became in (Became.EQUAL, Became.CHANGED)
        return Compared(
            key,
            pick.at,
            became,
            old.value,
            made.value,
            made.error or old.error,
            old.code,
            old.seconds,
            made.seconds,
            made.attempts,
            self._score(key, old.value) if scored else math.nan,
            self._score(key, made.value) if scored else math.nan,
            pick.group,
            failed,
            None if again else self.marks.get(pick.at),
        )

    def _became(self, key: Any, old: _Made, new: _Made) -> Became:
        if old.absent or new.absent:
            return Became.NONE
        if old.error:
            return Became.STILL_FAILS if new.error else Became.NEWLY_WORKS
        if new.error:
            return Became.NEWLY_FAILS
        with _of_user("equal", self.equal, key):
            return Became.EQUAL if bool(self.equal(old.value, new.value)) else Became.CHANGED

    def _score(self, key: Any, value: Any) -> float:
        assert self.score is not None, "asked by `pair`"
        with _of_user("score", self.score, key):
            return float(self.score(key, value))


@contextmanager
def _of_user(option: str, function: object, key: Any) -> Iterator[None]:
    """Raise `BadOption` for what a function of the user raises."""
    try:
        yield
    except Exception as error:
        said = one_line(f"{type(error).__name__}: {error}", 300)
        problem = f"raised {said} at document {key!r}. The run and its results are as they were."
        raise BadOption(option=option, value=function, problem=problem) from error


def compare(
    run: Run,
    fn: Callable[..., Any],
    *,
    sample: int,
    equal: Equal | None,
    score: Callable[[Any, Any], Any] | None,
    noise: int | None,
    seen: Callable[[Comparison], None] = lambda _: None,
    elements: Iterable[Any] | None = None,
) -> Comparison:
    """Compare as `Run.compare` describes, and show `seen` what is known after each batch of results.

    `elements` is the input, where this process has it and did not map it.
    """
    check_count("sample", sample)
    if noise is not None:
        check_count("noise", noise, least=0)
    for option, function in (("equal", equal), ("score", score)):
        if function is not None and not callable(function):
            raise BadOption(option=option, value=function, problem="is a function of two arguments. Nothing was run.")
    code = run._new_code(fn)
    progress = run._progress(covered=True)
    given = input_of(run, elements)
    marks = {ordinal: bool(right) for ordinal, right in progress.record.marks}
    picks, settled, dead = _drawn(run, progress, sample, given, marks)
    plan = _Plan(run, picks, marks, equal or (same_value if run.sink is None else same_row), score)
    records = progress.record.codes
    known = [number for number, each in enumerate(records, 1) if each["hash"] == code.code["hash"]]
    found = Comparison(
        run.name,
        run.id,
        records[-1]["hash"],
        (len(records),),
        known[-1] if known else len(records) + 1,
        len(picks),
        settled,
        dead,
        input=progress.record.input.digest,
        sealed=code,
        documents=given,
    )
    old, why = _old_code(run, fn, records[-1], noise)
    repeated = _repeated(
        [at for at, (_, failed) in enumerate(picks) if not failed], REPEATS if noise is None else noise
    )
    with _beside(run, code, [pick.element for pick, _ in picks]) as scratch:
        plan.before = _before(run, picks)
        found = replace(found, old=_versions(plan, records), without_noise=why)
        found = _fill(found, plan, scratch, range(len(picks)), seen)
    if old is not None and repeated:
        with _beside(run, old, [picks[at][0].element for at in repeated]) as scratch:
            blank = replace(found, pairs=(), sample=len(repeated))
            found = replace(found, noise=_fill(blank, plan, scratch, repeated, lambda _: None, again=True).pairs)
    return found


def _drawn(
    run: Run, progress: Progress, sample: int, elements: Iterable[Any], marks: Iterable[int]
) -> tuple[list[tuple[Pick, bool]], int, int]:
    """Draw the sample, with all marked ones; return it with how many documents have a result, and how many are dead."""
    done = Ranges(span for shard in progress.shards for span in shard.covered)
    failed = Ranges((ordinal, ordinal + 1) for _, ordinal in _dead(run, progress))
    for lo, hi in failed:  # what failed when it ran again has its old result still, perhaps of another version
        done.discard(lo, hi)
    if not done and not failed:
        raise RunError(
            run=run.name, reason="no document of it has an outcome yet, so there is nothing to compare with."
        )
    settled = done.size
    most = math.ceil(sample * failed.size / (settled + failed.size))
    of_failed = min(failed.size, max(most, sample // FEWEST, sample - settled))
    marked = Ranges((ordinal, ordinal + 1) for ordinal in sorted(marks) if ordinal in done)
    for lo, hi in marked:
        done.discard(lo, hi)
    of_done = max(0, min(done.size, sample - of_failed - marked.size))
    sizes = [(done, of_done), (failed, of_failed), (marked, marked.size)]
    samples = draw_placed(placed(run, elements, progress), sizes)
    picks = [(pick, drawn is samples[1]) for drawn in samples for pick in drawn.picks]
    return sorted(picks, key=lambda pick: pick[0].at), settled, failed.size


def _dead(run: Run, progress: Progress) -> list[tuple[int, int]]:
    """Return (id, ordinal) of the dead documents of a run."""
    return [(id, ordinal) for ordinal, id in run.failures().places()] if progress.counts.dead else []


@contextmanager
def _beside(run: Run, code: Code, elements: list[Any]) -> Iterator[Run]:
    """Run other code over some documents while the block lasts."""
    if run.beside is None:
        raise RunError(run=run.name, reason="its lab is closed in this process. Attach to it again: lab.attach(name).")
    scratch = run.beside(run, code, elements)
    try:
        yield scratch
    finally:
        with suppress(DqlabError):  # a cluster that is gone has raised its own error
            scratch.drop()


def _before(run: Run, picks: Sequence[tuple[Pick, bool]]) -> dict[int, _Made]:
    """Return what a run has made of the documents of a sample."""
    ids = {ordinal: id for id, ordinal in _dead(run, run._progress())} if any(failed for _, failed in picks) else {}
    letters = run.failures().named([ids[pick.at] for pick, failed in picks if failed and pick.at in ids])
    results = run.results_at([(pick.at, pick.at + 1) for pick, failed in picks if not failed])
    made = {letter.ordinal: _failure(letter) for letter in letters}
    for stretch in results.single([pick.at for pick, failed in picks if not failed]):
        made |= _made(stretch)
    # What is neither was retried or lost meanwhile.
    return {pick.at: made.get(pick.at, _Made(absent=True)) for pick, _ in picks}


def _made(stretch: OpenedStretch) -> Mapping[int, _Made]:
    """Return what some results are, by ordinal."""
    lineage = stretch.lineage
    seconds = [math.nan] * len(stretch.values) if lineage is None else list(lineage.seconds())
    attempts = [] if lineage is None else [n or 1 for n, times in lineage.runs("_attempts") for _ in range(times)]
    code = "" if lineage is None else lineage.code or ""
    return {
        stretch.ordinal + at: _Made(absent=True)
        if InPlace.is_one(value)
        else _Made(value, seconds=seconds[at], attempts=attempts[at] if attempts else 1, code=code)
        for at, value in enumerate(stretch.values)
    }


def _failure(letter: DeadLetter) -> _Made:
    at = f" ({letter.at})" if letter.at else ""
    error = one_line(f"{letter.error}: {letter.message}", 300) + at
    return _Made(error=error, attempts=letter.deliveries, code=letter.version or "")


def _fill(
    found: Comparison,
    plan: _Plan,
    scratch: Run,
    places: Sequence[int],
    seen: Callable[[Comparison], None],
    *,
    again: bool = False,
) -> Comparison:
    """Return a comparison with all documents of a run beside, at these places of the sample."""
    pairs: dict[int, Compared] = {}

    def with_pairs() -> Comparison:
        return replace(found, pairs=tuple(pairs[at] for at in sorted(pairs)))

    with shown(scratch) as wait:
        for stretch in scratch._wait.stretches(None, wait):
            for at, made in _made(stretch).items():
                pairs[places[at]] = plan.pair(places[at], made, again=again)
            seen(with_pairs())
    for letter in scratch.failures():
        pairs[places[letter.ordinal]] = plan.pair(places[letter.ordinal], _failure(letter), again=again)
    for place in places:  # of a result that cannot be read here, the stream has nothing
        if place not in pairs:
            pairs[place] = plan.pair(place, _Made(absent=True), again=again)
    found = with_pairs().checked()
    seen(found)
    return found


def _versions(plan: _Plan, records: Sequence[Any]) -> tuple[int, ...]:
    """Return the numbers of the versions that made the old results of the sample."""
    numbers = {each["short"]: number for number, each in enumerate(records, 1)}
    used = {numbers[made.code] for made in plan.before.values() if made.code in numbers}
    return tuple(sorted(used)) or (len(records),)


def _old_code(run: Run, fn: Callable[..., Any], newest: Any, noise: int | None) -> tuple[Code | None, str]:
    """Return the old code if it is to run again, or why it cannot although it should."""
    source = set(_WORD.findall(newest["source"] or ""))
    if noise == 0 or (noise is None and not (_may_vary(called(fn)) or source & {"async", *_UNSURE})):
        return None, ""
    if (kept := run._kept()) is not None:
        return kept, ""
    why = f"the old code, {newest['name']} ({newest['short']}), is not kept here any more"
    if noise is not None:
        steps = "Map the same documents with it in this process first, or leave noise= out"
        raise RunError(run=run.name, reason=f"{why}, and cannot run again. {steps}. Nothing was run.")
    return None, f"noise: unknown, since {why}; some of the changes may come by themselves"


def _may_vary(fn: Callable[..., Any]) -> bool:
    """Return whether a function may return something else when it is called again, as far as its names show."""
    code = getattr(inspect.unwrap(fn), "__code__", None)
    return inspect.iscoroutinefunction(fn) or (isinstance(code, CodeType) and bool(_names(code) & _UNSURE))


def _names(code: CodeType) -> set[str]:
    inner = [_names(each) for each in code.co_consts if isinstance(each, CodeType)]
    return set(code.co_names).union(*inner)


def _repeated(places: Sequence[int], n: int) -> list[int]:
    """Return the places of the sample whose documents the old code does again."""
    return sorted(Random(0).sample(list(places), min(n, len(places))))
