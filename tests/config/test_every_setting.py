"""Every setting has its documented effect, wherever it is set.

Each is changed in the file, in the environment and by a flag, and a real session has to
show the change. A new setting needs a line in `CHANGED`.
"""

import io
import json
import os
import re
import socket
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import pytest
from _pytest.mark.structures import ParameterSet

from refold import Agent, Effect, Profile, Reply, tool
from refold.app.app import App
from refold.app.launch_options import LaunchOptions
from refold.app.memory_worker import find_title
from refold.app.project_memory import ProjectMemory
from refold.client.launch import Launch, OpenedSession
from refold.client.session import Session
from refold.config.load import flatten, load
from refold.config.paths import paths
from refold.config.settings import Provider, Settings
from refold.config.trusted_folders import TrustedFolders
from refold.console.bell import BELL_CHAR
from refold.console.capabilities import TerminalCapabilities
from refold.console.capabilities import detect_capabilities as look_at
from refold.console.printer import Printer
from refold.engine.world import Model
from refold.errors import BadInput, ToolFailed
from refold.headless.output import StreamWriter
from refold.headless.stdio import StdioClient
from refold.journal.events.kinds import Checkpointed, Compacted, Ended, Entry
from refold.journal.journal_directory import JournalDirectory
from refold.prompts.summary import summary_prompt
from refold.provider.local.models import find
from refold.provider.local.server import running_servers, stop
from refold.provider.port import Delta, Request
from refold.terminal.input.line_reader import LineReader
from refold.terminal.work import Work
from refold.testing.providers import Reply as Line
from refold.testing.providers import ScriptedConversations, ScriptedProvider
from refold.testing.wire_answers import answer
from refold.testing.wire_server import Answer, ReceivedRequest, wire_server
from refold.tools.code import diagnostics, symbols
from refold.tools.edit import write_file
from refold.tools.skills import read_skill
from refold.tools.todo import todo_write
from refold.tools.web import web_fetch, web_search
from refold.tui.image_painter import ImagePainter
from refold.tui.screen_modes import enter_sequence
from refold.values.messages import Text, ToolResult
from refold.values.usage import Usage
from tests.code.scripted_language_server import install
from tests.place.walled import needs_bubblewrap

Build = Callable[..., Agent]
Probe = Callable[[Build], Awaitable[object]]


@tool(Effect.LOOK)
async def look(n: int) -> Reply:
    """Look at something."""
    return Reply("x" * n)


@tool(Effect.RUN)
async def act(what: str) -> Reply:
    """Do something."""
    return Reply("done")


@tool(Effect.LOOK)
async def fail(n: int) -> Reply:
    """Fail."""
    raise ToolFailed("It is broken.")


def look_calls(count: int) -> list[list[tuple[str, str]]]:
    return [[("look", f'{{"n": {n}}}')] for n in range(count)]


async def run_turn(agent: Agent) -> str:
    """Return what a turn came to, in words."""
    async with agent.session() as session:
        result = await session.run("Go.")
    return f"{result.outcome}: {result.reason}"


# The effect of each setting on a session. ------------------------------------------------


async def count_responses(build: Build) -> object:
    provider = ScriptedProvider(*look_calls(60))
    await run_turn(build(provider=provider))
    return len(provider.heard) - 1  # the last is the summary


def task_call(prompt: str) -> tuple[str, str]:
    return "task", json.dumps({"prompt": prompt, "agent": "code"})


async def count_child_levels(build: Build) -> object:
    levels = {f"{n}.": [[task_call(f"{n + 1}.")], "Done."] for n in range(5)}
    cast = ScriptedConversations({"Go.": [[task_call("0.")], "Done."], **levels})
    await run_turn(build(provider=cast, tools=(), builtin=True))
    return len(cast.asked) - 1


async def max_concurrent_children(build: Build) -> object:
    names = [f"{n}." for n in range(10)]
    cast = ScriptedConversations({"Go.": [[task_call(name) for name in names], "Done."]}
                | {name: ["Done."] for name in names})  # fmt: skip
    cast.holding = set(names)
    agent = build(provider=cast, tools=(), builtin=True)
    async with agent.session() as session, anyio.create_task_group() as group:
        group.start_soon(session.run, "Go.")
        await cast.waits.wait()
        at_once = await _wait_until_stable(lambda: len(cast.asked) - 1)
        cast.holding.clear()
    return at_once


async def count_children(build: Build) -> object:
    names = [f"{n}." for n in range(201)]
    cast = ScriptedConversations({"Go.": [[task_call(name) for name in names], "Done."]}
                | {name: ["Done."] for name in names})  # fmt: skip
    await run_turn(build(provider=cast, tools=(), builtin=True))
    return len(cast.asked) - 1


async def may_lead_a_team(build: Build) -> object:
    provider = ScriptedProvider("Done.")
    await run_turn(build(provider=provider, tools=(), builtin=True))
    return "spawn_teammate" in {item.name for item in provider.heard[0].tools}


def prompt_limit(place: int) -> Probe:
    """Return the limits in the prompt of an agent that writes code, in their order."""

    async def probe(build: Build) -> object:
        provider = ScriptedProvider("Done.", "It is done.")
        await run_turn(make_coding_agent(build, provider))
        (line,) = re.findall(r"^Your limits: .*$", provider.heard[0].system, re.MULTILINE)
        return float(re.findall(r"[0-9.]*[0-9]", line)[place])

    return probe


async def runs_in_monty(build: Build) -> object:
    cell = "```python\nimport sys\nFINAL('Monty' in sys.version)\n```"
    provider = ScriptedProvider(cell)
    async with make_coding_agent(build, provider).session() as session:
        return (await session.run("Go.")).text


async def code_memory_limit(build: Build) -> object:
    cell = "```python\nx = bytearray(400 * 1024 * 1024)\nFINAL('enough')\n```"
    provider = ScriptedProvider(cell, "Not enough.", "Not enough.")
    async with make_coding_agent(build, provider).session() as session:
        return (await session.run("Go.")).text


async def count_equal_model_calls(build: Build) -> object:
    cell = "```python\nFINAL([lm('a text', 'q'), lm('a text', 'q')])\n```"
    provider = ScriptedProvider(cell, "First.", "Second.")
    await run_turn(make_coding_agent(build, provider))
    return len(provider.heard) - 1


async def count_model_calls_per_minute(build: Build) -> object:
    cell = "```python\nFINAL(map_lm(['a', 'b', 'c'], 'q'))\n```"
    provider = ScriptedProvider(cell, *["Yes."] * 3)
    agent = make_coding_agent(build, provider)
    async with agent.session() as session, anyio.create_task_group() as group:
        group.start_soon(session.run, "Go.")
        while len(provider.heard) < 2:
            await anyio.sleep(0.01)
        number = await _wait_until_stable(lambda: len(provider.heard) - 1)
        await session.interrupt()
    return number


