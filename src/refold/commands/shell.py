"""/shell and `!command`: run a command of the user in the user's shell.

The command needs no permission and runs outside the sandbox, so it is available only in a
terminal. It uses the terminal while it runs. Its output is sent to the model with the next
message.
"""

import os
import signal

from refold import programs
from refold.commands.command_context import CommandContext, ProgramOutput, terminal_of
from refold.errors import BadInput
from refold.views.shell_message import shell_message
from refold.views.strip_escapes import render_lines
from refold.views.styled import line

_USAGE_TEXT = (
    "! runs a command in your own shell, as in !git status. Its output is sent to the "
    "model with your next message."
)
_MAX_END_CHARS = 8_000
_FULL_SCREEN_NOTE = "(It used the whole screen; its output was not kept.)"


def as_message(command: str, program_output: ProgramOutput) -> str:
    """Return the command and its output as a message to the model."""
    printed = (
        _FULL_SCREEN_NOTE if program_output.full_screen else _output_of(program_output)
    )
    return shell_message(command, printed, describe_exit_code(program_output.code))


def describe_exit_code(code: int) -> str:
    """Return a text about an exit code of `subprocess`, which is negative for a signal."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"ended by signal {-code}"


def _output_of(program_output: ProgramOutput) -> str:
    """Return the output as text. If it is long, return only its start and its end."""
    if not program_output.dropped:
        text = render_lines(program_output.start + program_output.end).strip("\n")
        if len(text) <= 2 * _MAX_END_CHARS:
            return text
        omitted_chars = len(text) - 2 * _MAX_END_CHARS
        return _join_ends(text, text, f"{omitted_chars:,} characters")
    start, end = render_lines(program_output.start), render_lines(program_output.end)
    return _join_ends(
        start.lstrip("\n"), end.rstrip("\n"), f"about {program_output.dropped:,} bytes"
    )


def _join_ends(start: str, end: str, amount: str) -> str:
    return f"{start[:_MAX_END_CHARS]}\n[… {amount} left out …]\n{end[-_MAX_END_CHARS:]}"


async def run(context: CommandContext, arguments: str) -> None:
    """Run a command of the user in the user's shell, and record it with its output."""
    terminal = terminal_of(context, "/shell")
    if not arguments:
        raise BadInput(_USAGE_TEXT)
    if "\0" in arguments:
        raise BadInput("a command cannot contain a zero byte")
    if address := context.session.status.address:
        raise BadInput(
            f"! runs a command on this machine, and the files are in {address}: ask the "
            "model to run it, or run it in a shell there"
        )
    directory = context.session.view.session.directory or "."
    shell = os.environ.get("SHELL", "")
    if not shell.startswith("/"):  # a name, or unset
        shell = programs.Programs(os.environ, (directory,)).find(shell) or "/bin/sh"
    output = await terminal.run_program((shell, "-c", arguments))
    await context.session.record_command(arguments, as_message(arguments, output))
    if output.code and not output.in_message:
        context.show(line(describe_exit_code(output.code), "warn"))
