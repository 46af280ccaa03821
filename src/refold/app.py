"""The hall: the one place where concrete things are put together.

Which store, wire, tools, place and policies a session gets is decided here and
nowhere else; everybody else knows ports. Whatever takes long to import is
imported where it is used, because every start pays for what stands at the top.
"""

import os
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from msgspec import Raw, Struct

from refold import __version__
from refold.config.credentials import read as stored_keys
from refold.config.paths import Paths
from refold.config.settings import Settings
from refold.engine.decide import Policy
from refold.engine.policies.continuation import joined_up
from refold.engine.policies.converse import converse
from refold.engine.policies.final import final
from refold.engine.policies.planning import in_plan_mode, plan_ready
from refold.engine.policies.refusals import not_refused
from refold.engine.policies.shape import shaped
from refold.engine.policies.step_limit import at_most, going_on
from refold.engine.policies.stopping import after_a_stop, stopping
from refold.engine.policies.stuck import not_stuck
from refold.engine.policies.window import in_window
from refold.engine.tracing import Trace
from refold.engine.world import World
from refold.errors import BadInput
from refold.journal.fold import View
from refold.journal.home import Home
from refold.journal.store import MemoryStore, Store
from refold.models import SCRIPT, Models
from refold.permissions.facts import Facts
from refold.permissions.rules import Rule
from refold.place.port import Snapshots
from refold.prompts.system import Surroundings, system
from refold.provider.port import Provider
from refold.session.recorder import Recorder
from refold.session.session import Manners, Session
from refold.tools.builtin import builtin
from refold.tools.contract import Tool
from refold.values.rights import Mode
from refold.values.tools import Effect
from refold.workspace import Where, Workspace, check_tools


class Wishes(Struct, frozen=True, kw_only=True):
    """What one start of refold asks for beside its settings."""

    directory: Path
    more_roots: tuple[Path, ...] = ()
    model: str = ""  # this one, whatever the settings say; a role, too
    attended: bool = True  # is there anybody to ask?
    own_system: str = ""  # instead of our system text
    more_system: str = ""  # added to it
    script: Path | None = None  # answers from a file instead of a model
    record: Path | None = None  # a cassette to write model calls to
    replay: Path | None = None  # a cassette to take the answers from
    schema: Raw | None = None  # JSON Schema that final answers have to match
    keep: bool = True  # false: the journal ends with the process
    notices: tuple[str, ...] = ()  # what else a person has to be told at the start
    provider: Provider | None = None  # a provider of the caller's own
    tools: tuple[Tool, ...] | None = None  # instead of the built-in ones
    house: Mapping[str, object] = {}  # what those tools ask for by name


