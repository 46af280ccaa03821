"""Each panel and each dialog of the full screen, through a pty; none is without its story."""

import ast
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import refold
from refold.tui.messages import PANEL_NAMES
from refold.views.question_keys import CALM_SECONDS
from tests.mcp import fake_server
from tests.terminal.pty_terminal import ENTER, ESC, Terminal
from tests.tui import test_full_screen_stories as stories
from tests.tui.conftest import HELLO, OpenTerminal
from tests.tui.test_full_screen_stories import (
    CHANGE,
    DONE,
    DOWN,
    EDIT,
    PLAN,
    wait_until_ready,
)

F3, F4, F5, F6 = "\x1bOR", "\x1bOS", "\x1b[15~", "\x1b[17~"
CTRL_U = "\x15"
# Of the reader.
READS = {"choose", "read_choice", "read_line", "read_message", "pick", "read_draft", "edit"}
# The panels, and where each is opened and used.
OF_PANELS = {
    "todos": "test_panels_search_and_the_command_palette_open_by_their_keys",
    "tasks": "test_panels_show_the_task_board_and_the_output_of_a_background_command",
    "background": "test_panels_show_the_task_board_and_the_output_of_a_background_command",
    "agents": "test_subagents_are_watched_answered_and_stopped_in_their_panel",
    "changes": "test_panels_show_changes_cost_and_plan",
    "cost": "test_panels_show_changes_cost_and_plan",
    "plan": "test_panels_show_changes_cost_and_plan",
}
# Each function that asks the person, and the test that answers it.
OF_DIALOGS = {
    "commands/agent.py: _pick": "test_agent_model_and_theme_are_picked_from_lists",
    "commands/export.py: _pick": "test_an_export_is_written_to_the_file_that_the_user_names",
    "commands/mcp.py: _pick": "test_an_mcp_server_is_picked_and_a_form_of_it_is_filled_in",
    "commands/edit.py: _edit": "test_a_message_is_edited_in_the_full_screen_without_an_editor",
    "commands/model.py: _pick": "test_agent_model_and_theme_are_picked_from_lists",
    "commands/permissions.py: _pick": "test_a_rule_is_added_edited_and_removed_in_the_list_of_permissions",
    "commands/rewind.py: _pick": "test_a_fork_and_a_rewind_are_confirmed_and_shown",
    "commands/rewind.py: _ask_about_drift": "test_a_rewind_asks_about_files_that_another_program_changed",
    "commands/resume.py: run": "test_a_session_is_picked_from_the_list_with_its_preview",
    "commands/theme.py: _pick": "test_agent_model_and_theme_are_picked_from_lists",
    "console/permission_prompt.py: _ask_for_message": "test_an_approval_is_sent_with_a_message_for_the_model",
    "console/permission_prompt.py: _confirm_always": "test_a_rule_is_written_and_saved",
    "console/permission_prompt.py: _ask_about_all": "test_several_questions_are_decided_with_one_key",
    "console/permission_prompt.py: _ask_refusal": "test_a_refusal_with_its_reason_reaches_the_model",
    "console/permission_prompt.py: _write_rule": "test_a_rule_is_written_and_saved",
    "console/permission_prompt.py: ask": "test_an_edit_is_approved_in_the_full_screen",
    "console/permission_prompt.py: choose": "test_an_edit_is_approved_in_the_full_screen",
    "console/form_prompt.py: _ask_for_value": "test_an_mcp_server_is_picked_and_a_form_of_it_is_filled_in",
    "console/form_prompt.py: ask": "test_an_mcp_server_is_picked_and_a_form_of_it_is_filled_in",
    "console/list_prompt.py: pick": "test_agent_model_and_theme_are_picked_from_lists",
    "console/plan_prompt.py: _edit_plan": "test_a_plan_is_edited_in_an_editor_that_gets_the_whole_terminal",
    "console/plan_prompt.py: _ask_for_feedback": "test_a_plan_is_sent_back_with_feedback",
    "console/plan_prompt.py: _ask_for_verdict": "test_a_plan_is_approved_and_a_question_is_answered",
    "console/asker.py: _ask_question": "test_a_plan_is_approved_and_a_question_is_answered",
    "console/console_context.py: ask": "test_a_fork_and_a_rewind_are_confirmed_and_shown",
    "console/console_context.py: pick": "test_agent_model_and_theme_are_picked_from_lists",
    "console/console_context.py: edit_text": "test_a_message_is_edited_in_the_full_screen_without_an_editor",
    "console/console_context.py: _ask_for_trust": "test_settings_of_an_untrusted_directory_are_ignored",
}
# Of the line terminal alone, or of a terminal without a cursor.
NOT_HERE = {
    "console/list_prompt.py: _pick_by_number",
    "terminal/run.py: _read_input",
    "terminal/steering.py: finish_line",
}