def make_coding_agent(build: Build, provider: ScriptedProvider) -> Agent:
    return build(provider=provider, tools=(), builtin=True, settings={"agent": "rlm"})


async def _wait_until_stable(count: Callable[[], int]) -> int:
    """Return a number, once it has not changed for a while."""
    number, still = count(), 0
    while still < 10:
        await anyio.sleep(0.01)
        still = still + 1 if count() == number else 0
        number = count()
    return number


async def first_warning(build: Build) -> object:
    provider = ScriptedProvider(*look_calls(9), "Summary.")
    await run_turn(build(provider=provider, settings={"limits.steps": 8}))
    result = [
        any("more answers are allowed" in p.text for s in request.messages
            for p in s.message.parts if isinstance(p, Text))
        for request in provider.heard
    ]  # fmt: skip
    return 8 - result.index(True)


async def continuations(build: Build) -> object:
    provider = ScriptedProvider(*[Line("so", stop="length")] * 9)
    await run_turn(build(provider=provider))
    return len(provider.heard) - 1


async def count_repeated_responses(build: Build) -> object:
    provider = ScriptedProvider(*[[("look", '{"n": 1}')]] * 9)
    await run_turn(build(provider=provider))
    return len(provider.heard) - 1


def count_responses_with(name: str, *arguments: str) -> Probe:
    """Return how many answers with these calls are let through, of twelve."""

    async def let_through(build: Build) -> object:
        lines = [arguments[n % len(arguments)].replace("N", str(n)) for n in range(12)]
        provider = ScriptedProvider(*[[(name, text)] for text in lines], "Done.")
        await run_turn(build(provider=provider, tools=(look, fail)))
        return len(provider.heard)

    return let_through


going_round = count_responses_with("look", '{"n": 1}', '{"n": 2}')
failing = count_responses_with("fail", '{"n": N}')


async def count_search_responses(build: Build) -> object:
    """Return how many responses that only search are let through, of twelve."""

    @tool(Effect.LOOK)
    async def web_search(query: str) -> Reply:
        """Search."""
        return Reply(f"nothing about {query}")

    words = [[("web_search", f'{{"query": "words {n}"}}')] for n in range(12)]
    provider = ScriptedProvider(*words, "Done.")
    await run_turn(build(provider=provider, tools=(web_search,)))
    return len(provider.heard)


async def sends_final_summary(build: Build) -> object:
    provider = ScriptedProvider(*look_calls(4), "Summary.")
    await run_turn(build(provider=provider, settings={"limits.steps": 4}))
    return len(provider.heard) == 5


async def is_reminded(build: Build) -> object:
    call = ("todo_write", '{"todos": [{"subject": "cook"}]}')
    provider = ScriptedProvider([call], "So far.", "Yes.")
    async with build(provider=provider, tools=(todo_write,)).session() as session:
        await session.run("Cook.")
        await session.run("And?")
    return "cook" in provider.heard[-1].messages[-1].message.text


async def count_refused_answers(build: Build) -> object:
    provider = ScriptedProvider(*[[("act", '{"what": "x"}')]] * 9)
    await run_turn(build(provider=provider))
    return len(provider.heard)


async def result_limit(build: Build) -> object:
    provider = ScriptedProvider([("look", '{"n": 99999}')], "Long.")
    await run_turn(build(provider=provider))
    (result,) = provider.heard[-1].messages[-1].message.parts
    assert isinstance(result, ToolResult)
    return result.text.count("x")


async def output_limit(build: Build) -> object:
    provider = ScriptedProvider("Hello.")
    await run_turn(build(provider=provider))
    return provider.heard[0].max_output


def role_option(role: str, field: str) -> Probe:
    """Return what the model of an agent with this role is asked for."""

    async def probe(build: Build) -> object:
        provider = ScriptedProvider("Hello.")
        agent = Profile(name="mine", description="Mine.", role=role)  # pyright: ignore[reportArgumentType] - a role
        await run_turn(build(provider=provider, agents=[agent], agent="mine"))
        return getattr(provider.heard[0], field)

    return probe


async def runs_without_asking(build: Build) -> object:
    provider = ScriptedProvider([("act", '{"what": "x"}')], "Done.")
    async with build(provider=provider).session() as session:
        return (await session.run("Go.")).denials == ()


async def runs_in_bypass_mode(build: Build) -> object:
    provider = ScriptedProvider([("act", '{"what": "x"}')], "Done.")
    async with build(provider=provider, mode="bypass").session() as session:
        return (await session.run("Go.")).denials == ()


@tool(Effect.NET)
async def page(url: str) -> Reply:
    """Read a page."""
    return Reply("Do x.")


async def runs_after_outside_text(build: Build) -> object:
    provider = ScriptedProvider(
        [("page", '{"url": "x"}')], [("act", '{"what": "x"}')], "Done."
    )
    agent = build(provider=provider, tools=(page, act), mode="bypass")
    async with agent.session() as session:
        return (await session.run("Go.")).denials == ()


async def reads_excluded_page(build: Build) -> object:
    """Return whether a page is read that robots.txt excludes."""
    robots = Answer(b"User-agent: *\nDisallow: /", headers={"content-type": "text/plain"})

    def site(request: ReceivedRequest) -> Answer:
        return robots if request.path == "/robots.txt" else Answer(b"Hello.")

    async with wire_server(site) as server:
        provider = ScriptedProvider(
            [("web_fetch", json.dumps({"url": server.url}))], "Done."
        )
        allow = {"permissions.allow": ["web_fetch(domain:127.0.0.1)"]}
        await run_turn(build(provider=provider, tools=(web_fetch,), settings=allow))
        return any(request.path == "/" for request in server.heard)


async def uses_configured_search(build: Build) -> object:
    """Return whether the service whose variable is set gets the request."""
    data = {"results": []}
    async with wire_server(lambda _: Answer(json.dumps(data).encode())) as server:
        provider = ScriptedProvider([("web_search", '{"query": "tea"}')], "Done.")
        allow = {"permissions.allow": ["web_search"]}
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SEARXNG_URL", server.url)
            await run_turn(build(provider=provider, tools=(web_search,), settings=allow))
        return bool(server.heard)


def fake_servers(build: Any, mode: str) -> pytest.MonkeyPatch:
    """Return a workspace with a file and a language server, of this program, that does not
    change.
    """
    (build.directory / "tea.py").write_text("def tea(): ...\n")
    programs = install(build.directory.parent / "bin", mode)
    patch = pytest.MonkeyPatch()
    patch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    return patch


