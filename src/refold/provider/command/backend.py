"""A command line as a provider: each answer is one run of its program.

It keeps the promises of `port.Provider`. Requests come without tools, for those
stand in words in them already; pictures are told in words.
"""

from collections.abc import AsyncGenerator, Mapping
from functools import partial

import anyio

from refold.errors import ProviderError, Refused
from refold.provider import sendable
from refold.provider.command import failing
from refold.provider.command.program import Program, start
from refold.provider.command.prompts import Prompts
from refold.provider.command.reading import ProgramOutputReader
from refold.provider.command.spec import CommandSpec, ProgramTimeouts, Talk
from refold.provider.command.workplace import ProgramPrompt, Workplace, prepared
from refold.provider.port import Came, Delta, Request, Sent

# Not every program takes an empty file.
_NO_SYSTEM = "Answer the last message of the conversation."


class CommandLine:
    """One program and model. `program` is its path, `environ` what it gets to see."""

    def __init__(
        self,
        spec: CommandSpec,
        model: str,
        program: str,
        *,
        environ: Mapping[str, str],
        talk: Talk,
        patience: ProgramTimeouts,
    ) -> None:
        self._spec, self._model, self._program = spec, model, program
        self._environ, self._patience = environ, patience
        self._prompts = Prompts(talk)

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        place = await self._prepared(request)
        try:
            if request.trace:
                for name, content in place.told:
                    yield Sent(name, content)
                yield Sent(place.line, place.stdin or b"")
            program = await self._started(place)
            reading, code = ProgramOutputReader(self._spec.output), 0
            try:
                while not (reading.over or reading.trouble):
                    piece = await self._piece(program)
                    if not piece:
                        break
                    if request.trace:
                        yield Came(piece)
                    for delta in reading.feed(piece):
                        yield delta
                for delta in reading.end():
                    yield delta
                in_time = await program.ended(
                    0.0 if reading.trouble else self._patience.linger
                )
            finally:
                with anyio.CancelScope(shield=True):
                    code = await program.stop(self._patience.grace)
            if failure := self._failure(reading, program, code, in_time):
                raise failure
            yield reading.done(program.last_words)
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(place.clear)

    async def aclose(self) -> None:
        """Nothing is open between two answers."""

    async def _prepared(self, request: Request) -> Workplace:
        try:  # a thread is waited for even when we are cancelled, so nothing is left lying
            return await anyio.to_thread.run_sync(self._prepare, request)
        except OSError as error:
            raise Refused(
                f"there is no place to run {self._spec.label} in: {error.strerror or error}"
            ) from error

    def _prepare(self, request: Request) -> Workplace:
        spec = self._spec
        system = sendable.text(request.system).strip() or _NO_SYSTEM
        alone = "{system}" in spec.slots or "{system_file}" in spec.slots
        prompt = self._prompts.prompt(request.messages, "" if alone else request.system)
        words = ProgramPrompt(prompt, system, self._model, request.effort)
        return prepared(spec, self._program, words, self._environ)

    async def _started(self, place: Workplace) -> Program:
        starting = partial(
            start, place.argv, cwd=place.cwd, environ=place.environ, stdin=place.stdin
        )
        try:
            return await anyio.to_thread.run_sync(starting)
        except FileNotFoundError as error:
            raise Refused(failing.missing(self._spec, self._program)) from error
        except OSError as error:
            raise Refused(
                f"{self._program!r} cannot be started: {error.strerror or error}"
            ) from error

    async def _piece(self, program: Program) -> bytes:
        try:
            return await program.read(self._patience.idle)
        except TimeoutError as error:
            idle, words = self._patience.idle, program.last_words
            raise failing.silent(self._spec, idle, words) from error

    def _failure(
        self, reading: ProgramOutputReader, program: Program, code: int, in_time: bool
    ) -> ProviderError | None:
        spec, words = self._spec, program.last_words
        ending = failing.ended(code) if in_time else ""
        if reading.trouble:
            return failing.failing(spec, self._model, reading.trouble)
        if code and in_time:
            said = words if words.strip() else reading.strange
            return failing.failing(spec, self._model, said, ending)
        if not in_time and not reading.over:
            return failing.cut_off(spec, words)
        if spec.output.end and not reading.over and reading.said:
            return failing.cut_off(spec, words)
        if not reading.said:
            return failing.empty(spec, reading.strange, words)
        return None
