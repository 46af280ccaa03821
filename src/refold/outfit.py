"""What each turn of a session is given: who works, with which model, words, tools and bounds.

Made for one session when it is opened: what lies in folders is looked up once then, so
that the front of what is sent stays as it is. Part of the hall.
"""

from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Raw, Struct

from refold.agents.given import tools_of
from refold.agents.profile import Profile, unused_preset
from refold.agents.registry import find
from refold.briefing import Briefing, Material
from refold.config.settings import Settings
from refold.engine.decide import Policy
from refold.engine.tracing import Trace
from refold.engine.world import Aide, World
from refold.errors import BadInput
from refold.journal.fold import View
from refold.models import SCRIPT, Models, Traits
from refold.place.port import Snapshots
from refold.policies import budget, policies, shares
from refold.prompts import parts
from refold.prompts.parts import Told
from refold.session.history import History
from refold.session.recorder import Recorder
from refold.skills.catalogue import Catalogue
from refold.tools.contract import Tool
from refold.tools.memory import Notebook
from refold.values.tools import Effect
from refold.wishes import Wishes
from refold.workspace import Workspace

if TYPE_CHECKING:
    from refold.remembering import Remembering

MAIN = "main"
GONE = "the agent {agent!r} of this session is not there any more: main works instead"
_LEAST_RESULT = 1_000  # characters
_OF_SKILLS = ("list_skills", "read_skill")
_OF_MEMORY = ("memory_write",)
_LISTED = 4_000  # characters of the list of skills


class Hall(Struct, frozen=True):
    """What all sessions of one start share."""

    settings: Settings
    wishes: Wishes
    models: Models
    workspace: Workspace
    tools: tuple[Tool, ...]


class Around(Struct, frozen=True):
    """What lies around one session."""

    briefing: Briefing
    skills: Catalogue
    remembering: "Callable[[], Remembering]"  # costs an import
    remembers: bool  # is anything remembered here?


class LateNotebook:
    """The notes of a session, found when one is written."""

    def __init__(self, find: Callable[[], Notebook]) -> None:
        self._find = find

    async def write(self, section: str, text: str, replaces: str) -> str:
        return await self._find().write(section, text, replaces)


