"""Runs a program as a provider: each response is one run of it.

It implements `port.Provider`. Requests arrive without tools, which the text protocol has put
into the messages; images are replaced by descriptions. A program runs in an empty directory,
without a project or its settings. Its input files are in a directory of this run, which is
deleted afterwards. It gets the user's environment without the keys of other programs.
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

# Linux accepts no longer argument, whatever the limit on all arguments together.
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
# Some programs do not accept an empty file.
_DEFAULT_SYSTEM = "Answer the last message of the conversation."


class ProgramPrompt(Struct, frozen=True):
    """The values for the placeholders of a command line.

    `prompt` includes the system text if no placeholder is for `system`.
    """

    prompt: str
    system: str = ""
    model: str = ""
    effort: str = ""


class PreparedRun(Struct, frozen=True):
    """A run that is ready to start. `line` and `texts` are for the request log.

    `line` is the command line with a placeholder for each text, and `texts` has pairs of a
    name and a text. Both are equal for equal runs.
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
    """A running or exited program. Call `stop` in any case, even after its exit."""

    def __init__(self, process: subprocess.Popen[bytes], stdout: int, stderr: int) -> None:
        self._process = process
        self._stdout: int | None = stdout  # None: closed, as for the other two descriptors
        self._stderr: int | None = stderr
        self._stderr_tail = b""
        for pipe in (stdout, stderr):
            os.set_blocking(pipe, False)
        try:
            self._watch: int | None = os.pidfd_open(process.pid)
        except (AttributeError, OSError):  # not Linux, or no descriptor left
            self._watch = None

    @property
    def stderr_tail(self) -> str:
        """The end of the program's output on standard error."""
        return self._stderr_tail.decode("utf-8", "replace")

    async def read(self, idle: float) -> bytes:
        """Read the next piece of output, or b"" at its end. `idle` is the time limit."""
        await anyio.lowlevel.checkpoint()
        while True:
            has_ended = self._has_ended()  # before the last output is read
            self._drain_stderr()
            if piece := self._read_output():
                return piece
            if has_ended or self._stdout is None:
                return b""
            with anyio.fail_after(idle):
                await self._wait_for_input()

    async def wait_for_end(self, within: float) -> bool:
        """Wait up to `within` seconds for the program's exit. Return whether it has exited."""
        with anyio.move_on_after(within):
            while not self._has_ended():  # noqa: ASYNC110
                await anyio.sleep(_POLL_SECONDS)
        self._drain_stderr()
        return self._has_ended()

    async def stop(self, grace: float) -> int:
        """Ask the process group to exit, and kill it after `grace` seconds.

        Return the exit code, or the negative number of the signal that killed the program.
        """
        try:
            await self._end_group(grace)
        finally:
            for pipe in (self._stdout, self._stderr, self._watch):
                if pipe is not None:
                    os.close(pipe)
            self._stdout = self._stderr = self._watch = None
        code = self._process.poll()  # even now the process may be stuck in the kernel
        return -signal.SIGKILL if code is None else code

    def _read_output(self) -> bytes:
        """Return the standard output that has arrived, or b"" if there is none."""
        if self._stdout is None:
            return b""
        try:
            piece = os.read(self._stdout, _PIECE_BYTES)
        except BlockingIOError:
            return b""
        if not piece:
            os.close(self._stdout)
            self._stdout = None
        return piece

    def _drain_stderr(self) -> None:
        """Read standard error, and keep its end. A full pipe would block the program."""
        while self._stderr is not None:
            try:
                piece = os.read(self._stderr, _PIECE_BYTES)
            except BlockingIOError:
                return
            self._stderr_tail = (self._stderr_tail + piece)[-_STDERR_TAIL_BYTES:]
            if not piece:
                os.close(self._stderr)
                self._stderr = None

    def _has_ended(self) -> bool:
        """Whether the program has exited."""
        if self._watch is None or self._process.returncode is not None:
            return self._process.poll() is not None
        # Wait without reaping the process: its number must not be reused before its group
        # has exited.
        poller = select.poll()
        poller.register(self._watch, select.POLLIN)
        return bool(poller.poll(0))  # readable as soon as the process has exited

    async def _wait_for_input(self) -> None:
        """Wait until the program has printed something or has exited."""
        pipes = [p for p in (self._stdout, self._stderr, self._watch) if p is not None]

        async def wait_for_pipe(pipe: int) -> None:
            await anyio.wait_readable(pipe)
            group.cancel_scope.cancel()

        async with anyio.create_task_group() as group:
            for pipe in pipes:
                group.start_soon(wait_for_pipe, pipe)

    async def _end_group(self, grace: float) -> None:
        """Ask the process group to exit, then kill it. Wait up to `grace` seconds each time."""
        # The number cannot be reused for another group until the leader is reaped and the
        # group is empty.
        for signal_number in (signal.SIGTERM, signal.SIGKILL):
            if not signal_group(self._process.pid, signal_number):
                self._process.poll()
                return
            # A stopped process must receive the signal.
            signal_group(self._process.pid, signal.SIGCONT)
            with anyio.move_on_after(grace):
                while not self._is_gone():  # noqa: ASYNC110
                    await anyio.sleep(_POLL_SECONDS)
                return  # it is gone; otherwise the next signal follows

    def _is_gone(self) -> bool:
        """Whether the program and all processes of its group have exited."""
        if self._process.poll() is None:
            return False
        has_group = signal_group(self._process.pid, 0)  # signal 0 only asks
        return not has_group or not is_alive(self._process.pid)