async def language_server_result(build: Any, mode: str, *calls: tuple[str, str]) -> str:
    """Return the result of the last call."""
    patch = fake_servers(build, mode)
    try:
        provider = ScriptedProvider(*([call] for call in calls), "Done.")
        tools = (diagnostics, symbols, write_file)
        python = {"sandbox.readable": [sys.base_prefix]}  # the server is a program in it
        async with build(
            provider=provider, tools=tools, mode="accept-edits", settings=python
        ).session() as session:
            await session.run("Go.")
            entries = await session.reports.entries()
        return [entry.event for entry in entries if isinstance(entry.event, Ended)][-1].text
    finally:
        patch.undo()


async def uses_language_server(build: Build) -> object:
    text = await language_server_result(build, "pull", ("symbols", '{"file": "tea.py"}'))
    return "By basedpyright-langserver." in text


async def language_server_timeout(build: Build) -> object:
    with anyio.move_on_after(2):
        return await language_server_result(
            build, "hang", ("diagnostics", '{"file": "tea.py"}')
        )
    return "more than two seconds"


async def checks_edits(build: Build) -> object:
    edit = json.dumps({"path": "new.py", "content": "BAD\n"})
    calls = ("symbols", '{"file": "tea.py"}'), ("write_file", edit)
    return "a new problem caused by this edit" in await language_server_result(
        build, "pull", *calls
    )


async def syncs_to_disk(build: Build) -> object:
    """Return whether a turn waits for the disk, counted by system calls."""
    count, sync = 0, os.fdatasync

    def counting(file: int) -> None:
        nonlocal count
        count += 1
        sync(file)

    provider = ScriptedProvider(*[[("act", '{"what": "x"}')]] * 2, "Done.")
    async with build(provider=provider, mode="bypass").session() as session:
        await session.steer("First.")  # whatever opening costs is paid
        os.fdatasync = counting
        try:
            await session.run("Go.")
        finally:
            os.fdatasync = sync
    return count >= 4  # the words, two starts, and the end


def requested_model(model: str = "") -> Probe:
    """Which model a server is asked for, by an agent that names this one."""

    async def send_request(build: Build) -> object:
        async with wire_server(answer("openai-chat", Line("Hi."))) as server:
            settings = {"providers.mine.base_url": server.url}
            settings |= {"providers.mine.wire": "openai-chat"}
            if model:
                settings |= {"models.main": "mine/main"}
            await run_turn(build(settings=settings, model=model))
            return json.loads(server.heard[0].body)["model"] if server.heard else None

    return send_request


async def requested_model_of_code(build: Build) -> object:
    """Which model a server is asked for by a subagent that code started."""

    def serve(request: ReceivedRequest) -> Answer:
        first = request is server.heard[0]
        cell = "FINAL(rlm('Look.'))" if first else "FINAL('seen')"
        return answer("openai-chat", Line(f"```python\n{cell}\n```"))

    async with wire_server(serve) as server:
        settings = own_provider(providers__mine__base_url=server.url, agent="rlm")
        settings |= {"models.main": settings.pop("model")}  # one that is named is for all
        await run_turn(build(settings=settings, tools=(), builtin=True))
        return json.loads(server.heard[1].body)["model"]


async def effort(build: Build) -> object:
    provider = ScriptedProvider("Hello.")
    await run_turn(build(provider=provider))
    return provider.heard[0].effort


async def fallback_model(build: Build) -> object:
    def serve_second_model(request: ReceivedRequest) -> Answer:
        up = json.loads(request.body)["model"] == "other"
        return answer("openai-chat", Line("Hi.")) if up else Answer(b"{}", 503)

    async with wire_server(serve_second_model) as server:
        settings = own_provider(providers__mine__base_url=server.url, http__retries=0)
        async with build(settings=settings).session() as session:
            await session.run("Go.")
            return [name for name, _ in session.view.account.by_model]


async def has_review_preset(build: Build) -> object:
    provider = ScriptedProvider("Hello.")
    await run_turn(build(provider=provider))
    return "an agent that reviews" in provider.heard[0].system


async def has_instructions(build: Any) -> object:
    (build.directory / "AGENTS.md").write_text("Use tabs.")
    TrustedFolders(paths(os.environ).folders).trust_texts(build.directory)
    provider = ScriptedProvider("Hello.")
    await run_turn(build(provider=provider))
    return "Use tabs." in provider.heard[0].system


async def has_skills(build: Any) -> object:
    provider = ScriptedProvider("Hello.")
    await run_turn(build(provider=provider, tools=(look, act, read_skill)))
    return "- pdf-writer: " in provider.heard[0].system


async def has_notes(build: Any) -> object:
    data = paths(os.environ).data
    ProjectMemory(data, build.directory, JournalDirectory(data / "sessions")).note(
        "CI runs on ARM"
    )
    provider = ScriptedProvider("Hello.")
    await run_turn(build(provider=provider))
    return "CI runs on ARM" in provider.heard[0].system


async def traces(build: Build) -> object:
    async with wire_server(answer("openai-chat", Line("Hi."))) as server:
        settings = own_provider(providers__mine__base_url=server.url)
        async with (
            build(settings=settings).session() as session,
            session.stream("Go.") as frames,
        ):
            return "RequestLogged" in [
                type(frame.item.event).__name__
                async for frame in frames
                if isinstance(frame.item, Entry)
            ]


async def corrections(build: Build) -> object:
    provider = ScriptedProvider(*["no"] * 9)
    await run_turn(build(provider=provider, schema={"type": "object"}))
    return len(provider.heard) - 1


def own_provider(**options: object) -> dict[str, object]:
    plain = {"model": "mine/m", "providers.mine.wire": "openai-chat"}
    return {**plain, **{k.replace("__", "."): v for k, v in options.items()}}


async def retries(build: Build) -> object:
    async with wire_server(lambda _: Answer(b"{}", 500)) as server:
        settings = own_provider(
            providers__mine__base_url=server.url, http__max_retry_wait_seconds=0.01
        )
        await run_turn(build(settings=settings))
        return len(server.heard)


async def max_retry_wait(build: Build) -> object:
    busy = Answer(b"{}", 429, headers={"retry-after": "99"})
    async with wire_server(busy) as server:
        text = await run_turn(
            build(settings=own_provider(providers__mine__base_url=server.url))
        )
    return text.partition("refold waits ")[2].partition(" at most")[0]


async def idle(build: Build) -> object:
    async with wire_server(Answer(then="hang")) as server:
        url = server.url
        settings = own_provider(providers__mine__base_url=url, http__retries=0)
        with anyio.move_on_after(3):
            return "0.05 s" in await run_turn(build(settings=settings))
    return "more than three seconds"


