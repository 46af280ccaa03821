"""Runs a whole session in a real terminal, with a scripted model.

Tests start it as a program. The journal is in memory; tools, questions, the terminal and the
current directory are real.
"""

import os
import sys
import time
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import anyio
from msgspec import Struct, convert
from msgspec.structs import replace

from refold.app.app import App
from refold.app.launch_options import LaunchOptions
from refold.app.lazy_dependencies import LazyBackground
from refold.app.models import Models
from refold.app.project_memory import ProjectMemory
from refold.app.system_prompt import SessionGround, SystemPromptBuilder
from refold.app.turn_context import TurnContext
from refold.app.workspace import Workspace, WorkspaceDirectories
from refold.client.launch import Launch, OpenedSession
from refold.client.session import Session as ClientSession
from refold.commands.table import names
from refold.config.paths import Paths, paths
from refold.config.settings import Settings, Spending
from refold.config.settings import Terminal as TerminalSettings
from refold.engine.policies.budget import end_over_budget
from refold.engine.policies.compaction import compact_when_full
from refold.engine.policies.conversation import converse, final
from refold.engine.policies.plan_mode import in_plan_mode, plan_ready
from refold.engine.policies.step_limit import at_most, going_on
from refold.engine.policies.stuck import not_refused
from refold.engine.policies.turn_end import after_a_stop, stopping
from refold.engine.prune import CompactionShares
from refold.engine.world import Model, SystemPrompt, World
from refold.errors import BadInput
from refold.journal.state.fold import View
from refold.journal.store.port import MemoryStore
from refold.permissions.facts import Facts
from refold.permissions.rules import Rule, parse
from refold.place.commands import ShellCommands
from refold.place.files import DiskFiles
from refold.prompts.presets import Preset
from refold.provider.port import Delta, Provider, Request
from refold.session.recorder import Recorder
from refold.session.session import Session, SessionOptions
from refold.skills.catalogue import Catalogue
from refold.skills.directories import SkillScope
from refold.skills.slash_commands import ShortcutInfo, Shortcuts
from refold.terminal.run import run
from refold.testing.providers import Line, Reply, ScriptedProvider
from refold.tools.builtin import builtin
from refold.tools.contract import Tool
from refold.values.usage import NO_LIMIT, Budget, Usage

ALWAYS = ".always"  # the file in which rules are saved
FOLDERS = ".folders.toml"  # the file with the trusted folders
HISTORY = ".state/history"  # of the lines that were typed
READ = ("read_file", '{"path": "hello.py"}')
EDIT = ("edit_file", r'{"path": "hello.py", "old": "\"hi\"", "new": "\"hello\""}')
RUN = ("bash", '{"command": "python3 hello.py"}')
WAIT = ("bash", '{"command": "touch begun; echo begun; sleep 30"}')
BUSY = ("bash", '{"command": "echo one; sleep 0.5; echo two"}')
HELD = ("bash", '{"command": "sh held.sh"}')
HOSTILE = r"""{"command": "printf 'ok\\033]52;c;YQ==\\a\\r\\x9b2J\\x7f\\033[2Jend'"}"""
HIDDEN = '{"command": "ls' + " " * 3000 + "; echo \u202egone\u200b" + '"}'

PLAN = (
    "exit_plan_mode",
    '{"plan": "# Greet\\n\\n1. **Change** the greeting", "title": "A friendlier hello"}',
)
BETTER = ("exit_plan_mode", '{"plan": "1. Say hello", "title": "Simpler"}')
ASK = (
    "ask_user",
    """{"questions": [
        {"question": "Which colour?", "options": [
            {"label": "red"}, {"label": "blue", "about": "like the sea"}]},
        {"question": "Which sizes?", "many": true, "options": [
            {"label": "small"}, {"label": "large"}, {"label": "huge"}]},
        {"question": "A name?"}]}""",
)

TODOS = (
    "todo_write",
    """{"todos": [{"subject": "look", "status": "done"},
        {"subject": "change", "status": "in_progress"}, {"subject": "test"}]}""",
)

SCRIPTS: dict[str, tuple[Line, ...]] = {
    "edit": (
        Reply("I will look **first**.", (READ,), "The greeting should be friendlier."),
        [EDIT],
        [RUN],
        Reply("Now `hello.py` says hello.", usage=Usage(900, 300, 0, 42)),
    ),
    "slow": ("word " * 2000, "As you like."),
    "late": (Reply("word " * 300, (READ,)), [EDIT], "Well."),
    "command": ([WAIT], "As you like."),
    "busy": (Reply("I will **look**.", [BUSY], "Where is it?"), "There: `one`, two."),
    "hostile": (Reply("see \x1b]0;me\x07\u202e", [("bash", HOSTILE)]), "\x1b[31mred\x9b1m"),
    "hidden": ([("bash", HIDDEN)], "Well."),
    "steps": ([READ], [READ], "A summary.", "More."),
    "held": tuple(line for _ in range(9) for line in ([HELD], "Done.")),
    "talk": ("One.", "Two.", "Three."),
    "plan": ([READ, PLAN], [EDIT], "Carried out."),
    "revise": ([PLAN], [BETTER], "Carried out."),
    "ask": ([ASK], "Thank you."),
    "todos": ([TODOS], "All noted."),
    "costly": (Reply("", (READ,), usage=Usage(2_000, 0, 0, 500)), "So far.", "And on."),
    "long": ([READ], "First.", "Second.", "A summary of it all.", "Third."),
}


