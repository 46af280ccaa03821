"""Answers a task with one model in several ways, each in a session of its own.

`flat` puts all material into one request, `recursive` is the agent `rlm`, `code` is the same agent whose prompt names no function
that asks a model, and `search` puts the lines with the rarest words of the question into one request.
"""

import os
import re
import time
from collections import Counter
from collections.abc import Mapping
from math import log
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from msgspec import Struct
from msgspec.structs import replace

from bench.long_context.task import Task
from refold.agents.builtin import BUILTIN_AGENTS
from refold.agents.profile import Profile
from refold.app.app import App
from refold.app.launch_options import LaunchOptions
from refold.client.launch import Launch
from refold.client.session import Session
from refold.config.folder_settings import load_folder_settings
from refold.config.paths import paths
from refold.provider.port import Provider
from refold.rlm.initial_variables import InitialVariables
from refold.rlm.material import (
    VARIABLE_NAME,
    Material,
    flat_prompt,
    flat_text,
    recursive_text,
)
from refold.rlm.router import Size
from refold.values.usage import Usage

Way: TypeAlias = Literal["flat", "recursive", "code", "search"]
WAYS: tuple[Way, ...] = get_args(Way)
_ANSWER_TOKENS = 4_000  # the part of the window that flat material leaves free
_BYTES_PER_TOKEN = 4
_SEARCH_CHARS = 8_000  # of the lines that a search puts into the request
_COMMON_WORDS = frozenset((
    "a", "all", "alone", "and", "answer", "are", "as", "by", "do", "does", "how", "in", "is", "many", "number", "of",
    "the", "what", "which", "with",
))  # fmt: skip
_NO_MODELS = re.compile(
    r"(?m)^- (?:lm|map_lm|rlm|map_rlm|attach_rlm)\(.*\n|^\d\. Look at every slot.*\n| Use lm for what.*$"
)


class Engine(Struct, frozen=True):
    """The model that answers, by name or as a `provider`, and its window in tokens.

    `seconds` is the time for one answer.
    """

    window: int
    model: str = ""
    provider: Provider | None = None
    seconds: float = 300.0


class Outcome(Struct, frozen=True):
    """The outcome of a task. `problem` says why there is no answer, or is "".

    `calls` counts the responses of the model.
    """

    task: Task
    way: Way
    is_right: bool
    usage: Usage = Usage()
    calls: int = 0
    leaves: int = 0
    seconds: float = 0.0
    problem: str = ""
    text: str = ""


async def ask(task: Task, way: Way, engine: Engine, home: Path) -> Outcome:
    """Answer the task in this way. The session is stored in `home`."""
    material = Material(dict(task.material), len(task.material), task.bytes)
    if way == "search":
        lines = search(task.question, task.material)
        material = Material(lines, 1, len(lines.encode()))
    if way in ("flat", "search"):
        if material.tokens + _ANSWER_TOKENS > engine.window:
            return Outcome(task, way, is_right=False, problem="does not fit")
        options = LaunchOptions(directory=home, tools=(), own_system=flat_prompt())
        return await _run(
            task, way, engine, options, flat_text(task.question, material), "main"
        )
    agent = "rlm" if way == "recursive" else "rlm-alone"
    initial_variables = InitialVariables({VARIABLE_NAME: material.value})
    options = LaunchOptions(
        directory=home,
        initial_variables=initial_variables,
        agents=(agent_without_models(),),
    )
    text = recursive_text(task.question, material, shown=bool(engine.model))
    return await _run(task, way, engine, options, text, agent)


async def _run(
    task: Task, way: Way, engine: Engine, options: LaunchOptions, text: str, agent: str
) -> Outcome:
    began = time.monotonic()
    app = _app(engine, options, agent)
    launch = Launch(app)
    try:
        session = Session(launch, await launch.start())
        result = await session.run(text)
        spent, leaves = session.view.turn.spent, session.view.children.leaves
    finally:
        await launch.aclose()
    problem = (
        ""
        if result.outcome in ("answered", "final")
        else f"{result.outcome}: {result.reason}"
    )
    return Outcome(
        task, way, not problem and task.is_right(result.text), spent.usage, spent.answers, leaves,
        time.monotonic() - began, problem, result.text,
    )  # fmt: skip


def _app(engine: Engine, options: LaunchOptions, agent: str) -> App:
    environ = {**os.environ, "REFOLD_HOME": str(options.directory)}
    places = paths(environ)
    chosen = {
        "agent": agent, "memory": False, "instructions": False, "skills": False, "preset": "coding",
        "context.default_window_tokens": engine.window,
    }  # fmt: skip
    loaded = load_folder_settings(options.directory, places, environ, chosen)
    ready = replace(options, model=engine.model, provider=engine.provider, attended=False)
    return App(loaded.settings, places, environ, ready)


def agent_without_models() -> Profile:
    """Return the agent `rlm`, whose prompt names no function that asks a model."""
    agent = BUILTIN_AGENTS["rlm"]()
    return replace(agent, name="rlm-alone", prompt=_NO_MODELS.sub("", agent.prompt))


def size_of(task: Task, window: int) -> Size:
    """Return the material as the router sees it."""
    return Size(-(-task.bytes // _BYTES_PER_TOKEN), len(task.material), window)


def search(question: str, material: Mapping[str, str]) -> str:
    """Return the lines with the rarest words of the question, with path and number.

    The result has at most `_SEARCH_CHARS` characters.
    """
    words = set(re.findall(r"[\w./-]*\w", question)) - _COMMON_WORDS
    lines = [
        (
            path,
            number,
            line,
            words.intersection(re.findall(r"[\w./-]*\w", f"{path} {line}")),
        )
        for path, text in material.items()
        for number, line in enumerate(text.splitlines(), 1)
    ]
    counts = Counter(word for *_, hits in lines for word in hits)
    weights = {word: log(1 + len(lines) / count) for word, count in counts.items()}
    order = sorted(
        (entry for entry in lines if entry[3]),
        key=lambda entry: -sum(weights[word] for word in entry[3]),
    )
    chosen, left = list[tuple[str, int, str]](), _SEARCH_CHARS
    for path, number, line, _ in order:
        left -= len(path) + len(line) + 8
        if left < 0:
            break
        chosen.append((path, number, line))
    return "\n".join(f"{path}:{number}: {line}" for path, number, line in sorted(chosen))
