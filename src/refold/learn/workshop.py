"""Runs the program of a reader against a scripted model, and says what is still missing.

A check describes what it expects, one thing after the other, and raises `NotYet` at the first that
does not hold. The programs belong to the reader, so they run as the reader: in the reader's
folder, without a sandbox.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from shutil import copyfile, rmtree
from tempfile import mkdtemp
from threading import Event, Thread
from typing import IO, TYPE_CHECKING, cast

from msgspec import Struct

from refold import programs
from refold.learn.model_server import (
    Json,
    ModelReply,
    ModelServer,
    RequestedCall,
    model_server,
)
from refold.process_groups import signal_group

if TYPE_CHECKING:
    from typing import Unpack

    from refold.programs import Start

PROGRAM_NAME = "agent.py"
OUR_PYTHON = (sys.executable,)
_SESSION_PROGRAM = """\
import os, shutil
from pathlib import Path
from refold import Agent
Agent(model="lesson/scripted", mode="accept-edits").run("Tidy my notes.")
journals = (Path(os.environ["REFOLD_HOME"]) / "sessions").glob("*/events.jsonl")
shutil.copy(sorted(journals)[-1], "session.jsonl")
"""
_HOME_NAME = ".refold"
MAX_RUN_SECONDS = 20
_FIRST_OUTPUT_SECONDS = 3  # from the first piece until a program has printed it
_MAX_SHOWN_CHARS = 600


class NotYet(Exception):
    """What is missing, and three hints: where to look, what to do, how to write it."""

    def __init__(self, problem: str, *hints: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.hints = hints


class Demo(Struct, frozen=True):
    """What `refold learn run` shows: the model's `replies` to `words` on the command line.

    Or to what the reader is asked to type (`typed`). First, `files` are put into the folder, and the
    journal of a session with the replies `session`, as session.jsonl.
    """

    replies: tuple[ModelReply, ...]
    words: tuple[str, ...] = ()
    session: tuple[ModelReply, ...] = ()
    typed: tuple[str, ...] = ()
    files: Mapping[str, str] = {}


class ProgramRun(Struct, frozen=True):
    """How a program ran. `requests` are the bodies that the model accepted."""

    exit_code: int
    output: str
    errors: str
    requests: tuple[Json, ...]
    refusals: tuple[str, ...]

    def messages(self, number: int) -> list[Json]:
        """The messages of the request with this number; negative ones count from the end.

        Raises `NotYet` if the model received fewer requests.
        """
        count = len(self.requests)
        expect(
            -count <= number < count,
            f"The model received {count} requests from your program, which is not enough.",
            "After the results of its calls, the model is asked again.",
            "refold learn run draws which requests were sent.",
            "Compare your program with the text of this lesson, function by function.",
        )
        return cast("list[Json]", self.requests[number]["messages"])


def make_session(
    folder: Path, *replies: ModelReply, python: Sequence[str] = OUR_PYTHON
) -> None:
    """Write session.jsonl: the journal of a session of refold with these replies."""
    program = folder / ".session.py"
    program.write_text(_SESSION_PROGRAM, encoding="utf-8")
    with model_server(*replies) as model:
        pipe = subprocess.PIPE
        command = [*python, program.name]
        process = _start(command, folder, model.url, stdout=pipe, stderr=pipe)
        _, errors = process.communicate(timeout=MAX_RUN_SECONDS)
    program.unlink()
    if process.returncode:
        raise RuntimeError(errors.decode(errors="replace"))


class Workshop:
    """A copy of the reader's program in a folder of its own, which `run` starts.

    What the program writes stays for the next run; the reader's own files are not touched. `python` is
    the command that starts a Python.
    """

    def __init__(self, program: Path, python: Sequence[str] = OUR_PYTHON) -> None:
        self.folder = Path(mkdtemp(prefix="refold-lesson-"))
        self._name, self._python = program.name, python
        copyfile(program, self.folder / program.name)

    def close(self) -> None:
        rmtree(self.folder, ignore_errors=True)

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text, encoding="utf-8")

    def read(self, name: str) -> str | None:
        """The text of a file of the program; None if there is none."""
        try:
            return (self.folder / name).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None

    def journal(self) -> list[Json]:
        """The events of journal.jsonl. Raises `NotYet` if it cannot be read."""
        text = self.read("journal.jsonl")
        if text is None:
            raise NotYet(
                "There is no journal.jsonl in the folder of the program.",
                "`record` opens a file to append to it.",
                'The path is relative: Path("journal.jsonl").',
                'with Path("journal.jsonl").open("a") as journal: …',
            )
        try:
            return [json.loads(row) for row in text.splitlines()]
        except ValueError as error:
            raise NotYet(
                f"A line of journal.jsonl is not JSON: {error}.",
                "One event is one line.",
                "json.dumps writes no line break; add one at the end of each event.",
                'journal.write(json.dumps(event) + "\\n")',
            ) from error

    def make_session(self, *replies: ModelReply) -> None:
        """Write session.jsonl: the journal of a session of refold with these replies."""
        make_session(self.folder, *replies, python=self._python)

    def session_events(self) -> list[Json]:
        """The events of the newest session of refold that the program started."""
        journals = [*(self.folder / _HOME_NAME / "sessions").glob("*/events.jsonl")]
        expect(
            journals,
            "Your program started no session of refold.",
            "A session begins with the first message to an agent.",
            "agent.run(…) sends one.",
            "result = agent.run(question)",
        )
        # The ids of two sessions of the same second do not say which was first.
        newest = max(journals, key=lambda path: path.stat().st_mtime_ns)
        rows = newest.read_text(encoding="utf-8").splitlines()
        return [json.loads(row) for row in rows]

    def run(
        self, *replies: ModelReply, words: Sequence[str] = (), typed: Sequence[str] = ()
    ) -> ProgramRun:
        """Start the program with `words` as its arguments and `typed` as the lines that are typed.

        Raises `NotYet` if it fails or hangs.
        """
        with model_server(*replies) as model:
            process = self._start(model, words, stdin=subprocess.PIPE)
            keys = "".join(f"{line}\n" for line in typed).encode()
            try:
                out, err = process.communicate(keys, MAX_RUN_SECONDS)
            except subprocess.TimeoutExpired:
                _kill(process)
                out, err = process.communicate()
                raise _hang_error(typed, out) from None
            finally:
                _kill(process)  # also what it has started
            run = ProgramRun(
                process.returncode, out.decode(errors="replace"), err.decode(errors="replace"),
                tuple(model.requests), tuple(model.refusals),
            )  # fmt: skip
        _expect_success(run, self._name)
        return run

    def kill_when(
        self, holds: Callable[[Path], bool], *replies: ModelReply, typed: Sequence[str]
    ) -> bool:
        """Start the program, type `typed`, and kill it as soon as `holds` of its folder.

        False if that did not come within `MAX_RUN_SECONDS`, or before the program exited or asked
        the model for more than the replies.
        """
        with model_server(*replies) as model:
            process = self._start(model, (), stdin=subprocess.PIPE)
            stdin = cast("IO[bytes]", process.stdin)
            with suppress(BrokenPipeError):  # it has ended
                stdin.write("".join(f"{line}\n" for line in typed).encode())
                stdin.flush()  # and not closed: it may wait for more
            deadline, held = time.monotonic() + MAX_RUN_SECONDS, False
            while not held and process.poll() is None and time.monotonic() < deadline:
                was_over = len(model.requests) > len(replies)
                time.sleep(0.01)
                with suppress(OSError):
                    held = holds(self.folder)
                if was_over:
                    break
            _kill(process)
            with suppress(BrokenPipeError):
                process.communicate()
            return held

    def first_output_of(self, reply: ModelReply, *, words: Sequence[str]) -> str:
        """What the program has printed when the model has sent only the first piece of an answer.

        The model waits with the other pieces until then, or for `_FIRST_OUTPUT_SECONDS`.
        """
        sent, printed = Event(), Event()

        def wait_for_output() -> None:
            sent.set()
            printed.wait(2 * _FIRST_OUTPUT_SECONDS)  # set below at the latest

        with model_server(reply) as model:
            process = self._start(model, words, stdin=subprocess.DEVNULL)
            model.after_first_piece = wait_for_output
            reader = cast("IO[bytes]", process.stdout)
            early = bytearray()

            def read_first() -> None:
                early.extend(os.read(reader.fileno(), 1000))
                printed.set()

            Thread(target=read_first, daemon=True).start()
            came_early = sent.wait(MAX_RUN_SECONDS) and printed.wait(_FIRST_OUTPUT_SECONDS)
            printed.set()
            try:
                process.communicate(timeout=MAX_RUN_SECONDS)
            except subprocess.TimeoutExpired:
                _kill(process)
                process.communicate()
            return early.decode(errors="replace") if came_early else ""

    def _start(
        self, model: ModelServer, words: Sequence[str], *, stdin: int
    ) -> "subprocess.Popen[bytes]":
        pipe = subprocess.PIPE
        command = [*self._python, self._name, *words]
        return _start(
            command, self.folder, model.url,
            stdin=stdin, stdout=pipe, stderr=pipe, start_new_session=True,
        )  # fmt: skip


def _kill(process: "subprocess.Popen[bytes]") -> None:
    """Kill the program and the commands that it has started."""
    signal_group(process.pid, signal.SIGKILL)


def start_program(
    program: Path, url: str, words: Sequence[str], **options: "Unpack[Start]"
) -> "subprocess.Popen[bytes]":
    """Start a program in its folder, with the Python that runs refold.

    If it uses refold, that has a directory of its own there, with the model `lesson/scripted`.
    """
    return _start([*OUR_PYTHON, program.name, *words], program.parent, url, **options)


def start_page(folder: Path, url: str) -> "subprocess.Popen[bytes]":
    """Start the server for the pages, with the sessions of the programs in `folder`.

    Its settings are in its environment: a program that is started meanwhile has another model.
    """
    environ: Start = {
        "cwd": folder,
        "env": {
            **program_environment(os.environ),
            "REFOLD_HOME": str(folder / _HOME_NAME),
            "REFOLD_MODEL": "lesson/scripted",
            "REFOLD_LOG_REQUESTS": "true",
            # Other requests would get the answers that the script has for the conversation.
            "REFOLD_TITLES": "false",
            "REFOLD_MEMORY": "false",
            "REFOLD_PROVIDERS__LESSON__WIRE": "openai-chat",
            "REFOLD_PROVIDERS__LESSON__BASE_URL": url,
        },
    }
    return programs.start([*OUR_PYTHON, "-m", "refold", "serve", "--port", "0"], **environ)


def _start(
    command: list[str], folder: Path, url: str, **how: "Unpack[Start]"
) -> "subprocess.Popen[bytes]":
    home = folder / _HOME_NAME
    home.mkdir(exist_ok=True)
    (home / "config.toml").write_text(
        "log_requests = true\n"
        f'[providers.lesson]\nwire = "openai-chat"\nbase_url = "{url}"\n',
        encoding="utf-8",
    )
    environ = {
        **program_environment(os.environ),
        "MODEL_URL": url,
        "REFOLD_HOME": str(home),
    }
    options: Start = {**how, "cwd": folder, "env": environ}
    return programs.start(command, **options)


def program_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Nothing that changes what Python does: a lesson behaves alike everywhere."""
    kept = {name: value for name, value in environ.items() if not name.startswith("PYTHON")}
    return {
        **kept,
        "PYTHONUTF8": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "no_proxy": "127.0.0.1",
    }


