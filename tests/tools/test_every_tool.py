"""Our tools pass the conformance suite."""

from collections.abc import Iterator

import anyio
import pytest

from refold.agents.builtin import BUILTIN_AGENTS
from refold.agents.profile import tools_of
from refold.testing.places import temporary_place
from refold.testing.tool_conformance import ToolCase, ToolContract
from refold.tools.builtin import builtin
from refold.tools.contract import Tool
from refold.values.control import NewTask

PATCH = """*** Begin Patch
*** Update File: a.txt
@@
-two
+2
*** Add File: b.txt
+new
*** Delete File: n.ipynb
*** End Patch"""
NOTEBOOK = '{"cells": [{"cell_type": "raw", "metadata": {}, "source": "1"}]}'
TOOLS = {tool.name: tool for tool in builtin()}
ARGUMENTS: dict[str, dict[str, object]] = {
    "read_file": {"path": "a.txt"},
    "list_files": {"path": "."},
    "tree": {"path": "."},
    "glob": {"pattern": "*.txt"},
    "grep": {"pattern": "two"},
    "write_file": {"path": "a.txt", "content": "new\n" * 1000},
    "edit_file": {"path": "a.txt", "old": "two", "new": "2"},
    "multi_edit": {"path": "a.txt", "edits": [{"old": "two", "new": "2"}]},
    "apply_patch": {"patch": PATCH},
    "notebook_edit": {"path": "n.ipynb", "cell": 1, "source": "2"},
    "bash": {"command": "echo hello"},
    "background_run": {"command": "sleep 60"},
    "background_output": {"name": "background-1"},
    "background_stop": {"name": "background-1"},
    "monitor": {"command": "tail -F a.txt", "until": "ready|Error"},
    "python": {"code": "1 + 1"},
    "task": {"prompt": "Count the tests.", "agent": "explore"},
    "schedule": {"prompt": "Run the tests.", "every": "mon-fri 08:00"},
    "think": {"thought": "so far so good"},
    "notify": {"message": "The tests pass."},
    "todo_write": {"todos": [{"subject": "look", "status": "in_progress"}]},
    "compact": {"focus": "the names"},
    "history_search": {"query": "names"},
    "claim": {"claims": [{"claim": "It is so.", "evidence": [{"path": "a.txt"}]}]},
    "task_create": {"subject": "Paint the fence", "blocked_by": [1]},
    "task_get": {"id": 1},
    "task_update": {"id": 1, "status": "done"},
    "task_list": {},
    "task_claim": {"id": 1},
    "web_fetch": {"url": "https://example.org/"},
    "web_search": {"query": "example"},
    "docs_lookup": {"package": "tea"},
    "json_query": {"expression": "a", "json": '{"a": 1}'},
    "calc": {"expression": "0.1 + 0.2"},
    "symbols": {"file": "a.txt"},
    "references": {"file": "a.txt", "line": 1, "symbol": "one"},
    "diagnostics": {"file": "a.txt"},
    "repo_map": {"focus": "a.txt, one"},
    "enter_worktree": {"name": "topic"},
    "exit_worktree": {"action": "keep"},
    "memory_write": {"section": "preferences", "text": "I like tea."},
    "list_skills": {},
    "read_skill": {"name": "tea"},
    "ask_user": {"questions": [{"question": "Tea?", "options": [{"label": "yes"}]}]},
    "enter_plan_mode": {"reason": "it is much"},
    "exit_plan_mode": {"plan": "# First look"},
}


class TestEveryTool(ToolContract):
    @pytest.fixture(params=TOOLS.values(), ids=TOOLS)
    def case(self, request: pytest.FixtureRequest) -> Iterator[ToolCase]:
        tool: Tool = request.param
        with temporary_place() as place:
            (place.directory / "a.txt").write_text("one\ntwo\nthree\n")
            (place.directory / "n.ipynb").write_text(NOTEBOOK)
            for name in ("a.txt", "n.ipynb"):
                anyio.run(place.use, TOOLS["read_file"], {"path": name})
            anyio.run(place.board.add, NewTask("Mow the lawn"), "session", "another call")
            place.mode = "plan" if tool.name == "exit_plan_mode" else "default"
            place.answers = ("yes",)
            anyio.run(place.use, TOOLS["background_run"], {"command": "sleep 60"})
            yield ToolCase(tool, ARGUMENTS[tool.name], place)


def test_the_built_in_tools_are_registered_in_the_expected_order() -> None:
    assert list(TOOLS) == list(ARGUMENTS)


def test_the_tool_descriptions_of_main_take_less_than_2300_tokens() -> None:
    """2,300 tokens at four letters each, for those that `main` has from the start."""
    active = tools_of(BUILTIN_AGENTS["main"](), TOOLS.values()).active
    letters = sum(
        len(t.name) + len(t.description) + len(bytes(t.spec.parameters)) for t in active
    )

    assert letters / 4 < 2300


def test_tools_need_only_the_resources_listed_here() -> None:
    assert {name: set(tool.signature().needs) for name, tool in TOOLS.items()} == {
        "read_file": {"files", "blobs"},
        "list_files": {"files"},
        "tree": {"files"},
        "glob": {"files"},
        "grep": {"files", "commands"},
        "write_file": {"files", "known", "unread"},
        "edit_file": {"files", "known"},
        "multi_edit": {"files", "known"},
        "apply_patch": {"files", "known"},
        "notebook_edit": {"files", "known"},
        "bash": {
            "files",
            "commands",
            "confines",
            "directory",
            "progress",
            "background",
            "call",
        },
        "background_run": {
            *("files", "commands", "confines", "directory", "background", "call"),
        },
        "background_output": {"background"},
        "background_stop": {"background"},
        "monitor": {"files", "commands", "confines", "directory", "background", "call"},
        "python": {"repl", "call", "progress"},
        "task": {"children", "call"},
        "schedule": {"schedules", "call"},
        "think": set(),
        "notify": set(),
        "todo_write": set(),
        "compact": set(),
        "history_search": {"history"},
        "claim": {"checks"},
        "task_create": {"board"},
        "task_get": {"board"},
        "task_update": {"board"},
        "task_list": {"board"},
        "task_claim": {"board"},
        "web_fetch": {"web", "judge"},
        "web_search": {"web"},
        "docs_lookup": {"files"},
        "json_query": {"files", "blobs"},
        "calc": set(),
        "symbols": {"files", "code"},
        "references": {"files", "code"},
        "diagnostics": {"files", "known", "code"},
        "repo_map": {"code"},
        "enter_worktree": {"worktrees", "call"},
        "exit_worktree": {"worktrees", "call"},
        "memory_write": {"memory"},
        "list_skills": {"skills"},
        "read_skill": {"skills"},
        "ask_user": {"answers"},
        "enter_plan_mode": {"mode"},
        "exit_plan_mode": {"mode"},
    }