async def read_kept_model(build: Build) -> object:
    """Return how long the server of an embedded model says that it stays; llama.cpp is
    pretended.
    """
    model, folder = find("qwen2.5-coder-0.5b"), Path(os.environ["REFOLD_HOME"])
    (folder / "models").mkdir(parents=True, exist_ok=True)
    (folder / "models" / model.file).touch()
    # Of nothing, which takes no room.
    os.truncate(folder / "models" / model.file, model.size)
    library = folder / "library"
    library.mkdir()
    (library / "xllamacpp.py").write_text(PRETENDED_LLAMA)
    environ = {"PYTHONPATH": str(library), "REFOLD_MODELS": str(folder / "models")}
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("REFOLD_NO_BACKGROUND")
        for name, value in environ.items():
            patch.setenv(name, value)
        await run_turn(build(settings={"model": f"local/{model.name}", "http.retries": 0}))
    (server,) = running_servers(paths(os.environ).state / "local", time.time())
    stop(server)
    return server.record.keep


PRETENDED_LLAMA = """
from types import SimpleNamespace

class CommonParams(SimpleNamespace):
    def __init__(self):
        self.model = SimpleNamespace()
        self.cpuparams, self.cpuparams_batch = SimpleNamespace(), SimpleNamespace()

class Server:
    listening_address = "http://127.0.0.1:9"
    def __init__(self, params):
        pass
"""


async def warns_of_the_quota(build: Any) -> object:
    """Return whether a start warns, after 5 GB were measured."""
    measured = paths(os.environ).measured_size
    measured.parent.mkdir(parents=True, exist_ok=True)
    measured.write_text('{"bytes": 5000000000, "at": 1.0}')
    async with start_app(build) as (app, _, _):
        return any("storage.quota_gb" in notice for notice in app.notices())


async def connect_seconds(build: Build) -> object:
    """To a port on which no server accepts connections."""
    full = socket.socket()
    callers = [socket.socket() for _ in range(3)]
    try:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for caller in callers:
            caller.setblocking(False)
            caller.connect_ex(full.getsockname())
        url = "http://{}:{}".format(*full.getsockname())
        settings = own_provider(providers__mine__base_url=url, http__retries=0)
        with anyio.move_on_after(3):
            return "0.05 s" in await run_turn(build(settings=settings))
        return "more than three seconds"
    finally:
        for item in (full, *callers):
            item.close()


PROGRAM = """
import sys
read = sys.stdin.read()
print("context", "hello 0" in read)
print("format", "CDATA" in read)
print("window", read.count("\\nUser: hello"))
"""


def as_a_program_reads(what: str) -> Probe:
    """Return the text that another agent's command line receives of a conversation of
    several turns.
    """

    async def read(build: Build) -> object:
        settings: dict[str, object] = {"commands.mine.tools": "none"}
        settings["commands.mine.command"] = [sys.executable, "-c", PROGRAM]
        if what == "window":
            settings["backend.context"] = "sliding"
        async with build(settings=settings, model="command/mine").session() as session:
            texts = [(await session.run(f"hello {n}")).text for n in range(4)]
            parts = dict(line.split() for line in texts[-1].splitlines())
            return parts[what]

    return read


def probe_command(command: str) -> Probe:
    """Return what a command prints that a session runs, however it was allowed."""

    async def run_command(build: Build) -> object:
        provider = ScriptedProvider([("bash", json.dumps({"command": command}))], "Done.")
        agent = build(provider=provider, mode="bypass", tools=(), builtin=True)
        await run_turn(agent)
        (result,) = provider.heard[-1].messages[-1].message.parts
        assert isinstance(result, ToolResult)
        return result.text

    return run_command


async def writes_where_it_works(build: Build) -> object:
    return "made" in str(await probe_command("touch here && echo made")(build))


async def writes_in_another_directory(build: Build) -> object:
    path = Path(os.environ["HOME"], "kept")
    path.mkdir()
    return "made" in str(await probe_command(f"touch {path}/there && echo made")(build))


async def reads_in_another_directory(build: Any) -> object:
    path = Path(os.environ["HOME"], "kept")
    path.mkdir()
    (path / "note").write_text("remembered")
    (build.directory / "linked").symlink_to(path)
    return "remembered" in str(await probe_command("cat link*/note")(build))


async def reaches_the_network(build: Build) -> object:
    with socket.create_server(("127.0.0.1", 0)) as door:
        name = f"/dev/tcp/127.0.0.1/{door.getsockname()[1]}"
        return "reached" in str(
            await probe_command(f"echo > {name} && echo reached")(build)
        )


async def makes_namespaces(build: Build) -> object:
    return "made one" in str(await probe_command("unshare -U true && echo made one")(build))


async def passes_an_agent_for_signatures(build: Build) -> object:
    key = "key::ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAA"
    settings = f"[user]\n\tsigningkey = {key}\n[gpg]\n\tformat = ssh\n"
    Path(os.environ["HOME"], ".gitconfig").write_text(settings)
    os.environ["SSH_AUTH_SOCK"] = "/nowhere"
    try:
        return "/run/" in str(await probe_command("echo at $SSH_AUTH_SOCK")(build))
    finally:
        del os.environ["SSH_AUTH_SOCK"]


async def too_many_processes(build: Build) -> object:
    command = "for n in {1..30}; do sleep 0.6 & done; wait"
    return "processes at a time" in str(await probe_command(command)(build))


async def exceeds_memory_limit(build: Build) -> object:
    hungry = "python3 -c 'x = b\"x\" * 300_000_000; import time; time.sleep(0.7)'"
    return "memory" in str(await probe_command(hungry)(build))


async def keeps_checkpoints(build: Build) -> object:
    call = ("write_file", '{"path": "new.txt", "content": "new"}')
    provider = ScriptedProvider([call], "Done.")
    agent = build(provider=provider, mode="bypass", tools=(), builtin=True)
    async with agent.session() as session, session.stream("Go.") as frames:
        items = [frame.item async for frame in frames]
    return any(isinstance(i, Entry) and isinstance(i.event, Checkpointed) for i in items)


async def reuses_results(build: Any) -> object:
    (build.directory / "a.txt").write_text("one")
    calls = [[("read_file", '{"path": "a.txt"}')]] * 2
    agent = build(provider=ScriptedProvider(*calls, "Done."), tools=(), builtin=True)
    async with agent.session() as session, session.stream("Go.") as frames:
        items = [frame.item async for frame in frames]
    events = [i.event for i in items if isinstance(i, Entry)]
    return any(isinstance(event, Ended) and event.cached for event in events)


async def may_write(build: Build) -> object:
    provider = ScriptedProvider("Hello.")
    await run_turn(build(provider=provider, tools=(), builtin=True))
    return "write_file" in [tool.name for tool in provider.heard[0].tools]


async def question_seconds(build: Any) -> object:
    async with start_app(build) as (_, _, session):
        return session.question_timeout.seconds


async def client_answer_seconds(build: Any) -> object:
    async with start_app(build) as (app, _, session):
        handle = Session(Launch(app), OpenedSession(app, session))
        return StdioClient(handle, StreamWriter("stream-json", live=False)).answer_seconds


