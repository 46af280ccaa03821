"""What is imported before anything happens, because imports are most of a start.

Each module on these lists takes longer to import than all of our own code.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import anyio
import pexpect
import pytest

from refold.testing.providers import Reply
from refold.testing.wire_answers import answer
from refold.testing.wire_server import wire_server

HEAVY = {
    "anthropic", "apsw", "concurrent.futures.process", "importlib.metadata", "jsonschema",
    "keyring", "markdown_it", "referencing", "refold.provider.cassette",
    "refold.provider.command.backends", "refold.provider.fallback",
    "multiprocessing", "numpy", "ollama", "openai", "prompt_toolkit", "pydantic",
    "pygments", "pypdfium2", "rapidfuzz", "requests", "rich", "sqlite3", "tree_sitter",
    "unittest", "xllamacpp", "email.mime", "xml", "refold.testing.conformance", "pytest",
}  # fmt: skip
FOR_A_VERSION = HEAVY | {
    "anyio", "asyncio", "email", "httpx", "httpx2", "msgspec", "ssl", "socket", "tempfile",
    "refold.app.app", "refold.session", "refold.engine", "refold.provider", "refold.tools",
    "refold.journal",
}  # fmt: skip
# Modules that only some sessions need, or no session before the first answer.
LATER = {
    "concurrent.futures.thread", "encodings.idna", "ctypes", "difflib", "refold.claims", "refold.config.toml_text", "tomlkit",
    "refold.engine.summarize",
    "refold.place.quarantine", "refold.session.rewind", "refold.place.atomic_write",
    "refold.provider.text_protocol.parse", "refold.provider.text_protocol.delimiters",
    "refold.skills.slash_commands", "refold.skills.templates", "secrets",
    "refold.app.session_hooks", "refold.engine.run_hooks",
    "refold.engine.policies.hooked_turn", "refold.hooks",
}  # fmt: skip
FOR_A_TASK = (
    HEAVY
    | LATER
    | {"httpx", "httpx2", "httpcore", "httpcore2", "refold.views.call_summary"}
)
# Modules that a call needs, and an answer in text does not.
FOR_A_CALL = {
    "refold.agents.relay", "refold.engine.calls", "refold.permissions.decide",
    "refold.permissions.path_patterns", "refold.permissions.command_verdict", "refold.permissions.shell.script",
    "refold.place.spawn", "refold.place.supervise", "tree_sitter",
    "refold.client.permissions", "refold.cli.sessions", "refold.views.system_prompt_diff",
}  # fmt: skip
MOST = 258  # modules of ours, from the first line to the last word; fewer is better
FOR_A_PROMPT = (HEAVY - {"prompt_toolkit", "unittest", "xml"}) | {
    "h11", "refold.provider.http", "refold.provider.openai_chat",
    "refold.provider.text_protocol.parse",
}  # fmt: skip
FOR_A_NAME = HEAVY | {
    "anyio", "asyncio", "refold.app.app", "refold.place.sandbox",
    "refold.session", "refold.tools.builtin",
}  # fmt: skip
# Where the machine has no bubblewrap, asking for Landlock would load `ctypes`.
UNTRIED = {"REFOLD_SANDBOX__PROFILE": "off"}
REFOLD = (sys.executable, "-X", "importtime", "-m", "refold")


def list_loaded_modules(
    directory: Path, *arguments: str, environ: Mapping[str, str] = MappingProxyType({})
) -> set[str]:
    """Return the modules that a run of `refold` loads, as Python itself reports them."""
    done = subprocess.run(
        [*REFOLD, *arguments],
        cwd=directory,
        env={**os.environ, **environ},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return parse_import_times(done.stderr)


def parse_import_times(text: str) -> set[str]:
    rows = [r for r in text.splitlines() if r.startswith("import time:")]
    return {row.rsplit("|", 1)[1].strip() for row in rows[1:]}


def loaded_among(listed: set[str], modules: set[str]) -> list[str]:
    return sorted(
        m for m in modules if any(m == x or m.startswith(x + ".") for x in listed)
    )


def test_printing_the_version_imports_no_heavy_module(tmp_path: Path) -> None:
    modules = list_loaded_modules(tmp_path, "--version")

    assert loaded_among(FOR_A_VERSION, modules) == []


def test_a_scripted_answer_imports_no_terminal_or_network_module(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"text": "Good morning."}), encoding="utf-8")

    modules = list_loaded_modules(
        tmp_path, "-p", "hello", "--script", str(script), environ=UNTRIED
    )

    assert loaded_among(FOR_A_TASK, modules) == []


def test_a_text_answer_imports_no_module_for_unused_features(tmp_path: Path) -> None:
    async def run() -> set[str]:
        async with wire_server(answer("openai-chat", Reply("Good morning."))) as server:
            environ = UNTRIED | {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "nobody"}
            task = ("-p", "hello", "-m", "openai-chat/some")
            return await anyio.to_thread.run_sync(
                lambda: list_loaded_modules(tmp_path, *task, environ=environ)
            )

    modules = anyio.run(run)

    ours = [name for name in modules if name.split(".")[0] == "refold"]
    assert "refold.provider.openai_chat" in modules
    assert loaded_among(FOR_A_TASK | FOR_A_CALL, modules) == []
    assert len(ours) <= MOST


def test_completing_an_agent_name_imports_no_tools(tmp_path: Path) -> None:
    line = "refold --agent "
    tab = {
        "_ARGCOMPLETE": "1", "_ARGCOMPLETE_STDOUT_FILENAME": str(tmp_path / "offered"),
        "COMP_LINE": line, "COMP_POINT": str(len(line)),
    }  # fmt: skip
    modules = list_loaded_modules(tmp_path, environ=tab)

    assert "refold.agents.registry" in modules
    assert loaded_among(FOR_A_NAME, modules) == []


@pytest.mark.slow
def test_the_prompt_is_shown_before_model_modules_are_imported(tmp_path: Path) -> None:
    path = tmp_path / "told"
    command = " ".join((*REFOLD, "-m", "openai-chat/some", f"2>{path}"))
    shell: pexpect.spawn[str] = pexpect.spawn(
        "/bin/sh",
        ["-c", f"exec {command}"],
        cwd=str(tmp_path),
        env={**os.environ, "TERM": "xterm-256color", "OPENAI_API_KEY": "nobody"},
        encoding="utf-8",
    )

    shell.expect("› ")
    shell.kill(signal.SIGKILL)  # it would load more to leave

    modules = parse_import_times(path.read_text())
    assert "prompt_toolkit.application" in modules
    assert loaded_among(FOR_A_PROMPT, modules) == []


_ASKED = """
import sys
from refold import Agent
from refold.testing.providers import ScriptedProvider

