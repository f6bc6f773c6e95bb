"""What a slot and its process say to each other, as bytes."""

from __future__ import annotations

import os

from hypothesis import given
from hypothesis import strategies as st

from dqlab.cluster.consumer.process.pipes import LastWords, Record, Records, Say, record

said = st.builds(
    Record,
    st.sampled_from(Say).map(int),
    st.integers(0, 2**32 - 1),
    st.binary(max_size=300),
    st.integers(0, 255),
    st.none() | st.text(st.characters(), max_size=30),
    st.text(st.characters(), max_size=10),
    st.floats(allow_nan=False),
    st.integers(0, 2**64 - 1),
)


@given(st.lists(said, max_size=5), st.integers(1, 40))
def test_records_come_out_as_they_went_in_however_they_are_cut(records: list[Record], step: int) -> None:
    """Pipes know no records: a read ends anywhere."""
    stream = b"".join(record(Say(r.say), r.turn, r.body, **dict(list(r._asdict().items())[3:])) for r in records)
    reader, out = Records(), []

    for at in range(0, len(stream), step):
        reader.feed(stream[at : at + step])
        out += reader.take()

    assert out == records


@given(st.binary(min_size=1, max_size=60))
def test_what_other_code_writes_is_at_most_a_record_of_no_type(written: bytes) -> None:
    """A library may print to the pipe of a process: its slot ends the process, and must not end itself."""
    reader = Records()
    reader.feed(written)
    assert all(each.say not in set(Say) for each in reader.take())


def test_last_words_name_the_document_that_was_noted_last() -> None:
    """And no other: the one that crashed may be none of the documents."""
    words = LastWords.make()
    os.write(words.fd, b"Fatal Python error")

    assert words.document(0) == (None, 0)
    words.note(7, "a.pdf")
    words.note(8, "\udcff.pdf")
    words.note(9, "x" * 5000)  # longer than there is room for

    words.note_page(3)
    assert [words.document(turn) for turn in (7, 8, 9)] == [(None, 0), ("\udcff.pdf", 3), (None, 0)]
    assert words.stack() == "Fatal Python error"
    words.close()
