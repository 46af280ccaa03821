"""/hooks: list the hooks that apply to this session."""

from refold.commands.command_context import CommandContext
from refold.views.escape import escape_to_one_line
from refold.views.notices import NO_HOOKS
from refold.views.styled import line


async def run(context: CommandContext, arguments: str) -> None:
    hooks = context.session.hooks
    for hook, source in hooks:
        context.show(line(escape_to_one_line(hook)))
        context.show(line(f"    {escape_to_one_line(source)}"))
    if not hooks:
        context.show(line(NO_HOOKS))