class App:
    """Open sessions with `start` and `resume`; leave with `aclose`."""

    def __init__(
        self, settings: Settings, paths: Paths, environ: Mapping[str, str], wishes: Wishes
    ) -> None:
        self.settings, self.paths, self.wishes = settings, paths, wishes
        self.directory = os.path.realpath(wishes.directory)
        self.home = Home(paths.data / "sessions")
        keys = stored_keys(paths.credentials)
        self.models = Models(settings, paths, environ, keys, wishes)
        self.tools = builtin() if wishes.tools is None else wishes.tools
        where = Where(wishes.directory, wishes.more_roots)
        self.workspace = Workspace(settings, paths, environ, where)
        check_tools(self.workspace.rules, (*builtin(), *self.tools))
        self._policies = policies(settings, wishes.schema)
        self._masks = self.models.masks
        self._snapshots: dict[str, Snapshots | None] = {}

    async def start(self) -> tuple[str, Session]:
        """A new session in the wished directory, and its id."""
        id_ = self.home.new_id(time.time())
        store: Store = self.home.store(id_) if self.wishes.keep else MemoryStore()
        return id_, await self._open(store, id_)

    async def resume(self, id_: str) -> Session:
        """Take up a session. Raises `Held` while another process writes it."""
        return await self._open(self.home.store(id_), id_)

    def newest(self) -> str:
        """The session last used in this directory. Raises `BadInput` if there is none."""
        found = self.home.newest_of(self.wishes.directory)
        if found is None:
            raise BadInput(
                f"no session was started in {self.wishes.directory} yet: "
                "start one without -c, or name one with -r ID (refold sessions list)"
            )
        return found.id

    def model_of(self, view: View) -> str:
        """The model of the next turn: chosen, or as before, or what the settings say."""
        if self.models.scripted:
            return self.models.default()
        before = view.talk.briefed.model
        before = "" if before.startswith(SCRIPT) else before
        return view.about.model or before or self.models.default()

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
        return (*self.wishes.notices, *self.workspace.notices(), *filter(None, kept))

    def snapshots(self, session: str) -> Snapshots | None:
        """How files of this session's workspace are taken back; None: they cannot be."""
        if session not in self._snapshots:
            kept = self.workspace.snapshots(session) if self.wishes.keep else None
            self._snapshots[session] = kept
        return self._snapshots[session]

    async def aclose(self) -> None:
        await self.models.aclose()
        self.workspace.close()

    async def _open(self, store: Store, id_: str) -> Session:
        durable = self.settings.durability == "kept"
        record = Recorder(store, masks=self._masks, durable=durable)
        trace = Trace() if self.settings.trace else None
        outfit = partial(self._outfit, record, trace, self.snapshots(id_))
        manners = Manners(self.settings.permission_mode, self.settings.limits.question)
        return await Session.open(
            record,
            outfit,
            directory=self.directory,
            version=__version__,
            id_=id_,
            manners=manners,
        )

    def _outfit(
        self,
        record: Recorder,
        trace: Trace | None,
        snapshots: Snapshots | None,
        view: View,
    ) -> World:
        name = self.model_of(view)
        profile = self.models.profile(name)
        limits, wishes = self.settings.limits, self.wishes
        around = Surroundings(self.directory, time.strftime("%Y-%m-%d"), os.uname().sysname)
        own = wishes.own_system or profile.system
        schema = wishes.schema or Raw(b"null")
        text = system(around, own=own, more=wishes.more_system, schema=wishes.schema)
        return World(
            provider=self.models.provider(name),
            tools=profile.tools(self._tools_now()),
            policies=self._policies,
            rules=self.rules,
            mode=self.mode,
            attended=wishes.attended,
            house={
                "files": self.workspace.files,
                "commands": self.workspace.commands,
                "blobs": record,
                "directory": Path(self.directory),
                **wishes.house,
            },
            facts=self.workspace.facts,
            snapshots=snapshots,
            system=text,
            model=name,
            window=profile.window,
            longest_result=limits.result,
            max_output=limits.output,
            effort=view.about.effort or self.settings.effort,
            schema=schema,
            price=self.models.price,
            trace=trace,
        )

    def _tools_now(self) -> tuple[Tool, ...]:
        """A model that nobody hears has no use for a tool that asks."""
        if self.wishes.attended:
            return self.tools
        return tuple(tool for tool in self.tools if tool.effect is not Effect.ASK)


def policies(settings: Settings, schema: Raw | None) -> tuple[Policy, ...]:
    """What may change the next step. Between equals the first wins.

    Raises `BadInput` for a `schema` that is none.
    """
    limits = settings.limits
    try:
        shape = (shaped(schema, limits.corrections),) if schema is not None else ()
    except ValueError as error:
        raise BadInput(f"this is no JSON Schema: {error}") from error
    return (
        stopping,
        *shape,
        in_window,
        plan_ready,
        final,
        not_refused(limits.refusals),
        at_most(limits.steps, limits.warn),
        joined_up(limits.continuations),
        not_stuck(limits.repeats),
        going_on,
        after_a_stop,
        in_plan_mode(settings.permission_mode),
        converse,
    )
