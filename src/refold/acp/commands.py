"""Runs slash commands that are typed in an editor, which shows their output and questions.

Templates, skills and prompts of servers are messages: `open_session` sends them.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from acp.schema import (
    AvailableCommand,
    AvailableCommandInput,
    PromptResponse,
    UnstructuredCommandInput,
)

from refold.acp.prompt_content import to_code_block
from refold.acp.session_updates import Update, answer_chunk
from refold.acp.user_questions import Person
from refold.client.host import Conversation, Host
from refold.client.session import Session
from refold.commands.command_context import Document, Look, Markdown
from refold.commands.completions import list_commands
from refold.commands.hosted_context import HostedContext, run_hosted_command
from refold.commands.table import command_in
from refold.views.picker import OnMove, Picker, Search, with_selection
from refold.views.styled import Line, plain_text

UNAVAILABLE_COMMANDS = ("terminal", "sessions")
MAX_OPTIONS = 20  # in a list to pick from
_MAX_ROW_CHARS = 80  # the length of a row


class TurnRunner(Protocol):
    """Runs the turns that a command begins, each until its end."""

    conversation: Conversation

    async def say(self, text: str, typed: str | None) -> PromptResponse:
        """Send `text`, and return the response of its turn. `typed` is what the user typed."""
        ...

    async def carry_out(
        self, start: Callable[[], Awaitable[object]] | None
    ) -> PromptResponse:
        """Run the turn that `start` begins, and return the response of the turn.

        If `start` is None, run the turn that is waiting.
        """
        ...

    async def send_update(self, update: Update) -> None:
        """Show the update in the editor, unless it has disconnected."""
        ...


def is_command(typed: str) -> bool:
    """Return whether the text is a slash command.

    In an editor, `exit` and `!ls` are messages.
    """
    return typed.lstrip().startswith("/") and command_in(typed) is not None


def available_commands(session: Session) -> list[AvailableCommand]:
    """Return the commands with which a prompt may begin.

    This reads the disk, so call it in a thread.
    """
    available = list[AvailableCommand]()
    for command in list_commands(session, UNAVAILABLE_COMMANDS):
        arguments: AvailableCommandInput | None = None
        if command.takes:
            hint = UnstructuredCommandInput(hint=command.takes)
            arguments = AvailableCommandInput(root=hint)
        available.append(
            AvailableCommand(name=command.name, description=command.about, input=arguments)
        )
    return available


async def run_command(
    typed: str, turns: TurnRunner, person: Person, host: Host
) -> PromptResponse:
    """Run a command. Return the response of the last turn that it began.

    A command that begins no turn returns a response with the reason "end_turn".
    """
    context = _EditorContext(turns, person, host)
    await run_hosted_command(context, typed)
    await context.send_shown()
    return context.response


class _EditorContext(HostedContext):
    """Runs a command for an editor, which shows its output and questions."""

    lacks = UNAVAILABLE_COMMANDS

    def __init__(self, turns: TurnRunner, person: Person, host: Host) -> None:
        super().__init__(host, turns.conversation, Look(_MAX_ROW_CHARS))
        self._turns = turns
        self._person = person
        self.response = PromptResponse(stop_reason="end_turn")

    async def send_shown(self) -> None:
        """Send the editor the output since the last call of this method."""
        shown = self.documents
        self.documents = list[Document]()
        if shown:
            await self._turns.send_update(answer_chunk(f"{_as_markdown(shown)}\n\n"))

    async def say(self, text: str, *, typed: str | None = None) -> None:
        await self.send_shown()
        self.response = await self._turns.say(text, typed)

    async def carry_out(self, start: Callable[[], Awaitable[object]] | None = None) -> None:
        await self.send_shown()
        self.response = await self._turns.carry_out(start)

    async def ask(self, prompt: str, keys: str = "", text: str = "") -> str:
        """Ask for one of `keys`, or for a text if `keys` is "". Return the answer, or ""."""
        await self.send_shown()
        if not keys:
            return await self._person.ask_text(
                f"{prompt} (now: {text})" if text else prompt
            )
        names = {"y": "Yes", "n": "No"}
        options = [(key, names.get(key, key)) for key in keys]
        return await self._person.choose(prompt, options)

    async def pick(
        self, picker: Picker, search: Search | None = None, on_move: OnMove | None = None
    ) -> Picker | None:
        """Let the user pick one of the first `MAX_OPTIONS` items. Return None for no choice."""
        await self.send_shown()
        options = list[tuple[str, str]]()
        for choice in picker.choices[:MAX_OPTIONS]:
            row = plain_text([choice.row(_MAX_ROW_CHARS)])
            options.append((choice.id, " ".join(row.split())))
        hidden = len(picker.choices) - len(options)
        title = f"{picker.title} ({hidden} more: type the name)" if hidden else picker.title
        chosen = await self._person.choose(title, options)
        return with_selection(picker, chosen) if chosen else None


def _as_markdown(documents: Sequence[Document]) -> str:
    """Return documents as Markdown: a single row becomes text, several rows a code block."""
    parts = list[str]()
    rows = list[Line]()

    def end_rows() -> None:
        """Add the collected rows to `parts`, and begin with none again."""
        if rows:
            text = plain_text(rows)
            parts.append(to_code_block(text) if "\n" in text else text)
            rows.clear()

    for document in documents:
        if isinstance(document, Markdown):
            end_rows()
            parts.append(document.text)
        else:
            rows.append(document)
    end_rows()
    return "\n\n".join(parts)
