"""Checks lesson 5: the program remembers earlier messages of the conversation."""

from refold.learn.model_server import ModelReply
from refold.learn.workshop import Demo, Workshop, expect, quote

LESSON_DEMO = Demo(
    (
        ModelReply("Hello, Ada!"),
        ModelReply("Your name is Ada."),
        ModelReply("I do not know your name."),
    ),
    typed=("My name is Ada.", "What is my name?", "/new", "What is my name?"),
)


def check(workshop: Workshop) -> None:
    """Check two messages of one conversation, a new conversation, and an empty line."""
    replies = ModelReply("Hello, Ada!"), ModelReply("Ada."), ModelReply("I do not know.")
    typed = ["My name is Ada.", "What is my name?", "/new", "", "Who am I?"]
    run = workshop.run(*replies, typed=typed)
    expect(
        len(run.requests) == 3,
        f"Three messages were typed, but the model was called {len(run.requests)} times.",
        "Read one line after the other, until the input ends.",
        "An empty line is not a message, and /new is for your program, not for the model.",
        'while True: … if text == "/new": … elif text: …',
    )
    first, second, third = (run.messages(number) for number in range(3))
    expect(
        first[0].get("role") == "system",
        "The first message of a conversation should be the system prompt.",
        "It tells the model who it is. The user does not see it.",
        "A conversation begins with it, before the first message of the user.",
        '[{"role": "system", "content": SYSTEM_PROMPT}]',
    )
    text = str(second)
    expect(
        "My name is Ada." in text and "Hello, Ada!" in text,
        "The second request lacks the messages before.",
        "A model remembers nothing: each request has the whole conversation.",
        "Keep one list of messages outside of the loop, and append to it.",
        "messages = new_conversation() stands before `while True`",
    )
    expect(
        "Ada" not in str(third) and third[0].get("role") == "system",
        f"After /new the model still got {quote(str(third))}.",
        "/new begins a new conversation.",
        "Put a new list in the place of the old one.",
        'if text == "/new":\n    messages = new_conversation()',
    )
