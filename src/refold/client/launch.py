"""One start of refold: opens its sessions, each in its directory, and switches them.

Switching is one operation. The session that continues in another directory is closed and
opened there as `refold -r` would: with the settings, rules, instructions and notes of that
folder, after the same question about trust. `Session` is the handle; this module has what
several handles of one start share.

The open workspace is never changed in place: its sandbox, rules, trust and notes depend on
each other, and a part that was forgotten would still write to the old place.
"""

import os
import re
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

import anyio
from msgspec import Struct
from msgspec.structs import replace

from refold.app.app import App
from refold.client.resume import SessionDirectory, find_directory, replace_missing
from refold.errors import BadInput, RefoldError
from refold.journal.events.child_events import WorktreeLeft
from refold.journal.state.fold import View
from refold.session.session import Session as Engine
from refold.views.escape import escape_to_one_line

if TYPE_CHECKING:
    import subprocess

# Shows these lines, asks the question below them, and returns whether the answer is yes.
Ask: TypeAlias = Callable[[Sequence[str], str], Awaitable[bool]]
Commands: TypeAlias = Callable[[], Collection[str]]
JOURNAL_MENDED = "the journal was damaged at its end; lost: {lost}"
_SHORTCUT_PATTERN = r"(?s)/([\w:-]+)(?:\s+(.*))?"
_NOT_KEPT = "this session is not saved, so it cannot move: leave, and start one there"
_UNDER_WAY = (
    "this session has an interrupted turn, which can end only here: continue it first"
)
_ASKED_AGAIN = "allowed for this session until now, and asked about again: {rules}"


class ResumeTarget(Struct, frozen=True):
    """Where to continue: the session ("" for this one) and its directory.

    `directory` is a real path, or "" for no change; `added` directories join its
    workspace.
    """

    session: str = ""
    directory: str = ""
    added: tuple[str, ...] = ()


class OpenedSession(Struct, frozen=True):
    """An open session, the app of its directory, and what the user must know."""

    app: App
    engine: Engine
    notices: tuple[str, ...] = ()


