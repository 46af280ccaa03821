"""/edit: change a message of the conversation.
/delete: delete a message.

The session records the change; `journal.state.message_edits` applies it to the conversation.
"""

from refold.client.session import Session
from refold.commands.command_context import CommandContext
from refold.errors import BadInput
from refold.views.styled import line


async def run(context: CommandContext, arguments: str) -> None:
    """Change message N of the conversation, in an editor if no text is given."""
    first, _, rest = arguments.partition(" ")
    number = _number(first, "/edit N [TEXT]")
    text = rest.strip()
    if not text:
        text = await _edit(context, _message_text(context.session, number))
    if await context.session.edit_message(number, text):
        _show_change(context, f"Message {number} is changed.")
    else:
        context.show(line("The message is unchanged.", "dim"))


async def run_delete(context: CommandContext, arguments: str) -> None:
    number = _number(arguments, "/delete N")
    await context.session.delete_message(number)
    _show_change(context, f"Message {number} is deleted.")


def _show_change(context: CommandContext, text: str) -> None:
    undo = f"/rewind {context.session.view.seq} conversation"
    context.show(line(f"{text} To undo: {undo}", "good"))


def _number(text: str, usage: str) -> int:
    """Return the number of a message. Raises `BadInput`, which names `usage`, for other text."""
    is_number = text.isascii() and text.isdecimal()
    if not is_number or int(text) == 0:
        raise BadInput(f"type {usage} with a number from /history, not {text!r}")
    return int(text)


def _message_text(session: Session, number: int) -> str:
    """Return the present text of message `number`. Raises `BadInput` if it does not exist."""
    conversation = session.view.conversation
    for message in conversation.user_messages:
        if message.seq == number:
            return message.text
    for spoken in conversation.messages:
        if spoken.seq == number and spoken.message.role == "assistant":
            return spoken.message.text
    raise BadInput(
        f"there is no message {number} in the conversation now (/history lists them)"
    )


async def _edit(context: CommandContext, text: str) -> str:
    """Let the user edit `text`, and return it. Raises `BadInput` if the user leaves the editor."""
    if context.terminal is None:
        raise BadInput("type /edit N TEXT: no editor can be opened from here")
    typed = await context.terminal.edit_text(text, "message.md")
    if typed is None:
        raise BadInput("the message is unchanged")
    return typed
