"""Which tools a rule is about: by name, by the name other agents give them, by family.

What one file-changing tool may do, all may; what is said of reading a file holds for
every look at files. A server of tools may be named as a whole.
"""

from fnmatch import fnmatchcase

from refold.values.tools import Effect

COMMANDS = frozenset(("bash",))
CODE = frozenset(("python",))  # only walls around it keep it to looking
EDITS = frozenset(("edit_file", "write_file", "multi_edit", "apply_patch", "notebook_edit"))
LOOKS = frozenset(("read_file", "grep", "glob", "list_files"))

_ALSO = {
    "Bash": "bash", "shell": "bash", "Read": "read_file", "read": "read_file",
    "Edit": "edit_file", "edit": "edit_file", "Write": "edit_file", "write": "edit_file",
    "MultiEdit": "edit_file", "NotebookEdit": "edit_file", "Glob": "glob", "Grep": "grep",
    "LS": "list_files", "WebFetch": "web_fetch", "WebSearch": "web_search", "Task": "task",
    "TodoWrite": "todo_write", "ExitPlanMode": "exit_plan_mode", "AskUserQuestion": "ask_user",
}  # fmt: skip


def ours(name: str) -> str:
    """The name of a tool here, as rules of other agents and short forms say it."""
    return _ALSO.get(name, name)


def is_about(written: str, tool: str, effect: Effect) -> bool:
    """Does a rule for `written` speak of calls of `tool`?"""
    name = ours(written)
    if fnmatchcase(tool, name):
        return True
    if name == "bash":
        return tool in COMMANDS
    if name in EDITS:
        return tool in EDITS
    if name == "read_file":
        return tool in LOOKS or (effect is Effect.LOOK and not tool.startswith("mcp__"))
    # A whole server, written without its tools.
    return (
        name.startswith("mcp__") and name.count("__") == 1 and tool.startswith(f"{name}__")
    )


def is_elsewhere(written: str) -> bool:
    """Does it name a tool that this session may not have, and others do?"""
    return ours(written) in _ALSO.values() or written.startswith("mcp__")


def reads(written: str) -> bool:
    """Does a rule for `written` speak of reading files, by whatever tool?"""
    return ours(written) == "read_file" or written == "*"


def writes(written: str) -> bool:
    return ours(written) in EDITS or written == "*"
