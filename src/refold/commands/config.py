"""/config: show the settings and where each comes from, or change one as `refold config` does.
/format: show or set how the conversation is sent as one text, to a CLI backend or another model.
"""

from collections.abc import Mapping

from refold.commands.command_context import CommandContext
from refold.commands.table import FORMAT_NAMES
from refold.errors import BadInput
from refold.values.modes import Format
from refold.views.escape import escape_to_one_line, visible
from refold.views.styled import line

_NOT_HERE = "settings are changed in a terminal: refold config set {key} VALUE"


async def run(context: CommandContext, arguments: str) -> None:
    """Show all settings, or those that `arguments` name.

    With the argument `set`, change a setting in the user's own settings file.
    """
    words = arguments.split(None, 2)
    if words[:1] == ["set"]:
        _set(context, words[1:])
        return
    for row in await context.session.config.lines(words):
        context.show(line(visible(row)))


def _set(context: CommandContext, words: list[str]) -> None:
    """Save a setting for new sessions. Raises `BadInput` where there is no terminal."""
    match words:
        case [key, value]:
            if context.terminal is None:
                raise BadInput(_NOT_HERE.format(key=key))
            is_model = key == "model" or key.startswith("models.")
            warning = context.session.models.name_warning(value) if is_model else ""
            context.session.config.remember(key, value)
            context.show(
                line(
                    f"New sessions use {escape_to_one_line(key)} = {escape_to_one_line(value)}.",
                    "dim",
                )
            )
            if warning:
                context.show(line(escape_to_one_line(warning), "warn"))
        case _:
            raise BadInput("type /config set KEY VALUE; /config lists the keys")


async def run_format(context: CommandContext, arguments: str) -> None:
    """Show how the conversation is sent, or change it from the next turn."""
    name, _, option = arguments.partition(" ")
    if not arguments:
        context.show(
            line(f"The conversation is sent as {context.session.format or 'messages'}.")
        )
        return
    formats: Mapping[str, Format] = {known: known for known in FORMAT_NAMES}
    format_ = formats.get(name)  # with the type `Format`
    if format_ is None:
        raise BadInput(f"{name!r} is not a format: {', '.join(FORMAT_NAMES)}")
    if option.strip() not in ("", "save"):
        raise BadInput(f"type /format {name}, or /format {name} save, not {arguments!r}")
    await context.session.set_format(format_)
    context.show(line(f"From the next turn: {format_}.", "dim"))
    if option:
        context.session.config.remember("backend.format", format_)
        context.show(line(f"The default of new sessions: {format_}", "dim"))
