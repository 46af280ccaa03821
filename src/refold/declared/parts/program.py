"""Asks a command-line program instead of an API: each response is one run of it."""

import tempfile
from pathlib import Path

from refold.declared.parts.claude_code import command, parse_reply
from refold.declared.parts.context_formats import transcript
from refold.declared.parts.context_modes import in_context
from refold.declared.parts.messages import BackendError, Message, Response
from refold.declared.parts.program_run import run
from refold.declared.parts.text_calls import CALL, instructions, parse_calls
from refold.declared.parts.text_calls import message_text_for_program as message_text
from refold.declared.parts.text_calls import speaker_for_program as speaker

GUIDE = (
    "Below is a conversation up to now. Write the assistant's next message, "
    "and nothing else: no name or heading before it."
)


def opening() -> str:
    """Return the text before the conversation. The system prompt is passed separately."""
    return GUIDE


def opening_with_system() -> str:
    """Return the text before the conversation, with the system prompt."""
    return f"{GUIDE}\n\n{instructions()}"


def ask(messages: list[Message]) -> Response:
    """Run the program with the conversation, and return its response."""
    lines = [
        (speaker(message), message_text(message)) for message in in_context(messages)
    ]
    prompt = transcript([("system", opening()), *lines])
    # An empty directory: the program must not find a project with settings of its own.
    with tempfile.TemporaryDirectory() as folder:
        output = run(command(Path(folder), prompt), folder)
    text, tokens_in, tokens_out = parse_reply(output)
    if not text.strip():
        raise BackendError(f"the program has answered nothing: {output[-500:]}")
    calls = parse_calls(text)
    shown = CALL.sub("", text).strip()
    return Response(
        Message("assistant", text.strip(), calls), shown, tokens_in, tokens_out
    )