def expect(holds: object, problem: str, *hints: str) -> None:
    """Raise `NotYet` unless it holds."""
    if not holds:
        raise NotYet(problem, *hints)


def quote(text: str) -> str:
    """A shortened quotation of what a program printed."""
    text = text.strip()
    return repr(text if len(text) <= _MAX_SHOWN_CHARS else text[:_MAX_SHOWN_CHARS] + "…")


def call(tool: str, **arguments: object) -> ModelReply:
    """An answer of the model that calls one tool."""
    return ModelReply(calls=(RequestedCall(tool, arguments),))


def _hang_error(typed: Sequence[str], out: bytes) -> NotYet:
    shown = quote(out.decode(errors="replace"))
    return NotYet(
        f"Your program did not end within {MAX_RUN_SECONDS} seconds. It printed {shown}.",
        "Does a loop have an end?",
        "A program that reads input must end at the end of the input (Ctrl+D)."
        if typed
        else "The program must end after the answer.",
        "try: text = input() … except EOFError: return",
    )


_FOLDER_OF_FILE_PATTERN = re.compile(r'(?<=^  File ").*/')


def _own_traceback(errors: str, program_name: str) -> str:
    """The end of a traceback, without the lines about files that the reader did not write.

    It names the program without its folder: that is of a copy, and another one in each run.
    """
    lines: list[str] = []
    is_own = True
    for line in errors.strip("\n").splitlines():
        if line.startswith('  File "'):
            is_own = f'{program_name}"' in line
        elif not line.startswith(" "):
            is_own = True
        if is_own:
            lines.append(_FOLDER_OF_FILE_PATTERN.sub("", line))
    return "\n".join(lines[-7:])


def _expect_success(run: ProgramRun, program_name: str) -> None:
    if run.refusals:
        raise NotYet(
            f"The model refused a request: {run.refusals[0]}.",
            "The message says which part of the request is wrong.",
            "Print the request before you send it: print(json.dumps(request, indent=2)).",
            "Compare it with the request in the text of this lesson.",
        )
    if run.exit_code:
        last = run.errors.strip().splitlines()[-1:] or ["(it printed no error)"]
        raise NotYet(
            f"Your program exited with code {run.exit_code}: {last[0]}",
            "The last line of the error says what went wrong, the lines above it where:\n"
            + _own_traceback(run.errors, program_name),
            "Run it yourself with `refold learn run` and the number of this lesson.",
            "Compare your program with the text of this lesson, function by function.",
        )
