"""Checks lesson 17: the reader's program defines a provider instead of using a model."""

from refold.learn.workshop import Demo, Workshop, expect, quote

LESSON_DEMO = Demo(
    (), words=("How", "long", "is", "notes.txt"), files={"notes.txt": "milk\nbread\n"}
)


def check(workshop: Workshop) -> None:
    """Check the answers about two files of different lengths, and the call to read the file."""
    for name, count in (("notes.txt", 2), ("long.txt", 11)):
        workshop.write(name, "one line\n" * count)
        run = workshop.run(words=["How", "long", "is", name])
        calls = [
            part
            for event in workshop.session_events()
            if event["kind"] == "ModelAnswered"
            for part in event["data"]["message"]["parts"]
            if part["type"] == "call"
        ]
        expect(
            [call["name"] for call in calls] == ["read_file"],
            f"The Clerk should call read_file once, but made {len(calls)} calls.",
            "A call is a CallDelta with a name and an id.",
            "If the last message has a result, answer; otherwise call.",
            'yield CallDelta(0, arguments, id="call-1", name="read_file")',
        )
        expect(
            calls[0]["arguments"] == {"path": name},
            f"The call should have the path {name!r}, but has {calls[0]['arguments']}.",
            "The arguments are the text of a JSON object.",
            "The path is the last word of the message.",
            'arguments = json.dumps({"path": last.text.split()[-1]})',
        )
        expect(
            f"It has {count} lines." in run.output,
            f"{name} has {count} lines, but printed was {quote(run.output)}.",
            "The text of the result numbers the lines of the file.",
            "Count the lines that begin with a number and a tab.",
            r're.findall(r"^\d+\t", results[0].text, re.MULTILINE)',
        )
