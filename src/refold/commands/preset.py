"""/preset: list the system prompts of the agent main, choose one, or set the default.

The preset of a session is a field of the event `AgentChosen`, so it still applies when the
session is resumed. A separate event would need a case in every client.
"""

from collections.abc import Iterable

from refold.client.session import Session
from refold.commands.command_context import CommandContext
from refold.commands.completion import CompletionChoice
from refold.errors import BadInput
from refold.values.similar_names import similar
from refold.views.escape import escape_to_one_line
from refold.views.styled import line
from refold.views.wrap import cells

_USAGE_HINT = "/preset NAME chooses one; /preset NAME save makes it the default, too."


def choices(session: Session) -> Iterable[CompletionChoice]:
    return (CompletionChoice(name, about) for name, about in session.agents.presets())


async def run(context: CommandContext, arguments: str) -> None:
    """List the system prompts, or use another one from the next turn."""
    presets = context.session.agents.presets()
    name, _, option = arguments.partition(" ")
    if not name:
        _list(context)
        return
    known_names = [known_name for known_name, _ in presets]
    if name not in known_names:
        shown_names = [escape_to_one_line(known_name) for known_name in known_names]
        raise BadInput(_unknown_preset_text(name, shown_names))
    if option.strip() not in ("", "save"):
        raise BadInput(f"type /preset {name}, or /preset {name} save, not {arguments!r}")
    await context.session.set_preset(name)
    context.show(line(f"From the next turn: the preset {escape_to_one_line(name)}.", "dim"))
    agents = context.session.agents
    agent = agents.find(context.session.agent)
    if unused_preset_notice := agents.preset_notice(agent):
        context.show(line(unused_preset_notice, "dim"))
    if option:
        context.session.config.remember("preset", name)
        context.show(line(f"The default of new sessions: {name}", "dim"))


def _list(context: CommandContext) -> None:
    """List the presets, with a star at the current one."""
    presets = context.session.agents.presets()
    width = max((cells(escape_to_one_line(name)) for name, _ in presets), default=0)
    for name, about in presets:
        mark = "*" if name == context.session.agents.preset else " "
        pad = " " * (width - cells(escape_to_one_line(name)))
        context.show((
            ("accent", f"{mark} {escape_to_one_line(name)}{pad}"),
            ("plain", f"  {escape_to_one_line(about)}"),
        ))  # fmt: skip
    context.show(line(_USAGE_HINT, "dim"))


def _unknown_preset_text(name: str, presets: list[str]) -> str:
    """Return the error for an unknown preset, with a similar name, if any."""
    suggestions = similar(name, presets, limit=1)
    hint = f"Did you mean {suggestions[0]!r}? " if suggestions else ""
    names = ", ".join(presets) or "none"
    return f"there is no preset {name!r}. {hint}Available: {names}"
