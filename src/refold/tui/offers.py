"""The entries of the command palette, and completions at the cursor.

An entry's id in the palette is the text to type: a command, which is run, or a file or a
command with arguments, which is put into the input.
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
_NAME_CELLS = 14  # of a name; longer ones push their description to the right
_MAX_OFFERS = 50  # completions


def palette(session: Session) -> Picker:
    """Return all entries. Reads the disk: call it in a thread."""
    directory = session.view.session.directory or "."
    names = session.workspace.file_names
    files = WorkspaceFiles(lambda: directory, lambda _: names()).find("")
    items = (
        *_command_items(session), *_agent_items(session), *_model_items(session), *_session_items(session),
        *(_item(f"@{name} ", name, "file") for name in islice(files, _MAX_FILES)),
    )  # fmt: skip
    return Picker("Find", items)


class Completer:
    """Completes the newest text; text that is typed during a search comes next."""

    def __init__(self, session: Session, post: Callable[[Message], None]) -> None:
        self._session, self._post = session, post
        self._complete: Complete | None = None
        self._before, self._looking = "", False

    async def look_for_completions(self, before: str) -> None:
        """Look for completions; during a search, only note the text for the next one."""
        self._before = before
        if self._looking:
            return
        self._looking, text = True, None
        try:
            while text != self._before:
                text = self._before
                offers = await anyio.to_thread.run_sync(self._find_offers, text)
                self._post(Offered(text, offers))
        finally:
            self._looking = False

    def _find_offers(self, before: str) -> tuple[CompletionItem, ...]:
        if self._complete is None:
            directory = self._session.view.session.directory or "."
            self._complete = completer_for(self._session, lambda: directory)
        return tuple(islice(self._complete(before), _MAX_OFFERS))


def _command_items(session: Session) -> Iterator[PickerItem]:
    for command in commands():
        needs = bool(command.takes) and not command.takes.startswith("[")
        yield _item(
            f"/{command.name}{' ' if needs else ''}", f"/{command.name}", command.about
        )
    for offered in session.shortcuts.infos():
        yield _item(f"{offered.name} ", offered.name, escape_to_one_line(offered.about))


def _agent_items(session: Session) -> Iterator[PickerItem]:
    for agent in session.agents.profiles():
        yield _item(f"/agent {agent.name}", f"agent {agent.name}", agent.description)


def _model_items(session: Session) -> Iterator[PickerItem]:
    for name in session.models.names():
        yield _item(f"/model {name}", f"model {name}", "")


def _session_items(session: Session) -> Iterator[PickerItem]:
    try:
        names = session.catalogue.names()
    except BadInput:  # no sessions are stored
        return
    for id_, name, title in names[:_MAX_SESSIONS]:
        if id_ != session.id:
            yield _item(f"/resume {id_}", f"session {name or title}", title if name else "")


def _item(id_: str, name: str, about: str) -> PickerItem:
    name, about = escape_to_one_line(name), escape_to_one_line(about)

    def row(width: int) -> Line:
        shown = cut(f"{name:<{_NAME_CELLS}}" if cells(name) == len(name) else name, width)
        left = width - cells(shown) - 2
        return (
            ("plain", shown),
            ("dim", f"  {cut(about, left)}" if left > 8 and about else ""),
        )

    return PickerItem(id_, row, f"{name} {about}")
