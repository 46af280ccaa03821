"""/config: show the settings and where each comes from, or change one as `refold config` does.
/format: show or set how the conversation is sent as one text, to a CLI backend or another model.
"""

from collections.abc import Mapping

from refold.commands.command_context import CommandContext
from refold.commands.table import FORMAT_NAMES
from refold.errors import BadInput
from refold.values.modes import Format
from refold.views.escape import on_one_line, visible
from refold.views.styled import line

_NOT_HERE = "settings are changed in a terminal: refold config set {key} VALUE"


async def run(here: CommandContext, rest: str) -> None:
    """Show all settings, or those of some keys or tables; `set` changes one of the user's."""
    words = rest.split(None, 2)
    if words[:1] == ["set"]:
        _set(here, words[1:])
        return
    for row in await here.session.config.lines(words):
        here.show(line(visible(row)))


def _set(here: CommandContext, words: list[str]) -> None:
    match words:
        case [key, value]:
            if here.terminal is None:
                raise BadInput(_NOT_HERE.format(key=key))
            is_model = key == "model" or key.startswith("models.")
            doubt = here.session.models.doubt(value) if is_model else ""
            here.session.config.remember(key, value)
            here.show(
                line(f"New sessions use {on_one_line(key)} = {on_one_line(value)}.", "dim")
            )
            if doubt:
                here.show(line(on_one_line(doubt), "warn"))
        case _:
            raise BadInput("type /config set KEY VALUE; /config lists the keys")


async def run_format(here: CommandContext, rest: str) -> None:
    name, _, save = rest.partition(" ")
    if not rest:
        here.show(line(f"The conversation is sent as {here.session.format or 'messages'}."))
        return
    forms: Mapping[str, Format] = {key: key for key in FORMAT_NAMES}
    form = forms.get(name)
    if form is None:
        raise BadInput(f"{name!r} is not a format: {', '.join(FORMAT_NAMES)}")
    if save.strip() not in ("", "save"):
        raise BadInput(f"type /format {name}, or /format {name} save, not {rest!r}")
    await here.session.set_format(form)
    here.show(line(f"From the next turn: {form}.", "dim"))
    if save:
        here.session.config.remember("backend.format", form)
        here.show(line(f"The default of new sessions: {form}", "dim"))
