"""Checks lesson 24: an agent works in another place through a pipe."""

import re

from refold.learn.model_server import ModelReply
from refold.learn.workshop import Demo, Workshop, call, expect, quote

_LESSON_REPLIES = (
    call("write_file", path="notes.txt", content="milk\n"),
    call("read_file", path="notes.txt"),
    ModelReply("The notes are over there."),
)
LESSON_DEMO = Demo(_LESSON_REPLIES, words=("Note:", "milk"))
_MIN_PROGRAM_BYTES = 50_000


def check(workshop: Workshop) -> None:
    """Check the file in the other place, its content in the answer, and the byte counts."""
    run = workshop.run(*_LESSON_REPLIES, words=["Note", "it"])
    expect(
        "over there" in run.output,
        f"The session should end with an answer. Printed: {quote(run.output)} {quote(run.errors[-500:])}.",
        "The shell gets what refold sends only if pump passes it on.",
        "Read a piece, write it, and repeat until the piece is empty.",
        "while data := os.read(source, 65536):\n    os.write(target, data)",
    )
    expect(
        workshop.read("there/notes.txt") == "milk\n" and "milk" in str(run.messages(-1)),
        "notes.txt should be written in the directory there/, and read from it.",
        "Every byte counts, in both directions.",
        "os.write returns how many bytes it wrote: write the rest as well.",
        "while data:\n    data = data[os.write(target, data) :]",
    )
    counts = re.search(r"(\d+) bytes there, (\d+) bytes back", run.output)
    expect(
        counts,
        f"At the end the bytes should be printed. Printed: {quote(run.output)}.",
        "The wire writes its counts when both directions have ended.",
        "An empty piece is the end: then close the target, so that sh ends, too.",
        "os.close(target)\nreturn count",
    )
    there, back = (int(text) for text in counts.groups()) if counts else (0, 0)
    expect(
        there > _MIN_PROGRAM_BYTES and 0 < back < there,
        f"Most bytes go there, and some come back, but counted were {there} and {back}.",
        "Count what was read.",
        "pump returns the sum of the lengths.",
        "count += len(data)",
    )
