"""Finds the entries of the command palette, and completions for the input.

The id of a palette entry is text to type. A complete command is run; a file, or a command that
needs an argument, is inserted into the input.
"""

from collections.abc import Callable, Iterator
from itertools import islice

import anyio

from refold.client.session import Session
from refold.commands.completion import Complete
from refold.commands.completions import completer_for
from refold.commands.table import commands
from refold.commands.workspace_files import WorkspaceFiles
from refold.errors import BadInput
from refold.tui.messages import Message, Offered
from refold.views.escape import escape_to_one_line
from refold.views.picker import CompletionItem, Picker, PickerItem
from refold.views.styled import Line
from refold.views.wrap import cells, cut

_MAX_SESSIONS = 50
_MAX_FILES = 2_000
_MIN_ABOUT_CELLS = 9  # in a narrower row, the description is left out
_NAME_CELLS = 14  # the width of a name; a longer one moves its description to the right
_MAX_OFFERS = 50  # completions


def palette(session: Session) -> Picker:
    """Return the command palette. Call this in a thread, because it reads the disk."""
    directory = session.view.session.directory or "."
    names = session.workspace.file_names
    files = WorkspaceFiles(lambda: directory, lambda _: names()).find("")
    items = (
        *_command_items(session), *_agent_items(session), *_model_items(session), *_session_items(session),
        *(_item(f"@{name} ", name, "file") for name in islice(files, _MAX_FILES)),
    )  # fmt: skip
    return Picker("Find", items)


class Completer:
    """Finds completions, one search at a time. After a search, newer text is completed next."""

    def __init__(self, session: Session, post: Callable[[Message], None]) -> None:
        self._session, self._post = session, post
        self._complete: Complete | None = None
        self._before = ""
        self._is_searching = False

    async def look_for_completions(self, before: str) -> None:
        """Find completions for `before` and post them.

        If a search is running, only remember `before` for the next one.
        """
        self._before = before
        if self._is_searching:
            return
        self._is_searching = True
        text: str | None = None  # the text that was completed last
        try:
            while text != self._before:
                text = self._before
                offers = await anyio.to_thread.run_sync(self._find_offers, text)
                self._post(Offered(text, offers))
        finally:
            self._is_searching = False

    def _find_offers(self, before: str) -> tuple[CompletionItem, ...]:
        """Return the completions for the text before the cursor. This runs in a thread."""
        if self._complete is None:
            directory = self._session.view.session.directory or "."
            self._complete = completer_for(self._session, lambda: directory)
        return tuple(islice(self._complete(before), _MAX_OFFERS))


def _command_items(session: Session) -> Iterator[PickerItem]:
    """Yield an item for each slash command and shortcut.

    A blank at the end of an item's id says that an argument must be typed.
    """
    for command in commands():
        name = f"/{command.name}"
        is_optional = command.takes.startswith("[")
        needs_argument = bool(command.takes) and not is_optional
        yield _item(f"{name} " if needs_argument else name, name, command.about)
    for offered in session.shortcuts.infos():
        yield _item(f"{offered.name} ", offered.name, escape_to_one_line(offered.about))


def _agent_items(session: Session) -> Iterator[PickerItem]:
    for agent in session.agents.profiles():
        yield _item(f"/agent {agent.name}", f"agent {agent.name}", agent.description)


def _model_items(session: Session) -> Iterator[PickerItem]:
    for name in session.models.names():
        yield _item(f"/model {name}", f"model {name}", "")


def _session_items(session: Session) -> Iterator[PickerItem]:
    """Yield an item for each other session; none if no sessions are stored."""
    try:
        names = session.catalogue.names()
    except BadInput:  # no sessions are stored
        return
    for id_, name, title in names[:_MAX_SESSIONS]:
        if id_ != session.id:
            yield _item(f"/resume {id_}", f"session {name or title}", title if name else "")


def _item(id_: str, name: str, about: str) -> PickerItem:
    """Return an entry with the id `id_`, whose row shows its name and what it is about."""
    name, about = escape_to_one_line(name), escape_to_one_line(about)

    def row(width: int) -> Line:
        """Return the row. A name with wide letters is not padded."""
        is_narrow = cells(name) == len(name)
        shown = cut(name.ljust(_NAME_CELLS) if is_narrow else name, width)
        about_width = width - cells(shown) - 2
        shows_about = bool(about) and about_width >= _MIN_ABOUT_CELLS
        tail = f"  {cut(about, about_width)}" if shows_about else ""
        return (("plain", shown), ("dim", tail))

    return PickerItem(id_, row, f"{name} {about}")