class Launch:
    """One start. `flags` are settings of the command line, which apply in every directory.

    `commands` returns names that no template or skill can have, because they are commands.
    With `notes`, notes are made of its sessions.
    """

    def __init__(
        self,
        app: App,
        flags: Mapping[str, object] = MappingProxyType({}),
        commands: Commands = frozenset,
        *,
        notes: bool = False,
    ) -> None:
        self.app, self.commands, self.flags, self._notes = app, commands, flags, notes
        self._trusted = {app.directory} if app.options.trust else set[str]()
        self._left = list[App]()
        self._engines = set[Engine]()  # open engines
        self._told = set[str]()

    async def start(self, id_: str = "", claim: int = 0) -> OpenedSession:
        """A new session in the directory of this start."""
        id_, engine = await self.app.start(id_, claim)
        return self._to_opened(id_, engine)

    async def resume(self, id_: str) -> OpenedSession:
        """Resume a session, by its full id, in the directory of this start."""
        return self._to_opened(id_, await self.app.resume(id_))

    async def open_read_only(self, id_: str) -> OpenedSession:
        """Like `resume`, but takes no writer lock until something is recorded."""
        engine = await self.app.resume(id_, read_only=True)
        self._engines.add(engine)
        return OpenedSession(self.app, engine)

    def mark_for_notes(self, id_: str) -> None:
        """Mark the session for notes, to be made once it has been left."""
        if self._notes:
            self.app.queue_for_notes(id_)

    async def leave(self, engine: Engine) -> None:
        self._engines.discard(engine)
        await engine.close()

    async def switch(
        self, current: Engine, target: ResumeTarget, ask: Ask
    ) -> OpenedSession:
        """Open the target session in its directory, and close the session `left`.

        Raises if the target cannot be opened; `left` is unchanged then.
        """
        if not self.app.options.keep:
            raise BadInput(_NOT_KEPT)
        id_ = target.session or current.view.session.id
        if id_ == current.view.session.id and current.view.turn.seq:
            raise BadInput(_UNDER_WAY)
        place, trust = await anyio.to_thread.run_sync(self._new_directory, id_, target)
        app = await self._app_at(place, ask, trust=trust)
        opened: OpenedSession | None = None
        with anyio.CancelScope(shield=True):  # otherwise it would never be closed
            if target.directory:
                await _leave_worktree(current, id_)
            opened = await self._switch_to(current, id_, app, place.notices)
        assert opened is not None  # errors pass through the shield
        return opened

    def notices(self, app: App, engine: Engine) -> tuple[str, ...]:
        """Notices about this session that the user has not seen before."""
        lost = (JOURNAL_MENDED.format(lost=engine.lost_text),) if engine.lost_text else ()
        names = app.shortcuts(self.commands()).notices()
        learned = (
            app.project_memory.notice() if app.settings.memory and app.options.keep else ""
        )
        notices = (*app.notices(), *names, *filter(None, (learned,)), *lost)
        new = tuple(notice for notice in notices if notice not in self._told)
        self._told.update(new)
        return new

    async def aclose(self) -> None:
        """Close all open sessions."""
        for engine in tuple(self._engines):
            await self.leave(engine)
        await self.app.aclose()

    def finish_notes(self) -> None:
        """Start background processes: for notes and titles, and to measure refold's files."""
        finish_notes([self])

    @property
    def apps(self) -> Sequence[App]:
        """The start, and those of the directories that it switched from."""
        return (*self._left, self.app)

    @property
    def directories(self) -> Sequence[str]:
        return tuple(app.directory for app in self.apps)

    def check_model(self) -> None:
        """Raise `BadInput` if the model of a new session cannot be used."""
        self.app.models.check(self.app.model_of(View()))

    def expand_shortcut(self, typed: str, message: str) -> tuple[str, str | None]:
        """Expand `typed`, a part of `message`, if it is `/name …` of a template or a skill.

        Returns the message and the typed text; None instead if the two are equal.

        Raises `BadInput` if an argument is missing.
        """
        line, shortcuts = typed.strip(), None
        if line.startswith("@"):
            shortcuts = self.app.shortcuts(self.commands())
            line = shortcuts.to_slash(line) or line
        match = re.fullmatch(_SHORTCUT_PATTERN, line)
        if match is not None:
            shortcuts, name = shortcuts or self.app.shortcuts(self.commands()), match[1]
            if shortcuts.find(name) is not None:
                text = shortcuts.expand(name, match[2] or "", {})
                return message.replace(typed, text, 1), typed
        return message, None if typed == message else typed

    async def expand(self, typed: str, message: str) -> tuple[str, str | None]:
        """Like `expand_shortcut`, also for prompts of MCP servers, which it may connect."""
        if not typed.lstrip().startswith(("/", "@")):
            return message, None if typed == message else typed
        servers = self.app.mcp
        text = await servers.expand_command(typed) if servers is not None else None
        if text is not None:
            return message.replace(typed, text, 1), typed
        return await anyio.to_thread.run_sync(self.expand_shortcut, typed, message)

    def _to_opened(
        self, id_: str, engine: Engine, notices: tuple[str, ...] = ()
    ) -> OpenedSession:
        self.mark_for_notes(id_)
        self._engines.add(engine)
        return OpenedSession(self.app, engine, notices)

    def _new_directory(
        self, id_: str, target: ResumeTarget
    ) -> tuple[SessionDirectory, bool]:
        """The new directory of the session, and whether it is trusted this time."""
        app = self.app
        stood = find_directory(app.home, id_, Path(app.directory))
        directory = os.path.realpath(target.directory or stood.directory)
        trust = directory in self._trusted
        if trust:
            self._trusted.add(directory)
        more = (os.path.realpath(root) for root in (*stood.roots, *target.added))
        roots = tuple(Path(root) for root in dict.fromkeys(more) if root != directory)
        notices = () if target.directory else stood.notices
        return SessionDirectory(Path(directory), roots, notices), trust

    async def _app_at(self, place: SessionDirectory, ask: Ask, *, trust: bool) -> App:
        """The present app, if it is for these directories; otherwise a new one."""
        app = self.app
        if tuple(map(str, (place.directory, *place.roots))) == app.workspace.roots:
            return app
        from refold.client.folder_trust import (
            TrustOffer,
            ask_about_namespaces,
            find_changed_texts,
        )
        from refold.config.folder_settings import load_folder_settings
        from refold.config.trusted_folders import TrustedFolders

        load = partial(
            load_folder_settings,
            place.directory,
            app.paths,
            os.environ,
            self.flags,
            trust=trust,
        )
        loaded = await anyio.to_thread.run_sync(load)
        namespaces = True
        # For the present folder the user has been asked already.
        if str(place.directory) != app.directory:
            folders = TrustedFolders(app.paths.folders)
            changes = (
                find_changed_texts(place.directory, app.paths, folders) if not trust else ()
            )
            offer = TrustOffer(loaded.project, loaded.state, loaded.texts, changes)
            if offer and await ask(offer.question_lines(), offer.question):
                offer.accept(folders, app.paths.data)
                loaded = await anyio.to_thread.run_sync(load)
            if loaded.settings.sandbox.user_namespaces:
                namespaces = await ask_about_namespaces(folders, place.directory, ask)
        settings = loaded.settings
        if not namespaces:
            sandbox = replace(settings.sandbox, user_namespaces=False)
            settings = replace(settings, sandbox=sandbox)
        options = replace(
            app.options,
            directory=place.directory,
            more_roots=place.roots,
            trust=trust,
            notices=(loaded.reason_ignored,) if loaded.reason_ignored else (),
        )
        return App(settings, app.paths, app.environ, options, app.models)

    async def _switch_to(
        self, previous: Engine, id_: str, app: App, notices: tuple[str, ...]
    ) -> OpenedSession:
        same = previous.view.session.id == id_
        granted = previous.view.rights.granted if same else ()
        try:
            if same:
                await previous.pause()  # one writer: the next record opens it again
            engine = await _resume(app, id_, previous.record.claim if same else 0)
        except RefoldError:
            if app is not self.app:
                await app.aclose()
            raise
        await self.leave(previous)
        if app is not self.app:
            await self.app.aclose()
            self._left.append(self.app)
            self.app = app
        restored = await replace_missing(app, engine)
        asked = (_ASKED_AGAIN.format(rules=", ".join(granted)),) if granted else ()
        all_notices = (*notices, *restored, *asked, *self.notices(app, engine))
        return self._to_opened(id_, engine, tuple(map(escape_to_one_line, all_notices)))