class Unhurried:
    """A slow model, so that the user can interrupt it."""

    def __init__(self, *lines: Line, wait: float = 0.0) -> None:
        self._script, self._wait = ScriptedProvider(*lines), wait

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        async for delta in self._script.stream(request):
            await anyio.sleep(self._wait)
            yield delta


SHARES = CompactionShares(messages=2)
POLICIES = (
    stopping, compact_when_full(SHARES), final, plan_ready, not_refused(3), going_on, after_a_stop,
    in_plan_mode("default"), converse,
)  # fmt: skip


def facts_of(directory: Path) -> Facts:
    return Facts(
        roots=(os.path.realpath(directory),),
        follow=lambda path: os.path.realpath(directory / path),
    )


def rules(directory: Path) -> tuple[Rule, ...]:
    """Return the rules that were saved for this directory."""
    path = directory / ALWAYS
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return tuple(parse(text, "allow", "always") for text in lines)


def save_allow_rule(directory: Path, rule: str) -> None:
    with (directory / ALWAYS).open("a", encoding="utf-8") as file:
        file.write(f"{rule}\n")


def price(model: str, usage: Usage) -> float:
    return (usage.fresh * 3 + usage.output * 15) / 1e6


def world(
    provider: Provider,
    record: Recorder,
    directory: Path,
    steps: int,
    budget: Budget = NO_LIMIT,
    background: LazyBackground | None = None,
) -> World:
    files = DiskFiles(directory)
    house = {
        "blobs": record,
        "directory": directory,
        "background": background or LazyBackground(record),
    }
    return World(
        Model(provider, record.view.session.model or "script/one", 10_000, price),
        builtin(), (at_most(steps, 0), *POLICIES, end_over_budget(budget)),
        rules(directory), files=files, commands=ShellCommands(), tool_dependencies=house,
        facts=partial(facts_of, directory), prompt=SystemPrompt(effort=record.view.session.effort),
        budget=budget, shares=SHARES,
    )  # fmt: skip


async def open_session(
    provider: Provider,
    directory: Path,
    store: MemoryStore | None = None,
    steps: int = 9,
    question_timeout: float | None = None,
    budget: Budget = NO_LIMIT,
) -> Session:
    record = Recorder(store or MemoryStore(), clock=time.time)
    background = LazyBackground(record)
    session = await Session.open(
        record,
        lambda _: world(provider, record, directory, steps, budget, background),
        directory=str(directory),
        session_options=SessionOptions(question=question_timeout),
    )
    session.background = background
    return session


class Staged(Struct, frozen=True, kw_only=True):
    """Options of a staged app, with the defaults of every stage."""

    facts: Facts | None = None
    always: Callable[[str], None] | None = None
    tools: tuple[Tool, ...] | None = None
    preset: str = "coding"
    presets: tuple[Preset, ...] | None = None
    skills: Catalogue | None = None
    shortcuts: Shortcuts | None = None
    remembering: ProjectMemory | None = None
    files: DiskFiles | None = None
    learns: bool = False
    keep: bool = False
    model: str = ""  # the model that makes notes
    notify: float = 0.0
    vi: bool = False
    display: str = "auto"
    theme: str = "auto"


class StagedModels(Models):
    """Two models of one provider."""

    def full_name(self, name: str) -> str:
        return name if "/" in name else self.check(name)

    def check(self, name: str) -> str:
        if name not in ("one", "two", "script/one", "script/two"):
            raise BadInput(f"there is no model {name!r}: one or two")
        return f"script/{name.removeprefix('script/')}"

    def names(self) -> tuple[str, ...]:
        return ("script/one", "script/two")


class StagedPrompts(SystemPromptBuilder):
    own: tuple[Preset, ...] | None = None

    def presets(self) -> tuple[tuple[Preset, ...], tuple[str, ...]]:
        return super().presets() if self.own is None else (self.own, ())

    def preset(self, name: str) -> Preset:
        staged = next((item for item in self.own or () if item.name == name), None)
        return staged or super().preset(name)


class StagedPaths(Paths, frozen=True):
    @property
    def folders(self) -> Path:
        return Path(FOLDERS)


