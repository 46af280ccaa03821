"""Runs the reader's program against a scripted model, and says what is still missing.

A check states its conditions one after the other, and raises `NotYet` at the first one that is
not fulfilled. The program belongs to the reader, so it runs with the reader's rights, without a
sandbox.
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
_FIRST_OUTPUT_SECONDS = 3  # for a program to print the first piece of an answer
_POLL_SECONDS = 0.01
_MAX_SHOWN_CHARS = 600
_MAX_TRACEBACK_LINES = 7


class NotYet(Exception):
    """Raised if a program lacks something: the problem, and hints of increasing detail."""

    def __init__(self, problem: str, *hints: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.hints = hints


class Demo(Struct, frozen=True):
    """A run of the reader's program that `refold learn run` shows.

    `words` are the arguments of the program, `typed` the lines that the reader is asked to
    type, and `replies` the answers of the model. Before the run, `files` are written to the
    folder, and the journal of a session with the answers `session` is written to session.jsonl.
    """

    replies: tuple[ModelReply, ...]
    words: tuple[str, ...] = ()
    session: tuple[ModelReply, ...] = ()
    typed: tuple[str, ...] = ()
    files: Mapping[str, str] = {}

    def written_files(self) -> dict[str, str]:
        """Return the path and the text of each file that the model writes with `write_file`."""
        calls = [call for reply in self.replies for call in reply.calls]
        return {
            str(call.arguments["path"]): str(call.arguments["content"])
            for call in calls
            if call.tool == "write_file"
        }


class ProgramRun(Struct, frozen=True):
    """The output and the exit code of a program, and what the model server received.

    `requests` are the bodies of accepted requests, `usages` the tokens of their answers, and
    `refusals` the reasons why other requests were refused.
    """

    exit_code: int
    output: str
    errors: str
    requests: tuple[Json, ...]
    refusals: tuple[str, ...]
    usages: tuple[dict[str, int], ...]

    def expect_no_errors(self) -> None:
        """Raise `NotYet` if the last request has a tool result that begins with "Error"."""
        messages = self.messages(-1)
        results = [str(m.get("content")) for m in messages if m.get("role") == "tool"]
        error = next((text for text in results if text.startswith("Error")), "")
        expect(
            not error,
            f"A call failed. The model read {quote(error)}.",
            "run_tool makes a text of each exception, so that you see it only here.",
            "The text names the exception. In which function of yours was it raised?",
            "Call that function at the end of your program, outside of `try`, to see a traceback.",
        )

    def messages(self, number: int) -> list[Json]:
        """Return the messages of a request. The first request is number 0, the last one -1.

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


