"""Checks lesson 1: the program sends a question to the model, and prints the answer."""

from refold.learn.model_server import ModelReply
from refold.learn.workshop import Demo, Workshop, expect, quote

LESSON_DEMO = Demo(
    (ModelReply("A program that lets a language model act: it calls tools in a loop."),),
    words=("What", "is", "an", "agent?"),
)


def check(workshop: Workshop) -> None:
    """Check that a question of several words is sent, and its answer printed."""
    run = workshop.run(
        ModelReply("Forty-two."), words=["What", "is", "six", "times", "seven?"]
    )
    expect(
        "Forty-two." in run.output,
        f"The model said 'Forty-two.', but your program printed {quote(run.output)}.",
        "The text of the answer is in the field 'content' of the message.",
        "call_model returns a message, which is a dictionary.",
        'print(answer["content"])',
    )
    expect(
        "assistant" not in run.output,
        f"Your program printed the whole message, not only its text: {quote(run.output)}.",
        "call_model returns a dictionary. The user wants one field of it.",
        "The text is in 'content'.",
        'print(answer["content"])',
    )
    asked = str(run.messages(0)[-1]["content"])
    expect(
        asked == "What is six times seven?",
        f"The question was 'What is six times seven?', but the model got {quote(asked)}.",
        "Without quotes, the shell makes one argument of each word.",
        "sys.argv[1:] is the list of all arguments. Which method joins a list of texts?",
        'question = " ".join(sys.argv[1:])',
    )