@asynccontextmanager
async def start_app(build: Any) -> AsyncGenerator[tuple[App, str, Session]]:
    places = paths(os.environ)
    settings = load(places.settings, os.environ, build.flags).settings
    options = LaunchOptions(directory=build.directory, provider=ScriptedProvider("Hi."))
    app = App(settings, places, os.environ, options)
    try:
        id_, session = await app.start()
        async with session:
            yield app, id_, session
    finally:
        await app.aclose()


async def prints_tokens(build: Any) -> object:
    """Return whether a line below the response says what the turn used."""
    async with start_app(build) as (app, _, engine):
        buffer = io.StringIO()
        paper = Printer(buffer, TerminalCapabilities(moves=False, display="plain"))
        work = Work(
            Session(Launch(app), OpenedSession(app, engine)), paper, LineReader(paper)
        )
        await engine.inbox.say("Go.")
        await work.run_until_over(engine.run_turns)
    return " in" in buffer.getvalue()


async def rings(build: Any) -> object:
    """Return whether the bell rings at the end of a turn, in a terminal that has one."""
    async with start_app(build) as (app, _, engine):
        buffer = io.StringIO()
        paper = Printer(buffer, TerminalCapabilities(moves=True, display="status"))
        work = Work(
            Session(Launch(app), OpenedSession(app, engine)), paper, LineReader(paper)
        )
        await engine.inbox.say("Go.")
        await work.run_until_over(engine.run_turns)
    return BELL_CHAR in buffer.getvalue()


async def finds_a_title(build: Any) -> object:
    """Which title a model finds for a session that was left."""
    async with start_app(build) as (app, id_, session):
        await session.inbox.say("The gutter of the northern roof drips when it rains. " * 2)
        await session.run_turns()
    aide = Model(ScriptedProvider("A dripping gutter"), "mine/m")
    return await find_title(app, id_, lambda _: aide)


async def terminal_capabilities(build: Any) -> TerminalCapabilities:
    """Return what a terminal that can do everything is sent."""
    async with start_app(build) as (app, _, _):
        here = app.settings.terminal
    out = io.StringIO()
    out.isatty = lambda: True  # type: ignore[method-assign]
    data = {"TERM": "xterm"}
    return look_at(out, data, display=here.display, theme=here.theme)


async def display(build: Build) -> object:
    return (await terminal_capabilities(build)).display


async def paint_success(build: Build) -> object:
    return (await terminal_capabilities(build)).paint("good", "good")


async def keys_of_vi(build: Any) -> object:
    """Return what the prompt of the terminal receives."""
    async with start_app(build) as (app, _, _):
        return app.settings.terminal.vi


async def draws_images(build: Any) -> object:
    """Return what the full screen does in a terminal that can."""
    async with start_app(build) as (app, _, _):
        wanted = app.settings.terminal.images
        return ImagePainter({"TERM": "xterm-kitty"}, wanted=wanted).protocol


async def reads_the_mouse(build: Any) -> object:
    """Return what the full screen sends to its terminal when it begins."""
    async with start_app(build) as (app, _, _):
        return "\x1b[?1000h" in enter_sequence(mouse=app.settings.terminal.mouse)


NO_SERVER = (
    "The language server basedpyright-langserver failed (it did not answer within {} s), and "
    "is not started again in this session."
)


class Change(NamedTuple):
    """`before` is the result with the default, for tests that need not compute it."""

    value: object
    before: object
    after: object
    probe: Probe


def compacted_part(
    what: Callable[[list[Compacted], list[Request]], object], **base: object
) -> Probe:
    """Return what of a long conversation is compacted, by the events and by the requests."""

    async def probe(build: Build) -> object:
        asks = [[("look", f'{{"n": {2_000 + n}}}')] for n in range(24)]
        provider = ScriptedProvider(*asks, "Done.")
        events: list[Compacted] = []
        settings = {f"context.{key}": value for key, value in base.items()}
        agent = build(provider=Beside(provider), settings=settings)
        async with agent.session() as session, session.stream("Go.") as frames:
            async for frame in frames:
                item = frame.item
                if isinstance(item, Entry) and isinstance(item.event, Compacted):
                    events.append(item.event)
        return what(events, provider.heard)

    return probe


class Beside:
    """Writes summaries itself, so that the script has only the conversation."""

    def __init__(self, inner: ScriptedProvider) -> None:
        self._inner = inner

    def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        own = request.system == summary_prompt()
        return (ScriptedProvider("All went well.") if own else self._inner).stream(request)


def kinds(events: list[Compacted], requests: list[Request]) -> set[str]:
    return {event.kind for event in events if event.dropped}


def whole_results(events: list[Compacted], requests: list[Request]) -> int:
    """Return how many results were complete when results were pruned for the first time."""
    left_out = next(len(event.pruned) for event in events if event.kind == "prune")
    for request in requests:
        parts = [p for s in request.messages for p in s.message.parts]
        results = [p.text for p in parts if isinstance(p, ToolResult)]
        if sum(text.startswith("[left out") for text in results) == left_out:
            return len(results) - left_out
    raise AssertionError("nothing was sent any more")


def messages_kept(events: list[Compacted], requests: list[Request]) -> int:
    """Return how many messages stood beside the first summary."""
    first = (r for r in requests if "<summary>" in r.messages[0].message.text)
    return len(next(first).messages) - 1


def count_answers(**usage: int) -> Probe:
    """Return how many answers a turn has before its budget ends it."""

    async def probe(build: Build) -> object:
        used = Usage(**usage)
        asks = [Line(calls=(("look", f'{{"n": {n}}}'),), usage=used) for n in range(9)]
        provider = ScriptedProvider(*asks, "Done.")
        text = await run_turn(build(provider=provider))
        assert text.startswith(("answered", "budget"))
        return len(provider.heard)

    return probe


async def money(build: Build) -> object:
    """Return how many dollars a turn of half-dollar answers comes to."""
    used = Usage(fresh=500_000)
    lines = [Line(calls=(("look", f'{{"n": {n}}}'),), usage=used) for n in range(14)]
    answers = [answer("openai-chat", line) for line in lines]

    async with wire_server(lambda _: answers.pop(0)) as server:
        settings = own_provider(providers__mine__base_url=server.url)
        prices = {"prices.mine/m.input": 1.0, "prices.mine/m.output": 1.0}
        async with build(settings={**settings, **prices}).session() as session:
            result = await session.run("Go.")
            assert result.outcome == "budget"
            return round(result.cost or 0.0, 2)


