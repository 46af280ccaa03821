"""A command line as a provider: each response is one run of its program.

It keeps the promises of `port.Provider`. Requests arrive without tools, which the text
protocol has put into the messages; images are replaced by descriptions. A program runs in
an empty directory, so that it finds no project and no settings of one. Files for it are in
a directory of this run, removed afterwards. It gets the user's environment without the keys
of other programs.
"""

import os
import re
import select
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import AsyncGenerator, Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

import anyio
from msgspec import Struct

from refold import programs
from refold.errors import ProviderError, Refused, TooLong
from refold.process_groups import lives, signal_group
from refold.provider import sanitize
from refold.provider.command import errors
from refold.provider.command.output import ProgramOutputReader
from refold.provider.command.prompt import Prompts
from refold.provider.command.spec import (
    SLOTS,
    CommandSpec,
    ConversationFormat,
    ProgramTimeouts,
)
from refold.provider.port import Delta, Request, RequestSent, ResponseBytes

# Linux takes no longer argument, whatever the limit on all of them.
_LONGEST_ARGUMENT = 128 * 1024 - 1
_NOBODY_THERE = {
    "TERM": "dumb",
    "NO_COLOR": "1",
    "PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
    "DEBIAN_FRONTEND": "noninteractive",
}
_OURS = ("OLDPWD", "COLUMNS", "LINES", "FORCE_COLOR")
_SLOT = re.compile("|".join(rf"\{{{name}\}}" for name in sorted(SLOTS)))

# Not every program takes an empty file.
_NO_SYSTEM = "Answer the last message of the conversation."


class ProgramPrompt(Struct, frozen=True):
    """The prompt of a program. `system` is separate only if a placeholder takes it."""

    prompt: str
    system: str = ""
    model: str = ""
    effort: str = ""


class PreparedRun(Struct, frozen=True):
    """Ready to start. `line` and `told` are for the request log: they contain nothing of
    this run.

    `line` is the command line; where text is passed in an argument or a file, it has the
    placeholder. `told` has these texts, by placeholder.
    """

    directory: Path
    cwd: str
    argv: tuple[str, ...]
    environ: Mapping[str, str]
    stdin: bytes | None
    line: str
    told: tuple[tuple[str, bytes], ...]

    def clear(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)


