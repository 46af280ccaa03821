"""Gives the embedded model ten trivial tasks through `refold -p`, as a person would.

    python -m bench.local_tasks [--model NAME] [--models DIRECTORY] [--calls HOW] [TASK …]

HOW is `schema` (refold's default: every answer must match a schema), `text` (the text protocol
over plain chat, with the model's own template), `auto` (the text protocol, once the model has
shown that it needs it) or `native` (the server's own tool calls, with a template that fits
the calls that this model writes).

Each task has a directory of its own. The files in it afterwards, or the answer, decide whether it
is solved. A task that loses text which had to stay is counted separately: to fail is allowed, to
destroy in silence is not.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import msgspec

from bench.table import show
from refold import Agent
from refold.app.models import ModelTraits
from refold.provider.api_client import Http
from refold.provider.error_mapping import Peer
from refold.provider.http import Bounds, HttpResponse
from refold.provider.local.models import LocalModel, find
from refold.provider.local.server import Serving, SharedServer
from refold.provider.openai_chat import OpenAIChat
from refold.provider.port import Delta, Provider, Request
from refold.provider.spec import Quirks
from refold.provider.text_protocol.selection import Tools, with_call_protocol
from refold.tools.builtin import builtin

SMALL = ModelTraits(small=True)
TEMPLATE = Path(__file__).with_name("calls_in_fences.jinja")

MAX_TASK_SECONDS = 240
DEFAULT_MODEL = "qwen2.5-coder-1.5b"
Judge = Callable[[Path, str], bool]


@dataclass(frozen=True)
class Task:
    """A task. `before` are the files in the directory, `keep` the words that must stay in them."""

    name: str
    asks: str
    judge: Judge
    before: Mapping[str, str] = field(default_factory=dict[str, str])
    keep: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outcome:
    task: Task
    good: bool
    lost: tuple[str, ...]
    seconds: float
    result: Mapping[str, Any]


def has_text(name: str, text: str) -> Judge:
    """Return a judge of whether the file has this text, apart from blanks at its ends."""
    return lambda directory, answer: (directory / name).read_text().strip() == text


def answers_number(number: str) -> Judge:
    return lambda here, answer: re.search(rf"(?<!\d){number}(?!\d)", answer) is not None


def adds_up(directory: Path, text: str) -> bool:
    check = "from add import add; assert (add(2, 3), add(-1, 1)) == (5, 0)"
    command = [sys.executable, "-c", check]
    return not subprocess.run(
        command, cwd=directory, capture_output=True, check=False
    ).returncode


def is_renamed(directory: Path, text: str) -> bool:
    return [p.name for p in directory.iterdir()] == ["report.txt"] and has_text(
        "report.txt", "figures of May"
    )(directory, text)


TASKS = (
    Task(
        "create",
        "Create a file greeting.txt with the text: good morning",
        has_text("greeting.txt", "good morning"),
    ),
    Task(
        "read a number",
        "Read secret.txt and tell me the number in it.",
        answers_number("58213"),
        {"secret.txt": "58213\n"},
        ("58213",),
    ),
    Task(
        "count files",
        "How many .log files are in this directory?",
        answers_number("4"),
        {**{f"run{n}.log": f"run {n}\n" for n in range(1, 5)}, "notes.md": "-\n"},
        ("run 1", "run 2", "run 3", "run 4"),
    ),
    Task(
        "mkdir",
        "Make a directory named archive with a file index.txt in it that says: empty",
        has_text("archive/index.txt", "empty"),
    ),
    Task(
        "run",
        "Run the command: expr 19 + 23 and tell me what it prints.",
        answers_number("42"),
    ),
    Task(
        "rename",
        "Rename draft.txt to report.txt.",
        is_renamed,
        {"draft.txt": "figures of May\n"},
        ("figures of May",),
    ),
    Task(
        "replace",
        "In menu.txt replace the word soup with salad. Leave the rest as it is.",
        has_text("menu.txt", "bread\nsalad\ncheese"),
        {"menu.txt": "bread\nsoup\ncheese\n"},
        ("bread", "cheese"),
    ),
    Task(
        "write a function",
        "Write a file add.py with a Python function add(a, b) that returns their sum.",
        adds_up,
    ),
    Task(
        "append",
        "Append the line 'closed' to the end of diary.txt and keep what is in it.",
        has_text("diary.txt", "opened\nwent well\nclosed"),
        {"diary.txt": "opened\nwent well\n"},
        ("opened", "went well"),
    ),
    Task(
        "which file contains",
        "Which file in this directory contains the word walnut? Tell me its name.",
        lambda here, answer: (
            "pantry.txt" in answer and not re.search("cellar|garden", answer)
        ),
        {
            "cellar.txt": "apples, wine\n",
            "garden.txt": "roses, beans\n",
            "pantry.txt": "flour, walnut, salt\n",
        },
        ("apples", "roses", "walnut"),
    ),
)


def run(task: Task, model: str, models: str, directory: Path, home: Path) -> Outcome:
    work = directory / "work"
    work.mkdir()
    for name, text in task.before.items():
        (work / name).write_text(text)
    refold = Path(sys.executable).parent / "refold"
    command = [refold, "-p", task.asks, "--yolo", "-m", f"local/{model}"]
    data = {"REFOLD_HOME": str(home), "HOME": str(directory), "PATH": os.environ["PATH"]}
    began = time.monotonic()
    done = subprocess.run(
        [*command, "--output-format", "json", "--timeout", str(MAX_TASK_SECONDS)],
        cwd=work,
        env={**data, "REFOLD_MODELS": models},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=2 * MAX_TASK_SECONDS,
        check=False,
    )
    seconds = time.monotonic() - began
    if not done.stdout.strip():
        raise RuntimeError(f"refold gave no result (exit {done.returncode}): {done.stderr}")
    result = json.loads(done.stdout)
    return Outcome(
        task, is_solved(task, work, result), find_lost_words(task, work), seconds, result
    )


async def run_in_process(
    task: Task, model: str, provider: Provider, directory: Path
) -> Outcome:
    """Run the task in this process, with this provider."""
    work = directory / "work"
    work.mkdir()
    for name, text in task.before.items():
        (work / name).write_text(text)
    agent = Agent(
        model=f"local/{model}",
        provider=provider,
        tools=SMALL.tools(tuple(builtin())),
        builtin=False,
        system_prompt=SMALL.system,
        directory=work,
        home=directory / "home",
        mode="bypass",
        settings={"limits.steps": 12},
    )
    data: dict[str, Any] = {"text": "", "reason": "out of time", "steps": 0}
    began = time.monotonic()
    async with agent.session() as session:
        with anyio.move_on_after(MAX_TASK_SECONDS):
            result = await session.run(task.asks)
            data = {
                "text": result.text,
                "reason": result.reason,
                "steps": sum(
                    m.message.role == "assistant"
                    for m in session.view.conversation.messages
                ),
            }
    seconds = time.monotonic() - began
    return Outcome(
        task, is_solved(task, work, data), find_lost_words(task, work), seconds, data
    )


class DeterministicHttp(Http):
    """Sets the temperature to 0, so the model gives the same answer to the same request."""

    @asynccontextmanager
    async def post(
        self, path: str, body: bytes, *, model: str = ""
    ) -> AsyncGenerator[HttpResponse, None]:
        body = body.removesuffix(b"}") + b',"temperature":0}'
        async with super().post(path, body, model=model) as answer:
            yield answer


@asynccontextmanager
async def open_provider(
    model: LocalModel, models: Path, calls: Tools
) -> AsyncGenerator[Provider, None]:
    """Yield the model behind the plain Chat wire. `calls` says how tools are described."""
    template = TEMPLATE.read_text() if calls == "native" else ""
    with tempfile.TemporaryDirectory(prefix="refold-model-") as logs:
        serving = Serving(keep=1.0, template=template)
        async with SharedServer(
            models / model.file, Path(logs), serving
        ).lease() as address:
            http = DeterministicHttp(
                Peer("the model", f"{address.url}/v1"),
                {"authorization": f"Bearer {address.key}", "connection": "close"},
                secret=address.key,
                bounds=Bounds(connect=5.0, idle=600.0),
            )
            chat = OpenAIChat(http, Quirks(output_limit="max_tokens"))
            try:
                yield LimitedProvider(
                    with_call_protocol(chat, "local", "openai-chat", model.name, calls)
                )
            finally:
                await http.aclose()


class LimitedProvider:
    """Limits every answer, because a small model may never stop."""

    def __init__(self, inner: Provider) -> None:
        self._inner = inner

    def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        return self._inner.stream(msgspec.structs.replace(request, max_output=512))


def is_solved(task: Task, workspace: Path, result: Mapping[str, Any]) -> bool:
    try:
        return task.judge(workspace, str(result["text"]))
    except (OSError, UnicodeDecodeError):
        return False


def find_lost_words(task: Task, workspace: Path) -> tuple[str, ...]:
    """Return the words of `keep` that are in no file any more."""
    files = [p for p in workspace.rglob("*") if p.is_file()]
    there = "\n".join(path.read_text(errors="replace") for path in files)
    return tuple(word for word in task.keep if word not in there)


def report(model: str, outcomes: Sequence[Outcome]) -> None:
    rows = [
        (
            outcome.task.name,
            _verdict(outcome),
            outcome.result["steps"],
            f"{outcome.seconds:.1f} s",
            " ".join(str(outcome.result["text"] or outcome.result["reason"]).split())[:50],
        )
        for outcome in outcomes
    ]
    show(f"local/{model}", ("", "steps", "time", "answer"), rows)
    good = sum(outcome.good for outcome in outcomes)
    destroyed = sum(bool(outcome.lost) for outcome in outcomes)
    seconds = sum(outcome.seconds for outcome in outcomes)
    print(f"\n{good} of {len(outcomes)} good, {destroyed} destructive, {seconds:.0f} s")


def _verdict(outcome: Outcome) -> str:
    if outcome.good:
        return "good"
    return "LOST" if outcome.lost else "bad"


async def run_all_in_process(
    model: str, models: Path, calls: Tools, tasks: Sequence[Task]
) -> list[Outcome]:
    outcomes: list[Outcome] = []
    async with open_provider(find(model), models, calls) as provider:
        for task in tasks:
            with tempfile.TemporaryDirectory(prefix="refold-task-") as directory:
                outcomes.append(
                    await run_in_process(task, model, provider, Path(directory))
                )
            print_outcome(outcomes[-1])
    return outcomes


def run_all(model: str, models: Path, tasks: Sequence[Task]) -> list[Outcome]:
    outcomes: list[Outcome] = []
    # All tasks have the same home, as a person has. So they share the server of the model.
    with tempfile.TemporaryDirectory(prefix="refold-home-") as home:
        for task in tasks:
            with tempfile.TemporaryDirectory(prefix="refold-task-") as directory:
                outcomes.append(run(task, model, str(models), Path(directory), Path(home)))
            print_outcome(outcomes[-1])
    return outcomes


def print_outcome(outcome: Outcome) -> None:
    print(f"{outcome.task.name}: {'good' if outcome.good else 'bad'}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default=DEFAULT_MODEL)
    parser.add_argument(
        "--models", default=os.environ.get("REFOLD_MODELS", ""), metavar="DIR"
    )
    parser.add_argument(
        "--calls", choices=["schema", "text", "auto", "native"], default="schema"
    )
    parser.add_argument("tasks", nargs="*", metavar="TASK", help="only these")
    args = parser.parse_args()
    models = Path(args.models or Path.home() / ".local/share/refold/models")
    wanted = [t for t in TASKS if not args.tasks or t.name in args.tasks]
    if args.calls == "schema":
        outcomes = run_all(args.model, models, wanted)
    else:
        os.environ["REFOLD_MODELS"] = str(models)  # the agent looks for the model there
        outcomes = anyio.run(run_all_in_process, args.model, models, args.calls, wanted)
    report(args.model, outcomes)


if __name__ == "__main__":
    main()
