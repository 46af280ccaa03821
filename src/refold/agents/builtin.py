"""The built-in agents. The system prompt of each is the file NAME.md in this folder.

A prompt is read when its agent is looked up: most starts need none of them.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from msgspec.structs import replace

from refold.agents.profile import LOOKING, Profile, TurnLimits
from refold.skills.front_matter import split
from refold.tools.python_tool import TOOL_NAME as PYTHON
from refold.values.tools import Effect

BOARD = ("task_create", "task_get", "task_update", "task_list", "task_claim")
_DATA = ("json_query", "calc", "docs_lookup")
_CODE = ("symbols", "references", "diagnostics")
_RARE = (
    "tree", "apply_patch", "notebook_edit", "claim", "python", "background_*", "monitor", "notify", "schedule", *BOARD, *_DATA,
    *_CODE, "web_search", "*_worktree",
)  # fmt: skip
_LOOKS = ("read_file", "list_files", "tree", "glob", "grep", "history_search")
_MINDS = ("think", "todo_write", "compact")
_PLANS = ("enter_plan_mode", "exit_plan_mode")  # the user plans with the main agent only
_SKILLS = ("list_skills", "read_skill")
_WORKS = "Does whatever the task takes: reads, changes files, runs commands."


def _main() -> Profile:
    return Profile(name="main", description=_WORKS, deferred=_RARE, use="main")


def _code() -> Profile:
    return replace(
        _from_file("code"), deferred=_RARE, without=_PLANS, use="child", memory=False
    )


def _explore() -> Profile:
    return replace(
        _from_file("explore"),
        role="small",
        tools=(*_LOOKS, *_CODE, *_MINDS),
        effects=LOOKING,
        bounds=TurnLimits(steps=30),
        memory=False,
        skills=False,
    )


def _plan() -> Profile:
    planning = ("ask_user", "exit_plan_mode")
    return replace(
        _from_file("plan"),
        tools=(*_LOOKS, *_MINDS, *_SKILLS, *planning),
        deferred=(*_DATA, *_CODE),
        effects=LOOKING,
        mode="plan",
        then="main",
    )


def _research() -> Profile:
    return replace(
        _from_file("research"),
        tools=(*_LOOKS, *_MINDS, *_SKILLS, "ask_user"),
        deferred=(*_DATA, *_CODE),
        effects=LOOKING,
    )


def _web_research() -> Profile:
    web = ("web_search", "web_fetch", "docs_lookup")
    return replace(
        _from_file("web-research"),
        tools=(*web, *_LOOKS, *_MINDS, "ask_user"),
        deferred=("json_query", "calc"),
        effects=LOOKING | {Effect.NET},
        bounds=TurnLimits(steps=30),
        memory=False,
        skills=False,
    )


def _review() -> Profile:
    return replace(
        _from_file("review"),
        role="judge",
        tools=(*_LOOKS, *_CODE, *_MINDS, *_SKILLS),
        effects=LOOKING,
    )


def _rlm() -> Profile:
    return replace(
        _from_file("rlm"),
        short=_text("rlm-small"),
        tools=(PYTHON, *_LOOKS, "think"),
        effects=LOOKING,  # the sandbox keeps its code read-only
        acting="code",
        memory=False,
        skills=False,
    )


BUILTIN: Mapping[str, Callable[[], Profile]] = MappingProxyType(
    {
        "main": _main,
        "code": _code,
        "explore": _explore,
        "plan": _plan,
        "research": _research,
        "review": _review,
        "rlm": _rlm,
        "web-research": _web_research,
    }
)
ALIASES: Mapping[str, str] = MappingProxyType({"general": "code"})


def _from_file(name: str) -> Profile:
    """The description and the prompt in the file of that name."""
    found = split(_text(name))
    return Profile(
        name=name,
        description=found.values["description"] or "",
        version=int(found.values["version"] or 0),
        prompt=found.body,
    )


def _text(name: str) -> str:
    return Path(__file__).with_name(f"{name}.md").read_text(encoding="utf-8")
