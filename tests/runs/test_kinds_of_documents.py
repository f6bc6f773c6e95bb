"""Runs over archives, PDFs, parts of them, chosen files, objects of a bucket, and rows of Dask and of Hugging Face.

Each is attached to, resumed, retried, and sent again.
"""

from __future__ import annotations

import bz2
import io
import os
import signal
import subprocess
import sys
import tarfile
import textwrap
import uuid
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask
import dask.bag
import pytest
from distributed import Client, LocalCluster

import dqlab as dq
from dqlab.documents.parts import Inline
from dqlab.runs.session import Session
from tests.kit import forking
from tests.kit.cells import of_a_cell
from tests.kit.hugging_face import Dataset
from tests.kit.pdfs import encrypted_pdf, make_pdf
from tests.kit.s3_server import serving_s3
from tests.kit.sampled import mostly_slow
from tests.runs.submit.test_cut_off import ROOT, all_there
from tests.runs.test_killed_hosts import host_of, kill

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]
COUNT = 240
WORDS = [f"{at:04} " + "word " * (at % 23) for at in range(COUNT)]
PAGES = [1 + at * at % 7 for at in range(30)]
STORED = 120
"""How many of the texts are in a bucket, whose server takes milliseconds for each."""
OPTIONS = {"key": "env:DQ_TEST_S3", "secret": "env:DQ_TEST_S3"}

SCRIPT = """
    import sys
    from pathlib import Path
    import dqlab as dq
    from tests.runs.test_kinds_of_documents import KINDS, count

    def documents():
        listed = list(KINDS[sys.argv[3]](Path(sys.argv[4])))
        yield from listed[: len(listed) // 2]
        print(len(listed) // 2, flush=True)
        sys.stdin.read()

    lab = dq.connect(sys.argv[1], name="first")
    lab.queue(sys.argv[2]).map(count, dq.Documents(documents), name="kinds", consumers=None).submitter.join(600)
"""