class Watched(ScriptedProvider):
    def stream(self, request):
        print([name for name in ("mcp", "refold.mcp.connections") if name in sys.modules])
        return super().stream(request)

Agent(provider=Watched("Hi."), directory=sys.argv[1]).run("Hello.")
"""


def modules_at_the_first_request(directory: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", _ASKED, str(directory)],
        env={**os.environ, **UNTRIED},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


@pytest.mark.slow
def test_a_start_without_mcp_servers_imports_no_mcp_module(tmp_path: Path) -> None:
    names = list_loaded_modules(
        tmp_path, "-p", "--script", script_for(tmp_path), "Hello.", environ=UNTRIED
    )

    assert [name for name in names if name.startswith(("refold.mcp", "mcp"))] == []


@pytest.mark.slow
def test_the_mcp_sdk_is_not_loaded_before_the_first_request(
    tmp_path: Path, home: Path
) -> None:
    servers = {f"s{n}": {"command": "cat"} for n in range(13)}
    file = home / "refold" / "mcp_servers.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(servers))

    assert modules_at_the_first_request(tmp_path) == "['refold.mcp.connections']\n"


def script_for(directory: Path) -> str:
    file = directory / "answers.jsonl"
    file.write_text('{"text": "Hi."}\n')
    return str(file)
