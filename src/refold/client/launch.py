"""One start of refold: opens its sessions, each in its directory, and switches between them.

`Session` is the handle of one session; this module has what the handles of one start share.

A session that continues in another directory is closed, and opened there as `refold -r`
would open it: after the same question about trust, and with the settings, rules,
instructions and notes of that folder. An open workspace is never changed. Its sandbox,
rules, trust and notes depend on each other, so a part that was not updated would still
write to the old directory.
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

    from refold.config.folder_settings import FolderSettings
    from refold.config.settings import Settings
    from refold.config.trusted_folders import TrustedFolders

# Shows these lines and asks the question below them. Returns whether the answer is yes.
Ask: TypeAlias = Callable[[Sequence[str], str], Awaitable[bool]]
Commands: TypeAlias = Callable[[], Collection[str]]
JOURNAL_MENDED = "the journal was damaged at its end; lost: {lost}"
_SHORTCUT_PATTERN = r"(?s)/([\w:-]+)(?:\s+(.*))?"  # `/name arguments`
_NOT_KEPT = "this session is not saved, so it cannot move: leave, and start one there"
_UNDER_WAY = (
    "this session has an interrupted turn, which can end only here: continue it first"
)
_ASKED_AGAIN = "allowed for this session until now, and asked about again: {rules}"


class ResumeTarget(Struct, frozen=True):
    """The session to open, and the directory in which it continues.

    `session` is its id; "" for the current one. `directory` is a real path, or "" for no
    change; `added` directories join its workspace.
    """

    session: str = ""
    directory: str = ""
    added: tuple[str, ...] = ()


class OpenedSession(Struct, frozen=True):
    """An open session, the app of its directory, and notices that the user must see."""

    app: App
    engine: Engine
    notices: tuple[str, ...] = ()


class Launch:
    """One start of refold. `flags` are settings of the command line, which apply in every
    directory.

    `commands` returns the names of commands, which templates and skills cannot have. With
    `notes`, notes are made of the sessions of this start.
    """

    def __init__(
        self,
        app: App,
        flags: Mapping[str, object] = MappingProxyType({}),
        commands: Commands = frozenset,
        *,
        notes: bool = False,
    ) -> None:
        self.app = app
        self.commands = commands
        self.flags = flags
        self._notes = notes
        self._trusted_directories = {app.directory} if app.options.trust else set[str]()
        self._left_apps = list[App]()  # of the directories that a switch has left
        self._engines = set[Engine]()  # the engines that are open
        self._shown_notices = set[str]()

    async def start(self, id_: str = "", claim: int = 0) -> OpenedSession:
        """Open a new session in the directory of this start, with a new id if `id_` is "".

        `claim` is the number of the claim (the right to run the session) under which the
        session is leased; 0 means without a claim.
        """
        id_, engine = await self.app.start(id_, claim)
        return self._register(id_, engine)

    async def resume(self, id_: str) -> OpenedSession:
        """Resume a session, by its full id, in the directory of this start."""
        return self._register(id_, await self.app.resume(id_))

    async def open_read_only(self, id_: str) -> OpenedSession:
        """Open a session as `resume` does, but take no writer lock until something is
        recorded.
        """
        engine = await self.app.resume(id_, read_only=True)
        self._engines.add(engine)
        return OpenedSession(self.app, engine)

    def mark_for_notes(self, id_: str) -> None:
        """Queue the session, so that notes are made of it when this start ends."""
        if self._notes:
            self.app.queue_for_notes(id_)

    async def leave(self, engine: Engine) -> None:
        """Close an open session."""
        self._engines.discard(engine)
        await engine.close()

    async def switch(
        self, current: Engine, target: ResumeTarget, ask: Ask
    ) -> OpenedSession:
        """Open the target session in its directory, and close the session `current`.

        Raises if the target cannot be opened; `current` stays open then.
        """
        if not self.app.options.keep:
            raise BadInput(_NOT_KEPT)
        id_ = target.session or current.view.session.id
        if id_ == current.view.session.id and current.view.turn.seq:
            raise BadInput(_UNDER_WAY)
        place, trust = await anyio.to_thread.run_sync(self._new_directory, id_, target)
        app = await self._app_at(place, ask, trust=trust)
        opened: OpenedSession | None = None
        # Shielded, so that the old session is closed even on cancellation.
        with anyio.CancelScope(shield=True):
            if target.directory:  # the user chose a directory in place of the worktree
                await _leave_worktree(current, id_)
            opened = await self._switch_to(current, id_, app, place.notices)
        assert opened is not None  # the scope is never cancelled
        return opened

    def notices(self, app: App, engine: Engine) -> tuple[str, ...]:
        """Return the notices about a session that were not yet shown to the user in this
        start.
        """
        notices = [*app.notices(), *app.shortcuts(self.commands()).notices()]
        uses_memory = app.settings.memory and app.options.keep
        if uses_memory and (learned := app.project_memory.notice()):
            notices.append(learned)
        if engine.lost_text:
            notices.append(JOURNAL_MENDED.format(lost=engine.lost_text))
        new = tuple(notice for notice in notices if notice not in self._shown_notices)
        self._shown_notices.update(new)
        return new

    async def aclose(self) -> None:
        """Close all open sessions, and the app of this start."""
        for engine in tuple(self._engines):
            await self.leave(engine)
        await self.app.aclose()

    def finish_notes(self) -> None:
        """Make the notes and titles of this start in the background, as the function
        `finish_notes` does.
        """
        finish_notes([self])

    @property
    def apps(self) -> Sequence[App]:
        """The apps of the directories that a switch has left, and then the current app."""
        return (*self._left_apps, self.app)

    @property
    def directories(self) -> Sequence[str]:
        return tuple(app.directory for app in self.apps)

    def check_model(self) -> None:
        """Raise `BadInput` if the model of a new session cannot be used."""
        self.app.models.check(self.app.model_of(View()))

    def expand_shortcut(self, typed: str, message: str) -> tuple[str, str | None]:
        """Expand `typed`, a part of `message`, if it is `/name …` of a template or skill.

        Return the message, and the text that the user typed: `typed`, or None if nothing was
        expanded and `typed` is the whole message. Raises `BadInput` if an argument is missing.
        """
        line = typed.strip()
        # Checked first, because reading the shortcuts takes time. A path does not match.
        if not (line.startswith("@") or re.fullmatch(_SHORTCUT_PATTERN, line)):
            return _not_expanded(typed, message)
        shortcuts = self.app.shortcuts(self.commands())
        if line.startswith("@"):
            line = shortcuts.to_slash(line) or line
        match = re.fullmatch(_SHORTCUT_PATTERN, line)
        if match is None or shortcuts.find(match[1]) is None:
            return _not_expanded(typed, message)
        name, arguments = match[1], match[2] or ""
        text = shortcuts.expand(name, arguments, {})
        return message.replace(typed, text, 1), typed

    async def expand(self, typed: str, message: str) -> tuple[str, str | None]:
        """Expand `typed` as `expand_shortcut` does, and also if it is a prompt of an MCP
        server.

        The server is connected if necessary.
        """
        if not typed.lstrip().startswith(("/", "@")):
            return _not_expanded(typed, message)
        if self.app.mcp is not None:
            prompt = await self.app.mcp.expand_command(typed)
            if prompt is not None:
                return message.replace(typed, prompt, 1), typed
        return await anyio.to_thread.run_sync(self.expand_shortcut, typed, message)

    def _register(
        self, id_: str, engine: Engine, notices: tuple[str, ...] = ()
    ) -> OpenedSession:
        """Note that a session is open, and return it with the app of this start."""
        self.mark_for_notes(id_)
        self._engines.add(engine)
        return OpenedSession(self.app, engine, notices)

    def _new_directory(
        self, id_: str, target: ResumeTarget
    ) -> tuple[SessionDirectory, bool]:
        """Return the directory in which the session will continue, and whether this start
        trusts it.

        The directory is that of the target, or else that of the session. The further
        directories of both are joined.
        """
        app = self.app
        previous = find_directory(app.home, id_, Path(app.directory))
        directory = os.path.realpath(target.directory or previous.directory)
        is_trusted = directory in self._trusted_directories
        further = [os.path.realpath(root) for root in (*previous.roots, *target.added)]
        unique = dict.fromkeys(further)
        roots = tuple(Path(root) for root in unique if root != directory)
        # The notices are about the directory of the session, for example that it is missing.
        notices = () if target.directory else previous.notices
        return SessionDirectory(Path(directory), roots, notices), is_trusted

    async def _app_at(self, place: SessionDirectory, ask: Ask, *, trust: bool) -> App:
        """Return the current app if it is for these directories; otherwise make one.

        The user is asked whether to trust a new folder, unless `trust` says that this start
        already trusts the folder.
        """
        app = self.app
        roots = tuple(map(str, (place.directory, *place.roots)))
        if roots == app.workspace.roots:
            return app
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
        settings = loaded.settings
        # The user was asked about the present folder when it was opened.
        if str(place.directory) != app.directory:
            folders = TrustedFolders(app.paths.folders)
            if await self._ask_for_trust(folders, loaded, ask, trust=trust):
                loaded = await anyio.to_thread.run_sync(load)
            settings = await _ask_about_sandbox(
                folders, place.directory, loaded.settings, ask
            )
        options = replace(
            app.options,
            directory=place.directory,
            more_roots=place.roots,
            trust=trust,
            notices=(loaded.reason_ignored,) if loaded.reason_ignored else (),
        )
        return App(settings, app.paths, app.environ, options, app.models)

    async def _ask_for_trust(
        self, folders: "TrustedFolders", loaded: "FolderSettings", ask: Ask, *, trust: bool
    ) -> bool:
        """Ask about files in the folder that the user has not trusted; record a yes.

        Return False if there are none, or if the user refuses.
        """
        from refold.client.folder_trust import TrustOffer, find_changed_texts

        paths = self.app.paths
        directory = Path(loaded.project.folder)
        changes = () if trust else find_changed_texts(directory, paths, folders)
        offer = TrustOffer(loaded.project, loaded.state, loaded.texts, changes)
        if not offer:  # there is nothing to ask about
            return False
        if not await ask(offer.question_lines(), offer.question):
            return False
        offer.accept(folders, paths.data)
        return True

    async def _switch_to(
        self, previous: Engine, id_: str, app: App, notices: tuple[str, ...]
    ) -> OpenedSession:
        """Open the session `id_` in `app`, and close the session `previous`.

        If it cannot be opened, `app` is closed, and `previous` stays open. A notice
        names the rights of the session, which do not apply in another directory.
        """
        is_same_session = previous.view.session.id == id_
        granted = previous.view.rights.granted if is_same_session else ()
        claim = previous.record.claim if is_same_session else 0
        try:
            if is_same_session:
                # The new engine takes the lock, which only one engine can have.
                await previous.pause()
            engine = await _resume(app, id_, claim)
        except RefoldError:
            if app is not self.app:
                await app.aclose()
            raise
        await self.leave(previous)
        if app is not self.app:
            await self.app.aclose()
            self._left_apps.append(self.app)
            self.app = app
        all_notices = [*notices, *await replace_missing(app, engine)]
        if granted:
            all_notices.append(_ASKED_AGAIN.format(rules=", ".join(granted)))
        all_notices += self.notices(app, engine)
        return self._register(id_, engine, tuple(map(escape_to_one_line, all_notices)))


def real_directories(directories: Sequence[str | Path]) -> list[str]:
    """Return the real path of each directory; "" stays "".

    Raises `BadInput` for a path that is not a directory.
    """
    real = list[str]()
    for path in map(str, directories):
        if path and not os.path.isdir(path):
            raise BadInput(f"{path!r} is not a directory")
        real.append(os.path.realpath(path) if path else "")
    return real


async def _resume(app: App, id_: str, claim: int) -> Engine:
    """Resume a session, and take its writer lock under the number `claim`.

    A claim is the right to run the session.
    """
    # Read-only at first, because the claim must be set before the lock is taken.
    engine = await app.resume(id_, read_only=True)
    try:
        engine.record.claim = claim
        await engine.record.open()
    except BaseException:
        await engine.close()
        raise
    return engine


def _not_expanded(typed: str, message: str) -> tuple[str, str | None]:
    """Return the result of `Launch.expand_shortcut` for a message that stays as it is."""
    is_whole_message = typed == message
    return message, None if is_whole_message else typed


async def _ask_about_sandbox(
    folders: "TrustedFolders", directory: Path, settings: "Settings", ask: Ask
) -> "Settings":
    """Return the settings, without user namespaces in the sandbox if the user refuses
    them.
    """
    from refold.client.folder_trust import ask_about_namespaces

    if not settings.sandbox.user_namespaces:
        return settings
    if await ask_about_namespaces(folders, directory, ask):
        return settings
    sandbox = replace(settings.sandbox, user_namespaces=False)
    return replace(settings, sandbox=sandbox)


async def _leave_worktree(engine: Engine, id_: str) -> None:
    """Record that a session leaves its worktree for another directory. The worktree is kept."""
    session = engine.view.session
    if session.worktree is not None and session.id == id_:
        tree = session.worktree
        event = WorktreeLeft(tree.left, tree.tree, branch=tree.branch)
        await engine.record(event, kept=True, author="person")


async def answer_without_user(lines: Sequence[str], question: str) -> bool:
    """Answer no to every question, because no user can be asked. It is an `Ask`."""
    return False


def finish_notes(launches: Sequence[Launch]) -> "subprocess.Popen[bytes] | None":
    """Start one process that makes the notes and titles of these launches, and return it.

    Return None if no notes are queued. Other processes update the session index and measure
    refold's files, once for all launches.
    """
    from refold.app.memory_worker import index_sessions, start_worker
    from refold.app.storage_quota import start_measuring

    apps = [app for launch in launches for app in launch.apps]
    # One memory for each project, although several apps may have opened it.
    memories = {
        app.project_memory.memory.project: app.project_memory
        for app in apps
        if app.makes_notes
    }
    process = start_worker(memories.values(), os.environ)
    saving = [launch.app for launch in launches if launch.app.options.keep]
    if saving:
        app = saving[-1]  # all of them have the same index and files
        index_sessions(app.home)
        start_measuring(app.paths, app.settings.storage.quota_gb, os.environ)
    return process
