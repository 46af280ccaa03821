"""Programs generated from declared agents do what refold does with the same model."""

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from refold.cli.main import main
from refold.declared.parts import fakes
from refold.testing.providers import Reply
from refold.testing.wire_answers import answer

SEED = Path(__file__).with_name("data") / "agent_loop.pl"
# The model finds a file, and writes, reads, changes and prints another one.
STEPS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("read_file", {"path": "missing.txt"}),
    ("write_file", {"path": "sub/a.txt", "content": "one\ntwo\nthree\n"}),
    ("read_file", {"path": "sub/a.txt", "first": 2, "count": 1}),
    ("edit_file", {"path": "sub/a.txt", "old": "two", "new": "2\n2b"}),
    ("bash", {"command": "cat sub/a.txt; exit 3"}),
    ("write_file", {"path": "sub/a.txt", "content": "new\n"}),
    ("bash", {"command": "true"}),
)
TASK = "Do: the task"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("REFOLD_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("no_proxy", "*")
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.setenv(name, "key")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_agents(text: str) -> None:
    Path("agents.toml").write_text(text)


def generate(name: str) -> Path:
    """Return the program of an agent in agents.toml."""
    out = Path("out") / name
    assert (
        main(["spec", "generate", name, "--agents", "agents.toml", "--out", str(out)]) == 0
    )
    (program,) = [path for path in out.glob("*.py") if not path.name.startswith("test_")]
    return program.absolute()


def run(program: Path, *text: str, typed: str = "", cwd: str = "theirs") -> str:
    """Run the program, which must succeed, and return its output. `typed` are the answers
    of the user.
    """
    Path(cwd).mkdir(exist_ok=True)
    done = subprocess.run(
        [sys.executable, "-S", "-I", str(program), *text],
        cwd=cwd,
        input=typed,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def run_refold() -> None:
    """refold does the same task in a directory of its own."""
    Path("ours").mkdir()
    arguments = ["--agents", "../agents.toml", "--agent", "one", "--yolo", "-p", TASK]
    done = subprocess.run(
        [sys.executable, "-m", "refold", *arguments],
        cwd="ours",
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr


def files_in(folder: str) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in Path(folder).rglob("*")
        if path.is_file()
    }


_MARK = ', "cache_control": {"type": "ephemeral"}'
WIRES: dict[str, Any] = {
    "openai-chat": (fakes.call_reply_openai_chat, fakes.text_reply_openai_chat),
    "anthropic": (fakes.call_reply_anthropic, fakes.text_reply_anthropic),
    "ollama": (fakes.call_reply_ollama, fakes.text_reply_ollama),
}


@contextmanager
def serve_fake_api(wire: Any) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield a fake API, streaming or not as it is asked. Its address, and the bodies it
    got.
    """
    bodies: list[dict[str, Any]] = []
    call_reply, text_reply = WIRES[wire]

    class FakeModel(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if "messages" not in body:  # Ollama is asked about the model
                self.reply(b"{}", 404)
                return
            step = len(bodies)
            bodies.append(body)
            name, arguments = STEPS[step] if step < len(STEPS) else ("", {})
            if not body.get("stream"):
                result = call_reply(name, arguments) if name else text_reply("Done.")
                self.reply(re.sub('"(c|call-)0"', f'"call-{step}"', result).encode())
                return
            reply = Reply("", ((name, json.dumps(arguments)),)) if name else Reply("Done.")
            content = answer(wire, reply).body
            self.reply(content if isinstance(content, bytes) else b"")

        def reply(self, content: bytes, status: int = 200) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            """A test prints nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), FakeModel)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", bodies
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def without_system(body: dict[str, Any]) -> list[dict[str, Any]]:
    return [message for message in body["messages"] if message["role"] != "system"]


def normalize_requests(bodies: list[dict[str, Any]]) -> list[Any]:
    """Return the model, the messages and the tools of requests.

    Calls have other ids, and JSON in a text can have other white space. The system prompt
    differs: the program says where it works in fewer words. refold marks what its server
    should cache, streams, and offers the tool multi_edit too.
    """
    normalized_requests = list[Any]()
    for body in bodies:
        text = json.dumps(without_system(body))
        ids = dict.fromkeys(
            re.findall(r'"(?:id|tool_use_id|tool_call_id)": "([^"]+)"', text)
        )
        for number, result in enumerate(ids):
            text = text.replace(f'"{result}"', f'"id-{number}"')
        messages = json.loads(text.replace(_MARK, ""))
        for call in (c for m in messages for c in m.get("tool_calls", ())):
            if isinstance(call["function"]["arguments"], str):
                call["function"]["arguments"] = json.loads(call["function"]["arguments"])
        names = [t.get("name") or t["function"]["name"] for t in body["tools"]]
        normalized_requests.append(
            (body["model"], messages, [n for n in names if n != "multi_edit"])
        )
    return normalized_requests


MODES = [
    "",
    'context_mode = "fresh"\n',
    'context_mode = "sliding"\nmax_messages = 3\n',
    'context_mode = "summarize"\nmax_messages = 1\n',
    'context_mode = "sliding"\nmax_messages = 3\ncontext_format = "markdown"\n',
    'context_format = "xml"\n',
]


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.slow
def test_generated_program_and_refold_send_an_api_the_same_messages(
    wire: str, mode: str
) -> None:
    with serve_fake_api(wire) as (url, bodies):
        write_agents(
            f'[agents.one]\nbackend = "{wire}"\nmodel = "m-1"\nbase_url = "{url}"\n{mode}'
            'tools = ["read", "write", "edit", "bash"]\nauto_tools = true\n'
        )
        run_refold()
        expected = normalize_requests(bodies)
        bodies.clear()
        run(generate("one"), TASK)

    assert normalize_requests(bodies) == expected
    assert len(bodies) == len(STEPS) + 1
    assert files_in("theirs") == files_in("ours") == {"sub/a.txt": "new\n"}


