"""All agents by name: the built-in ones, and those of folders. A value, made once at start.

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

_MAX_NOTICES = 5  # problems shown at the start; `refold agents` shows all


class Registry(Struct, frozen=True):
    """`profiles` are the agents of folders, `problems` say which of them are ignored, and why.

    With `code_settings`, `find` returns profiles with the limits of these settings.
    """

    profiles: tuple[Profile, ...] = ()
    problems: tuple[str, ...] = ()
    code_settings: CodeSettings | None = None

    def find(self, name: str, use: Use = "both") -> Profile:
        """The agent of that name. Raises `BadInput` if there is none for this use.

        `use`: "main" works for the user, "child" for another agent.
        """
        folded = name.strip().casefold()
        wanted = AGENT_ALIASES.get(folded, folded)
        make = BUILTIN_AGENTS.get(wanted)
        own = (item for item in self.profiles if item.name == wanted)
        profile = make() if make else next(own, None)
        if profile is None:
            raise BadInput(self._unknown(name, folded, use))
        if not permits_use(profile, use):
            use_text = "for other agents" if profile.use == "child" else "for the person"
            raise BadInput(
                f"the agent {profile.name} can be used only {use_text}: {self._available_text(use)}"
            )
        return self._with_settings(profile)

    def profiles_for(self, use: Use = "both") -> tuple[Profile, ...]:
        """All agents for this use, in the order of the list."""
        return tuple(
            self._with_settings(profile)
            for profile in self._all()
            if permits_use(profile, use)
        )

    def notices(self) -> tuple[str, ...]:
        """Notices for the user at the start: definitions that are ignored."""
        left = len(self.problems) - _MAX_NOTICES
        ending = (f"and {left} more sentences about agents: refold agents",)
        return (*self.problems[:_MAX_NOTICES], *(ending if left > 0 else ()))

    def _all(self) -> Iterator[Profile]:
        yield from (make() for make in BUILTIN_AGENTS.values())
        yield from self.profiles

    def _with_settings(self, profile: Profile) -> Profile:
        return with_settings(profile, self.code_settings) if self.code_settings else profile

    def _unknown(self, name: str, lower_name: str, use: Use) -> str:
        from refold.values.similar_names import similar

        names = [
            *BUILTIN_AGENTS,
            *AGENT_ALIASES,
            *(profile.name for profile in self.profiles),
        ]
        suggestions = similar(lower_name, names, 1)
        guess = f" Did you mean {suggestions[0]!r}?" if suggestions else ""
        # Its definition may be invalid.
        why = next((p for p in self.problems if f"/{lower_name}" in p.split(":")[0]), "")
        reason = f" {why[:1].upper()}{why[1:]}." if why and lower_name else ""
        named = f"there is no agent {escape_name(name)[:80]!r}."
        return f"{named}{reason or guess} {self._available_text(use).capitalize()}"

    def _available_text(self, use: Use) -> str:
        return f"there are {', '.join(profile.name for profile in self._all() if permits_use(profile, use))}"


def permits_use(profile: Profile, use: Use) -> bool:
    return "both" in (use, profile.use) or use == profile.use


def registry(
    scope: SkillScope,
    tool_names: Callable[[], Collection[str]],
    code_settings: CodeSettings | None = None,
    profiles: Sequence[Profile] = (),
) -> Registry:
    """All agents of this workspace. `tool_names` returns the names of all tools.

    `profiles` are those of a program; one in a folder with the same name is ignored. Raises
    `BadInput` if one has the name of a built-in agent, or two have the same.
    """
    names = [profile.name for profile in profiles]
    for name in names:
        if name in BUILTIN_AGENTS or name in AGENT_ALIASES or names.count(name) > 1:
            raise BadInput(f"there is an agent {name!r} already: give yours another name")
    read = find_agents(agent_folders(scope), lambda: {*tool_names(), TASK, PYTHON})
    others = (profile for profile in read.profiles if profile.name not in names)
    return Registry((*profiles, *others), read.problems, code_settings)


def trust_notice(scope: SkillScope) -> str:
    """A notice about the project's agents that are ignored because the folder is untrusted, or ""."""
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
    """Use this agent, its mode, and this preset, if any, from the next turn on.

    Raises `BadInput` if there is no such agent for the user.
    """
    profile = agents.find(name, "main")
    await inbox.choose_agent(
        profile.name, mode=profile.mode, next_agent=profile.then, preset=preset
    )
    return profile
