"""Checks lesson 34: tasks that a model cannot pass by only claiming success."""

from refold.learn.model_server import ModelReply
from refold.learn.workshop import Demo, Workshop, call, expect, quote

_BOAST_REPLIES = (ModelReply("I added the eggs."), ModelReply("It has 12 lines."))
_READ_REPLY = call("read_file", path="list.txt")
LESSON_DEMO = Demo(_BOAST_REPLIES)


def check(workshop: Workshop) -> None:
    """Check a model that only claims success, one that succeeds, and one that destroys text."""
    output = workshop.run(*_BOAST_REPLIES).output
    expect(
        " eggs: list.txt is " in output,
        f"The model changed nothing, and said that it did: the task should fail. Printed: {quote(output)}.",
        "A check that names no file looks at the answer. What should it look at?",
        "The text of list.txt is known beforehand. Space at its end does not count.",
        r'checks = [{ file = "list.txt", equals = "milk\nbread\neggs" }]',
    )
    expect(
        "passed: 0 of 2" in output,
        f"There should be a second task, `count`, that '12 lines' does not pass. Printed: {quote(output)}.",
        "The file has 2 lines. A 2 is in '12' as well.",
        r"A regular expression says where a word begins and ends: \b.",
        r"checks = [{ matches = '\b2\b' }]",
    )
    expect(
        r"\x08" not in output,
        f"The regular expression of `count` has a control character. Printed: {quote(output)}.",
        r"Between double quotes, TOML reads \b as a control character.",
        "Between single quotes, a backslash stays a backslash.",
        r"checks = [{ matches = '\b2\b' }]",
    )
    two = ModelReply("It has 2 lines.")
    write = call("write_file", path="list.txt", content="milk\nbread\neggs\n")
    output = workshop.run(_READ_REPLY, write, ModelReply("Done."), _READ_REPLY, two).output
    expect(
        "passed: 2 of 2" in output,
        f"This model did both, so both should be passed. Printed: {quote(output)}.",
        "A task must not ask for more than its prompt says.",
        "Both tasks begin with the same two lines in list.txt.",
        'files = { "list.txt" = "milk\\nbread\\n" }',
    )
    write = call("write_file", path="list.txt", content="eggs\n")
    output = workshop.run(_READ_REPLY, write, ModelReply("Added."), _READ_REPLY, two).output
    expect(
        "destroyed" in output.partition("KIND")[0] or "1/2          1" in output,
        f"This model replaced the list by 'eggs': that should count as destroyed. Printed: {quote(output)}.",
        "A task that was not done is one thing, a file that is gone another.",
        "`keep` lists texts that must be in some file afterwards.",
        'keep = ["milk", "bread"]',
    )