def real_directories(directories: Sequence[str | Path]) -> list[str]:
    """The real path of each; "" stays. Raises `BadInput` if one is not a directory."""
    for path in filter(None, map(str, directories)):
        if not os.path.isdir(path):
            raise BadInput(f"{path!r} is not a directory")
    return [os.path.realpath(path) if str(path) else "" for path in directories]


async def _resume(app: App, id_: str, claim: int) -> Engine:
    """Resume a session, and lease it under this claim."""
    engine = await app.resume(id_, read_only=True)
    try:
        engine.record.claim = claim
        await engine.record.open()
    except BaseException:
        await engine.close()
        raise
    return engine


async def _leave_worktree(engine: Engine, id_: str) -> None:
    """Record that a session leaves its worktree for another directory; it is kept."""
    session = engine.view.session
    if session.worktree is not None and session.id == id_:
        tree = session.worktree
        event = WorktreeLeft(tree.left, tree.tree, branch=tree.branch)
        await engine.record(event, kept=True, author="person")


async def answer_without_user(lines: Sequence[str], question: str) -> bool:
    """The answer when no user can be asked whether a folder is trusted."""
    return False


def finish_notes(launches: Sequence[Launch]) -> "subprocess.Popen[bytes] | None":
    """Start one process that makes the notes and titles of these launches; None if nothing is
    queued.

    The sessions are indexed, and refold's files measured, once for all.
    """
    from refold.app.memory_worker import index_sessions, start_worker
    from refold.app.storage_quota import start_measuring

    memories = {
        app.project_memory.memory.project: app.project_memory
        for launch in launches
        for app in launch.apps
        if app.makes_notes
    }
    process = start_worker(memories.values(), os.environ)
    for app in [launch.app for launch in launches if launch.app.options.keep][-1:]:
        index_sessions(app.home)
        start_measuring(app.paths, app.settings.storage.quota_gb, os.environ)
    return process
