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
from refold.process_groups import is_alive, signal_group
from refold.provider import sanitize
from refold.provider.command import errors
from refold.provider.command.output import ProgramOutputReader
from refold.provider.command.prompt import Prompts
from refold.provider.command.spec import (
    SLOT_NAMES,
    CommandSpec,
    ConversationFormat,
    ProgramTimeouts,
)
from refold.provider.port import Delta, Request, RequestSent, ResponseBytes

# Linux takes no longer argument, whatever the limit on all of them.
_MAX_ARGUMENT_BYTES = 128 * 1024 - 1
_UNATTENDED_VARIABLES = {
    "TERM": "dumb",
    "NO_COLOR": "1",
    "PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
    "DEBIAN_FRONTEND": "noninteractive",
}
_OWN_VARIABLES = ("OLDPWD", "COLUMNS", "LINES", "FORCE_COLOR")
_SLOT_PATTERN = re.compile("|".join(rf"\{{{name}\}}" for name in sorted(SLOT_NAMES)))

# Not every program takes an empty file.
_DEFAULT_SYSTEM = "Answer the last message of the conversation."


class ProgramPrompt(Struct, frozen=True):
    """The prompt of a program. `system` is separate only if a placeholder takes it."""

    prompt: str
    system: str = ""
    model: str = ""
    effort: str = ""


class PreparedRun(Struct, frozen=True):
    """A run that is ready to start. `line` and `texts` are for the request log: they
    contain nothing specific to this run.

    `line` is the command line; where text is passed in an argument or a file, it has the
    placeholder. `texts` are these, by placeholder.
    """

    directory: Path
    cwd: str
    argv: tuple[str, ...]
    environ: Mapping[str, str]
    stdin: bytes | None
    line: str
    texts: tuple[tuple[str, bytes], ...]

    def clear(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)