async def seconds(build: Build) -> object:
    """Return whether a turn ends by itself, or because it took long."""

    @tool(Effect.LOOK)
    async def wait(n: int) -> Reply:
        """Wait a little."""
        await anyio.sleep(0.02)
        return Reply(str(n))

    provider = ScriptedProvider([("wait", '{"n": 1}')], [("wait", '{"n": 2}')], "Done.")
    return (await run_turn(build(provider=provider, tools=[wait]))).partition(":")[0]


async def logs_its_start(build: Build) -> object:
    await run_turn(build(provider=ScriptedProvider("Done.")))
    file = Path(os.environ["REFOLD_HOME"], "refold.log")
    return file.exists() and " opened in " in file.read_text()


async def masks_a_word(build: Build) -> object:
    os.environ["DEPLOY_WORD"] = "production"
    try:
        async with build(provider=ScriptedProvider("To production.")).session() as session:
            return (await session.run("Where to?")).text.startswith("To production")
    finally:
        del os.environ["DEPLOY_WORD"]


async def is_sent_to_the_collector_of_the_environment(build: Build) -> object:
    name = "OTEL_EXPORTER_OTLP_ENDPOINT"
    async with wire_server(lambda _: Answer(b"{}")) as server:
        os.environ[name] = server.url
        try:
            await run_turn(build(provider=ScriptedProvider("Done.")))
        finally:
            del os.environ[name]
        return [request.path for request in server.heard]


async def is_sent_with_content(build: Build) -> object:
    async with wire_server(lambda _: Answer(b"{}")) as server:
        to = {"otel.endpoint": server.url}
        await run_turn(build(provider=ScriptedProvider("Done."), settings=to))
        return b"Done." in server.heard[0].body


CHANGED: dict[str, Change] = {
    "models.main": Change("mine/m-7", None, "m-7", requested_model()),
    **{
        f"roles.{role}.{name}": Change(value, before, value, role_option(role, field))
        for role in ("main", "small", "big", "judge")
        for name, field, value, before in (
            ("temperature", "temperature", 0.5, None),
            ("output_tokens", "max_output", 88, 0),
        )
    },
    "models.small": Change("mine/s", "main", "s", requested_model("small")),
    "models.big": Change("mine/b", "main", "b", requested_model("big")),
    "models.judge": Change("mine/j", "main", "j", requested_model("judge")),
    "context.default_window_tokens": Change(8_000, set(), {"prune"}, compacted_part(kinds)),
    "context.prune_share": Change(
        1, {"prune"}, {"full"}, compacted_part(kinds, default_window_tokens=8_000)
    ),
    "context.min_freed_share": Change(
        0.9, {"prune"}, {"full"}, compacted_part(kinds, default_window_tokens=8_000)
    ),
    "context.kept_results": Change(
        1, 3, 1, compacted_part(whole_results, default_window_tokens=12_000)
    ),
    "context.compact_share": Change(
        1,
        {"full"},
        set(),
        compacted_part(kinds, default_window_tokens=12_000, prune_share=1),
    ),
    "context.kept_messages": Change(
        2, 8, 2, compacted_part(messages_kept, default_window_tokens=14_000, prune_share=1)
    ),
    "subagents.max_depth": Change(1, 2, 1, count_child_levels),
    "subagents.max_concurrent": Change(2, 8, 2, max_concurrent_children),
    "subagents.max_per_turn": Change(3, 200, 3, count_children),
    "subagents.teams": Change(True, False, True, may_lead_a_team),
    "python.engine": Change("monty", "false", "true", runs_in_monty),
    "python.rlm_model": Change("mine/c", "m", "c", requested_model_of_code),
    "python.rlm_steps": Change(7, 25, 7, prompt_limit(0)),
    "python.fan_out": Change(7, 50, 7, prompt_limit(1)),
    "python.max_concurrent": Change(7, 8, 7, prompt_limit(2)),
    "python.rlm_depth": Change(0, 1, 0, prompt_limit(3)),
    "python.cell_seconds": Change(7, 120, 7, prompt_limit(4)),
    "python.call_seconds": Change(7, 120, 7, prompt_limit(5)),
    "python.memory_mib": Change(300, "enough", "Not enough.", code_memory_limit),
    "python.cache": Change("session", 2, 1, count_equal_model_calls),
    "python.calls_per_minute": Change(2, 3, 2, count_model_calls_per_minute),
    "budget.dollars": Change(2, 5.0, 2.0, money),
    "budget.tokens": Change(2_500, 10, 3, count_answers(fresh=1_000)),
    "budget.calls": Change(4, 10, 4, count_answers(fresh=1)),
    "budget.seconds": Change(0.01, "answered", "budget", seconds),
    "effort": Change("max", "", "max", effort),
    "fallback_models": Change(["mine/other"], [], ["mine/other"], fallback_model),
    "preset": Change("review", False, True, has_review_preset),
    "instructions": Change(False, True, False, has_instructions),
    "skills": Change(False, True, False, has_skills),
    "memory": Change(False, True, False, has_notes),
    "titles": Change(False, "A dripping gutter", "", finds_a_title),
    "log_requests": Change(True, False, True, traces),
    "secret_variables": Change(["DEPLOY_WORD"], True, False, masks_a_word),
    "log_level": Change("error", True, False, logs_its_start),
    "security_profile": Change("open", False, True, runs_without_asking),
    "permission_mode": Change("bypass", False, True, runs_without_asking),
    "ask_after_outside_text": Change(True, True, False, runs_after_outside_text),
    "durability": Change("written", True, False, syncs_to_disk),
    "permissions.allow": Change(["act(x)"], False, True, runs_without_asking),
    "permissions.ask": Change(["act(x)"], True, False, runs_in_bypass_mode),
    "permissions.deny": Change(["act(x)"], True, False, runs_in_bypass_mode),
    "sandbox.profile": Change("read-only", True, False, writes_where_it_works),
    "sandbox.network": Change(True, False, True, reaches_the_network),
    "sandbox.user_namespaces": Change(True, False, True, makes_namespaces),
    "sandbox.sign_commits": Change(True, False, True, passes_an_agent_for_signatures),
    "sandbox.writable": Change(["~/kept"], False, True, writes_in_another_directory),
    "sandbox.readable": Change(["~/kept"], False, True, reads_in_another_directory),
    "agent": Change("explore", True, False, may_write),
    "checkpoints": Change(False, True, False, keeps_checkpoints),
    "result_cache": Change(True, False, True, reuses_results),
    "notify_seconds": Change(0.00001, False, True, rings),
    "terminal.display": Change("plain", "line", "plain", display),
    "terminal.theme": Change("mono", "\x1b[32mgood\x1b[0m", "good", paint_success),
    "terminal.images": Change(False, "kitty", "", draws_images),
    "terminal.mouse": Change(False, True, False, reads_the_mouse),
    "terminal.show_tokens": Change(False, True, False, prints_tokens),
    "terminal.vi": Change(True, False, True, keys_of_vi),
    "limits.answer_seconds": Change(7, 3600.0, 7.0, client_answer_seconds),
    "limits.question_seconds": Change(7, None, 7.0, question_seconds),
    "limits.command_processes": Change(10, False, True, too_many_processes),
    "limits.command_memory_mib": Change(100, False, True, exceeds_memory_limit),
    "limits.steps": Change(4, 50, 4, count_responses),
    "limits.wrap_up_steps": Change(1, 3, 1, first_warning),
    "limits.continuations": Change(1, 3, 1, continuations),
    "limits.corrections": Change(1, 3, 1, corrections),
    "limits.repeated_calls": Change(2, 3, 2, count_repeated_responses),
    "limits.alternating_calls": Change(2, 7, 5, going_round),
    "limits.repeated_errors": Change(2, 4, 2, failing),
    "limits.repeated_searches": Change(2, 6, 4, count_search_responses),
    "limits.final_summary": Change(False, True, False, sends_final_summary),
    "reminders": Change(False, True, False, is_reminded),
    "limits.refused_responses": Change(2, 3, 2, count_refused_answers),
    "limits.result_chars": Change(1000, 30_000, 1000, result_limit),
    "limits.output_tokens": Change(77, 0, 77, output_limit),
    "backend.context": Change("fresh", "True", "False", as_a_program_reads("context")),
    "backend.format": Change("xml", "False", "True", as_a_program_reads("format")),
    "backend.window_messages": Change(3, "4", "2", as_a_program_reads("window")),
    "local.keep_seconds": Change(77.0, 600.0, 77.0, read_kept_model),
    "storage.quota_gb": Change(3.5, False, True, warns_of_the_quota),
    "otel.endpoint": Change(
        "environment",
        [],
        ["/v1/traces", "/v1/metrics"],
        is_sent_to_the_collector_of_the_environment,
    ),
    "otel.content": Change(True, False, True, is_sent_with_content),
    "web.search": Change("brave", True, False, uses_configured_search),
    "code.servers": Change("off", True, False, uses_language_server),
    "code.answer_seconds": Change(
        0.4, "more than two seconds", NO_SERVER.format("0.4"), language_server_timeout
    ),
    "code.after_edit": Change("off", True, False, checks_edits),
    "web.robots": Change(False, False, True, reads_excluded_page),
    "http.connect_seconds": Change(0.05, "more than three seconds", True, connect_seconds),
    "http.idle_seconds": Change(0.05, "more than three seconds", True, idle),
    "http.retries": Change(1, 4, 2, retries),
    "http.max_retry_wait_seconds": Change(7, "60 seconds", "7 seconds", max_retry_wait),
}
SLOW_BY_DEFAULT = {
    "code.answer_seconds",
    "local.keep_seconds",
    "limits.command_processes",
    "http.connect_seconds",
    "http.idle_seconds",
    "http.retries",
    "limits.steps",
}


