"""What can be chosen in a conversation: tools, skills, commands, agents, presets, models.

As documents, for clients that cannot import refold. The choice itself is an order.
"""

from collections.abc import Callable, Mapping, Sequence

from refold.client.launch import Launch

Offer = Mapping[str, object]


def _tools(launch: Launch) -> Sequence[Offer]:
    return [
        {"name": t.name, "description": t.description, "effect": t.effect.value}
        for t in launch.app.every_tool
    ]


def _skills(launch: Launch) -> Sequence[Offer]:
    found = launch.app.skills.found.skills if launch.app.settings.skills else ()
    return [{"name": each.name, "description": each.description} for each in found]


def _commands(launch: Launch) -> Sequence[Offer]:
    found = launch.app.shortcuts(launch.commands()).offered()
    return [
        {"name": each.name, "usage": each.usage, "description": each.about}
        for each in found
    ]


def _agents(launch: Launch) -> Sequence[Offer]:
    found = launch.app.agents.every("main")
    return [{"name": each.name, "description": each.description} for each in found]


def _presets(launch: Launch) -> Sequence[Offer]:
    found = launch.app.system_prompt.presets()[0]
    return [{"name": each.name, "description": each.description} for each in found]


def _models(launch: Launch) -> Sequence[Offer]:
    chosen = launch.app.models.default()
    return [{"name": n, "default": n == chosen} for n in launch.app.models.names()]


def offers(launch: Launch, what: str) -> Sequence[Offer]:
    """Those of one of `WHAT`. Waits for a disk: call it in a thread."""
    kinds: Mapping[str, Callable[[Launch], Sequence[Offer]]] = {
        "tools": _tools, "skills": _skills, "commands": _commands, "agents": _agents,
        "presets": _presets, "models": _models,
    }  # fmt: skip
    return kinds[what](launch)


WHAT = ("tools", "skills", "commands", "agents", "presets", "models")