class Program:
    """A started one. Whoever starts it must `stop` it, ended or not."""

    def __init__(self, process: subprocess.Popen[bytes], out: int, err: int) -> None:
        self._process = process
        self._out: int | None = out
        self._err: int | None = err
        self._last = b""
        for pipe in (out, err):
            os.set_blocking(pipe, False)
        try:
            self._watch: int | None = os.pidfd_open(process.pid)
        except (AttributeError, OSError):  # no Linux, or no number left
            self._watch = None

    @property
    def last_words(self) -> str:
        """The end of what it printed on standard error."""
        return self._last.decode("utf-8", "replace")

    async def read(self, idle: float) -> bytes:
        """The next piece of its output; empty when there is no more.

        Raises `TimeoutError` when it has printed nothing for `idle` seconds.
        """
        await anyio.lowlevel.checkpoint()
        while True:
            over = self._has_ended()
            self._listen()
            if piece := self._take():
                return piece
            if over or self._out is None:
                return b""
            with anyio.fail_after(idle):
                await self._news()

    async def ended(self, within: float) -> bool:
        """Does it end by itself within so many seconds?"""
        with anyio.move_on_after(within):
            while not self._has_ended():  # noqa: ASYNC110
                await anyio.sleep(_LOOK_AGAIN)
        self._listen()
        return self._has_ended()

    async def stop(self, grace: float) -> int:
        """End the whole group: ask, and after `grace` seconds kill it. Its code, or minus the signal that ended it."""
        try:
            await self._end_group(grace)
        finally:
            for pipe in (self._out, self._err, self._watch):
                if pipe is not None:
                    os.close(pipe)
            self._out = self._err = self._watch = None
        code = self._process.poll()  # even now it may hang in the kernel
        return -signal.SIGKILL if code is None else code

    def _take(self) -> bytes:
        if self._out is None:
            return b""
        try:
            piece = os.read(self._out, _AT_ONCE)
        except BlockingIOError:
            return b""
        if not piece:
            os.close(self._out)
            self._out = None
        return piece

    def _listen(self) -> None:
        """Read standard error, so that it does not fill up and block the program."""
        while self._err is not None:
            try:
                piece = os.read(self._err, _AT_ONCE)
            except BlockingIOError:
                return
            self._last = (self._last + piece)[-_LAST_WORDS:]
            if not piece:
                os.close(self._err)
                self._err = None

    def _has_ended(self) -> bool:
        if self._watch is None or self._process.returncode is not None:
            return self._process.poll() is not None
        # Not by reaping it: its number must stay its own until its group has ended.
        look = select.poll()
        look.register(self._watch, select.POLLIN)
        return bool(look.poll(0))

    async def _news(self) -> None:
        """Wait until there is something to read, or the program has ended."""
        pipes = [p for p in (self._out, self._err, self._watch) if p is not None]

        async def one(pipe: int) -> None:
            await anyio.wait_readable(pipe)
            group.cancel_scope.cancel()

        async with anyio.create_task_group() as group:
            for pipe in pipes:
                group.start_soon(one, pipe)

    async def _end_group(self, grace: float) -> None:
        # Until the leader is reaped, and while anybody else is in the group, its number
        # cannot come to mean another group.
        for order in (signal.SIGTERM, signal.SIGKILL):
            if not signal_group(self._process.pid, order):
                self._process.poll()
                return
            signal_group(
                self._process.pid, signal.SIGCONT
            )  # one that was stopped must hear it
            with anyio.move_on_after(grace):
                while not self._is_gone():  # noqa: ASYNC110
                    await anyio.sleep(_LOOK_AGAIN)
                return

    def _is_gone(self) -> bool:
        if self._process.poll() is None:
            return False
        return not (signal_group(self._process.pid, 0) and lives(self._process.pid))


class CommandLine:
    """One program and model. `program` is its path, `environ` what it gets to see."""

    def __init__(
        self,
        spec: CommandSpec,
        model: str,
        program: str,
        *,
        environ: Mapping[str, str],
        conversation: ConversationFormat,
        timeouts: ProgramTimeouts,
    ) -> None:
        self._spec, self._model, self._program = spec, model, program
        self._environ, self._timeouts = environ, timeouts
        self._prompts = Prompts(conversation)

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        place = await self._prepared(request)
        try:
            if request.trace:
                for name, content in place.told:
                    yield RequestSent(name, content)
                yield RequestSent(place.line, place.stdin or b"")
            program = await self._started(place)
            reading, code = ProgramOutputReader(self._spec.output), 0
            try:
                while not (reading.over or reading.trouble):
                    piece = await self._piece(program)
                    if not piece:
                        break
                    if request.trace:
                        yield ResponseBytes(piece)
                    for delta in reading.feed(piece):
                        yield delta
                for delta in reading.end():
                    yield delta
                in_time = await program.ended(
                    0.0 if reading.trouble else self._timeouts.linger
                )
            finally:
                with anyio.CancelScope(shield=True):
                    code = await program.stop(self._timeouts.grace)
            if failure := self._failure(reading, program, code, in_time):
                raise failure
            yield reading.done(program.last_words)
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(place.clear)

    async def aclose(self) -> None:
        """Nothing is open between two answers."""

    async def _prepared(self, request: Request) -> PreparedRun:
        try:  # a thread is waited for even when we are cancelled, so nothing is left lying
            return await anyio.to_thread.run_sync(self._prepare, request)
        except OSError as error:
            raise Refused(
                f"there is no place to run {self._spec.label} in: {error.strerror or error}"
            ) from error

    def _prepare(self, request: Request) -> PreparedRun:
        spec = self._spec
        system = sanitize.text(request.system).strip() or _NO_SYSTEM
        alone = "{system}" in spec.slots or "{system_file}" in spec.slots
        prompt = self._prompts.prompt(request.messages, "" if alone else request.system)
        words = ProgramPrompt(prompt, system, self._model, _effort(request, self._spec))
        return prepared(spec, self._program, words, self._environ)

    async def _started(self, place: PreparedRun) -> Program:
        starting = partial(
            start, place.argv, cwd=place.cwd, environ=place.environ, stdin=place.stdin
        )
        try:
            return await anyio.to_thread.run_sync(starting)
        except FileNotFoundError as error:
            raise Refused(errors.missing(self._spec, self._program)) from error
        except OSError as error:
            raise Refused(
                f"{self._program!r} cannot be started: {error.strerror or error}"
            ) from error

    async def _piece(self, program: Program) -> bytes:
        try:
            return await program.read(self._timeouts.idle)
        except TimeoutError as error:
            idle, words = self._timeouts.idle, program.last_words
            raise errors.silent(self._spec, idle, words) from error

    def _failure(
        self, reading: ProgramOutputReader, program: Program, code: int, in_time: bool
    ) -> ProviderError | None:
        spec, words = self._spec, program.last_words
        ending = errors.ended(code) if in_time else ""
        if reading.trouble:
            return errors.failing(spec, self._model, reading.trouble)
        if code and in_time:
            said = words if words.strip() else reading.strange
            return errors.failing(spec, self._model, said, ending)
        if not in_time and not reading.over:
            return errors.cut_off(spec, words)
        if spec.output.end and not reading.over and reading.said:
            return errors.cut_off(spec, words)
        if not reading.said:
            return errors.empty(spec, reading.strange, words)
        return None