def test_every_panel_and_every_dialog_has_a_test() -> None:
    texts = {*OF_PANELS.values(), *OF_DIALOGS.values()}

    assert set(OF_PANELS) == set(PANEL_NAMES)
    assert _asking_functions() == NOT_HERE | set(OF_DIALOGS)
    assert {
        text for text in texts if text not in globals() and not hasattr(stories, text)
    } == set()


def _asking_functions() -> set[str]:
    """Return the functions of commands and terminals that ask the person, or let them pick."""
    root = Path(refold.__path__[0])
    texts = set[str]()
    for file in root.rglob("*.py"):
        module = file.relative_to(root).as_posix()
        if (
            module.startswith(("commands/", "console/", "terminal/"))
            and "/input/" not in module
        ):
            tree = ast.parse(file.read_text(encoding="utf-8"))
            texts |= {f"{module}: {name}" for name in _functions_that_ask(tree)}
    return texts


def _functions_that_ask(tree: ast.AST) -> set[str]:
    texts = set[str]()
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            calls = (item.func for item in ast.walk(function) if isinstance(item, ast.Call))
            if any(_is_question_call(call) for call in calls):
                texts.add(function.name)
    return texts


def _is_question_call(function: ast.expr) -> bool:
    match function:
        case ast.Name("pick" | "ask_one"):
            return True
        case ast.Attribute(ast.Name("context"), "pick") | ast.Attribute(attr="edit_text"):
            return True
        case ast.Attribute(ast.Name("self" | "question"), "choose"):
            return True
        case ast.Attribute(ast.Name(of) | ast.Attribute(attr=of), name):
            return name in READS and of.endswith("reader")
        case _:
            return False


CHILDREN = (
    {"text": "I send two.", "calls": [
        {"tool": "task", "arguments": {"prompt": "Find it.", "agent": "code", "title": "find"}},
        {"tool": "task", "arguments": {"prompt": "Wait.", "agent": "code", "title": "wait"}},
    ]},
    {"for": "Find it.", "calls": [{"tool": "write_file", "arguments": {"path": "a", "content": "x"}}]},
    {"for": "Find it.", "text": "It was found."},
    {"for": "Wait.", "calls": [{"tool": "write_file", "arguments": {"path": "b", "content": "y"}}]},
    {"for": "Wait.", "text": "word " * 3000, "pause": 0.05},
    {"text": "Both are over."},
)  # fmt: skip
TAB = "\t"


@pytest.mark.slow
def test_subagents_are_watched_answered_and_stopped_in_their_panel(
    open_terminal: OpenTerminal, tmp_path: Path
) -> None:
    terminal = open_terminal(*CHILDREN, size=(30, 100))
    wait_until_ready(terminal)
    terminal.type("go" + ENTER)
    terminal.until("› 1 once")
    terminal.type(F3)
    terminal.until("Subagents")
    terminal.until("asks: write_file a")
    terminal.until("asks: write_file b")
    for key, file in (("", "a"), (DOWN, "b")):
        terminal.type(TAB + key + ENTER)
        terminal.until("Esc closes")
        terminal.until(f"Create {file}?")
        terminal.answer("y")
        terminal.wait_until_gone(f"Create {file}?")
    terminal.until("word word")
    terminal.type(F4 + ESC)
    terminal.wait_until_gone("Esc closes")
    terminal.until("No file was changed yet by this agent;")
    terminal.type(F3)
    terminal.until("Subagents")
    terminal.until("It was found.")
    terminal.type(TAB + DOWN + "x")
    terminal.until("Both are over.")

    assert (tmp_path / "work" / "a").read_text() == "x"
    assert (tmp_path / "work" / "b").read_text() == "y"


