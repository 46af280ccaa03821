"""What a session's tools can reach, and which tools there are for it.

The same for every turn of the session; which of the tools an agent is given is the
business of `agents.given`, what else a turn has that of `outfit`.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from refold.agents.child import Opening
from refold.agents.children import Children
from refold.agents.registry import Registry
from refold.claims.claiming import Checking
from refold.config.settings import Settings
from refold.hall.briefing import Briefing
from refold.hall.coding import SessionPython
from refold.hall.models import Models
from refold.hall.wishes import Wishes
from refold.hall.workspace import Workspace
from refold.permissions.rules import Rule
from refold.place.port import Commands, Files, Snapshots
from refold.session.history import History
from refold.session.recorder import Recorder
from refold.skills.catalogue import Catalogue
from refold.tools.contract import Tool
from refold.tools.memory import Notebook
from refold.tools.task import Choice, task, task_for
from refold.values.tools import Effect

if TYPE_CHECKING:
    from refold.hall.remembering import Remembering

_OF_SKILLS = ("list_skills", "read_skill")
_OF_MEMORY = ("memory_write",)


class Hall(Struct, frozen=True):
    """What all sessions of one start share."""

    settings: Settings
    wishes: Wishes
    models: Models
    workspace: Workspace
    tools: tuple[Tool, ...]
    agents: Registry = Registry()


class Around(Struct, frozen=True):
    """What lies around one session."""

    briefing: Briefing
    skills: Catalogue
    remembering: "Callable[[], Remembering]"  # costs an import
    remembers: bool  # is anything remembered here?
    snapshots: Snapshots | None = None  # None: files cannot be taken back
    python: SessionPython | None = None
    journal: Path | None = None  # where it lies, if it is kept


class LateNotebook:
    """The notes of a session, found when one is written."""

    def __init__(self, find: Callable[[], Notebook]) -> None:
        self._find = find

    async def write(self, section: str, text: str, replaces: str) -> str:
        return await self._find().write(section, text, replaces)


class Supplies:
    """Of the session `id_`, whose journal is `record`. `child`: as a child it has no more."""

    def __init__(
        self,
        hall: Hall,
        around: Around,
        record: Recorder,
        id_: str,
        children: Children,
        child: Opening | None,
    ) -> None:
        self._hall, self._around, self._record, self._id = hall, around, record, id_
        self._children, self._child = children, child

    def house(self, reading: Sequence[Rule] = ()) -> Mapping[str, object]:
        """What tools may ask for by name, where these rules keep from reading besides."""
        if not reading:
            return self._house
        files, commands = self._hall.workspace.heeding(reading)
        return {**self._house, **self._files(files, commands), **self._hall.wishes.house}

    @cached_property
    def _house(self) -> Mapping[str, object]:
        workspace = self._hall.workspace
        return {
            **self._files(workspace.files, workspace.commands),
            "blobs": self._record,
            "history": History(self._record),
            "memory": LateNotebook(lambda: self._around.remembering().notebook(self._id)),
            "directory": Path(workspace.directory),
            "children": self._children,
            "repl": self._around.python,
            **self._hall.wishes.house,
        }

    def _files(self, files: Files, commands: Commands) -> Mapping[str, object]:
        return {
            "files": files,
            "commands": commands,
            "checks": Checking(self._record, files, self._around.journal),
            "skills": self._around.skills.heeding(files.unread),
        }

    @cached_property
    def tools(self) -> tuple[Tool, ...]:
        """Those of use here: nobody is asked where nobody is, and what is off is off."""
        settings, wishes = self._hall.settings, self._hall.wishes
        child = self._child
        off = {
            *(() if self._choices else (task.spec.name,)),
            *(() if settings.skills else _OF_SKILLS),
            *(() if settings.memory and wishes.keep else _OF_MEMORY),
        }
        return tuple(
            task_for(self._choices) if tool is task else tool
            for tool in self._hall.tools
            if tool.spec.name not in off
            and (wishes.attended or tool.effect is not Effect.ASK)
            and (child is None or tool.spec.name in child.tools)
        )

    @cached_property
    def _choices(self) -> tuple[Choice, ...]:
        """The agents that may be given work here."""
        position = self._children.position
        if position.depth >= position.deepest:
            return ()
        every = self._hall.agents.every("child")
        return tuple(Choice(each.name, each.description) for each in every)
