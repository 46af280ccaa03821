"""/shell, and `!command`: run a command of the user's own, in their shell.

It needs no permission and runs outside the sandbox, so only a terminal has it. The command
gets the terminal; its output is sent to the model with the next message.
"""

import os
import signal

from refold import programs
from refold.commands.command_context import CommandContext, ProgramOutput, terminal_of
from refold.errors import BadInput
from refold.views.shell_message import shell_message
from refold.views.strip_escapes import render_lines
from refold.views.styled import line

_ALONE_HEAD = (
    "! runs a command in your own shell, as in !git status. Its output is sent to the "
    "model with your next message."
)
_TOLD_END = 8_000  # characters
_FULL_SCREEN = "(It used the whole screen; its output was not kept.)"


def as_message(command: str, program_output: ProgramOutput) -> str:
    """Return the command and its output, for the model."""
    printed = _FULL_SCREEN if program_output.full_screen else _output_of(program_output)
    return shell_message(command, printed, describe_exit_code(program_output.code))


def describe_exit_code(code: int) -> str:
    """Describe an exit code of Python's, which is negative for a signal."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"ended by signal {-code}"


def _output_of(program_output: ProgramOutput) -> str:
    if not program_output.dropped:
        text = render_lines(program_output.start + program_output.end).strip("\n")
        if len(text) <= 2 * _TOLD_END:
            return text
        left = len(text) - 2 * _TOLD_END
        return _join_ends(text, text, f"{left:,} characters")
    start, end = render_lines(program_output.start), render_lines(program_output.end)
    return _join_ends(
        start.lstrip("\n"), end.rstrip("\n"), f"about {program_output.dropped:,} bytes"
    )


def _join_ends(start: str, end: str, amount: str) -> str:
    return f"{start[:_TOLD_END]}\n[… {amount} left out …]\n{end[-_TOLD_END:]}"


async def run(context: CommandContext, arguments: str) -> None:
    terminal = terminal_of(context, "/shell")
    if not arguments:
        raise BadInput(_ALONE_HEAD)
    if "\0" in arguments:
        raise BadInput("a command cannot contain a zero byte")
    if address := context.session.status.address:
        raise BadInput(
            f"! runs a command on this machine, and the files are in {address}: ask the "
            "model to run it, or run it in a shell there"
        )
    directory = context.session.view.session.directory or "."
    known = programs.Programs(os.environ, (directory,))
    own = os.environ.get("SHELL", "")
    program = own if own.startswith("/") else known.find(own) or "/bin/sh"
    ran = await terminal.run_program((program, "-c", arguments))
    await context.session.record_command(arguments, as_message(arguments, ran))
    if ran.code and not ran.in_message:
        context.show(line(describe_exit_code(ran.code), "warn"))