@pytest.mark.slow
def test_an_mcp_server_is_picked_and_a_form_of_it_is_filled_in(
    open_terminal: OpenTerminal, tmp_path: Path
) -> None:
    program = tmp_path / "work" / "shop.py"
    program.write_text(Path(fake_server.__file__).read_text())
    shop = {"command": sys.executable, "args": [str(program), "elicit-form"]}
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "mcp_servers.json").write_text(
        json.dumps({"mcpServers": {"shop": shop}})
    )
    order = {"tool": "mcp__shop__echo", "arguments": {"text": "one"}}
    terminal = open_terminal(
        {"text": "Good morning."},
        {"text": "I order it.", "calls": [order]},
        {"text": "It is ordered."},
        flags=("--allow", "mcp__*"),
        size=(40, 100),
    )
    wait_until_ready(terminal)
    terminal.type("hello" + ENTER)
    terminal.until("Good morning.")
    terminal.type("/mcp" + ENTER)
    terminal.until("Enter chooses")
    while "  connected  1 tool" not in terminal.text:  # it connects after the first request
        terminal.type(ESC)
        terminal.wait_until_gone("Enter chooses")
        terminal.type("/mcp" + ENTER)
        terminal.until("Enter chooses")
    terminal.type(ENTER)
    terminal.until("The MCP server shop")
    terminal.type(ENTER)
    terminal.wait_until_gone("The MCP server shop")
    terminal.type("go" + ENTER)
    terminal.until("form ›")
    time.sleep(CALM_SECONDS)
    terminal.type(ENTER)
    for label, value in (("Name", "Ada"), ("mail", "ada@example.org"), ("Colour", "Blue")):
        terminal.until(f"{label} (")
        terminal.type(value + ENTER)
    terminal.until("Enter sends it")
    terminal.type(ENTER)
    terminal.until("It is ordered.")


@pytest.mark.slow
def test_panels_show_changes_cost_and_plan(open_terminal: OpenTerminal) -> None:
    terminal = open_terminal(
        PLAN, EDIT, CHANGE, DONE, flags=("--permission-mode", "plan"), size=(30, 150)
    )
    wait_until_ready(terminal)
    terminal.type("go" + ENTER)
    terminal.choose("approve, accept edits")
    terminal.until("Now hello.py says hello.")
    terminal.type(F4)
    terminal.until("Changed files")
    terminal.type(TAB)
    terminal.until('+    return "hello"')
    terminal.type(F5)
    terminal.until("Context and cost")
    terminal.until("this session: ")
    terminal.type(F6)
    terminal.until("1. Change the word")

    assert any("│ " in row[100:] for row in terminal.rows)  # at the side of a wide screen


@pytest.mark.slow
def test_several_questions_are_decided_with_one_key(
    open_terminal: OpenTerminal, tmp_path: Path
) -> None:
    both = [
        {"tool": "write_file", "arguments": {"path": path, "content": "x"}}
        for path in ("a", "b")
    ]
    terminal = open_terminal({"calls": both}, DONE)
    wait_until_ready(terminal)
    terminal.type("go" + ENTER)
    terminal.until("view and decide all 2")
    terminal.choose("view and decide all 2")
    terminal.until("all of them, once")
    terminal.choose("all of them, once")
    terminal.until("Now hello.py says hello.")

    assert {item.name for item in (tmp_path / "work").iterdir()} == {"a", "b", "hello.py"}


@pytest.mark.slow
def test_a_rule_is_written_and_saved(open_terminal: OpenTerminal, tmp_path: Path) -> None:
    terminal = open_terminal(
        {"calls": [{"tool": "write_file", "arguments": {"path": "a.txt", "content": "x"}}]}, DONE
    )  # fmt: skip
    wait_until_ready(terminal)
    terminal.type("go" + ENTER)
    terminal.choose("write a rule")
    terminal.until("rule: ")
    terminal.type(CTRL_U + "nonsense(" + ENTER)
    terminal.until("nonsense")
    terminal.until("rule: ")
    terminal.type(CTRL_U + "write_file(./a.*)" + ENTER)
    terminal.until("this session: write_file(./a.*)")
    terminal.choose("always")
    terminal.until("Always allowed in this folder")
    terminal.choose("save it")
    terminal.until("Now hello.py says hello.")

    (saved,) = (tmp_path / "home").rglob("folders.toml")
    assert "write_file(./a.*)" in saved.read_text()