class CommandLine:
    """A provider that runs the program at the path `program`, with one model."""

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
        self._spec, self._model, self._path = spec, model, program
        self._environ, self._timeouts = environ, timeouts
        self._prompts = Prompts(conversation)

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        """Run the program, and yield its output as a response. Raises `ProviderError`."""
        run = await self._prepare_in_thread(request)
        try:
            if request.trace:
                for name, content in run.texts:
                    yield RequestSent(name, content)
                yield RequestSent(run.line, run.stdin or b"")
            program = await self._start_in_thread(run)
            reader = ProgramOutputReader(self._spec.output)
            exit_code = 0  # until the program has been stopped
            try:
                while not (reader.over or reader.trouble):
                    piece = await self._read_piece(program)
                    if not piece:
                        break
                    if request.trace:
                        yield ResponseBytes(piece)
                    for delta in reader.feed(piece):
                        yield delta
                for delta in reader.end():
                    yield delta
                linger = 0.0 if reader.trouble else self._timeouts.linger
                exited_in_time = await program.wait_for_end(linger)
            finally:
                with anyio.CancelScope(shield=True):
                    exit_code = await program.stop(self._timeouts.grace)
            if failure := self._failure(reader, program, exit_code, exited_in_time):
                raise failure
            yield reader.to_done(program.stderr_tail)
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(run.clear)

    async def aclose(self) -> None:
        """Do nothing, because nothing is open between two responses."""

    async def _prepare_in_thread(self, request: Request) -> PreparedRun:
        try:  # the thread is awaited even on cancellation, so no files are left behind
            return await anyio.to_thread.run_sync(self._prepare, request)
        except OSError as error:
            raise Refused(
                f"there is no place to run {self._spec.label} in: {error.strerror or error}"
            ) from error

    def _prepare(self, request: Request) -> PreparedRun:
        """Prepare a run. The prompt has the system text if no placeholder has it."""
        spec = self._spec
        system = sanitize.text(request.system).strip() or _DEFAULT_SYSTEM
        has_system_slot = "{system}" in spec.slots or "{system_file}" in spec.slots
        system_in_prompt = "" if has_system_slot else request.system
        text = self._prompts.prompt(request.messages, system_in_prompt)
        prompt = ProgramPrompt(text, system, self._model, _effort(request, spec))
        return prepare_run(spec, self._path, prompt, self._environ)

    async def _start_in_thread(self, run: PreparedRun) -> Program:
        """Start the program in a thread, because that may block. Raises `Refused`."""
        starting = partial(
            start, run.argv, cwd=run.cwd, environ=run.environ, stdin=run.stdin
        )
        try:
            return await anyio.to_thread.run_sync(starting)
        except FileNotFoundError as error:
            raise Refused(errors.missing_program_text(self._spec, self._path)) from error
        except OSError as error:
            raise Refused(
                f"{self._path!r} cannot be started: {error.strerror or error}"
            ) from error

    async def _read_piece(self, program: Program) -> bytes:
        """Return the next piece of output, or b"" at its end. Raises `ProviderError` on silence."""
        try:
            return await program.read(self._timeouts.idle)
        except TimeoutError as error:
            idle, stderr = self._timeouts.idle, program.stderr_tail
            raise errors.silence_error(self._spec, idle, stderr) from error

    def _failure(
        self, reader: ProgramOutputReader, program: Program, exit_code: int, exited: bool
    ) -> ProviderError | None:
        """Return the error of a run, or None if it printed a complete response.

        A program that had not `exited` in time was killed: its `exit_code` means nothing.
        """
        spec, stderr = self._spec, program.stderr_tail
        if reader.trouble:
            return errors.failure(spec, self._model, reader.trouble)
        if exit_code and exited:
            output = stderr if stderr.strip() else reader.strange
            ending = errors.describe_end(exit_code)
            return errors.failure(spec, self._model, output, ending)
        # If a program marks the end of its output, a text without this mark is cut off.
        needs_end_mark = spec.output.end and reader.has_text
        if not reader.over and (needs_end_mark or not exited):
            return errors.cut_off_error(spec, stderr)
        if not reader.has_text:
            return errors.empty_output_error(spec, reader.strange, stderr)
        return None