def prepared(
    spec: CommandSpec, program: str, words: ProgramPrompt, environ: Mapping[str, str]
) -> PreparedRun:
    """Make directory and files. Raises `TooLong`, and `OSError`."""
    directory = Path(tempfile.mkdtemp(prefix="refold-"))
    try:
        own = directory / "tmp"
        own.mkdir()
        slots = {
            "prompt": words.prompt,
            "prompt_file": str(directory / "prompt.md"),
            "system": words.system,
            "system_file": str(directory / "system.md"),
            "model": words.model,
            "effort": spec.efforts.get(words.effort, words.effort),
            "files": str(directory),
        }
        arguments = _arguments(spec, words)
        argv = (program, *(_filled(spec, part, slots) for part in arguments))
        files = _files(spec, slots)
        for name, content in files:
            (directory / name).write_bytes(content)
        cwd = empty_directory(environ) or _made(directory / "empty")
        variables = {
            **environ,
            **_NOBODY_THERE,
            "PWD": cwd,
            "TMPDIR": str(own),
            **{name: _put(value, slots) for name, value in spec.environ.items()},
        }
        for name in (*_OURS, *spec.unset):
            variables.pop(name, None)
        stdin = words.prompt.encode() if spec.stdin else None
        told = [(f"file {name}", content) for name, content in files]
        told += _in_place(spec, arguments, slots)
        line = _line(program, arguments, slots)
        return PreparedRun(directory, cwd, argv, variables, stdin, line, tuple(told))
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise


def without_keys(
    environ: Mapping[str, str], keys: Collection[str], own: Collection[str]
) -> dict[str, str]:
    """The environment without those of the keys that are not the program's own."""
    foreign = set(keys) - set(own)
    return {name: value for name, value in environ.items() if name not in foreign}


def _arguments(spec: CommandSpec, words: ProgramPrompt) -> tuple[str, ...]:
    model = spec.model_argv if words.model else ()
    effort = spec.effort_argv if words.effort else ()
    return (*spec.argv[1:], *model, *effort)


