"""A whole session in a real terminal, but for the model: it says what its script says.

Run as a program by the stories. The journal is in memory; tools, questions and the
terminal are real, and so is the current directory.
"""

import os
import sys
import time
from collections.abc import AsyncGenerator
from functools import partial
from pathlib import Path

import anyio

from refold.engine.policies.budget import within
from refold.engine.policies.compaction import compacting
from refold.engine.policies.conversation import converse, final
from refold.engine.policies.plan_mode import in_plan_mode, plan_ready
from refold.engine.policies.step_limit import at_most, going_on
from refold.engine.policies.stopping import after_a_stop, stopping
from refold.engine.policies.stuck import not_refused
from refold.engine.prune import Shares
from refold.engine.world import Model, SystemPrompt, World
from refold.errors import BadInput
from refold.journal.store.port import MemoryStore
from refold.permissions.facts import Facts
from refold.permissions.rules import Rule, parse
from refold.place.commands import ShellCommands
from refold.place.files import DiskFiles
from refold.provider.port import Delta, Provider, Request
from refold.session.recorder import Recorder
from refold.session.session import Manners, Session
from refold.terminal.run import run
from refold.terminal.surroundings import Surroundings
from refold.testing.providers import Line, Reply, ScriptedProvider
from refold.tools.builtin import builtin
from refold.values.usage import NO_LIMIT, Budget, Usage

ALWAYS = ".always"  # the file in which rules are saved
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
    """A model that takes its time, so that somebody can interrupt it."""

    def __init__(self, *lines: Line, wait: float = 0.0) -> None:
        self._script, self._wait = ScriptedProvider(*lines), wait

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        async for delta in self._script.stream(request):
            await anyio.sleep(self._wait)
            yield delta


SHARES = Shares(messages=2)
POLICIES = (
    stopping, compacting(SHARES), final, plan_ready, not_refused(3), going_on, after_a_stop,
    in_plan_mode("default"), converse,
)  # fmt: skip


def facts_of(here: Path) -> Facts:
    return Facts(
        roots=(os.path.realpath(here),), follow=lambda path: os.path.realpath(here / path)
    )


def rules(here: Path) -> tuple[Rule, ...]:
    """What was always allowed in this directory."""
    kept = here / ALWAYS
    written = kept.read_text(encoding="utf-8").splitlines() if kept.exists() else []
    return tuple(parse(text, "allow", "always") for text in written)


def always(here: Path, rule: str) -> None:
    with (here / ALWAYS).open("a", encoding="utf-8") as kept:
        kept.write(f"{rule}\n")


def price(model: str, usage: Usage) -> float:
    return (usage.fresh * 3 + usage.output * 15) / 1e6


def world(
    provider: Provider, record: Recorder, here: Path, steps: int, budget: Budget = NO_LIMIT
) -> World:
    files = DiskFiles(here)
    house = {"blobs": record, "directory": here}
    return World(
        Model(provider, record.view.session.model or "script/one", 10_000, price),
        builtin(), (at_most(steps, 0), *POLICIES, within(budget)),
        rules(here), files=files, commands=ShellCommands(), tool_dependencies=house,
        facts=partial(facts_of, here), prompt=SystemPrompt(effort=record.view.session.effort),
        budget=budget, shares=SHARES,
    )  # fmt: skip


async def opened(
    provider: Provider,
    here: Path,
    store: MemoryStore | None = None,
    steps: int = 9,
    patience: float | None = None,
    budget: Budget = NO_LIMIT,
) -> Session:
    record = Recorder(store or MemoryStore(), clock=time.time)
    return await Session.open(
        record,
        lambda _: world(provider, record, here, steps, budget),
        directory=str(here),
        manners=Manners(question=patience),
    )


async def choose(name: str) -> str:
    if name not in ("one", "two"):
        raise BadInput(f"there is no model {name!r}: one or two")
    return f"script/{name}"


def surroundings(provider: Provider, here: Path, budget: Budget = NO_LIMIT) -> Surroundings:
    return Surroundings(
        budget=budget,
        notify=float(os.environ.get("NOTIFY", "0")),
        display=os.environ.get("SHOWN", "auto"),
        theme=os.environ.get("THEME", "auto"),
        model="script/one",
        models=("script/one", "script/two"),
        choose_model=choose,
        new_session=partial(opened, provider, here),
        tools=builtin(),
        rules=rules(here),
        facts=partial(facts_of, here),
        always=partial(always, here),
        saved_in=ALWAYS,
        history=here / ".history",
        vi="VI" in os.environ,
    )


async def main(story: str, first_words: str) -> int:
    here = Path.cwd()
    provider = Unhurried(*SCRIPTS[story], wait=0.002 if story in ("slow", "late") else 0.0)
    budget = Budget(0.01) if story == "costly" else NO_LIMIT
    session = await opened(
        provider,
        here,
        steps=2 if story == "steps" else 9,
        patience=float(os.environ.get("PATIENCE", "300")),
        budget=budget,
    )
    try:
        return await run(session, surroundings(provider, here, budget), first_words)
    finally:
        await session.close()


if __name__ == "__main__":
    sys.exit(anyio.run(main, sys.argv[1], " ".join(sys.argv[2:])))
