"""/skills: list skills and templates, or show one."""

from collections.abc import Iterable

import anyio

from refold.client.session import Session
from refold.commands.command_context import CommandContext
from refold.commands.completion import CompletionChoice
from refold.errors import BadInput
from refold.views.escape import escape_to_one_line, visible
from refold.views.styled import Line, line
from refold.views.wrap import cells, cut

_MIN_ABOUT_CELLS = 10  # of a description, however narrow the screen is


def choices(session: Session) -> Iterable[CompletionChoice]:
    if (skills := session.skills) is not None:
        for name, about in skills.descriptions():
            yield CompletionChoice(name, about)


async def run(context: CommandContext, arguments: str) -> None:
    """List the skills and templates, or show the text of one."""
    if (skills := context.session.skills) is None:
        raise BadInput("skills are off: skills = false is set")
    if arguments:
        text = await anyio.to_thread.run_sync(skills.text, arguments)
        context.show(line(visible(text).rstrip("\n")))
        return
    offered = context.session.shortcuts.infos()
    if not offered:
        context.show(line("There are no skills and no templates."))
    heads = [escape_to_one_line(f"{skill.name} {skill.usage}".strip()) for skill in offered]
    width = max(map(cells, heads), default=0)
    for head, skill in zip(heads, offered, strict=True):
        context.show(_offer_line(head, width, skill.about, context.look.width))


def _offer_line(head: str, column_width: int, about: str, width: int) -> Line:
    """Return the line for a skill or template. `head` is its name and its usage."""
    # wide heads would leave too little space for a column of descriptions
    has_columns = column_width <= width // 2
    padding = column_width - cells(head) if has_columns else 0
    about_cells = max(width - cells(head) - padding - 4, _MIN_ABOUT_CELLS)
    return (
        ("accent", f"  {head}{'':{padding}}"),
        *line(f"  {cut(escape_to_one_line(about), about_cells)}", "dim"),
    )
