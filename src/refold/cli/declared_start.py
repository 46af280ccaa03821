"""Finds agents declared in files such as agents.toml, and applies the chosen one to a start.

This module is imported only if such a file exists. The package `declared` reads it.
"""

import os
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from refold.agents.profile import Profile
from refold.app.launch_options import DeclaredStart
from refold.config.paths import Paths, paths
from refold.errors import BadInput

if TYPE_CHECKING:
    from refold.declared.agent_files import FoundAgents


def start_from_declarations(args: Namespace, directory: Path) -> DeclaredStart:
    """Return the declared agents, and the options that the chosen agent sets for this start.

    Without a chosen agent there are no options. Raises `BadInput` for an unusable file.
    """
    from refold.config.folder_settings import load_folder_settings
    from refold.declared.command_tools import every_command_tool
    from refold.declared.overlay import allow_rules, overlay_of, profile_of

    places = paths(os.environ)
    agents = load_declared_agents(
        directory, places, trust=args.trust, named_file=args.agents
    )
    if not agents.agents:
        return DeclaredStart()
    chosen = args.agent
    if chosen is None:  # a setting decides, or else the default of the file
        settings = load_folder_settings(
            directory, places, os.environ, {}, trust=args.trust
        ).settings
        chosen = settings.agent if settings.agent != "main" else agents.default
    known = tool_names()
    profiles = tuple(profile_of(agent, known) for agent in agents.agents)
    tools = every_command_tool(agents.agents)
    agent = agents.find(chosen or "")
    if agent is None:
        return DeclaredStart(profiles, tools=tools)
    overlay = overlay_of(agent)
    return DeclaredStart(
        profiles=profiles,
        model=overlay.model,
        settings=overlay.settings,
        allow=allow_rules(agent),
        environ=overlay.environ,
        address=overlay.address,
        notices=overlay.notices,
        tools=tools,
    )


def load_declared_profiles(
    directory: Path, paths: Paths, *, trust: bool = False, named_file: str | None
) -> tuple[Profile, ...]:
    """Return the declared agents that apply in `directory`, as profiles. Raises `BadInput`."""
    from refold.declared.overlay import profile_of

    agents = load_declared_agents(directory, paths, trust=trust, named_file=named_file)
    names = tool_names()
    return tuple(profile_of(agent, names) for agent in agents.agents)


def load_declared_agents(
    directory: Path, paths: Paths, *, trust: bool, named_file: str | None
) -> "FoundAgents":
    """Return the declared agents that apply in `directory`.

    Raises `BadInput` for an unusable file of agents.
    """
    from refold.agents.builtin import AGENT_ALIASES, BUILTIN_AGENTS
    from refold.config.folder_settings import project_and_trust
    from refold.declared.agent_files import find_declared

    folder, state = project_and_trust(directory, paths, trust=trust)
    agents = find_declared(folder, state, paths, os.environ, named_file)
    for item in agents.agents:
        if item.variant.name in BUILTIN_AGENTS or item.variant.name in AGENT_ALIASES:
            raise BadInput(
                f"{item.where}: {item.variant.name!r} is a built-in agent: give yours another name"
            )
    return agents


def tool_names() -> frozenset[str]:
    """Return the names of all built-in tools."""
    from refold.tools.builtin import builtin
    from refold.tools.python_tool import TOOL_NAME as PYTHON
    from refold.tools.task import TOOL_NAME as TASK

    return frozenset((*(tool.name for tool in builtin()), TASK, PYTHON))
