"""/edit: change a message of the conversation.
/delete: delete one.

The session records it; `journal.state.message_edits` applies it to the conversation.
"""

from refold.client.session import Session
from refold.commands.command_context import CommandContext
from refold.errors import BadInput
from refold.views.styled import line


async def run(here: CommandContext, rest: str) -> None:
    first, _, text = rest.partition(" ")
    number = _number(first, "/edit N [TEXT]")
    text = text.strip() or await _edit(here, _text(here.session, number))
    if await here.session.edit_message(number, text):
        _print(here, f"Message {number} is changed.")
    else:
        here.show(line("The message is unchanged.", "dim"))


async def run_delete(here: CommandContext, rest: str) -> None:
    number = _number(rest, "/delete N")
    await here.session.delete_message(number)
    _print(here, f"Message {number} is deleted.")


def _print(here: CommandContext, text: str) -> None:
    undo = f"/rewind {here.session.view.seq} conversation"
    here.show(line(f"{text} To undo: {undo}", "good"))


def _number(text: str, usage: str) -> int:
    if not (text.isascii() and text.isdecimal() and int(text)):
        raise BadInput(f"type {usage} with a number from /history, not {text!r}")
    return int(text)


def _text(session: Session, number: int) -> str:
    """Return the message as it is now. Raises `BadInput` if there is none."""
    talk = session.view.conversation
    for message in talk.user_messages:
        if message.seq == number:
            return message.text
    for spoken in talk.messages:
        if spoken.seq == number and spoken.message.role == "assistant":
            return spoken.message.text
    raise BadInput(
        f"there is no message {number} in the conversation now (/history lists them)"
    )


async def _edit(here: CommandContext, text: str) -> str:
    """Let the user edit `text`."""
    if (terminal := here.terminal) is None:
        raise BadInput("type /edit N TEXT: no editor can be opened from here")
    if (typed := await terminal.edit_text(text, "message.md")) is None:
        raise BadInput("the message is unchanged")
    return typed