class StagedWorkspace(Workspace):
    """Rules are saved in a file of the folder."""

    save: Callable[[str], None] | None = None
    given: Facts | None = None

    def facts(self) -> Facts:
        return self.given or facts_of(Path(self.directory))

    def store_allow_rules(self, rule: str) -> None:
        (self.save or partial(save_allow_rule, Path(self.directory)))(rule)


class NoShortcuts(Shortcuts):
    def find(self, name: str) -> None:
        return None

    def offered(self) -> tuple[ShortcutInfo, ...]:
        return ()

    def notices(self) -> tuple[str, ...]:
        return ()


class StagedApp(App):
    """An app that opens sessions of the stage, with the rules and facts of its folder."""

    def __init__(
        self, provider: Provider, directory: Path, budget: Budget, staged: Staged
    ) -> None:
        places = paths(os.environ)
        own = StagedPaths(places.config, places.data, directory / ".state")
        settings = Settings(
            notify_seconds=staged.notify,
            preset=staged.preset,
            skills=staged.skills is not None,
            memory=staged.remembering is not None,
            budget=Spending(
                dollars=budget.dollars or 0,
                tokens=budget.tokens or 0,
                calls=budget.calls or 0,
                seconds=budget.seconds or 0,
            ),
            terminal=convert(
                {"display": staged.display, "theme": staged.theme, "vi": staged.vi},
                TerminalSettings,
            ),
        )
        options = LaunchOptions(
            directory=directory,
            provider=provider,
            model=staged.model,
            keep=staged.keep or staged.remembering is not None,
        )
        self._provider, self._budget, self._staged = provider, budget, staged
        super().__init__(settings, own, os.environ, options)
        self.models = StagedModels(settings, own, os.environ, {}, options)
        self.workspace = StagedWorkspace(
            settings, own, os.environ, WorkspaceDirectories(directory)
        )
        ground = SessionGround(roots=self.workspace.roots, trust=False)
        self.system_prompt = StagedPrompts(settings, own, os.environ, ground)
        self.system_prompt.own = staged.presets
        self.workspace.save = staged.always
        self.workspace.given = staged.facts
        self.workspace.files = staged.files or self.workspace.files
        self.tools = builtin() if staged.tools is None else staged.tools

    @property
    def rules(self) -> Sequence[Rule]:
        return rules(Path(self.directory))

    @property
    def skills(self) -> Catalogue:  # type: ignore[override]  # a cached one there
        return self._staged.skills or Catalogue(NO_SKILLS)

    @property
    def project_memory(self) -> ProjectMemory:  # type: ignore[override]  # a cached one there
        assert self._staged.remembering is not None
        return self._staged.remembering

    @property
    def makes_notes(self) -> bool:
        return self._staged.learns

    def shortcuts(self, reserved_names: Collection[str]) -> Shortcuts:
        return self._staged.shortcuts or NoShortcuts(self.skills, NO_SKILLS, reserved_names)

    def model_of(self, view: View) -> str:
        return view.session.model or "script/one"

    def notices(self) -> tuple[str, ...]:
        return ()

    def snapshots(self, session: str) -> None:
        return None

    def turn_context(self, record: Recorder, id_: str) -> TurnContext:
        result = world(self._provider, record, Path(self.directory), 9, self._budget)
        result = replace(result, tools=self.tools)
        return cast("TurnContext", lambda _: result)

    async def start(self, id_: str = "", claim: int = 0) -> tuple[str, Session]:
        return "", await open_session(self._provider, Path(self.directory))


NO_SKILLS = SkillScope(
    directory="/none", repository="/none", home="/none", config="/none", trusted="/none"
)


def handle_on(
    session: Session,
    provider: Provider,
    directory: Path,
    budget: Budget = NO_LIMIT,
    **options: Any,
) -> ClientSession:
    """Return the client session of a staged session. `options` are fields of `Staged`."""
    app = StagedApp(provider, directory, budget, Staged(**options))
    return ClientSession(Launch(app, commands=names), OpenedSession(app, session))


async def main(story: str, first_words: str) -> int:
    here = Path.cwd()
    provider = Unhurried(*SCRIPTS[story], wait=0.002 if story in ("slow", "late") else 0.0)
    budget = Budget(0.01) if story == "costly" else NO_LIMIT
    session = await open_session(
        provider,
        here,
        steps=2 if story == "steps" else 9,
        question_timeout=float(os.environ.get("PATIENCE", "300")),
        budget=budget,
    )
    handle = handle_on(
        session,
        provider,
        here,
        budget,
        notify=float(os.environ.get("NOTIFY", "0")),
        display=os.environ.get("SHOWN", "auto"),
        theme=os.environ.get("THEME", "auto"),
        vi="VI" in os.environ,
    )
    try:
        return await run(handle, first_words)
    finally:
        await session.close()


if __name__ == "__main__":
    sys.exit(anyio.run(main, sys.argv[1], " ".join(sys.argv[2:])))
