"""The run and its model agree in every result and every count."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pandas as pd
import pytest

import dqlab as dq
from dqlab.errors import RunExists
from dqlab.runs.code.versions import code_version
from dqlab.runs.compare.comparison import Became, Comparison
from tests.kit.sampled import mostly_slow

pytestmark = pytest.mark.filterwarnings("ignore:.*failed. run.failures:dqlab.errors.DqlabWarning")
CODES = range(1, 4)


def function(code: int) -> Callable[[Any], dict[str, str]]:
    """Return one of several functions, by whose numbers a text says what fails with which."""

    def read(row: Any) -> dict[str, str]:
        text = row["text"]
        if f"!{code}" in text:
            raise ValueError(text)
        return {"text": text if "same" in text else f"{text} by {code}"}

    return read


def made(text: str, code: int) -> str | None:
    """Return what a function makes of a text, None where it fails."""
    return None if f"!{code}" in text else text if "same" in text else f"{text} by {code}"


class Model:
    """A run, and the documents that there are today, by key."""

    def __init__(self, random: Random, queue: dq.QueuePool, start: Callable[..., dq.Run]) -> None:
        self.random, self.queue, self.written = random, queue, 0
        self.credited = True
        """Whether it is known which function has made each result: no document with one was cancelled."""
        self.listed: dict[int, str] = {}
        self.rows: dict[int, tuple[str, int]] = {}
        """Text of the document that each result was made of, and the function that made it."""
        self.dead: dict[int, str] = {}
        self.code = 1
        """The newest function."""
        for key in range(12):
            self.write(key)
        self.mapped: list[Any] | None = list(self.listed.items())
        """The input as it was mapped, until it is updated."""
        self.ran(self.listed, 1)
        self.run = start(function(1), self.documents).wait()

    def write(self, key: int) -> None:
        self.written += 1
        fails = "".join(f"!{code}" for code in CODES if self.random.random() < 0.3)
        self.listed[key] = f"{self.written} {fails} {self.random.choice(['same', 'other'])}"

    def edit(self) -> None:
        """Change some documents, add some, and delete some."""
        for key in self.random.sample(sorted(self.listed), self.random.randrange(4)):
            self.write(key)
        for key in self.random.sample(sorted(self.listed), self.random.randrange(2)):
            del self.listed[key]
        if self.random.random() < 0.4:
            self.write(self.random.randrange(30))

    @property
    def documents(self) -> dq.Documents:
        keys = list(self.listed)
        return dq.Documents.from_frame(pd.DataFrame({"id": keys, "text": list(self.listed.values())}), key="id")

    @property
    def texts(self) -> dict[int, str]:
        """The newest text of each document that the run has."""
        return {key: text for key, (text, _) in self.rows.items()} | self.dead

    def ran(self, texts: dict[int, str], code: int) -> None:
        for key, text in texts.items():
            self.dead.pop(key, None)
            if made(text, code) is None:
                self.dead[key] = text
            else:
                self.rows[key] = text, code

    def fits(self) -> bool:
        """Return whether today's documents are those of the run, some that are gone aside once it was updated."""
        if self.mapped is not None:
            return self.mapped == list(self.listed.items())
        texts = self.texts
        return all(texts.get(key) == text for key, text in self.listed.items())

    # --- what is asked of the run, each as the run and as the model do it -------------------------

    def update(self, code: int) -> None:
        keep, texts = self.random.random() < 0.3, self.texts
        runs = {key: text for key, text in self.listed.items() if texts.get(key) != text}
        gone = texts.keys() - self.listed.keys()
        plan = self.run.plan(self.documents, fn=function(code), keep_gone=keep)
        assert len(plan.new) == len(runs.keys() - texts.keys())
        assert len(plan.new) + len(plan.changed) == len(runs)
        assert (plan.gone, plan.unknown, plan.again) == (len(gone), 0, 0)
        assert plan.failed == len(self.listed.keys() & self.dead.keys() - runs.keys())
        assert plan.kept == sum(plan.made.values()) == len(self.listed.keys() - self.dead.keys() - runs.keys())
        self.run.update(plan, function(code)).wait()
        if plan.empty:
            return
        for key in () if keep else gone:
            self.rows.pop(key, None)
            self.dead.pop(key, None)
        self.ran(runs, code)
        self.code, self.mapped = code, None

    def cancel(self, code: int) -> None:
        """Begin an update, and give it up before anything of it has run; what it was to do is left to the next one."""
        runs = {key: text for key, text in self.listed.items() if self.texts.get(key) != text}
        self.queue.pause()
        self.run.update(self.documents, function(code))
        assert self.run.submitter is not None
        self.run.submitter.join(20)
        assert self.run.cancel() == len(runs)
        self.queue.resume()
        if runs or self.texts.keys() - self.listed.keys():
            self.code, self.mapped, self.credited = code, None, self.credited and not runs
        for key in list(self.texts):
            if key in runs or key not in self.listed:
                self.dead.pop(key, None)
            if key not in self.listed:
                self.rows.pop(key, None)
        self.update(code % max(CODES) + 1)

    def retry(self, code: int) -> None:
        given = self.random.random() < 0.7
        assert self.run.retry(function(code) if given else None) == len(self.dead)
        if self.dead:
            self.code = code if given else self.code
        self.ran(dict(self.dead), self.code)
        self.run.wait()

    def redo(self, code: int) -> None:
        have = sorted(self.rows.keys() & self.listed.keys())
        keys = self.random.sample(have, min(3, len(have))) if self.random.random() < 0.8 else None
        chosen = have if keys is None else keys
        if not self.fits():
            with pytest.raises(RunExists, match="other documents"):
                self.run.redo(function(code), keys, documents=self.documents)
        else:
            assert self.run.redo(function(code), keys, documents=self.documents) == len(chosen)
            self.ran({key: self.listed[key] for key in chosen}, code)
            self.code = code if chosen else self.code
        self.run.wait()

    def compare(self, code: int) -> None:
        if not self.fits():
            with pytest.raises(RunExists, match="other documents"):
                self.run.compare(function(code), documents=self.documents)
            return
        found = self.run.compare(function(code), self.random.choice([4, 40]), documents=self.documents, noise=0)
        assert found.total == len(self.texts)
        assert sum(found.counts.values()) == found.sample == len({pair.key for pair in found.pairs})
        assert found.sample == min(len(self.listed), 4) or found.sample == len(self.listed)
        for pair in found.pairs:
            new, dead = made(self.listed[pair.key], code), pair.key in self.dead
            old = None if dead else made(*self.rows[pair.key])
            same, newly = Became.EQUAL if old == new else Became.CHANGED, Became.NEWLY_WORKS
            there = Became.NEWLY_FAILS if new is None else same
            assert pair.became is ((Became.STILL_FAILS if new is None else newly) if dead else there)
        if self.random.random() < 0.7:
            self.accept(found, code)

    def accept(self, found: Comparison, code: int) -> None:
        redo = self.random.choice(["none", "failed", "changed", "all"])
        changed = {pair.key for pair in found.changed}
        runs = {"none": set(), "failed": self.dead.keys(), "changed": changed, "all": self.listed.keys()}[redo]
        assert self.run.accept(found, redo) == len(runs)
        self.ran({key: self.texts[key] for key in list(runs)}, code)
        self.code = code
        self.run.wait()

    def check(self, shorts: dict[str, int]) -> None:
        """Compare all that the run says of itself with the model."""
        run, dead = self.run, self.dead.keys()
        values = [(key, value["text"]) for key, value in run.results(errors="skip").items()]
        assert dict(values) == {key: made(*row) for key, row in self.rows.items()}
        assert len(values) == len(self.rows)
        assert sorted(letter.key for letter in run.failures()) == sorted(dead)
        assert (run.counts["acked"], run.counts["dead"]) == (len(self.rows.keys() - dead), len(dead))
        assert sum(run.counts.values()) == len(self.texts)
        by_code = Counter[int]()
        for version in run.versions:
            by_code[shorts[version.short]] += version.results
        theirs = Counter(code for key, (_, code) in self.rows.items() if key not in dead)
        assert +by_code == theirs if self.credited else by_code.total() == theirs.total()
        assert shorts[run.versions[-1].short] == self.code


@pytest.mark.parametrize("sink", [False, True], ids=["in the queue", "in a sink"])
@pytest.mark.parametrize("seed", mostly_slow([*range(24), 107], 0))
def test_any_sequence_of_orders_leaves_what_a_model_has(
    lab: dq.Lab, queue_name: str, tmp_path: Path, seed: int, sink: bool
) -> None:
    """Documents fail with some functions and not with others, also those that had a result."""
    with closing(lab.queue(queue_name, 1 + sink)) as queue:  # in one shard, and in two

        def start(fn: Any, documents: Any) -> dq.Run:
            more = {"sink": tmp_path / "rows"} if sink else {}
            return queue.map(fn, documents, name=queue_name, retry=dq.Retry(0), **more)

        model = Model(Random(seed), queue, start)
        shorts = {code_version(function(code)).short: code for code in CODES}
        model.check(shorts)
        for _ in range(16 if seed else 8):
            if model.random.random() < 0.5:
                model.edit()
            orders = [model.update, model.cancel, model.retry, model.redo, model.compare, model.compare]
            model.random.choice(orders)(model.random.choice(CODES))
            model.check(shorts)