def write_file(path: Path, text: str) -> None:
    """Write a file of a lesson, and create its directory if necessary."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")


def make_session(
    folder: Path, *replies: ModelReply, python: Sequence[str] = OUR_PYTHON
) -> None:
    """Run a session of refold with these answers, and write its journal to session.jsonl."""
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
    """A copy of the reader's program in a temporary folder, where `run` starts it.

    Files that the program writes are there in the next run; the reader's own files are not
    touched. `python` is the command that starts Python.
    """

    def __init__(self, program: Path, python: Sequence[str] = OUR_PYTHON) -> None:
        self.folder = Path(mkdtemp(prefix="refold-lesson-"))
        self._name, self._python = program.name, python
        copyfile(program, self.folder / program.name)

    def close(self) -> None:
        rmtree(self.folder, ignore_errors=True)

    def write(self, name: str, text: str) -> None:
        write_file(self.folder / name, text)

    def read(self, name: str) -> str | None:
        """Return the text of a file in the program's folder; None if it cannot be read."""
        try:
            return (self.folder / name).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None

    def journal(self) -> list[Json]:
        """Return the events in the program's journal.jsonl.

        Raises `NotYet` if it cannot be read.
        """
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
        """Run a session of refold with these answers; its journal becomes session.jsonl."""
        make_session(self.folder, *replies, python=self._python)

    def session_events(self) -> list[Json]:
        """Return the events of the newest refold session that the program has started.

        Raises `NotYet` if there is none.
        """
        journals = [*(self.folder / _HOME_NAME / "sessions").glob("*/events.jsonl")]
        expect(
            journals,
            "Your program started no session of refold.",
            "A session begins with the first message to an agent.",
            "agent.run(…) sends one.",
            "result = agent.run(question)",
        )
        # Of two sessions of the same second, the ids do not say which was started first.
        newest = max(journals, key=lambda path: path.stat().st_mtime_ns)
        rows = newest.read_text(encoding="utf-8").splitlines()
        return [json.loads(row) for row in rows]

    def run(
        self, *replies: ModelReply, words: Sequence[str] = (), typed: Sequence[str] = ()
    ) -> ProgramRun:
        """Run the program with the arguments `words`, and type the lines `typed`.

        Raises `NotYet` if the program fails or hangs.
        """
        with model_server(*replies) as model:
            process = self._start(model, words, stdin=subprocess.PIPE)
            keys = "".join(f"{line}\n" for line in typed).encode()
            try:
                out, err = process.communicate(keys, timeout=MAX_RUN_SECONDS)
            except subprocess.TimeoutExpired:
                _kill(process)
                out, err = process.communicate()
                raise _hang_error(typed, out) from None
            finally:
                _kill(process)  # kills also the commands that it has started
            run = ProgramRun(
                process.returncode, out.decode(errors="replace"), err.decode(errors="replace"),
                tuple(model.requests), tuple(model.refusals), tuple(model.usages),
            )  # fmt: skip
        _expect_success(run, self._name)
        must_ask_model = bool(replies) and self._name == PROGRAM_NAME
        expect(
            run.requests or not must_ask_model,
            f"Your program exited without asking the model. It printed {quote(run.output)}.",
            "call_model sends a request to the address in MODEL_URL: it must be called, not only defined.",
            "Which function calls it, and is that one called? A function whose body is `pass` does nothing.",
            "Print its name at the beginning of each function, to see which of them run.",
        )
        return run

    def kill_when(
        self, condition: Callable[[Path], bool], *replies: ModelReply, typed: Sequence[str]
    ) -> bool:
        """Start the program, type the lines `typed`, and kill it once `condition` is true.

        `condition` gets the program's folder. Return False if it was not true before the program
        exited, asked the model more often than there are `replies`, or had run for
        `MAX_RUN_SECONDS`.
        """
        with model_server(*replies) as model:
            process = self._start(model, (), stdin=subprocess.PIPE)
            stdin = cast("IO[bytes]", process.stdin)
            with suppress(BrokenPipeError):  # the program has exited
                stdin.write("".join(f"{line}\n" for line in typed).encode())
                stdin.flush()  # stdin stays open, because the program may wait for more lines
            deadline = time.monotonic() + MAX_RUN_SECONDS
            is_true = False
            while not is_true and process.poll() is None and time.monotonic() < deadline:
                # read first, so that the condition is tested once more after the last request
                script_has_ended = len(model.requests) > len(replies)
                time.sleep(_POLL_SECONDS)
                with suppress(OSError):  # the program may be writing the file
                    is_true = condition(self.folder)
                if script_has_ended:
                    break
            _kill(process)
            with suppress(BrokenPipeError):
                process.communicate()
            return is_true

    def first_output_of(self, reply: ModelReply, *, words: Sequence[str]) -> str:
        """Return what the program prints after only the first piece of the model's `reply`.

        The model sends the other pieces when the program has printed something, or after
        `_FIRST_OUTPUT_SECONDS`; then "" is returned.
        """
        model_has_begun, program_has_printed = Event(), Event()

        def wait_for_output() -> None:
            """Delay the model's second piece until the program has printed the first."""
            model_has_begun.set()
            program_has_printed.wait(MAX_RUN_SECONDS)  # it is set below in any case

        with model_server(reply) as model:
            process = self._start(model, words, stdin=subprocess.DEVNULL)
            model.after_first_piece = wait_for_output
            reader = cast("IO[bytes]", process.stdout)
            early = bytearray()

            def read_first() -> None:
                early.extend(os.read(reader.fileno(), 1000))
                program_has_printed.set()

            Thread(target=read_first, daemon=True).start()
            came_early = model_has_begun.wait(MAX_RUN_SECONDS)
            came_early = came_early and program_has_printed.wait(_FIRST_OUTPUT_SECONDS)
            program_has_printed.set()
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
    """Kill the program and all commands that it has started."""
    signal_group(process.pid, signal.SIGKILL)


