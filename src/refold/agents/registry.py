"""Finds agents by name: built-in agents, and agents of folders and programs.

The registry is made once, at the start.

Names are not case-sensitive; the error for an unknown name suggests a similar one. Built-in
agents come first. `discovery` reads the agents of folders.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from refold.agents.builtin import AGENT_ALIASES, BUILTIN_AGENTS
from refold.agents.discovery import agent_folders, find_agents, folders_without_trust
from refold.agents.profile import CodeSettings, Profile, Use, with_settings
from refold.errors import BadInput
from refold.skills.directories import SkillScope
from refold.tools.python_tool import TOOL_NAME as PYTHON
from refold.tools.task import TOOL_NAME as TASK
from refold.values.printable_names import escape_name

if TYPE_CHECKING:
    from refold.session.inbox import Inbox

_MAX_NOTICES = 5  # problems that are shown at the start; `refold agents` shows all
_MAX_SHOWN_CHARS = 80  # of an unknown name in the error


class Registry(Struct, frozen=True):
    """All agents: the built-in ones, and in `profiles` those of folders and programs.

    `problems` has sentences that say which definitions are ignored, and why. With
    `code_settings`, `find` returns profiles with the limits of these settings.
    """

    profiles: tuple[Profile, ...] = ()
    problems: tuple[str, ...] = ()
    code_settings: CodeSettings | None = None

    def find(self, name: str, use: Use = "both") -> Profile:
        """Return the agent of that name.

        `use` is "main" for an agent that works for the user, "child" for one that works for
        another agent, and "both" for either. Raises `BadInput` if no agent has this name and
        this use.
        """
        lower_name = name.strip().casefold()
        agent = AGENT_ALIASES.get(lower_name, lower_name)
        make_builtin = BUILTIN_AGENTS.get(agent)
        if make_builtin is not None:
            profile = make_builtin()
        else:
            profile = next((item for item in self.profiles if item.name == agent), None)
        if profile is None:
            raise BadInput(self._unknown_agent_text(name, lower_name, use))
        if not permits_use(profile, use):
            use_text = "for other agents" if profile.use == "child" else "for the person"
            raise BadInput(
                f"the agent {profile.name} can be used only {use_text}: {self._available_text(use)}"
            )
        return self._with_settings(profile)

    def profiles_for(self, use: Use = "both") -> tuple[Profile, ...]:
        """Return all agents that may be used in the way `use`: first the built-in agents."""
        return tuple(
            self._with_settings(profile)
            for profile in self._all()
            if permits_use(profile, use)
        )

    def notices(self) -> tuple[str, ...]:
        """Return notices about ignored definitions, which the user gets at the start."""
        unshown = len(self.problems) - _MAX_NOTICES
        if unshown <= 0:
            return self.problems
        ending = f"and {unshown} more sentences about agents: refold agents"
        return (*self.problems[:_MAX_NOTICES], ending)

    def _all(self) -> Iterator[Profile]:
        yield from (make() for make in BUILTIN_AGENTS.values())
        yield from self.profiles

    def _with_settings(self, profile: Profile) -> Profile:
        return with_settings(profile, self.code_settings) if self.code_settings else profile

    def _unknown_agent_text(self, name: str, lower_name: str, use: Use) -> str:
        """Return a sentence about an unknown agent, with the reason or a similar name."""
        from refold.values.similar_names import similar

        names = [
            *BUILTIN_AGENTS,
            *AGENT_ALIASES,
            *(profile.name for profile in self.profiles),
        ]
        hint = ""
        suggestions = similar(lower_name, names, 1)
        if suggestions:
            hint = f" Did you mean {suggestions[0]!r}?"
        # The definition of the agent may be invalid: a problem begins with the file's name.
        for problem in self.problems:
            file, _, _ = problem.partition(":")
            if lower_name and f"/{lower_name}" in file:
                hint = f" {problem[:1].upper()}{problem[1:]}."
                break
        shown_name = escape_name(name)[:_MAX_SHOWN_CHARS]
        available = self._available_text(use).capitalize()
        return f"there is no agent {shown_name!r}.{hint} {available}"

    def _available_text(self, use: Use) -> str:
        names = [profile.name for profile in self._all() if permits_use(profile, use)]
        return f"there are {', '.join(names)}"


def permits_use(profile: Profile, use: Use) -> bool:
    """Whether an agent may be used in the way `use`. If `use` is "both", any agent may be."""
    return use == "both" or profile.use in ("both", use)


def registry(
    scope: SkillScope,
    tool_names: Callable[[], Collection[str]],
    code_settings: CodeSettings | None = None,
    profiles: Sequence[Profile] = (),
) -> Registry:
    """Return all agents of this workspace. `tool_names` returns the names of all tools.

    `profiles` are the agents of a program; an agent in a folder with the name of one of them is
    ignored. Raises `BadInput` if one of `profiles` has the name of a built-in agent, or if two
    of them have one name.
    """
    names = [profile.name for profile in profiles]
    for name in names:
        if name in BUILTIN_AGENTS or name in AGENT_ALIASES or names.count(name) > 1:
            raise BadInput(f"there is an agent {name!r} already: give yours another name")
    scan = find_agents(agent_folders(scope), lambda: {*tool_names(), TASK, PYTHON})
    in_folders = (profile for profile in scan.profiles if profile.name not in names)
    return Registry((*profiles, *in_folders), scan.problems, code_settings)


def trust_notice(scope: SkillScope) -> str:
    """Return a notice that the agents of an untrusted project are ignored; "" if none are
    ignored.
    """
    from os.path import isdir

    folders = [
        escape_name(folder.called)
        for folder in folders_without_trust(scope)
        if isdir(folder.path)
    ]
    if not folders:
        return ""
    return (
        f"{' and '.join(folders)}: this folder is not trusted, so these agents are ignored "
        "(refold trust add)"
    )


# Choosing the agent of a session, the same for every client.


async def choose_agent(
    inbox: "Inbox", agents: Registry, name: str, preset: str = ""
) -> Profile:
    """Set the agent, with its mode and the `preset`, if any, from the next turn on. Return the
    agent.

    Raises `BadInput` if the user cannot choose an agent of that name.
    """
    profile = agents.find(name, "main")
    await inbox.choose_agent(
        profile.name, mode=profile.mode, next_agent=profile.then, preset=preset
    )
    return profile
