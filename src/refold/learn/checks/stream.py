"""Checks lesson 4: the program prints the answer while the model sends it."""

from refold.learn.model_server import ModelReply, RequestedCall
from refold.learn.workshop import Demo, Workshop, call, expect, quote

LESSON_DEMO = Demo(
    (
        call("read_file", path="notes.txt"),
        ModelReply(
            "Your notes are about milk, bread and a long, long list of other things."
        ),
    ),
    words=("What", "are", "my", "notes", "about?"),
    files={"notes.txt": "milk\nbread\nand so on\n"},
)
_LONG_TEXT = "The first words come long before the last ones are known."


def check(workshop: Workshop) -> None:
    """Check streamed text and calls, and that text is printed before the answer is complete."""
    run = workshop.run(ModelReply(_LONG_TEXT), words=["Hello"])
    expect(
        run.requests and run.requests[0].get("stream") is True,
        "The request does not ask for a stream.",
        "A server streams only if the request says so.",
        "The field is called 'stream'.",
        '"stream": True',
    )
    expect(
        run.output.strip(),
        f"The model said {_LONG_TEXT!r}. Your program printed nothing.",
        "Each piece is added to `text`, and not printed.",
        "The line belongs below `text += piece`.",
        'print(piece, end="", flush=True)',
    )
    expect(
        _LONG_TEXT in run.output,
        f"The model said {_LONG_TEXT!r}. Your program printed {quote(run.output)}.",
        "A piece has no line break at its end unless the model wrote one.",
        "print adds a line break, unless you give it another end.",
        'print(piece, end="", flush=True)',
    )
    early = workshop.first_output_of(ModelReply(_LONG_TEXT), words=["Hello"])
    expect(
        early and early in _LONG_TEXT,
        "Nothing was printed until the whole answer was there.",
        "Print each piece as soon as it is read.",
        "Python collects output before it shows it. One parameter of print makes it show it at once.",
        'print(piece, end="", flush=True)',
    )
    workshop.write("a.txt", "one")
    workshop.write("b.txt", "two")
    calls = (
        RequestedCall("read_file", {"path": "a.txt"}),
        RequestedCall("read_file", {"path": "b.txt"}),
    )
    run = workshop.run(
        ModelReply("I look.", calls), ModelReply("Both read."), words=["Read", "both"]
    )
    results = [str(message.get("content")) for message in run.messages(-1)[-2:]]
    expect(
        results == ["one", "two"],
        f"The results of two calls should be 'one' and 'two', but were {results}.",
        "The parts of a call have its number in 'index': add_part finds the call by it.",
        "Only the first part has an id and a name. The arguments of all parts are added up.",
        'calls[part["index"]]["function"]["arguments"] += part["function"].get("arguments", "")',
    )
    before = [m for m in run.messages(-1) if m.get("role") == "assistant"]
    expect(
        before and before[-1].get("content") == "I look.",
        "The text before the calls, 'I look.', is missing in the next request.",
        "What the model said is part of the conversation.",
        "Add the pieces up in `text`.",
        'message = {"role": "assistant", "content": text}',
    )