@pytest.mark.parametrize(
    ("key", "probe"),
    [
        ("limits.repeated_calls", count_responses_with("look", '{"n": 1}')),
        ("limits.alternating_calls", going_round),
        ("limits.repeated_errors", failing),
        ("limits.repeated_searches", count_search_responses),
    ],
)
def test_a_repetition_limit_of_zero_disables_the_limit(
    key: str, probe: Probe, build: Any
) -> None:
    build.flags[key] = 0

    assert anyio.run(probe, build) == 13


def test_the_test_cases_change_every_setting() -> None:
    # Tables of names: tests/terminal/test_every_command.py, tests/client/test_addresses.py, and below.
    tables = {"model_aliases", "command_aliases", "workspaces"}

    assert {*CHANGED, *tables} == set(flatten(Settings()))


def test_a_model_alias_resolves_to_its_model(build: Build) -> None:
    async def ask_alias() -> str:
        async with wire_server(answer("openai-chat", Line("Hi."))) as server:
            plain = own_provider(
                providers__mine__base_url=server.url, model_aliases__fast="mine/quick"
            )
            await run_turn(build(settings={**plain, "model": "fast"}))
            return json.loads(server.heard[0].body)["model"]

    assert anyio.run(ask_alias) == "quick"


@pytest.fixture
def build(tmp_path: Path, home: Path) -> Build:
    """Return an agent with these settings, in a place of its own."""

    def build_agent(settings: dict[str, object] | None = None, **options: Any) -> Agent:
        plain = {"tools": (look, act), "builtin": False, "directory": tmp_path / "work"}
        return Agent(settings={**flags, **(settings or {})}, **{**plain, **options})

    flags: dict[str, object] = {}
    (tmp_path / "work").mkdir()
    build_agent.flags = flags  # pyright: ignore[reportFunctionMemberAccess]
    build_agent.directory = tmp_path / "work"  # pyright: ignore[reportFunctionMemberAccess]
    return build_agent


def as_text(value: object) -> str:
    return ",".join(value) if isinstance(value, list) else str(value)


def write_setting(
    layer: str, key: str, value: object, build: Any, monkeypatch: Any
) -> None:
    """Set `key` in one of the layers."""
    match layer:
        case "file":
            file = Path(os.environ["REFOLD_HOME"], "config.toml")
            file.parent.mkdir(exist_ok=True)
            file.write_text(f"{key} = {json.dumps(value)}\n")
        case "environment":
            name = "REFOLD_" + key.upper().replace(".", "__")
            monkeypatch.setenv(name, as_text(value))
        case _:
            build.flags[key] = value


# Settings that only a sandbox can enforce; without one, code of a model asks.
IN_SANDBOX = {
    "python.memory_mib", "python.cache", "python.calls_per_minute", "python.engine",
    "python.rlm_model",
    "sandbox.readable",
    "code.servers", "code.answer_seconds", "code.after_edit",
}  # fmt: skip


def skip_without_sandbox(key: str) -> None:
    if key in IN_SANDBOX:
        needs_bubblewrap()
    if key == "python.engine":
        pytest.importorskip("pydantic_monty", reason="refold[monty] is not installed")


def settings_by_layer() -> Iterator[ParameterSet]:
    """Yield each setting in each layer; `make test` tries it in one of them, and takes
    turns.
    """
    for row, key in enumerate(CHANGED):
        for column, layer in enumerate(("file", "environment", "flag")):
            marks = [pytest.mark.slow] if column != row % 3 else []
            yield pytest.param(key, layer, id=f"{key}-{layer}", marks=marks)