def prepare_run(
    spec: CommandSpec, program: str, prompt: ProgramPrompt, environ: Mapping[str, str]
) -> PreparedRun:
    """Create the directory and the files of a run, and fill in its command line.

    Raises `TooLong` if an argument is too long, and `OSError`.
    """
    directory = Path(tempfile.mkdtemp(prefix="refold-"))
    try:
        temporary_directory = directory / "tmp"
        temporary_directory.mkdir()
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
        argv = (program, *(_fill_argument(spec, part, slots) for part in arguments))
        files = _files_of_run(spec, slots)
        for name, content in files:
            (directory / name).write_bytes(content)
        cwd = empty_directory(environ) or _make_directory(directory / "empty")
        variables = {
            **environ,
            **_UNATTENDED_VARIABLES,
            "PWD": cwd,
            "TMPDIR": str(temporary_directory),
            **{name: _substitute(value, slots) for name, value in spec.environ.items()},
        }
        for name in (*_OWN_VARIABLES, *spec.unset):
            variables.pop(name, None)
        stdin = prompt.prompt.encode() if spec.stdin else None
        texts = [(f"file {name}", content) for name, content in files]
        texts += _inline_texts(spec, arguments, slots)
        line = _logged_line(program, arguments, slots)
        return PreparedRun(directory, cwd, argv, variables, stdin, line, tuple(texts))
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise


def without_keys(
    environ: Mapping[str, str], keys: Collection[str], allowed_names: Collection[str]
) -> dict[str, str]:
    """Return `environ` without the names that are in `keys` but not in `allowed_names`."""
    removed = set(keys) - set(allowed_names)
    return {name: value for name, value in environ.items() if name not in removed}


def _arguments(spec: CommandSpec, prompt: ProgramPrompt) -> tuple[str, ...]:
    """Return the unfilled arguments, with those for a model and an effort if set."""
    model = spec.model_argv if prompt.model else ()
    effort = spec.effort_argv if prompt.effort else ()
    return (*spec.argv[1:], *model, *effort)


