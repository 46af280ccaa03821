"""Makes the run that docs/explain/one-sentence.md follows: one message, a model from a script.

refold really runs, with its protocol over HTTP, its journal, its tools and its sandbox. Ids, times
and directories differ between two runs, so the tables leave them out and can be compared.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from refold.learn.model_server import ModelReply, RequestedCall, model_server

MESSAGE = "create a hello world script"
SCRIPT = 'print("Hello, world!")\n'
COMMAND = "python3 hello.py"
REPLIES = (
    ModelReply(
        "I write the script and run it.",
        (RequestedCall("write_file", {"path": "hello.py", "content": SCRIPT}),),
    ),
    ModelReply("", (RequestedCall("bash", {"command": COMMAND}),)),
    ModelReply("`hello.py` prints: Hello, world!"),
)
CONFIG = """\
[providers.lesson]
wire = "openai-chat"
base_url = "{url}"
[permissions]
allow = ["bash({command})"]
"""
MAX_VALUE_CHARS = 70
# The fields of events and documents that the tables show. They are alike in each run.
EVENT_FIELDS = {
    "SessionStarted": (),
    "ModeChanged": ("mode",),
    "Said": ("text", "sender"),
    "TurnStarted": ("why",),
    "SystemPromptSet": ("model", "agent"),
    "Delivered": ("messages",),
    "Judged": ("call_id", "verdict", "rule"),
    "Started": ("call_id",),
    "Ended": ("call_id", "outcome", "text"),
    "TurnEnded": ("outcome",),
}
FRAME_FIELDS = (
    "text",
    "name",
    "tool",
    "verdict",
    "rule",
    "outcome",
    "path",
    "kind",
    "stop",
)


class RecordedRun(NamedTuple):
    """The requests to the model, the journal, the documents on stdout, the imported modules."""

    requests: list[dict[str, Any]]
    events: list[dict[str, Any]]
    frames: list[dict[str, Any]]
    modules: frozenset[str]


@cache
def recorded_run() -> RecordedRun:
    with tempfile.TemporaryDirectory() as folder, model_server(*REPLIES) as model:
        home, workspace = Path(folder) / "home", Path(folder) / "work"
        home.mkdir()
        workspace.mkdir()
        (home / "config.toml").write_text(
            CONFIG.format(url=model.url, command=COMMAND), "utf-8"
        )
        command = [sys.executable, "-X", "importtime", "-m", "refold", "-p", MESSAGE]
        flags = "--model lesson/scripted --permission-mode accept-edits --include-partial-messages"
        done = subprocess.run(
            [*command, *flags.split(), "--output-format", "stream-json"],
            cwd=workspace,
            env={**os.environ, "REFOLD_HOME": str(home), "no_proxy": "127.0.0.1"},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        if done.returncode:
            raise RuntimeError(
                f"refold ended with {done.returncode}: {done.stderr[-2000:]}"
            )
        (journal,) = home.glob("sessions/*/events.jsonl")
        modules = re.findall(r"\| +(refold[\w.]*)$", done.stderr, re.MULTILINE)
        return RecordedRun(
            model.requests,
            rows(journal.read_text("utf-8")),
            rows(done.stdout),
            frozenset(modules),
        )


def rows(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def events() -> str:
    """Return the journal of the run: each event, its writer, and its fields."""
    table = [
        f"| {event['seq']} | `{event['kind']}` | {event['by'].partition(':')[0]} | {event_text(event)} |"
        for event in recorded_run().events
    ]
    return "\n".join(["| seq | event | by | with |", "|---|---|---|---|", *table])


def event_text(event: Mapping[str, Any]) -> str:
    data = event["data"]
    match event["kind"]:
        case "ModelAnswered":
            return "; ".join(part_text(part) for part in data["message"]["parts"])
        case "Checkpointed":
            return fields({"changed": [Path(path).name for path, _ in data["changed"]]})
        case kind:
            return fields({name: data[name] for name in EVENT_FIELDS.get(kind, ())})


def part_text(part: Mapping[str, Any]) -> str:
    if part["type"] == "call":
        return f"call {code(part['name'])} {fields(part['arguments'])}"
    return f"text {code(part['text'])}"


def requests() -> str:
    """Return the conversation in each request, one line for each message."""
    result = list[str]()
    for number, request in enumerate(recorded_run().requests, 1):
        result.append(f"request {number}")
        result += [f"  {message_text(message)}" for message in request["messages"]]
    return "\n".join(["```text", *result, "```"])


def message_text(message: Mapping[str, Any]) -> str:
    text = str(message["content"] or "")
    if message["role"] == "system":
        text = f"{text.split('.')[0]}. …"
    calls = [
        f"call {call['function']['name']}({short(call['function']['arguments'])})"
        for call in message.get("tool_calls", ())
    ]
    pieces = [short(text), *calls] if text else calls
    return f"{message['role']:<9} {'; '.join(pieces)}"


def frames() -> str:
    """Return what a client of the session got: documents by the event that they belong to."""
    result = ["| seq | documents |", "|---|---|"]
    documents = join_pieces(recorded_run().frames[:-1])
    for seq, group in groupby(
        documents, lambda item: item.get("seq", item.get("after", 0))
    ):
        result.append(
            f"| {seq or ''} | {'<br>'.join(frame_text(item) for item in group)} |"
        )
    return "\n".join(result)


def join_pieces(documents: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Join the pieces of a text in one document, because the time decides where it is cut."""
    for kind, group in groupby(documents, lambda item: item["type"]):
        first, *rest = group
        if kind == "text_delta":
            yield {**first, "text": "".join(item["text"] for item in (first, *rest))}
        elif kind != "tool_progress":
            yield from (first, *rest)


def frame_text(frame: Mapping[str, Any]) -> str:
    shown = {name: frame[name] for name in FRAME_FIELDS if frame.get(name)}
    if "path" in shown:
        shown["path"] = Path(shown["path"]).name
    return f"`{frame['type']}` {fields(shown)}".rstrip()


def fields(data: Mapping[str, object]) -> str:
    return ", ".join(f"{name} {code(value)}" for name, value in data.items())


def code(value: object) -> str:
    """Return a value as code in a table."""
    text = value if isinstance(value, str) else json.dumps(value)
    text = short(text).replace("|", "\\|") or '""'
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def short(text: str) -> str:
    text = text.replace("\n", "⏎")
    return text if len(text) <= MAX_VALUE_CHARS else text[: MAX_VALUE_CHARS - 1] + "…"


def packages() -> str:
    """Return the packages that the run imported, and those that it did not need."""
    folder = Path(__file__).parents[1] / "src/refold"
    all_packages = {path.parent.name for path in folder.glob("*/__init__.py")}
    loaded = {
        name.split(".")[1] for name in recorded_run().modules if "." in name
    } & all_packages
    return "\n".join(names_of(loaded, all_packages))


def names_of(loaded: set[str], all_packages: set[str]) -> Iterator[str]:
    for title, names in (("Imported", loaded), ("Not needed", all_packages - loaded)):
        yield f"{title}: {', '.join(f'`{name}/`' for name in sorted(names))}."
        yield ""
