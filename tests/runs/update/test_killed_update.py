"""An update that is cut off with everything is completed by the same script: nothing is missing, nothing doubled."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.timeout(240)]
SCRIPT = """
import json, sys, time
import dqlab as dq

def read(document):
    time.sleep(0.001)
    return {"text": document.text()}

if __name__ == "__main__":
    place, sink = sys.argv[1], json.loads(sys.argv[2])
    with dq.connect(n=2, store=f"{place}/store", name="killed") as lab:
        documents = dq.Documents.from_glob(f"{place}/in/*.txt")
        run = lab.map(read, documents, name="r", on_existing="update", **({"sink": f"{place}/rows"} if sink else {}))
        print("begun", flush=True)
        run.wait(timeout=120)
        rows = [(key, value["text"]) for key, value in run.results().items()]
        print(json.dumps([rows, run.counts, sum(version.results for version in run.versions)]))
"""


@pytest.mark.parametrize("sink", [False, True], ids=["in the queue", "in a sink"])
def test_an_update_that_was_killed_is_completed_by_the_next_one(tmp_path: Path, sink: bool) -> None:
    random, folder = Random(3), tmp_path / "in"
    folder.mkdir()
    (tmp_path / "script.py").write_text(SCRIPT)
    for number in range(1000):
        (folder / f"{number:04}.txt").write_text(f"first {number}")
    command = [sys.executable, str(tmp_path / "script.py"), str(tmp_path), json.dumps(sink)]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    for wait in (0.0, 0.3, 0.7):
        for path in random.sample(sorted(folder.iterdir()), 500):
            path.write_text(path.read_text() + "." * random.randint(1, 9))
        for path in random.sample(sorted(folder.iterdir()), 50):
            path.unlink()
        for number in range(100):
            (folder / f"{wait}-{number}.txt").write_text("new")
        begun = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
        assert begun.stdout is not None
        assert begun.stdout.readline() == "begun\n"
        time.sleep(wait)
        os.killpg(begun.pid, signal.SIGKILL)
        begun.communicate()

        ended = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)

        rows, counts, made = json.loads(ended.stdout.splitlines()[-1])
        assert sorted(map(tuple, rows)) == sorted((path.name, path.read_text()) for path in folder.iterdir())
        assert counts["acked"] == sum(counts.values()) == made == len(rows)