@pytest.mark.slow
def test_generated_program_shows_the_error_of_a_call_with_wrong_arguments(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys.modules[__name__], "STEPS", [("bash", {"cmd": "ls"})])
    with serve_fake_api("openai-chat") as (url, _):
        write_agents(
            f'[agents.one]\nbackend = "openai-chat"\nmodel = "m-1"\nbase_url = "{url}"\n'
            'tools = ["bash"]\n'
        )
        text = run(generate("one"), "Go.")

    assert "[bash failed: bash needs the argument 'command', of type string.]" in text


# Prints what its arguments ask for, and keeps the prompt: {prompt, response in each step}.
FAKE_PROGRAM = """#!{python} -S
import json, pathlib, sys
place = pathlib.Path(__file__).parent
prompt = sys.stdin.read()
turn = len(list(place.glob("prompt*")))
(place / f"prompt{{turn}}").write_text(prompt)
(place / "argv").write_text(json.dumps(sys.argv[1:]))
text = json.loads((place / "replies").read_text())[turn]
kind = {kind!r}
if kind == "claude" and "stream-json" in sys.argv:
    kind = "claude lines"
print({{
    "claude": json.dumps({{"result": text, "usage": {{"output_tokens": 5}}}}),
    "claude lines": json.dumps({{"type": "result", "is_error": False, "result": text}}),
    "codex": json.dumps({{"type": "item.completed", "item": {{"type": "agent_message", "text": text}}}})
        + "\\n" + json.dumps({{"type": "turn.completed", "usage": {{}}}}),
    "gemini": json.dumps({{"type": "message", "role": "assistant", "content": text}})
        + "\\n" + json.dumps({{"type": "result", "status": "success"}}),
    "plain": text,
}}[kind])
"""


def fake_program(name: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a program on the PATH that plays the steps. Where it is."""
    place = Path("bin")
    place.mkdir()
    lines = [
        f"I call it.\n\n<tool_call>\n{encode_call(name, arguments)}\n</tool_call>"
        for name, arguments in STEPS
    ]
    (place / "replies").write_text(json.dumps([*lines, "Done."]))
    (place / name).write_text(FAKE_PROGRAM.format(python=sys.executable, kind=kind))
    (place / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{place.absolute()}{os.pathsep}{os.environ['PATH']}")
    return place


def encode_call(name: str, arguments: dict[str, Any]) -> str:
    """Return a call as refold writes it to the conversation; the program keeps the model's
    words.
    """
    return (
        f'{{"name": "{name}", "arguments": {json.dumps(arguments, separators=(",", ":"))}}}'
    )


def prompts(place: Path) -> list[str]:
    """Return what the program was given so far; forgotten then."""
    paths = sorted(place.glob("prompt*"))
    texts = [item.read_text() for item in paths]
    for path in paths:
        path.unlink()
    return texts


def arguments(place: Path) -> list[str]:
    """Return the arguments of the last run, without directories. The program reads one
    document, not lines.
    """
    words = json.loads((place / "argv").read_text())
    bare = [re.sub(r"/[\w./-]*/", "", word) for word in words]
    flags = ("--verbose", "--include-partial-messages")
    return sorted(w for w in bare if w not in (*flags, "json", "stream-json"))


def conversation(prompt: str) -> str:
    """Return the prompt from the first message of the user on: what is before differs."""
    return prompt[prompt.index(TASK) :]


CLI = {
    "claude-code": ("claude", "claude"),
    "codex-cli": ("codex", "codex"),
    "gemini-cli": ("gemini", "gemini"),
    "ollama-cli": ("ollama", "plain"),
}


@pytest.mark.parametrize("backend", CLI)
@pytest.mark.slow
def test_generated_program_and_refold_send_a_command_line_the_same_prompts(
    backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = fake_program(*CLI[backend], monkeypatch)
    write_agents(
        f'[agents.one]\nbackend = "{backend}"\nmodel = "m-1"\n'
        'tools = ["read", "write", "edit", "bash"]\nauto_tools = true\n'
    )
    run_refold()
    expected = [conversation(text) for text in prompts(place)]
    switched_off = arguments(place)
    run(generate("one"), TASK)

    assert arguments(place) == switched_off
    assert [conversation(text) for text in prompts(place)] == expected
    assert len(expected) == len(STEPS) + 1
    assert files_in("theirs") == files_in("ours") == {"sub/a.txt": "new\n"}


@pytest.mark.parametrize("mode", ["continue", "fresh", "sliding", "summarize"])
@pytest.mark.parametrize("form", ["plain", "markdown", "json", "xml"])
@pytest.mark.slow
def test_generated_program_and_refold_agree_in_each_context_mode_and_format(
    mode: str, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = fake_program("prog", "plain", monkeypatch)
    write_agents(
        '[agents.one]\ncommand = ["prog", "{system_file}"]\nown_tools = "none"\n'
        f'context_mode = "{mode}"\ncontext_format = "{form}"\nmax_messages = 3\n'
        'tools = ["read", "write", "edit", "bash"]\nauto_tools = true\n'
    )
    run_refold()
    expected = prompts(place)
    run(generate("one"), TASK)

    assert prompts(place) == expected
    assert len(expected) == len(STEPS) + 1