def start_program(
    program: Path, url: str, words: Sequence[str], **options: "Unpack[Start]"
) -> "subprocess.Popen[bytes]":
    """Start a program in its folder with refold's Python, and return its process.

    If the program uses refold, refold's home is in the folder, and the model is
    `lesson/scripted`.
    """
    return _start([*OUR_PYTHON, program.name, *words], program.parent, url, **options)


def start_page(folder: Path, url: str) -> "subprocess.Popen[bytes]":
    """Start `refold serve` with the sessions of the programs in `folder`. Return the process.

    The settings are passed as environment variables, because a program that is started later
    overwrites the settings file with the address of another model.
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
    """Start a command in `folder`, with refold's home there and the model at `url`.

    `how` are further options of `programs.start`.
    """
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
    """Return the environment for a lesson's program, in which Python behaves alike everywhere.

    Variables of Python are replaced, and no proxy is used for loopback.
    """
    kept = {name: value for name, value in environ.items() if not name.startswith("PYTHON")}
    return {
        **kept,
        "PYTHONUTF8": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "no_proxy": "127.0.0.1",
    }


def expect(holds: object, problem: str, *hints: str) -> None:
    """Raise `NotYet` with this problem and these hints if `holds` is false."""
    if not holds:
        raise NotYet(problem, *hints)


def printed_number(output: str, number: int) -> bool:
    """Return whether the number is in the output, other than as a part of a longer number."""
    return re.search(rf"(?<!\d){number}(?!\d)", output) is not None


def quote(text: str) -> str:
    """Return the text in quotes, cut if it is too long."""
    text = text.strip()
    return repr(text if len(text) <= _MAX_SHOWN_CHARS else text[:_MAX_SHOWN_CHARS] + "…")


def call(tool: str, **arguments: object) -> ModelReply:
    """Return an answer of the model that calls one tool with these arguments."""
    return ModelReply(calls=(RequestedCall(tool, arguments),))


def _hang_error(typed: Sequence[str], out: bytes) -> NotYet:
    """Return the error for a program that did not end; `out` is what it had printed."""
    shown = quote(out.decode(errors="replace"))
    hint = "The program must end after the answer."
    if typed:
        hint = "A program that reads input must end at the end of the input (Ctrl+D)."
    return NotYet(
        f"Your program did not end within {MAX_RUN_SECONDS} seconds. It printed {shown}.",
        "Does a loop have an end?",
        hint,
        "try: text = input() … except EOFError: return",
    )


_FOLDER_OF_FILE_PATTERN = re.compile(r'(?<=^  File ").*/')


def _own_traceback(errors: str, program_name: str) -> str:
    """Return the end of a traceback, without the frames outside of the reader's program.

    The program's path is shortened to its name, because the folder differs in each run.
    """
    lines: list[str] = []
    is_kept = True
    for line in errors.strip("\n").splitlines():
        if line.startswith('  File "'):
            # this line and the code below it, which is indented further
            is_kept = f'{program_name}"' in line
        elif not line.startswith(" "):  # the heading, or the error itself
            is_kept = True
        if is_kept:
            lines.append(_FOLDER_OF_FILE_PATTERN.sub("", line))
    return "\n".join(lines[-_MAX_TRACEBACK_LINES:])


def _expect_success(run: ProgramRun, program_name: str) -> None:
    """Raise `NotYet` if the model refused a request, or the program exited with an error."""
    if run.refusals:
        raise NotYet(
            f"The model refused a request: {run.refusals[0]}.",
            "The message says which part of the request is wrong.",
            "Print the request before you send it: print(json.dumps(request, indent=2)).",
            "Compare it with the request in the text of this lesson.",
        )
    if run.exit_code:
        error_lines = run.errors.strip().splitlines()
        error = error_lines[-1] if error_lines else "(it printed no error)"
        hint = "Run it yourself with `refold learn run` and the number of this lesson."
        if "None" in error:
            hint = "A function that ends without `return` gives None: which one is it here?"
        raise NotYet(
            f"Your program exited with code {run.exit_code}: {error}",
            "The last line of the error says what went wrong, the lines above it where:\n"
            + _own_traceback(run.errors, program_name),
            hint,
            "Compare your program with the text of this lesson, function by function.",
        )
