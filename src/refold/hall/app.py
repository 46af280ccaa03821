"""One start of refold, with its settings and its place: it opens sessions, and leaves them.

What a session is given when it is opened is the business of `kin`, what each of its turns
is given that of `outfit`.
"""

import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from msgspec.structs import replace

from refold.agents.choosing import choose
from refold.agents.leash import Settled
from refold.agents.profile import Leash
from refold.agents.registry import Registry, registry
from refold.config.credentials import read as stored_keys
from refold.config.paths import Paths
from refold.config.settings import Settings
from refold.errors import BadInput
from refold.hall.briefing import Briefing, SessionGround
from refold.hall.kin import Kin, Site
from refold.hall.models import Models
from refold.hall.nearby import around
from refold.hall.outfit import Outfit, agent_of, model_of
from refold.hall.policies import policies
from refold.hall.supplies import Around, Hall
from refold.hall.wishes import Wishes
from refold.hall.workspace import Where, Workspace, check_tools
from refold.journal.fold import View
from refold.journal.home import LAST, Home
from refold.journal.store import MemoryStore, Store
from refold.memory.pending import Pending
from refold.memory.project import kept_in, project_of, written
from refold.permissions.facts import Facts
from refold.permissions.rules import Rule
from refold.place.port import Snapshots
from refold.rlm.rate import Rate
from refold.session.recorder import Recorder
from refold.session.session import Manners, Session
from refold.skills.catalogue import Catalogue
from refold.skills.places import SkillScope as SkillsAround
from refold.tools.builtin import builtin
from refold.tools.contract import Tool
from refold.values.level import Tell
from refold.values.rights import Mode

if TYPE_CHECKING:
    from refold.hall.remembering import Remembering
    from refold.journal.forking import Fork
    from refold.skills.shortcuts import Shortcuts


