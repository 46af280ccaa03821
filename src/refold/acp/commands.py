"""Slash commands typed in an editor: their output and their questions go to the editor.

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

from refold.acp.person import Person
from refold.acp.prompt_content import to_code_block
from refold.acp.session_updates import Update, answer_chunk
from refold.client.host import Conversation, Host
from refold.client.session import Session
from refold.commands.command_context import Document, Look, Markdown
from refold.commands.completions import list_commands
from refold.commands.hosted_context import HostedContext, run_hosted_command
from refold.commands.table import command_in
from refold.views.picker import OnMove, Picker, Search, with_selection
from refold.views.styled import Line, plain_text

UNAVAILABLE_COMMANDS = ("terminal", "sessions")
MAX_OPTIONS = 20  # of a list to pick from
_MAX_ROW_CHARS = 80  # characters of a row


class TurnRunner(Protocol):
    """Runs the turns that a command begins, each until its end."""

    conversation: Conversation

    async def say(self, text: str, typed: str | None) -> PromptResponse: ...
    async def carry_out(
        self, start: Callable[[], Awaitable[object]] | None
    ) -> PromptResponse: ...
    async def send_update(self, update: Update) -> None: ...


def is_command(typed: str) -> bool:
    """Return True for a slash command; `exit` and `!ls` are messages here."""
    return typed.lstrip().startswith("/") and command_in(typed) is not None


def available_commands(session: Session) -> list[AvailableCommand]:
    """Return the commands a prompt may begin with. Reads the disk: call it in a thread."""
    return [
        AvailableCommand(
            name=command.name,
            description=command.about,
            input=AvailableCommandInput(root=UnstructuredCommandInput(hint=command.takes))
            if command.takes
            else None,
        )
        for command in list_commands(session, UNAVAILABLE_COMMANDS)
    ]


async def run_command(
    typed: str, turns: TurnRunner, person: Person, host: Host
) -> PromptResponse:
    """Run a command. Return the response of its last turn, if it began one."""
    here = _EditorContext(turns, person, host)
    await run_hosted_command(here, typed)
    await here.send_shown()
    return here.response


class _EditorContext(HostedContext):
    lacks = UNAVAILABLE_COMMANDS

    def __init__(self, turns: TurnRunner, person: Person, host: Host) -> None:
        super().__init__(host, turns.conversation, Look(_MAX_ROW_CHARS))
        self._turns, self._person = turns, person
        self.response = PromptResponse(stop_reason="end_turn")

    async def send_shown(self) -> None:
        """Send the editor what was shown since the last call."""
        shown, self.documents = self.documents, list[Document]()
        if shown:
            await self._turns.send_update(answer_chunk(f"{_as_markdown(shown)}\n\n"))

    async def say(self, text: str, *, typed: str | None = None) -> None:
        await self.send_shown()
        self.response = await self._turns.say(text, typed)

    async def carry_out(self, start: Callable[[], Awaitable[object]] | None = None) -> None:
        await self.send_shown()
        self.response = await self._turns.carry_out(start)

    async def ask(self, prompt: str, keys: str = "", text: str = "") -> str:
        await self.send_shown()
        if not keys:
            return await self._person.ask_text(
                f"{prompt} (now: {text})" if text else prompt
            )
        names = {"y": "Yes", "n": "No"}
        return await self._person.choose(prompt, [(k, names.get(k, k)) for k in keys])

    async def pick(
        self, picker: Picker, search: Search | None = None, on_move: OnMove | None = None
    ) -> Picker | None:
        await self.send_shown()
        options = [
            (choice.id, " ".join(plain_text([choice.row(_MAX_ROW_CHARS)]).split()))
            for choice in picker.choices[:MAX_OPTIONS]
        ]
        more = len(picker.choices) - len(options)
        title = f"{picker.title} ({more} more: type the name)" if more else picker.title
        chosen = await self._person.choose(title, options)
        return with_selection(picker, chosen) if chosen else None


def _as_markdown(documents: Sequence[Document]) -> str:
    """Return documents as Markdown: one row is text, several are a block."""
    parts, rows = list[str](), list[Line]()

    def end_rows() -> None:
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