def _files(spec: CommandSpec, slots: Mapping[str, str]) -> list[tuple[str, bytes]]:
    used = spec.slots
    found = [
        (f"{name}.md", slots[name])
        for name in ("prompt", "system")
        if f"{{{name}_file}}" in used
    ]
    found += [(name, _put(content, slots)) for name, content in spec.files.items()]
    return [(name, content.encode()) for name, content in found]


def _in_place(
    spec: CommandSpec, arguments: Iterable[str], slots: Mapping[str, str]
) -> list[tuple[str, bytes]]:
    """The text that an argument or a variable itself contains, by its placeholder."""
    used = "\n".join((*arguments, *spec.environ.values()))
    return [
        (f"slot {name}", slots[name].encode())
        for name in ("prompt", "system")
        if f"{{{name}}}" in used
    ]


def _line(program: str, arguments: Iterable[str], slots: Mapping[str, str]) -> str:
    shown = {name: f"{{{name}}}" for name in slots}
    shown |= {name: slots[name] for name in ("model", "effort")}
    return shlex.join((program, *(_put(part, shown) for part in arguments)))


def _filled(spec: CommandSpec, part: str, slots: Mapping[str, str]) -> str:
    found = _put(part, slots).replace("\0", "\N{REPLACEMENT CHARACTER}")
    if (size := len(found.encode())) > _LONGEST_ARGUMENT:
        raise TooLong(
            f"the conversation does not fit on the command line of {spec.label}: it has "
            f"{size // 1024} KiB, and {_LONGEST_ARGUMENT // 1024 + 1} KiB is the most; pass it "
            "on stdin or in {prompt_file}, or use the context mode sliding or fresh"
        )
    return found


def _effort(request: Request, spec: CommandSpec) -> str:
    """Few programs can be told not to think; the others get no such argument."""
    known = request.effort != "off" or "off" in spec.efforts
    return request.effort if known else ""


def _put(template: str, slots: Mapping[str, str]) -> str:
    """In one go: what is put in may hold braces too."""
    return _SLOT.sub(lambda found: slots[found[0][1:-1]], template)


def empty_directory(environ: Mapping[str, str]) -> str:
    """A constant empty directory, because some programs remember each one they ran in.

    "" if there is none that is empty.
    """
    if own := environ.get("REFOLD_HOME", ""):
        found = Path(os.path.abspath(os.path.expanduser(own)), "empty")
    else:
        home = environ.get("HOME", "")
        cache = environ.get("XDG_CACHE_HOME", "") or (home and os.path.join(home, ".cache"))
        if not os.path.isabs(cache):
            return ""
        found = Path(cache, "refold", "empty")
    try:
        found.mkdir(parents=True, exist_ok=True, mode=0o700)
        return "" if any(found.iterdir()) else str(found)
    except OSError:
        return ""


def _made(directory: Path) -> str:
    directory.mkdir()
    return str(directory)


_LOOK_AGAIN = 0.005  # seconds: the end of other processes than our children is not reported
_AT_ONCE = 65536  # bytes
_LAST_WORDS = 8192  # bytes of standard error that are kept


def start(
    argv: Sequence[str], *, cwd: str, environ: Mapping[str, str], stdin: bytes | None
) -> Program:
    """Start a program that reads `stdin`, or nothing. Raises `OSError`."""
    pipes = [*os.pipe(), *os.pipe()]
    try:
        with tempfile.TemporaryFile() as fed:
            fed.write(stdin or b"")
            fed.seek(0)
            process = programs.start(
                tuple(argv),
                cwd=cwd,
                env=dict(environ),
                stdin=subprocess.DEVNULL if stdin is None else fed,
                stdout=pipes[1],
                stderr=pipes[3],
                start_new_session=True,
            )
    except (OSError, ValueError) as error:
        os.close(pipes[0])
        os.close(pipes[2])
        raise error if isinstance(error, OSError) else OSError(str(error)) from error
    finally:
        os.close(pipes[1])
        os.close(pipes[3])
    return Program(process, pipes[0], pipes[2])