class Program:
    """A started program. The caller must `stop` it, even if it has ended."""

    def __init__(self, process: subprocess.Popen[bytes], stdout: int, stderr: int) -> None:
        self._process = process
        self._out: int | None = stdout
        self._err: int | None = stderr
        self._last = b""
        for pipe in (stdout, stderr):
            os.set_blocking(pipe, False)
        try:
            self._watch: int | None = os.pidfd_open(process.pid)
        except (AttributeError, OSError):  # no Linux, or no number left
            self._watch = None

    @property
    def stderr_tail(self) -> str:
        """The end of what it printed on standard error."""
        return self._last.decode("utf-8", "replace")

    async def read(self, idle: float) -> bytes:
        """The next piece of its output; empty at its end.

        Raises `TimeoutError` when it has printed nothing for `idle` seconds.
        """
        await anyio.lowlevel.checkpoint()
        while True:
            over = self._has_ended()
            self._listen()
            if piece := self._read_output():
                return piece
            if over or self._out is None:
                return b""
            with anyio.fail_after(idle):
                await self._wait_for_input()

    async def wait_for_end(self, within: float) -> bool:
        """Return True if it ends by itself within `within` seconds."""
        with anyio.move_on_after(within):
            while not self._has_ended():  # noqa: ASYNC110
                await anyio.sleep(_POLL_SECONDS)
        self._listen()
        return self._has_ended()

    async def stop(self, grace: float) -> int:
        """Ask the process group to end, and kill it after `grace` seconds. Return the exit code,
        or the negative number of the signal that ended it."""
        try:
            await self._end_group(grace)
        finally:
            for pipe in (self._out, self._err, self._watch):
                if pipe is not None:
                    os.close(pipe)
            self._out = self._err = self._watch = None
        code = self._process.poll()  # even now it may hang in the kernel
        return -signal.SIGKILL if code is None else code

    def _read_output(self) -> bytes:
        if self._out is None:
            return b""
        try:
            piece = os.read(self._out, _PIECE_BYTES)
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
                piece = os.read(self._err, _PIECE_BYTES)
            except BlockingIOError:
                return
            self._last = (self._last + piece)[-_LAST_WORDS_BYTES:]
            if not piece:
                os.close(self._err)
                self._err = None

    def _has_ended(self) -> bool:
        if self._watch is None or self._process.returncode is not None:
            return self._process.poll() is not None
        # Not by reaping it: its number must stay its own until its group has ended.
        poller = select.poll()
        poller.register(self._watch, select.POLLIN)
        return bool(poller.poll(0))

    async def _wait_for_input(self) -> None:
        """Wait until there is something to read, or the program has exited."""
        pipes = [p for p in (self._out, self._err, self._watch) if p is not None]

        async def wait_for_pipe(pipe: int) -> None:
            await anyio.wait_readable(pipe)
            group.cancel_scope.cancel()

        async with anyio.create_task_group() as group:
            for pipe in pipes:
                group.start_soon(wait_for_pipe, pipe)

    async def _end_group(self, grace: float) -> None:
        # Until the leader is reaped, and while another process is in the group, its number
        # cannot be reused for another group.
        for order in (signal.SIGTERM, signal.SIGKILL):
            if not signal_group(self._process.pid, order):
                self._process.poll()
                return
            # A stopped process must receive the signal.
            signal_group(self._process.pid, signal.SIGCONT)
            with anyio.move_on_after(grace):
                while not self._is_gone():  # noqa: ASYNC110
                    await anyio.sleep(_POLL_SECONDS)
                return

    def _is_gone(self) -> bool:
        if self._process.poll() is None:
            return False
        return not (signal_group(self._process.pid, 0) and is_alive(self._process.pid))


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
        run = await self._prepare_in_thread(request)
        try:
            if request.trace:
                for name, content in run.texts:
                    yield RequestSent(name, content)
                yield RequestSent(run.line, run.stdin or b"")
            program = await self._start_in_thread(run)
            reader, code = ProgramOutputReader(self._spec.output), 0
            try:
                while not (reader.over or reader.trouble):
                    piece = await self._piece(program)
                    if not piece:
                        break
                    if request.trace:
                        yield ResponseBytes(piece)
                    for delta in reader.feed(piece):
                        yield delta
                for delta in reader.end():
                    yield delta
                in_time = await program.wait_for_end(
                    0.0 if reader.trouble else self._timeouts.linger
                )
            finally:
                with anyio.CancelScope(shield=True):
                    code = await program.stop(self._timeouts.grace)
            if failure := self._failure(reader, program, code, in_time):
                raise failure
            yield reader.to_done(program.stderr_tail)
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(run.clear)

    async def aclose(self) -> None:
        """Do nothing: nothing is open between two responses."""

    async def _prepare_in_thread(self, request: Request) -> PreparedRun:
        try:  # the thread is awaited even on cancellation, so no files are left behind
            return await anyio.to_thread.run_sync(self._prepare, request)
        except OSError as error:
            raise Refused(
                f"there is no place to run {self._spec.label} in: {error.strerror or error}"
            ) from error

    def _prepare(self, request: Request) -> PreparedRun:
        spec = self._spec
        system = sanitize.text(request.system).strip() or _DEFAULT_SYSTEM
        alone = "{system}" in spec.slots or "{system_file}" in spec.slots
        prompt = self._prompts.prompt(request.messages, "" if alone else request.system)
        words = ProgramPrompt(prompt, system, self._model, _effort(request, self._spec))
        return prepare_run(spec, self._program, words, self._environ)

    async def _start_in_thread(self, run: PreparedRun) -> Program:
        starting = partial(
            start, run.argv, cwd=run.cwd, environ=run.environ, stdin=run.stdin
        )
        try:
            return await anyio.to_thread.run_sync(starting)
        except FileNotFoundError as error:
            raise Refused(errors.missing_program_text(self._spec, self._program)) from error
        except OSError as error:
            raise Refused(
                f"{self._program!r} cannot be started: {error.strerror or error}"
            ) from error

    async def _piece(self, program: Program) -> bytes:
        try:
            return await program.read(self._timeouts.idle)
        except TimeoutError as error:
            idle, words = self._timeouts.idle, program.stderr_tail
            raise errors.silence_error(self._spec, idle, words) from error

    def _failure(
        self, reader: ProgramOutputReader, program: Program, code: int, in_time: bool
    ) -> ProviderError | None:
        spec, words = self._spec, program.stderr_tail
        ending = errors.describe_end(code) if in_time else ""
        if reader.trouble:
            return errors.failure(spec, self._model, reader.trouble)
        if code and in_time:
            output = words if words.strip() else reader.strange
            return errors.failure(spec, self._model, output, ending)
        if not in_time and not reader.over:
            return errors.cut_off_error(spec, words)
        if spec.output.end and not reader.over and reader.has_text:
            return errors.cut_off_error(spec, words)
        if not reader.has_text:
            return errors.empty_output_error(spec, reader.strange, words)
        return None