@pytest.mark.slow
def test_an_approval_is_sent_with_a_message_for_the_model(
    open_terminal: OpenTerminal,
) -> None:
    terminal = open_terminal(
        {"calls": [{"tool": "write_file", "arguments": {"path": "a.txt", "content": "x"}}]}, DONE
    )  # fmt: skip
    wait_until_ready(terminal)
    terminal.type("go" + ENTER)
    terminal.until("› 1 once")
    terminal.type(TAB)
    terminal.until("and tell the model:")
    terminal.type("in English" + ENTER)
    terminal.until("› in English")
    terminal.until("Now hello.py says hello.")


@pytest.mark.slow
def test_a_plan_is_sent_back_with_feedback(open_terminal: OpenTerminal) -> None:
    terminal = open_terminal(PLAN, PLAN, flags=("--permission-mode", "plan"))
    wait_until_ready(terminal)
    terminal.type("plan it" + ENTER)
    terminal.choose("feedback")
    terminal.until("what should be different?")
    terminal.type("shorter" + ENTER)
    terminal.until("Revise it and show it again:")
    terminal.until("  shorter")
    terminal.until("approve")


@pytest.mark.slow
def test_a_message_is_edited_in_the_full_screen_without_an_editor(
    open_terminal: OpenTerminal,
) -> None:
    terminal = open_terminal({"text": "An answer."}, EDITOR="", VISUAL="")
    wait_until_ready(terminal)
    terminal.type("first words" + ENTER)
    terminal.until("An answer.")
    terminal.type("/edit 2" + ENTER)
    terminal.until("message › first words")
    terminal.type(CTRL_U + "other words" + ENTER)
    terminal.until("Message 2 is changed.")


@pytest.mark.slow
def test_agent_model_and_theme_are_picked_from_lists(
    open_terminal: OpenTerminal, tmp_path: Path
) -> None:
    terminal = open_terminal(
        {"text": "An answer."}, ANTHROPIC_API_KEY="sk-ant-none", COLORTERM="truecolor"
    )
    wait_until_ready(terminal)
    terminal.type("/agent" + ENTER)
    terminal.until("Which agent?")
    terminal.type("explore" + ENTER)
    terminal.until("From the next turn: explore.")
    terminal.type("/model" + ENTER)
    terminal.until("Which model?")
    terminal.type("sonnet" + ENTER)
    terminal.until("From the next turn: anthropic/")
    terminal.type("/theme" + ENTER)
    terminal.until("Which theme?")
    before = _colours(terminal)
    terminal.type("light-contrast")
    terminal.until("› light-contrast")
    _wait_until(terminal, lambda: _colours(terminal) != before)
    terminal.type(ESC)
    terminal.wait_until_gone("Which theme?")
    terminal.type("/theme" + ENTER)
    terminal.until("Which theme?")
    _wait_until(terminal, lambda: _colours(terminal) == before)
    terminal.type("light-contrast" + ENTER)
    terminal.until("/theme light-contrast save")


def _colours(terminal: Terminal) -> set[str]:
    screen = terminal.screen
    return {
        screen.buffer[y][x].fg for y in range(screen.lines) for x in range(screen.columns)
    }


