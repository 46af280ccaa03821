"""Checks lesson 22: the agent writes code instead of calls, and the code asks a model."""

from refold.learn.workshop import Demo, Workshop, expect, quote

_LESSON_QUESTION = ("Which", "cause", "is", "the", "most", "frequent?")
LESSON_DEMO = Demo(
    (),
    words=_LESSON_QUESTION,
    files={
        f"report-{number}.txt": f"Report {number}. The {part} broke in the night.\n"
        for number, part in enumerate(("pump", "valve", "pump", "fuse", "pump", "valve"), 1)
    },
)


def check(workshop: Workshop) -> None:
    """Check the answers about two folders of reports, and how many questions were asked."""
    # The second folder has the reports of the first, too.
    for parts, right in (
        (("pump", "valve", "pump"), "pump: 2 of 3"),
        (("fuse",), "pump: 2 of 4"),
    ):
        for number, part in enumerate(parts):
            workshop.write(f"report-{number}{part}.txt", f"The {part} broke.\n" + "…" * 500)
        run = workshop.run(words=_LESSON_QUESTION)
        expect(
            right in run.output,
            f"The answer should be {right!r}. Printed: {quote(run.output)}.",
            "The code in CELL_CODE decides what the answer is.",
            "FINAL(value) ends the turn with a value; without it, the code is asked for again.",
            'FINAL(f"{part}: {count} of {len(names)}")',
        )
    events = workshop.session_events()
    leaves = [event for event in events if event["kind"] == "Settled"]
    expect(
        len(leaves) == 4,
        f"There are 4 reports, and a model should be asked about each. It was asked {len(leaves)} times.",
        "map_lm asks about each item of a list.",
        "Give it the texts, and not one long text.",
        'map_lm(texts, "Which part broke? One word.")',
    )