def prepare_run(
    spec: CommandSpec, program: str, prompt: ProgramPrompt, environ: Mapping[str, str]
) -> PreparedRun:
    """Make directory and files. Raises `TooLong`, and `OSError`."""
    directory = Path(tempfile.mkdtemp(prefix="refold-"))
    try:
        own = directory / "tmp"
        own.mkdir()
        slots = {
            "prompt": prompt.prompt,
            "prompt_file": str(directory / "prompt.md"),
            "system": prompt.system,
            "system_file": str(directory / "system.md"),
            "model": prompt.model,
            "effort": spec.efforts.get(prompt.effort, prompt.effort),
            "files": str(directory),
        }
        arguments = _arguments(spec, prompt)
        argv = (program, *(_fill(spec, part, slots) for part in arguments))
        files = _files(spec, slots)
        for name, content in files:
            (directory / name).write_bytes(content)
        cwd = empty_directory(environ) or _make_directory(directory / "empty")
        variables = {
            **environ,
            **_UNATTENDED_VARIABLES,
            "PWD": cwd,
            "TMPDIR": str(own),
            **{name: _substitute(value, slots) for name, value in spec.environ.items()},
        }
        for name in (*_OWN_VARIABLES, *spec.unset):
            variables.pop(name, None)
        stdin = prompt.prompt.encode() if spec.stdin else None
        texts = [(f"file {name}", content) for name, content in files]
        texts += _inline_texts(spec, arguments, slots)
        line = _line(program, arguments, slots)
        return PreparedRun(directory, cwd, argv, variables, stdin, line, tuple(texts))
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise


def without_keys(
    environ: Mapping[str, str], keys: Collection[str], allowed_names: Collection[str]
) -> dict[str, str]:
    """The environment without the variables in `keys`, except those in `allowed_names`."""
    foreign = set(keys) - set(allowed_names)
    return {name: value for name, value in environ.items() if name not in foreign}


def _arguments(spec: CommandSpec, prompt: ProgramPrompt) -> tuple[str, ...]:
    model = spec.model_argv if prompt.model else ()
    effort = spec.effort_argv if prompt.effort else ()
    return (*spec.argv[1:], *model, *effort)


def _files(spec: CommandSpec, slots: Mapping[str, str]) -> list[tuple[str, bytes]]:
    used = spec.slots
    files = [
        (f"{name}.md", slots[name])
        for name in ("prompt", "system")
        if f"{{{name}_file}}" in used
    ]
    files += [(name, _substitute(content, slots)) for name, content in spec.files.items()]
    return [(name, content.encode()) for name, content in files]


def _inline_texts(
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
    return shlex.join((program, *(_substitute(part, shown) for part in arguments)))


def _fill(spec: CommandSpec, part: str, slots: Mapping[str, str]) -> str:
    filled = _substitute(part, slots).replace("\0", "\N{REPLACEMENT CHARACTER}")
    if (size := len(filled.encode())) > _MAX_ARGUMENT_BYTES:
        raise TooLong(
            f"the conversation does not fit on the command line of {spec.label}: it has "
            f"{size // 1024} KiB, and {_MAX_ARGUMENT_BYTES // 1024 + 1} KiB is the most; pass it "
            "on stdin or in {prompt_file}, or use the context mode sliding or fresh"
        )
    return filled


def _effort(request: Request, spec: CommandSpec) -> str:
    """The effort to pass on; "" for "off", unless the program can switch thinking off."""
    known = request.effort != "off" or "off" in spec.efforts
    return request.effort if known else ""


def _substitute(template: str, slots: Mapping[str, str]) -> str:
    """Fill in all slots in one pass: their values may contain braces, too."""
    return _SLOT_PATTERN.sub(lambda found: slots[found[0][1:-1]], template)


def empty_directory(environ: Mapping[str, str]) -> str:
    """A constant empty directory, because some programs remember each one they ran in.

    "" if there is none that is empty.
    """
    if own := environ.get("REFOLD_HOME", ""):
        directory = Path(os.path.abspath(os.path.expanduser(own)), "empty")
    else:
        home = environ.get("HOME", "")
        cache = environ.get("XDG_CACHE_HOME", "") or (home and os.path.join(home, ".cache"))
        if not os.path.isabs(cache):
            return ""
        directory = Path(cache, "refold", "empty")
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        return "" if any(directory.iterdir()) else str(directory)
    except OSError:
        return ""


def _make_directory(directory: Path) -> str:
    directory.mkdir()
    return str(directory)


_POLL_SECONDS = 0.005  # the end of other processes than our children is not reported
_PIECE_BYTES = 65536
_LAST_WORDS_BYTES = 8192  # of standard error that are kept


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