class App:
    """Open sessions with `start` and `resume`; leave with `aclose`."""

    def __init__(
        self,
        settings: Settings,
        paths: Paths,
        environ: Mapping[str, str],
        wishes: Wishes,
        before: Models | None = None,  # of another place, if one comes from there
    ) -> None:
        if not wishes.keep:  # then nothing is left behind, not in the log either
            settings = replace(settings, log="off")
        self.settings, self.paths, self.wishes = settings, paths, wishes
        self.environ = environ
        self.directory = os.path.realpath(wishes.directory)
        self.home = Home(paths.data / "sessions")
        keys = stored_keys(paths.credentials)
        self.models = Models(settings, paths, environ, keys, wishes, before)
        self.tools = builtin() if wishes.tools is None else wishes.tools
        where = Where(wishes.directory, wishes.more_roots)
        self.workspace = Workspace(settings, paths, environ, where)
        check_tools(self.workspace.rules, (*builtin(), *self.tools))
        policies(settings, wishes.schema)  # a bad schema is told now
        self.agents.find(settings.agent, "main")
        self.briefing.check()
        self._hall = Hall(
            settings, wishes, self.models, self.workspace, self.tools, self.agents
        )
        self._rate = Rate(settings.python.per_minute)
        self._snapshots: dict[str, Snapshots | None] = {}
        self._opened: Outfit | None = None  # the newest

    @cached_property
    def briefing(self) -> Briefing:
        """What lies in the folders for a model to be told."""
        return self._briefing()

    @cached_property
    def skills(self) -> Catalogue:
        return Catalogue(self._around)

    @cached_property
    def agents(self) -> Registry:
        """Those that may work here, as they work under these settings."""
        known = partial(_names, (*builtin(), *self.tools))
        return registry(self._around, known, settled(self.settings))

    def shortcuts(self, taken: Collection[str]) -> "Shortcuts":
        """What `/name words` stands for here; `taken` are the names of commands."""
        from refold.skills.shortcuts import Shortcuts

        return Shortcuts(self.skills, self._around, taken)

    @cached_property
    def _around(self) -> SkillsAround:
        trusted = self.briefing.trusted
        return around(self.directory, self.paths, self.environ, trusted=trusted)

    @cached_property
    def remembering(self) -> "Remembering":
        """The notes of this project. A start that has none does without the import."""
        from refold.hall.remembering import Remembering

        return Remembering(self.paths.data, self.directory, self.home, self.models.masks)

    async def start(self) -> tuple[str, Session]:
        """A new session in the wished directory, and its id."""
        id_ = self.home.new_id(time.time())
        session = await self._open(
            id_, self.home.store if self.wishes.keep else _forgetful()
        )
        if self.settings.agent != "main":
            await choose(session.inbox, self.agents, self.settings.agent)
        return id_, session

    async def resume(self, id_: str) -> Session:
        """Take up a session. Raises `Held` while another process writes it."""
        root, slash, _ = id_.partition("/")
        if slash:
            raise BadInput(
                f"{id_} is a child and goes on with its parent: take up {root}, or read it "
                f"with refold show {id_}"
            )
        return await self._open(id_, self.home.store)

    async def fork(self, id_: str, at: int | None = None) -> "Fork":
        """A session that begins as a copy of this one up to event `at`, not opened yet.

        Raises `BadInput` where there is no such event, or nothing is kept.
        """
        if not self.wishes.keep:
            raise BadInput("no journal is kept here, so there is nothing to fork")
        from refold.journal.forking import fork

        made = partial(fork, self.home, id_, at, time.time())
        return await anyio.to_thread.run_sync(made)

    def newest(self) -> str:
        """The session last used in this directory. Raises `BadInput` if there is none."""
        return self.home.named(LAST, self.wishes.directory).id

    def model_of(self, view: View) -> str:
        """The model of the next turn: chosen, or as before, or what the settings say."""
        return model_of(self.models, view, agent_of(view, self.agents))

    @property
    def log(self) -> Tell:
        """Where lines about refold's own work go."""
        return self.models.connections.log

    @property
    def rules(self) -> Sequence[Rule]:
        return self.workspace.rules

    @property
    def mode(self) -> Mode:
        """How much runs unasked in a session that has chosen no mode of its own."""
        return self.settings.permission_mode

    def facts(self) -> Facts:
        """What calls are judged by, besides the rules."""
        return self.workspace.facts()

    def unread(self, path: str) -> str:
        """Why a deny rule keeps this file from being read, or ""."""
        return self.workspace.unread(path)

    def notices(self) -> tuple[str, ...]:
        """What a person has to be told at the start: above all, what does not protect them."""
        kept = (each.notice for each in self._snapshots.values() if each)
        for missing in self.workspace.notices():
            self.log("warning", missing)
        return (
            *self.wishes.notices,
            *self.workspace.notices(),
            *filter(None, kept),
            *self.briefing.notices(),
            *(self._opened.notices() if self._opened else ()),
            *self.agents.notices(),
            *(self.skills.notices() if self.settings.skills else ()),
        )

    def snapshots(self, session: str) -> Snapshots | None:
        """How files of this session's workspace are taken back; None: they cannot be."""
        if session not in self._snapshots:
            kept = self.workspace.snapshots(session) if self.wishes.keep else None
            self._snapshots[session] = kept
        return self._snapshots[session]

    @property
    def learns(self) -> bool:
        """Are notes made of what is said here?"""
        return self.settings.memory and self.wishes.keep and not self.models.scripted

    def put_down(self, session: str) -> None:
        """Notes are to be made of this session when it has been left."""
        if self.learns:
            Pending(kept_in(self.paths.data, self._project)).put(session)

    @cached_property
    def _project(self) -> Path:
        return project_of(self.directory)

    async def aclose(self) -> None:
        for id_ in self._snapshots:
            self.log("info", "left", id_)
        await self.models.aclose()
        self.workspace.close()

    def outfit(self, record: Recorder, id_: str) -> Outfit:
        """What each turn of a session would be given now. It need not be open."""
        return self._kin(self.home.store).outfit(record, id_)

    def _kin(self, store: Callable[[str], Store]) -> Kin:
        # Each session has its own look: what another finds must not change its words.
        briefing = self._briefing() if self._opened else self.briefing
        notes = written(self.paths.data, self.directory, self._project)
        here = Around(briefing, self.skills, lambda: self.remembering, notes)
        return Kin(self._hall, here, Site(self.paths, self.environ, store, self._rate))

    async def _open(self, id_: str, store: Callable[[str], Store]) -> Session:
        settings, given = self.settings, self.wishes.given
        manners = Manners(
            settings.permission_mode, settings.limits.question, settings.memory, given
        )
        snapshots = self.snapshots(id_)
        session, self._opened = await self._kin(store).open(id_, snapshots, manners)
        return session

    def _briefing(self) -> Briefing:
        ground = SessionGround(
            roots=self.workspace.roots,
            trust=self.wishes.trust,
            unread=self.workspace.files.unread,
        )
        return Briefing(self.settings, self.paths, self.environ, ground)


def _names(tools: Sequence[Tool]) -> frozenset[str]:
    return frozenset(tool.spec.name for tool in tools)


def _forgetful() -> Callable[[str], Store]:
    """Stores of a session and its children that end with this process."""
    stores = dict[str, Store]()
    return lambda id_: stores.setdefault(id_, MemoryStore())


def settled(settings: Settings) -> Settled:
    """What the settings say of agents that write code."""
    own = settings.python
    leash = Leash(own.fan_out, own.at_once, own.depth, own.cell, own.call)
    return Settled(leash, own.steps)
