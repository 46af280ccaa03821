"""Serves slash commands over REST: lists, completes and runs them.

If a command asks a question, the page sends the command again with the answer, and the
command runs again from its beginning. A command asks before it changes anything. An answer
is used only for the question to which it was given. The commands are in `refold.commands`.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import Annotated, Any

from anyio import to_thread
from fastapi import Query, Request, Response
from msgspec import Meta, Struct

from refold.client.elsewhere import address_of_directory
from refold.client.host import Conversation, Host
from refold.commands.command_context import Look, Markdown
from refold.commands.completion import completer_of
from refold.commands.completions import completer_for, list_commands
from refold.commands.help import unknown_command_error
from refold.commands.hosted_context import HostedContext, run_hosted_command
from refold.commands.table import (
    SlashCommand,
    command_in,
    commands,
    find_command,
    is_available,
)
from refold.commands.workspace_files import WorkspaceFiles
from refold.errors import BadInput
from refold.server.api import Api, json_response, read_body
from refold.server.rest import CONVERSATION_PATH, open_conversation
from refold.views.picker import CompletionItem, OnMove, Picker, Search, with_selection
from refold.views.styled import Line

_UNAVAILABLE_COMMANDS = ("terminal", "files")
MAX_ITEMS = 200  # of a list to pick from
MAX_COMPLETIONS = 50
_MAX_LISTED_DIRECTORIES = 4  # directories whose file names are cached for completions
Row = dict[str, Any]
Pieces = Sequence[tuple[str, str]]  # (style, text)


class GivenAnswer(Struct, frozen=True, forbid_unknown_fields=True):
    """The answer to a question of a command: a key, a text, or the id of an item.

    `question` is the title of the question. "" as `answer` means that the user gave none.
    """

    question: str
    answer: str
    dial: str = ""


class TypedCommand(Struct, frozen=True, forbid_unknown_fields=True):
    """A slash command that the user typed.

    `room` is the number of characters in a row. `answers` are the answers given so far.
    """

    text: str
    room: Annotated[int, Meta(ge=20, le=400)] = 100
    answers: tuple[GivenAnswer, ...] = ()


class ShownDocument(Struct, frozen=True, omit_defaults=True):
    """A row of styled text, or a text in Markdown."""

    row: Pieces = ()
    markdown: str = ""


class ListItem(Struct, frozen=True, omit_defaults=True):
    """An item of a list from which the user picks.

    `groups` are the values of the dial for which the item is listed. An item without groups
    is always listed.
    """

    id: str
    row: Pieces
    groups: tuple[str, ...] = ()


class ListDial(Struct, frozen=True):
    label: str
    values: Sequence[str]
    value: str


class CommandQuestion(Struct, frozen=True, omit_defaults=True):
    """A question that a command asks the user.

    If there are `keys`, the answer is one of them. If there are `items`, the user picks an
    item; `selected` is the id of the item that is selected at first.

    Without both, the answer is a text, and `text` is the initial text of the input.
    """

    title: str
    keys: str = ""
    text: str = ""
    items: Sequence[ListItem] = ()
    selected: str = ""
    dial: ListDial | None = None


class CommandOutput(Struct, frozen=True):
    """What a command shows, and the question that it asks, if any.

    `conversation` is the id of the conversation to show next.
    """

    conversation: str
    documents: Sequence[ShownDocument]
    question: CommandQuestion | None = None


def add_commands(api: Api, host: Host) -> None:
    _add_lists(api, host)
    _add_completions(api, host)

    @api.route("POST", f"{CONVERSATION_PATH}/commands", CommandOutput, body=TypedCommand)
    async def run(request: Request, id_: str) -> Response:  # pyright: ignore[reportUnusedFunction]
        """Run a slash command, without asking the model what it means.

        If the response has a `question`, the command has changed nothing: send the command
        again with `answers`, as `[{"question": TITLE, "answer": "y"}]`.
        """
        chat = await open_conversation(host, id_)
        typed = await read_body(request, TypedCommand)
        if not typed.text.startswith("/") or command_in(typed.text) is None:
            raise BadInput(f"{typed.text[:60]!r} is not a command: one begins with a slash")
        return json_response(await _run(_PageContext(host, chat, typed), typed.text))


def _add_lists(api: Api, host: Host) -> None:
    """Add the routes that list commands, and the one that describes a command."""

    @api.route("GET", f"{CONVERSATION_PATH}/commands", list[Row])
    async def list_commands_of(id_: str) -> Response:  # pyright: ignore[reportUnusedFunction]
        """List the commands of a conversation, with templates, skills and prompts.

        Each command has `name`, `usage` and `description`; refold's own commands have
        `aliases` and `group`, too.
        """
        chat = await open_conversation(host, id_)
        named = await to_thread.run_sync(list_commands, chat.session, _UNAVAILABLE_COMMANDS)
        extra_commands = (
            {"name": f"/{entry.name}", "usage": entry.takes, "description": entry.about}
            for entry in named
            if find_command(entry.name) is None
        )
        own_commands = (
            _row(entry)
            for entry in commands()
            if is_available(entry, chat.session, _UNAVAILABLE_COMMANDS)
        )
        return json_response([*own_commands, *extra_commands])

    @api.route("GET", "/api/commands", list[Row])
    async def of_all() -> Response:  # pyright: ignore[reportUnusedFunction]
        """List the commands of a new conversation in the directory of the server."""
        own_commands = (
            _row(entry) for entry in commands() if entry.needs not in _UNAVAILABLE_COMMANDS
        )
        return json_response([*own_commands, *await host.offers("commands")])

    @api.route("GET", "/api/commands/{name}", Row)
    async def get_command(name: str) -> Response:  # pyright: ignore[reportUnusedFunction]
        """Return one command; for an unknown name, a `problem` with the nearest name."""
        if (command := find_command(name.lower())) is not None:
            return json_response(_row(command))
        rows = await host.offers("commands")
        for row in rows:
            if row["name"] == f"/{name}":
                return json_response(row)
        names = (str(row["name"]) for row in rows)
        return json_response({"problem": unknown_command_error(name, names)})


def _add_completions(api: Api, host: Host) -> None:
    @lru_cache(_MAX_LISTED_DIRECTORIES)  # each key press searches the same list
    def files_of(directory: str) -> WorkspaceFiles:
        return WorkspaceFiles(lambda: directory)

    def complete(chat: Conversation, before: str) -> Sequence[Row]:
        directory = chat.session.view.session.directory or "."
        is_elsewhere = bool(address_of_directory(directory))
        completer = completer_for(
            chat.session,
            lambda: directory,
            lacks=_UNAVAILABLE_COMMANDS,
            find_paths=None if is_elsewhere else files_of(directory).find,
        )
        return _completion_rows(completer(before))

    def complete_without_conversation(before: str) -> Sequence[Row]:
        directory = str(host.paths.directory)
        completer = completer_of(
            commands=(),
            choices={},
            directory=lambda: directory,
            find_paths=files_of(directory).find,
        )
        return _completion_rows(completer(before))

    @api.route("GET", f"{CONVERSATION_PATH}/completions", list[Row])
    async def completions(  # pyright: ignore[reportUnusedFunction]
        id_: str, before: Annotated[str, Query(max_length=2000)]
    ) -> Response:
        """Return what may follow this text: names, arguments, files."""
        chat = await open_conversation(host, id_)
        return json_response(await to_thread.run_sync(complete, chat, before))

    @api.route("GET", "/api/completions", list[Row])
    async def completions_of_all(  # pyright: ignore[reportUnusedFunction]
        before: Annotated[str, Query(max_length=2000)],
    ) -> Response:
        """Return files after "@", for a new conversation in the directory of the server."""
        return json_response(
            await to_thread.run_sync(complete_without_conversation, before)
        )


def _row(entry: SlashCommand) -> Mapping[str, object]:
    return {"name": f"/{entry.name}", "usage": entry.takes, "description": entry.about,
            "aliases": entry.aliases, "group": entry.group}  # fmt: skip


def _completion_rows(entries: Iterable[CompletionItem]) -> Sequence[Row]:
    return [
        {"text": entry.text, "instead_of": entry.instead_of, "about": entry.about}
        for entry in islice(entries, MAX_COMPLETIONS)
    ]


async def _run(context: "_PageContext", text: str) -> CommandOutput:
    """Run a command until it ends, or until it asks a question to which the request has no
    answer.
    """
    question = None
    try:
        await run_hosted_command(context, text)
    except _Unanswered as asked:
        question = asked.question
    shown = list[ShownDocument]()
    for document in context.documents:
        if isinstance(document, Markdown):
            shown.append(ShownDocument(markdown=document.text))
        else:
            shown.append(ShownDocument(row=_to_pieces(document)))
    return CommandOutput(context.session.id, shown, question)


class _Unanswered(Exception):
    """Raised when a command asks a question to which the request has no answer; ends the
    command.
    """

    def __init__(self, question: CommandQuestion) -> None:
        super().__init__(question.title)
        self.question = question


class _PageContext(HostedContext):
    """Runs a command for a page, with the answers that came in its request."""

    lacks = _UNAVAILABLE_COMMANDS

    def __init__(self, host: Host, chat: Conversation, typed: TypedCommand) -> None:
        super().__init__(host, chat, Look(typed.room))
        self._answers = list(typed.answers)

    async def ask(self, prompt: str, keys: str = "", text: str = "") -> str:
        return self._take_answer(CommandQuestion(prompt, keys, text)).answer

    async def pick(
        self, picker: Picker, search: Search | None = None, on_move: OnMove | None = None
    ) -> Picker | None:
        """Ask the page to pick an item of a list, and return the list with this item
        selected.

        Return None if the user picked none, or if the list has changed.
        """
        width, dial = self.look.width, picker.dial
        items = [
            ListItem(choice.id, _to_pieces(choice.row(width)), choice.groups)
            for choice in picker.choices[:MAX_ITEMS]
        ]
        list_dial = None
        if dial is not None:
            list_dial = ListDial(dial.label, dial.values, dial.value)
        question = CommandQuestion(
            picker.title,
            items=items,
            selected=picker.selection.id if picker.selection is not None else "",
            dial=list_dial,
        )
        answer = self._take_answer(question)
        picked = with_selection(picker, answer.answer, answer.dial)
        if picked.selection is None or picked.selection.id != answer.answer:
            return None  # the user picked nothing, or the list has changed
        return picked

    def _take_answer(self, question: CommandQuestion) -> GivenAnswer:
        """Return the next of the answers that came with the command.

        Raises `_Unanswered` if no answer is left, or if the next answer is to another
        question. The page then shows `question`.
        """
        answer = self._answers.pop(0) if self._answers else None
        if answer is None or answer.question != question.title:
            raise _Unanswered(question)
        return answer


def _to_pieces(row: Line) -> Pieces:
    """Return a row as pairs of style and text. A style that has no name becomes "plain"."""
    return [(style if isinstance(style, str) else "plain", text) for style, text in row]
