"""Runs another agent's program in a sandbox, as a provider: its tools cannot be switched off.

The program sees the programs of the system and an empty directory, but neither the home nor the
workspace. It can write only to a /tmp that is deleted at its end, and may use the network to
reach its model. The tool calls of the program are not in the journal, and the response says so.
`provider.command` runs programs whose tools can be switched off, which need no sandbox.

Without bubblewrap the program is refused, because the other sandbox, Landlock, hides no files.
The program cannot even read the workspace: rules hide some files there, and it could send them
to its model.
"""

import os
import shlex
from collections.abc import AsyncGenerator, Mapping
from secrets import token_hex

import anyio
from msgspec.structs import replace

from refold.errors import BadInput, ProviderError, Refused, ToolFailed, TooLong
from refold.place.commands import ShellCommands
from refold.place.port import CommandExtras, Finished
from refold.place.sandbox import find_sandbox
from refold.place.sandbox_rules import SandboxConfig, key_paths
from refold.programs import Programs
from refold.provider.command import errors
from refold.provider.command.backend import empty_directory
from refold.provider.command.output import ProgramOutputReader, without_lines
from refold.provider.command.prompt import Prompts
from refold.provider.command.spec import CommandSpec, ConversationFormat
from refold.provider.port import Delta, Request, TextDelta, ThinkingDelta
from refold.values.tools import Confinement

# Variables for the address of the program's server, and for its model.
_SETTING_VARIABLES = ("OPENAI_BASE_URL", "OPENAI_MODEL", "CORO_BASE_URL", "CORO_MODEL")
_TIMEOUT_SECONDS = 900.0  # the program works for long before it responds
_MAX_ARGUMENT_BYTES = 120 * 1024  # of one argument with its quotes, which the system allows
_OUTSIDE_TEXT = (
    "{label} has tools of its own and works in a read-only sandbox; what it does there is "
    "not in the journal."
)


class SandboxedProgram:
    """A provider that runs the program of another agent with one of its models.

    Raises `BadInput` if the program is missing or cannot be sandboxed.
    """

    def __init__(
        self,
        spec: CommandSpec,
        model: str,
        environ: Mapping[str, str],
        conversation: ConversationFormat,
    ) -> None:
        self._spec, self._model = spec, model
        self._environ = environ
        self._prompts = Prompts(conversation.with_defaults(spec.conversation))
        program = Programs(environ).find(spec.argv[0])
        if not program:
            raise BadInput(errors.missing_program_text(spec, spec.argv[0]))
        self._program = os.path.realpath(program)
        self._directory = os.path.realpath(_directory(spec, environ))
        home = environ.get("HOME", "")
        sandbox = find_sandbox(
            environ,
            SandboxConfig(roots=(self._directory,), profile="read-only", network=True),
        )
        if sandbox.kind != "bubblewrap":
            raise BadInput(
                f"{spec.label} uses tools of its own, which cannot be switched off, so it runs only in a "
                "read-only sandbox, and there is none here: install bubblewrap, or take another model"
            )
        self._commands = ShellCommands(environ, lambda: sandbox).with_hidden_paths(
            lambda: tuple(key_paths(home))
        )

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        """Run the program once, and yield its response as a whole, after a warning."""
        outside = _OUTSIDE_TEXT.format(label=self._spec.label)
        yield ThinkingDelta(outside)
        prompt = self._prompts.prompt(request.messages, request.system)
        separator = token_hex(16)
        result = await self._run(self._command(prompt, separator))
        printed, _, log = (result.start + result.end).partition(separator.encode())
        reader = ProgramOutputReader(self._spec.output)
        deltas = [*reader.feed(printed), *reader.end()]
        if failure := self._failure(result, reader):
            raise failure
        text = "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))
        no_line = "$^"  # a pattern that matches no line
        response, about_run = without_lines(text, self._spec.output.about_run or no_line)
        if not response:
            raise errors.empty_output_error(self._spec, strange="", stderr_tail=about_run)
        yield TextDelta(response)
        ended = reader.to_done(f"{log.decode(errors='replace')}\n{about_run}")
        yield replace(ended, warning=outside.rstrip("."))

    async def aclose(self) -> None:
        await anyio.to_thread.run_sync(self._commands.close)

    def _command(self, prompt: str, separator: str) -> str:
        """Return the shell command that runs the program and then prints its errors.

        `separator` is printed between the response and the errors.
        """
        spec, slots = self._spec, {"{prompt}": prompt, "{model}": self._model}
        words = (*spec.argv[1:], *(spec.model_argv if self._model else ()))
        command = shlex.join((self._program, *(slots.get(word, word) for word in words)))
        if len(command.encode()) > _MAX_ARGUMENT_BYTES:
            raise TooLong(
                f"the conversation is too long for {spec.label}, which takes it as an argument: "
                "compact it, or set context_mode to sliding"
            )
        # Only stdout is the response, but stderr reports failures and token counts.
        failed = "{ code=$?; cat /tmp/errors; exit $code; }"
        return f"{command} 2>/tmp/errors || {failed}; echo {separator}; tail -c 4000 /tmp/errors"

    async def _run(self, command: str) -> Finished:
        """Run the command with only the variables that the program needs. Raises `Refused`."""
        names = (*self._spec.keys, *_SETTING_VARIABLES)
        environ = {name: self._environ[name] for name in names if name in self._environ}
        extras = CommandExtras(
            seen=(os.path.dirname(self._program),), own_tmp=True, environ=environ
        )
        try:
            return await self._commands.run(
                command,
                cwd=self._directory,
                seconds=_TIMEOUT_SECONDS,
                confines=Confinement(network=True),
                extras=extras,
            )
        except ToolFailed as error:
            raise Refused(f"{self._spec.label} cannot be started: {error}") from error

    def _failure(
        self, result: Finished, reader: ProgramOutputReader
    ) -> ProviderError | None:
        """Return the error of a run that gave no response; None if there is a response."""
        output = result.end or result.start
        text = output.decode(errors="replace")
        if result.timed_out or result.stopped:
            return errors.silence_error(self._spec, _TIMEOUT_SECONDS, text)
        if result.code:
            return errors.failure(
                self._spec, self._model, text, errors.describe_end(result.code)
            )
        if reader.has_text:
            return None
        return errors.empty_output_error(self._spec, strange="", stderr_tail=text)


def _directory(spec: CommandSpec, environ: Mapping[str, str]) -> str:
    """Return an empty directory for the program. Raises `BadInput` if there is none."""
    if not (path := empty_directory(environ)):
        raise BadInput(
            f"there is no empty directory to run {spec.label} in: set REFOLD_HOME"
        )
    return path