class Outfit:
    """`record` is of the session. Call it at the beginning of each turn."""

    def __init__(
        self,
        hall: Hall,
        around: Around,
        record: Recorder,
        id_: str,
        snapshots: Snapshots | None,
    ) -> None:
        self._hall, self._around = hall, around
        self._record, self._snapshots = record, snapshots
        self._trace = Trace() if hall.settings.trace else None
        self._history = History(record)
        self._id = id_
        self._policies: dict[int, tuple[Policy, ...]] = {}

    def notices(self) -> tuple[str, ...]:
        """What a person has to be told of this session: what has no room, or is gone."""
        view, models = self._record.view, self._hall.models
        agent, now, preset = view.about.agent, agent_of(view), self._hall.settings.preset
        traits = models.traits(model_of(models, view, now))
        told = self._told(now, traits, view).notices
        gone = GONE.format(agent=agent) if agent and now.name != agent else ""
        unused = unused_preset(now, preset if preset != Settings().preset else "")
        return (*told, *filter(None, (gone, unused)))

    def __call__(self, view: View) -> World:
        hall, agent = self._hall, agent_of(view)
        settings, wishes = hall.settings, hall.wishes
        name = model_of(hall.models, view, agent)
        traits = hall.models.traits(name)
        given = tools_of(agent, self._tools)
        told = self._told(agent, traits, view)
        return World(
            provider=hall.models.provider(name, in_words=agent.acting == "text"),
            tools=traits.tools(given.active),
            deferred=() if traits.small else given.deferred,
            policies=self._bounded(agent.bounds.steps),
            rules=(*hall.workspace.rules, *agent.rules),
            mode=settings.permission_mode,
            attended=wishes.attended,
            house=self._house,
            facts=hall.workspace.facts,
            snapshots=self._snapshots,
            system=told.system,
            parts=told.parts,
            agent=agent.name,
            model=name,
            window=traits.window,
            longest_result=_longest(
                agent.bounds.result or settings.limits.result, traits.window
            ),
            max_output=agent.bounds.output or settings.limits.output,
            effort=view.about.effort or settings.effort,
            schema=wishes.schema or Raw(b"null"),
            price=hall.models.price,
            trace=self._trace,
            aide=None if hall.models.scripted else self._aide,
            budget=budget(settings),
            shares=shares(settings),
            watches=settings.reminders,
        )

    def _told(self, agent: Profile, traits: Traits, view: View) -> Told:
        """The system text of the next turn, and what of it had no room."""
        wishes = self._hall.wishes
        material = Material(
            preset=self._hall.settings.preset,
            prompt=agent.prompt,
            own=wishes.own_system,
            memory=self._memory if agent.memory else "",
            # A small model has no way to read one.
            skills=self._listed(traits.window) if agent.skills and not traits.small else "",
            more=wishes.more_system,
            schema=wishes.schema,
            small=traits.small,
            window=traits.window,
        )
        return self._around.briefing.text(material, view.talk.briefed)

    @cached_property
    def _house(self) -> Mapping[str, object]:
        workspace = self._hall.workspace
        return {
            "files": workspace.files,
            "commands": workspace.commands,
            "blobs": self._record,
            "history": self._history,
            "skills": self._around.skills.heeding(workspace.files.unread),
            "memory": LateNotebook(lambda: self._around.remembering().notebook(self._id)),
            "directory": Path(workspace.directory),
            **self._hall.wishes.house,
        }

    @cached_property
    def _tools(self) -> tuple[Tool, ...]:
        """Those of use here: nobody is asked where nobody is, and what is off is off."""
        settings, wishes = self._hall.settings, self._hall.wishes
        off = {
            *(() if settings.skills else _OF_SKILLS),
            *(() if settings.memory and wishes.keep else _OF_MEMORY),
        }
        return tuple(
            tool
            for tool in self._hall.tools
            if tool.spec.name not in off
            and (wishes.attended or tool.effect is not Effect.ASK)
        )

    @cached_property
    def _memory(self) -> str:
        trusted = bool(self._around.briefing.trusted)
        if not (self._hall.settings.memory and self._around.remembers):
            return ""
        return self._around.remembering().told(trusted=trusted)

    def _listed(self, window: int) -> str:
        """The list of skills, as far as there is room."""
        if not self._hall.settings.skills:
            return ""
        room = parts.room("skills", window or self._hall.settings.context.window)
        return self._around.skills.listed(min(_LISTED, room))

    def _bounded(self, steps: int) -> tuple[Policy, ...]:
        if steps not in self._policies:
            hall = self._hall
            made = policies(hall.settings, hall.wishes.schema, steps)
            self._policies[steps] = made
        return self._policies[steps]

    def _aide(self) -> Aide:
        """The small model, for what stands beside the talk."""
        models = self._hall.models
        name = models.default("small")
        window = models.traits(name).window
        return Aide(models.provider(name), name, window, models.price, self._trace)


def agent_of(view: View) -> Profile:
    """Who works in this session; `main`, where the one it had is no more."""
    try:
        return find(view.about.agent or MAIN, MAIN)
    except BadInput:
        return find(MAIN, MAIN)


def model_of(models: Models, view: View, agent: Profile) -> str:
    """The model of the next turn: chosen, or as before, or what the settings say."""
    if models.scripted:
        return models.default()
    briefed = view.talk.briefed
    same = briefed.agent in ("", agent.name) and not briefed.model.startswith(SCRIPT)
    before = briefed.model if same else ""
    return view.about.model or before or models.default(agent.role)


def _longest(settled: int, window: int) -> int:
    """Characters of one result: at most about a quarter of what a small window holds."""
    return min(settled, max(_LEAST_RESULT, window)) if window else settled