def _wait_until(terminal: Terminal, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, terminal.text
        terminal.read()


@pytest.mark.slow
def test_a_session_is_picked_from_the_list_with_its_preview(
    open_terminal: OpenTerminal,
) -> None:
    for text, answer in (("hello there", "The quick answer."), ("another", "Other words.")):
        terminal = open_terminal({"text": answer})
        wait_until_ready(terminal)
        terminal.type(text + ENTER)
        terminal.until(answer)
        terminal.type("\x04")
        terminal.end()
    terminal = open_terminal({"text": "More."}, size=(30, 90))
    wait_until_ready(terminal)
    terminal.type("/resume" + ENTER)
    terminal.until("Other words.")  # the preview of the newest
    terminal.type("quick")  # which stands in no title
    terminal.until("The quick answer.")
    terminal.type(ENTER)
    terminal.until('Resumed "hello there".')
    terminal.until("› hello there")


@pytest.mark.slow
def test_a_session_is_found_by_its_messages_and_chosen_by_number(
    open_terminal: OpenTerminal,
) -> None:
    first = open_terminal({"text": "The quick answer."})
    wait_until_ready(first)
    first.type("hello there" + ENTER)
    first.until("The quick answer.")
    first.type("\x04")
    first.end()
    terminal = open_terminal({"text": "More."})
    wait_until_ready(terminal)
    terminal.type("/search quick" + ENTER)
    terminal.until("number")
    terminal.type("1" + ENTER)
    terminal.until('Resumed "hello there".')


@pytest.mark.slow
def test_a_fork_and_a_rewind_are_confirmed_and_shown(
    open_terminal: OpenTerminal, tmp_path: Path
) -> None:
    terminal = open_terminal(
        EDIT, CHANGE, DONE, {"text": "Later."}, flags=("--permission-mode", "accept-edits")
    )
    wait_until_ready(terminal)
    terminal.type("say hello" + ENTER)
    terminal.until("30 in")
    terminal.type("/fork" + ENTER)
    terminal.until("Forked from session")
    terminal.type("and later" + ENTER)
    terminal.until("Later.")
    terminal.type(ESC)
    terminal.until("Esc again")
    terminal.type(ESC)
    terminal.until("Rewind to before which")
    terminal.type("say" + ENTER)
    terminal.until("Rewind? y/n")
    terminal.until("1 file changes")
    time.sleep(CALM_SECONDS + 0.1)
    terminal.type("y")
    terminal.until("1 file restored")

    assert (tmp_path / "work" / "hello.py").read_text() == HELLO
    terminal.type("/history" + ENTER)
    terminal.until("(rewound)")


@pytest.mark.slow
def test_a_rewind_asks_about_files_that_another_program_changed(
    open_terminal: OpenTerminal, tmp_path: Path
) -> None:
    terminal = open_terminal(
        EDIT, CHANGE, DONE, flags=("--permission-mode", "accept-edits")
    )
    wait_until_ready(terminal)
    terminal.type("say hello" + ENTER)
    terminal.until("30 in")
    changed = tmp_path / "work" / "hello.py"
    changed.write_text("mine\n", encoding="utf-8")
    terminal.type("/undo" + ENTER)
    terminal.until("Another program changed files since. Rewind?")
    terminal.until("leave those files as they are")
    terminal.type(ENTER)
    terminal.until("The conversation was rewound")

    assert changed.read_text() == "mine\n"


@pytest.mark.slow
def test_an_export_is_written_to_the_file_that_the_user_names(
    open_terminal: OpenTerminal, tmp_path: Path
) -> None:
    terminal = open_terminal({"text": "An answer."})
    wait_until_ready(terminal)
    terminal.type("hello" + ENTER)
    terminal.until("An answer.")
    terminal.type("/export" + ENTER)
    terminal.until("Where should this session go?")
    terminal.type("file" + ENTER)
    terminal.until("File:")
    terminal.type("\x15" + "talk.txt" + ENTER)
    terminal.until("1 session")

    assert "An answer." in (tmp_path / "work" / "talk.txt").read_text()


@pytest.mark.slow
def test_settings_of_an_untrusted_directory_are_ignored(
    open_terminal: OpenTerminal, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    (other / ".refold").mkdir(parents=True)
    rules = '[permissions]\nallow = ["write_file"]\n'
    (other / ".refold" / "config.toml").write_text(rules, encoding="utf-8")
    terminal = open_terminal({"text": "An answer."})
    wait_until_ready(terminal)
    terminal.type(f"/cd {other}" + ENTER)
    terminal.until("y/n")
    time.sleep(CALM_SECONDS + 0.1)
    terminal.type("n")
    terminal.until("are ignored")


@pytest.mark.slow
def test_a_command_that_switches_sessions_waits_for_the_end_of_the_turn(
    open_terminal: OpenTerminal,
) -> None:
    terminal = open_terminal(
        {"text": "word " * 40, "pause": 0.02}, {"text": "In the copy."}
    )
    wait_until_ready(terminal)
    terminal.type("talk" + ENTER)
    terminal.until("word word")
    terminal.type("/fork" + ENTER)
    terminal.until("after this turn: /fork")
    terminal.until("Forked from session")
    terminal.type("more" + ENTER)
    terminal.until("In the copy.")