def _files_of_run(spec: CommandSpec, slots: Mapping[str, str]) -> list[tuple[str, bytes]]:
    """Return the name and content of each input file of a run."""
    files = list[tuple[str, str]]()
    for name in ("prompt", "system"):
        if f"{{{name}_file}}" in spec.slots:
            files.append((f"{name}.md", slots[name]))
    files += [(name, _substitute(content, slots)) for name, content in spec.files.items()]
    return [(name, content.encode()) for name, content in files]


def _inline_texts(
    spec: CommandSpec, arguments: Iterable[str], slots: Mapping[str, str]
) -> list[tuple[str, bytes]]:
    """Return (placeholder, text) for each text inside an argument or a variable."""
    templates = "\n".join((*arguments, *spec.environ.values()))
    return [
        (f"slot {name}", slots[name].encode())
        for name in ("prompt", "system")
        if f"{{{name}}}" in templates
    ]


def _logged_line(program: str, arguments: Iterable[str], slots: Mapping[str, str]) -> str:
    """Return the command line for the log. Only the model and the effort are filled in."""
    shown = {name: f"{{{name}}}" for name in slots}
    shown |= {name: slots[name] for name in ("model", "effort")}
    return shlex.join((program, *(_substitute(part, shown) for part in arguments)))


def _fill_argument(spec: CommandSpec, part: str, slots: Mapping[str, str]) -> str:
    """Fill the placeholders of an argument. Raises `TooLong` if it is longer than allowed."""
    filled = _substitute(part, slots).replace("\0", "\N{REPLACEMENT CHARACTER}")
    if (size := len(filled.encode())) > _MAX_ARGUMENT_BYTES:
        raise TooLong(
            f"the conversation does not fit on the command line of {spec.label}: it has "
            f"{size // 1024} KiB, and {_MAX_ARGUMENT_BYTES // 1024 + 1} KiB is the most; pass it "
            "on stdin or in {prompt_file}, or use the context mode sliding or fresh"
        )
    return filled


def _effort(request: Request, spec: CommandSpec) -> str:
    """Return the requested effort, or "" if it is "off" but the program always thinks."""
    if request.effort == "off" and "off" not in spec.efforts:
        return ""
    return request.effort


def _substitute(template: str, slots: Mapping[str, str]) -> str:
    """Fill in all placeholders in one pass, because a value may contain a placeholder."""
    return _SLOT_PATTERN.sub(lambda found: slots[found[0][1:-1]], template)


def empty_directory(environ: Mapping[str, str]) -> str:
    """Return the path of the empty directory in which programs run, or "" if it is unusable.

    It is always the same directory, because some programs remember each directory.
    """
    if own := environ.get("REFOLD_HOME", ""):
        directory = Path(os.path.abspath(os.path.expanduser(own)), "empty")
    else:
        home = environ.get("HOME", "")
        default_cache = os.path.join(home, ".cache") if home else ""
        cache = environ.get("XDG_CACHE_HOME", "") or default_cache
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


_POLL_SECONDS = 0.005  # the end of processes other than our children is not reported
_PIECE_BYTES = 65536
_STDERR_TAIL_BYTES = 8192  # the part of standard error that is kept


def start(
    argv: Sequence[str], *, cwd: str, environ: Mapping[str, str], stdin: bytes | None
) -> Program:
    """Start a program with `stdin` as its input; None means no input. Raises `OSError`."""
    stdout_end, program_stdout = os.pipe()
    stderr_end, program_stderr = os.pipe()
    try:
        with tempfile.TemporaryFile() as stdin_file:
            stdin_file.write(stdin or b"")
            stdin_file.seek(0)
            process = programs.start(
                tuple(argv),
                cwd=cwd,
                env=dict(environ),
                stdin=subprocess.DEVNULL if stdin is None else stdin_file,
                stdout=program_stdout,
                stderr=program_stderr,
                start_new_session=True,
            )
    except (OSError, ValueError) as error:
        os.close(stdout_end)
        os.close(stderr_end)
        if isinstance(error, OSError):
            raise
        raise OSError(str(error)) from error
    finally:
        os.close(program_stdout)
        os.close(program_stderr)
    return Program(process, stdout_end, stderr_end)
