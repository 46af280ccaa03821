"""Tools and their inputs by the names that hooks of Claude Code expect, and back.

With these, existing hooks are run for our tools and understand their calls. Our own names
work, too. Pure.
"""

from collections.abc import Mapping

# The first name is the one that is passed to a hook.
_HOOK_NAMES: Mapping[str, tuple[str, ...]] = {
    "bash": ("Bash",), "background_run": ("Bash", "bash"), "monitor": ("Bash", "bash"),
    "edit_file": ("Edit",), "multi_edit": ("MultiEdit", "Edit"),
    "write_file": ("Write",), "apply_patch": ("Edit", "Write", "MultiEdit"),
    "notebook_edit": ("NotebookEdit",), "read_file": ("Read",), "list_files": ("LS",),
    "glob": ("Glob",), "grep": ("Grep",), "task": ("Task", "Agent"),
    "todo_write": ("TodoWrite",), "exit_plan_mode": ("ExitPlanMode",),
    "enter_plan_mode": ("EnterPlanMode",), "ask_user": ("AskUserQuestion",),
    "web_fetch": ("WebFetch",), "web_search": ("WebSearch",), "read_skill": ("Skill",),
}  # fmt: skip
# Our parameters by the names that they have there.
_HOOK_PARAMETERS: Mapping[str, Mapping[str, str]] = {
    "edit_file": {"file_path": "path", "old_string": "old", "new_string": "new"},
    "multi_edit": {"file_path": "path"},
    "write_file": {"file_path": "path"},
    "read_file": {"file_path": "path"},
    "notebook_edit": {"notebook_path": "path"},
    "task": {"subagent_type": "agent", "description": "title"},
}


def names_of(tool: str) -> tuple[str, ...]:
    """All names that a matcher may use for this tool of ours."""
    return (tool, *_HOOK_NAMES.get(tool, ()))


def our_name(name: str) -> str:
    """Our name of the tool that has this name in a hook; any other name stays."""
    return next((tool for tool, names in _HOOK_NAMES.items() if name in names), name)


def name_for_hook(tool: str) -> str:
    """The name that is passed to a hook."""
    return _HOOK_NAMES.get(tool, (tool,))[0]


def input_for_hook(tool: str, arguments: Mapping[str, object]) -> dict[str, object]:
    """The arguments of a call by our names, and by those that hooks may expect."""
    theirs = _HOOK_PARAMETERS.get(tool, {})
    aliases = {name: arguments[ours] for name, ours in theirs.items() if ours in arguments}
    return {**arguments, **aliases}


def arguments_from_hook(
    tool: str, before: Mapping[str, object], changes: Mapping[str, object]
) -> dict[str, object]:
    """Convert an input that a hook changed. `before` are the arguments of the call.

    If both names of a parameter are present, the changed one counts.
    """
    theirs = _HOOK_PARAMETERS.get(tool, {})
    arguments = {name: value for name, value in changes.items() if name not in theirs}
    for name, ours in theirs.items():
        if name in changes and (
            ours not in arguments or arguments[ours] == before.get(ours)
        ):
            arguments[ours] = changes[name]
    return arguments