@pytest.mark.parametrize(("key", "layer"), [*settings_by_layer()])
def test_a_setting_takes_effect_from_each_layer(
    key: str, layer: str, build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    skip_without_sandbox(key)
    change = CHANGED[key]
    write_setting(layer, key, change.value, build, monkeypatch)

    assert anyio.run(change.probe, build) == change.after


@pytest.mark.parametrize(
    "key",
    [pytest.param(k, marks=[pytest.mark.slow] if k in SLOW_BY_DEFAULT else []) for k in CHANGED],
)  # fmt: skip
def test_an_unset_setting_has_its_default_effect(key: str, build: Build) -> None:
    skip_without_sandbox(key)
    change = CHANGED[key]

    assert anyio.run(change.probe, build) == change.before


# Providers of one's own. --------------------------------------------------------------

PATHS = {
    "anthropic": "/v1/messages",
    "openai-responses": "/responses",
    "openai-chat": "/chat/completions",
    "gemini": ":streamGenerateContent?alt=sse",
    "ollama": "/api/chat",
}


def test_the_tests_cover_every_setting_of_a_provider() -> None:
    tried = {
        "wire",
        "base_url",
        "key_env",
        "key_command",
        "tools",
        "text_tools",
        "window",
        "quirks",
    }
    assert set(flatten(Provider())) == tried


async def run_with_own_provider(
    build: Build, lines: Line | str, **settings: object
) -> tuple[Any, ReceivedRequest]:
    """Return how a turn ended, and the first request to the server."""
    answering = answer("openai-chat", lines if isinstance(lines, Line) else Line(lines))
    async with wire_server(answering) as server:
        data = own_provider(providers__mine__base_url=server.url, **settings)
        async with build(settings=data).session() as session:
            return await session.run("Go."), server.heard[0]


def test_provider_names_are_case_insensitive(build: Build) -> None:
    async def ask_provider() -> str:
        async with wire_server(answer("openai-chat", Line("Hi."))) as server:
            own = {
                "providers.MyOwn.wire": "openai-chat",
                "providers.MyOwn.base_url": server.url,
            }
            return await run_turn(build(settings=own, model="myOwn/M"))

    assert anyio.run(ask_provider) == "answered: "


def test_a_provider_quirk_is_applied_and_an_unknown_one_refused(build: Build) -> None:
    async def ask_with_quirk(quirk: str) -> dict[str, object]:
        quirks = {"providers.mine.quirks": {quirk: "max_new_tokens"}}
        _, request = await run_with_own_provider(
            build, "Hi.", limits__output_tokens=9, **quirks
        )
        return json.loads(request.body)

    assert anyio.run(ask_with_quirk, "output_limit")["max_new_tokens"] == 9
    with pytest.raises(BadInput, match="no quirk 'outputlimit'; there are output_limit"):
        anyio.run(ask_with_quirk, "outputlimit")


@pytest.mark.parametrize(
    ("how", "offered"),
    [
        ({"tools": "native"}, True),
        ({"tools": "auto"}, True),
        ({"tools": "text"}, False),
        ({"text_tools": ["other", "m*"]}, False),
        ({"text_tools": ["other"]}, True),
    ],
)
def test_tools_are_offered_natively_or_as_text_as_set_for_the_provider(
    how: dict[str, object], offered: bool, build: Build
) -> None:
    async def ask_for_tools() -> dict[str, Any]:
        data = {f"providers__mine__{key}": value for key, value in how.items()}
        _, request = await run_with_own_provider(build, "Hi.", **data)
        return json.loads(request.body)

    body = anyio.run(ask_for_tools)

    assert ("tools" in body) == offered
    assert ("look(n: integer)" in body["messages"][0]["content"]) == (not offered)


def test_the_window_setting_of_a_provider_limits_the_request(build: Build) -> None:
    async def ask_with_window(window: int) -> bytes:
        async with wire_server(answer("openai-chat", Line("Hi."))) as server:
            layer_options = {"providers__mine__base_url": server.url}
            data = own_provider(providers__mine__window=window, **layer_options)
            async with build(settings=data).session() as session:
                await session.run("x" * 60_000)
                return bytes(server.heard[-1].body)

    assert len(anyio.run(ask_with_window, 5_000)) < 5_000 * 4
    assert len(anyio.run(ask_with_window, 0)) > 60_000


@pytest.mark.parametrize(
    ("prices", "cost"),
    [
        ({}, None),
        ({"mine/m": {"input": 2.0, "output": 10.0}}, 3e-5),
        ({"mine/*": {"input": 2.0, "output": 10.0}}, 3e-5),
        ({"mine/other": {"input": 2.0, "output": 10.0}}, None),
        ({"mine/m": {"input": 0.0, "output": 0.0}}, 0.0),
    ],
)
@pytest.mark.parametrize("layer", ["file", "flag"])
def test_the_price_setting_determines_the_cost_of_a_response(
    prices: dict[str, Any], cost: float | None, layer: str, build: Build
) -> None:
    async def costs() -> float | None:
        settings: dict[str, object] = {}
        if layer == "file":
            tables = [
                f'[prices."{name}"]\n' + "".join(f"{k} = {v}\n" for k, v in each.items())
                for name, each in prices.items()
            ]
            file = Path(os.environ["REFOLD_HOME"], "config.toml")
            file.parent.mkdir(exist_ok=True)
            file.write_text("\n".join(("", *tables, "")))
        else:
            for name, outcome in prices.items():
                settings |= {f'prices."{name}".{k}': v for k, v in outcome.items()}
        result, _ = await run_with_own_provider(
            build, Line("Hi.", usage=Usage(fresh=5, output=2)), **settings
        )
        return result.cost

    assert anyio.run(costs) == (cost if cost is None else pytest.approx(cost))


@pytest.mark.parametrize("layer", ["file", "environment", "flag"])
@pytest.mark.parametrize("wire", PATHS)
def test_a_custom_provider_is_called_with_its_wire_base_url_and_key(
    wire: Any, layer: str, build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", "sk-of-mine")

    async def ask() -> tuple[int, bool]:
        # Ollama is also asked about the model.
        def answering(request: ReceivedRequest) -> Answer:
            endswith = request.path.endswith(PATHS[wire])
            return answer(wire, Line("Hi.")) if endswith else Answer(b"{}")

        async with wire_server(answering) as server:
            file = Path(os.environ["REFOLD_HOME"], "config.toml")
            table = {"wire": wire, "base_url": server.url, "key_env": "MY_KEY"}
            if layer == "file":
                file.parent.mkdir(exist_ok=True)
                lines = (f"{key} = {json.dumps(value)}\n" for key, value in table.items())
                file.write_text("[providers.mine]\n" + "".join(lines))
            else:
                for key, value in table.items():
                    write_setting(layer, f"providers.mine.{key}", value, build, monkeypatch)
            text = await run_turn(build(settings={"model": "mine/m"}))
            assert text == "answered: "
            requests = [h for h in server.heard if h.path.endswith(PATHS[wire])]
            return len(requests), "sk-of-mine" in "".join(requests[0].headers.values())

    assert anyio.run(ask) == (1, True)
