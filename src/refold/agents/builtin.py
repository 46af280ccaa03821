"""The built-in agents. The system prompt of each is the file NAME.md in this folder.

A prompt is read only when its agent is looked up, because most starts use few of these agents.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from msgspec.structs import replace

from refold.agents.profile import READ_ONLY_EFFECTS, Profile, TurnLimits
from refold.skills.front_matter import split
from refold.tools.python_tool import TOOL_NAME as PYTHON
from refold.values.tools import Effect

BOARD_TOOLS = ("task_create", "task_get", "task_update", "task_list", "task_claim")
_DATA_TOOLS = ("json_query", "calc", "docs_lookup")
_CODE_TOOLS = ("symbols", "references", "diagnostics")
_DEFERRED_TOOLS = (
    "tree", "apply_patch", "notebook_edit", "claim", "python", "background_*", "monitor", "notify", "schedule", *BOARD_TOOLS, *_DATA_TOOLS,
    *_CODE_TOOLS, "web_search", "*_worktree",
)  # fmt: skip
_READING_TOOLS = ("read_file", "list_files", "tree", "glob", "grep", "history_search")
MAP_TOOL = "repo_map"
_NOTE_TOOLS = ("think", "todo_write", "compact")
# Only the main agent makes plans with the user.
_PLAN_TOOLS = ("enter_plan_mode", "exit_plan_mode")
_SKILL_TOOLS = ("list_skills", "read_skill")
_MAIN_DESCRIPTION = "Does whatever the task takes: reads, changes files, runs commands."


def _main() -> Profile:
    return Profile(
        name="main", description=_MAIN_DESCRIPTION, deferred=_DEFERRED_TOOLS, use="main"
    )


def _code() -> Profile:
    return replace(
        _from_file("code"),
        deferred=_DEFERRED_TOOLS,
        without=_PLAN_TOOLS,
        use="child",
        memory=False,
    )


def _explore() -> Profile:
    return replace(
        _from_file("explore"),
        role="small",
        tools=(*_READING_TOOLS, *_CODE_TOOLS, *_NOTE_TOOLS, MAP_TOOL),
        effects=READ_ONLY_EFFECTS,
        bounds=TurnLimits(steps=30),
        memory=False,
        skills=False,
    )


def _plan() -> Profile:
    planning = ("ask_user", "exit_plan_mode")
    return replace(
        _from_file("plan"),
        tools=(*_READING_TOOLS, *_NOTE_TOOLS, *_SKILL_TOOLS, MAP_TOOL, *planning),
        deferred=(*_DATA_TOOLS, *_CODE_TOOLS),
        effects=READ_ONLY_EFFECTS,
        mode="plan",
        then="main",
    )


def _research() -> Profile:
    return replace(
        _from_file("research"),
        tools=(*_READING_TOOLS, *_NOTE_TOOLS, *_SKILL_TOOLS, "ask_user"),
        deferred=(*_DATA_TOOLS, *_CODE_TOOLS),
        effects=READ_ONLY_EFFECTS,
    )


def _web_research() -> Profile:
    web = ("web_search", "web_fetch", "docs_lookup")
    return replace(
        _from_file("web-research"),
        tools=(*web, *_READING_TOOLS, *_NOTE_TOOLS, "ask_user"),
        deferred=("json_query", "calc"),
        effects=READ_ONLY_EFFECTS | {Effect.NET},
        bounds=TurnLimits(steps=30),
        memory=False,
        skills=False,
    )


def _review() -> Profile:
    return replace(
        _from_file("review"),
        role="judge",
        tools=(*_READING_TOOLS, *_CODE_TOOLS, *_NOTE_TOOLS, *_SKILL_TOOLS),
        effects=READ_ONLY_EFFECTS,
    )


def _rlm() -> Profile:
    return replace(
        _from_file("rlm"),
        short=_text("rlm-small"),
        tools=(PYTHON, *_READING_TOOLS, "think"),
        effects=READ_ONLY_EFFECTS,  # the sandbox keeps its code from writing
        acting="code",
        memory=False,
        skills=False,
    )


BUILTIN_AGENTS: Mapping[str, Callable[[], Profile]] = MappingProxyType(
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
AGENT_ALIASES: Mapping[str, str] = MappingProxyType({"general": "code"})


def _from_file(name: str) -> Profile:
    """Return the agent whose description and prompt are in the file of that name."""
    file = split(_text(name))
    return Profile(
        name=name,
        description=file.values["description"] or "",
        version=int(file.values["version"] or 0),
        prompt=file.body,
    )


def _text(name: str) -> str:
    return Path(__file__).with_name(f"{name}.md").read_text(encoding="utf-8")