def html(text: str) -> str:
    return f"<html><script>no words here</script><body><p>{text.replace(' ', '</p><p>')}</body></html>"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same texts in every kind of document."""
    folder = tmp_path_factory.mktemp("corpus")
    with zipfile.ZipFile(folder / "dump.zip", "w", zipfile.ZIP_DEFLATED) as made:
        for at, text in enumerate(WORDS):
            made.writestr(f"deep/{at:04}.html", html(text))
    with tarfile.open(folder / "dump.tar.gz", "w:gz") as tar:
        for at, text in enumerate(WORDS):
            info = tarfile.TarInfo(f"deep/{at:04}.html")
            info.size = len(html(text))
            tar.addfile(info, io.BytesIO(html(text).encode()))
    (folder / "texts").mkdir()
    for at, text in enumerate(WORDS):
        (folder / f"texts/{at:04}.txt.bz2").write_bytes(bz2.compress(text.encode()))
    (folder / "papers").mkdir()
    for at, pages in enumerate(PAGES):
        (folder / f"papers/{at:02}.pdf").write_bytes(make_pdf(*(f"paper {at} page {n}" for n in range(pages))))
    return folder


KINDS: dict[str, Callable[[Path], dq.Documents]] = {
    "zip": lambda folder: dq.Documents.from_archive(folder / "dump.zip", "**/*.html"),
    "tar.gz": lambda folder: dq.Documents.from_archive(folder / "dump.tar.gz"),
    "several archives": lambda folder: dq.Documents.from_archive(folder / "dump.*"),
    "compressed texts": lambda folder: dq.Documents.from_glob(folder / "texts/*.bz2"),
    "pdfs": lambda folder: dq.Documents.from_glob(folder / "papers/*.pdf"),
    "parts of pdfs": lambda folder: dq.Documents.from_glob(folder / "papers/*.pdf").split(pages=2),
    "chosen": lambda folder: (
        dq.Documents.from_archive(folder / "dump.zip").where("size > 200").sample(100, by="size").longest_first()
    ),
    "rows of dask": lambda folder: dq.Documents.from_dask(
        dask.bag.from_sequence([{"id": f"{at:04}", "text": text} for at, text in enumerate(WORDS)], npartitions=7), "id"
    ),
    "rows of a dataset": lambda folder: dq.Documents.from_hf(
        Dataset({"id": [f"{at:04}" for at in range(COUNT)], "text": WORDS, "image": [object()] * COUNT}),
        "id",
        columns=["text"],
    ),
    "objects of a bucket": lambda folder: dq.Documents.from_glob(
        "s3://kinds/texts/*/*.txt", storage_options=OPTIONS | {"endpoint_url": (folder / "bucket").read_text()}
    ),
}


UNITS = {"parts of pdfs": "pages", "rows of dask": "documents", "rows of a dataset": "documents"}
"""What runs over a kind count, where that is not bytes."""


def weight(unit: str, document: dq.Document) -> int:
    known = {"bytes": document.size, "pages": document.page_count}.get(unit)
    return 1 if known is None else known


@of_a_cell
def words_of(document: dq.Document) -> int:
    if isinstance(document.part, Inline):
        return len(document["text"].split())
    if "#p" in document.key or document.key.endswith(".pdf"):
        return sum(len(page.text().split()) for page in document.pages())
    return len((document.html() if document.key.endswith(".html") else document.text()).split())


@of_a_cell
def count(document: dq.Document) -> tuple[int, int]:
    return words_of(document), os.getpid()


@of_a_cell
def count_most(document: dq.Document) -> tuple[int, int]:
    if sum(map(ord, document.key)) % 10 == 0:
        raise ValueError(document.key)
    return count(document)


def expected(kind: str, folder: Path) -> dict[str, int]:
    """Count by hand: with what the corpus was made of, not by reading it."""
    texts = {f"deep/{at:04}.html": len(text.split()) for at, text in enumerate(WORDS)}
    match kind:
        case "zip" | "tar.gz":
            return texts
        case "several archives":
            return {f"{archive}/{key}": n for archive in ("dump.tar.gz", "dump.zip") for key, n in texts.items()}
        case "compressed texts":
            return {f"{at:04}.txt.bz2": len(text.split()) for at, text in enumerate(WORDS)}
        case "pdfs":
            return {f"{at:02}.pdf": 4 * pages for at, pages in enumerate(PAGES)}
        case "chosen":
            return {document.key: texts[document.key] for document in KINDS[kind](folder)}
        case "objects of a bucket":
            return {f"{at % 7}/{at:04}.txt": len(text.split()) for at, text in enumerate(WORDS[:STORED])}
        case "rows of dask" | "rows of a dataset":
            return {f"{at:04}": len(text.split()) for at, text in enumerate(WORDS)}
    parts = {}
    for at, pages in enumerate(PAGES):
        for lo in range(0, pages, 2):
            hi = min(lo + 2, pages)
            parts[f"{at:02}.pdf" if pages <= 2 else f"{at:02}.pdf#p{lo + 1}-{hi}of{pages}"] = 4 * (hi - lo)
    return parts


@pytest.fixture(scope="module")
def hurt() -> Iterator[Client]:
    """A client of a cluster that may be hurt: two workers for queues, two for consumers, all with credentials."""
    with (
        pytest.MonkeyPatch.context() as patch,
        dask.config.set({"distributed.deploy.lost-worker-timeout": "1 hour"}),
        LocalCluster(n_workers=4, threads_per_worker=1, dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster) as client,
    ):
        patch.setenv("DQ_TEST_S3", "secret")
        client.run(lambda: os.environ.update(DQ_TEST_S3="secret"))
        Session.of(client, reserved=("0", "1"))
        yield client


@pytest.fixture(scope="module")
def bucket(corpus: Path) -> Iterator[None]:
    """The texts in a bucket, whose address is beside the corpus."""
    s3fs = pytest.importorskip("s3fs")
    with serving_s3() as address:
        system = s3fs.S3FileSystem(endpoint_url=address, key="k", secret="s", skip_instance_cache=True)
        system.mkdir("kinds")
        system.pipe({f"kinds/texts/{at % 7}/{at:04}.txt": text.encode() for at, text in enumerate(WORDS[:STORED])})
        (corpus / "bucket").write_text(address)
        yield


@pytest.fixture
def kind(request: pytest.FixtureRequest) -> str:
    """A kind of documents, where they are."""
    if request.param == "objects of a bucket":
        request.getfixturevalue("bucket")
    return str(request.param)


@pytest.fixture
def pool(hurt: Client) -> Iterator[dq.QueuePool]:
    """A queue of two shards, each on a worker of its own."""
    hurt.wait_for_workers(4, timeout=60)
    pool = dq.QueuePool(hurt, 2, name=f"q-{uuid.uuid4().hex[:8]}", served=True)
    yield pool
    pool.close(force=True)


def counted(run: dq.Run) -> dict[str, int]:
    return {key: value[0] for key, value in run.results(timeout=120).items()}


@pytest.mark.parametrize("kind", mostly_slow(KINDS, "several archives"), indirect=True)
def test_run_over_each_kind_goes_on_where_its_submitter_was_killed(
    pool: dq.QueuePool, hurt: Client, corpus: Path, kind: str
) -> None:
    """No document twice and none left out; then it is attached to, here and elsewhere, and its results join by key."""
    child = forking.Popen(
        [sys.executable, "-c", textwrap.dedent(SCRIPT), hurt.scheduler.address, pool.name, kind, str(corpus)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    with child:
        assert child.stdout is not None
        half = int(child.stdout.readline())
        all_there(pool, half)
        os.kill(child.pid, signal.SIGKILL)
    documents = KINDS[kind](corpus)

    run = pool.map(count, documents, name="kinds")
    by_hand = expected(kind, corpus)
    assert counted(run) == by_hand
    assert list(run.results().keys()) == [document.key for document in documents]
    assert sum(run.counts.values()) == len(by_hand) == len(documents)
    again = pool.map(count, KINDS[kind](corpus), name="kinds")
    assert counted(again.wait(timeout=60)) == by_hand
    assert sum(again.counts.values()) == len(by_hand)
    with Client(hurt.scheduler.address, set_as_default=False) as other:
        theirs = dq.QueuePool(other, name=pool.name).session.runs.attach("kinds")
        assert counted(theirs) == by_hand
    frame = run.results().to_frame()
    assert {key: value[0] for key, value in zip(frame.index, frame.iloc[:, 0], strict=True)} == by_hand
    workers = set(hurt.run(os.getpid).values())
    in_processes = not workers & {value[1] for value in run.results()}
    assert in_processes == ("pdf" in kind)


@pytest.mark.parametrize("kind", mostly_slow(KINDS, "zip", "parts of pdfs", "rows of a dataset"), indirect=True)
def test_failed_documents_of_each_kind_run_again_and_outlive_a_killed_worker(
    pool: dq.QueuePool, corpus: Path, kind: str
) -> None:
    documents, by_hand = KINDS[kind](corpus), expected(kind, corpus)
    run = pool.map(count_most, documents, name="kinds", retry=dq.Retry(0))
    run.until_over(120)
    failed = {key for key in by_hand if sum(map(ord, key)) % 10 == 0}
    assert {letter.key for letter in run.failures()} == failed
    assert run.retry(fn=count) == len(failed)
    assert counted(run.wait(timeout=120)) == by_hand

    kill(pool, 0)
    assert counted(run.wait(timeout=120)) == by_hand
    stats = run.stats()
    assert stats.unit == UNITS.get(kind, "bytes")
    assert stats.progress.all == stats.progress.acked == sum(weight(stats.unit, each) for each in documents)
    assert host_of(pool, 0)


def read(document: dq.Document) -> str:
    return document.text()


def read_again(document: dq.Document) -> str:
    return document.refreshed().text()


def test_files_that_change_and_are_damaged_fail_by_themselves_and_can_be_retried(
    pool: dq.QueuePool, tmp_path: Path
) -> None:
    """Each is one failure of its own class; `refreshed` reads what was repaired."""
    for at in range(8):
        (tmp_path / f"{at}.txt").write_text(f"text {at}")
    (tmp_path / "bad.txt.gz").write_bytes(b"\x1f\x8b\x08\0")
    (tmp_path / "locked.pdf").write_bytes(encrypted_pdf())
    (tmp_path / "none.pdf").write_bytes(make_pdf())
    documents = list(dq.Documents.from_glob(tmp_path / "*"))
    (tmp_path / "3.txt").write_text("another text")

    run = pool.map(read, documents, name="changed")
    run.until_over(60)
    failures = {letter.key: letter.error.rpartition(".")[2] for letter in run.failures()}
    assert failures == {
        "3.txt": "DocumentChanged",
        "bad.txt.gz": "DocumentDamaged",
        "locked.pdf": "DocumentEncrypted",
        "none.pdf": "DocumentDamaged",
    }
    assert {letter.deliveries for letter in run.failures()} == {1}
    assert run.retry(fn=read_again, where="error == 'DocumentChanged'") == 1
    run.until_over(60)
    assert {letter.key for letter in run.failures()} == {"bad.txt.gz", "locked.pdf", "none.pdf"}
    values: Any = dict(run.results(errors="skip").items())
    assert values["3.txt"] == "another text"
    assert values["4.txt"] == "text 4"


async def read_async(document: dq.Document) -> int:
    return len(await document.abytes())


def test_coroutines_read_members_of_archives(pool: dq.QueuePool, corpus: Path) -> None:
    documents = KINDS["zip"](corpus)

    run = pool.map(read_async, documents, name="async")
    assert dict(run.results(timeout=60).items()) == {document.key: document.size for document in documents}
