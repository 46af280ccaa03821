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
_MAX_END_CHARS = 8_000  # of the start of an output, and of its end
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
    if program_output.dropped:
        # the middle was not kept, so the two parts are rendered one by one
        start_text = render_lines(program_output.start).lstrip("\n")
        end_text = render_lines(program_output.end).rstrip("\n")
        omitted = f"about {program_output.dropped:,} bytes"
    else:
        text = render_lines(program_output.start + program_output.end).strip("\n")
        omitted_chars = len(text) - 2 * _MAX_END_CHARS
        if omitted_chars <= 0:
            return text
        start_text = end_text = text  # of which the middle is left out
        omitted = f"{omitted_chars:,} characters"
    start = start_text[:_MAX_END_CHARS]
    end = end_text[-_MAX_END_CHARS:]
    return f"{start}\n[… {omitted} left out …]\n{end}"


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
