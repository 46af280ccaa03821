"""Converts refold's names of tools and parameters to those of Claude Code, and back. Pure.

Hooks that were written for Claude Code expect its names. Hooks may also use refold's own names.
"""

from collections.abc import Mapping

# The first name is passed to a hook.
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
# refold's parameters by their names in Claude Code.
_HOOK_PARAMETERS: Mapping[str, Mapping[str, str]] = {
    "edit_file": {"file_path": "path", "old_string": "old", "new_string": "new"},
    "multi_edit": {"file_path": "path"},
    "write_file": {"file_path": "path"},
    "read_file": {"file_path": "path"},
    "notebook_edit": {"notebook_path": "path"},
    "task": {"subagent_type": "agent", "description": "title"},
}


def names_of(tool: str) -> tuple[str, ...]:
    """Return all names that a matcher may use for a tool, with refold's own name first."""
    return (tool, *_HOOK_NAMES.get(tool, ()))


def our_name(name: str) -> str:
    """Return refold's name for a tool that has the name `name` in hooks.

    An unknown name is returned unchanged.
    """
    return next((tool for tool, names in _HOOK_NAMES.items() if name in names), name)


def name_for_hook(tool: str) -> str:
    """Return the name of a tool that hooks get: Claude Code's name if there is one."""
    first_name, *_ = _HOOK_NAMES.get(tool, (tool,))
    return first_name


def input_for_hook(tool: str, arguments: Mapping[str, object]) -> dict[str, object]:
    """Return the arguments of a call under refold's names and also under Claude Code's."""
    our_names = _HOOK_PARAMETERS.get(tool, {})
    aliases = {
        name: arguments[our_name]
        for name, our_name in our_names.items()
        if our_name in arguments
    }
    return {**arguments, **aliases}


def arguments_from_hook(
    tool: str, before: Mapping[str, object], changes: Mapping[str, object]
) -> dict[str, object]:
    """Return the arguments that a hook changed, under refold's names.

    `before` are the call's original arguments, `changes` all arguments that the hook returned.
    If `changes` has a parameter under both names, the value that the hook changed is used.
    """
    our_names = _HOOK_PARAMETERS.get(tool, {})
    arguments = {name: value for name, value in changes.items() if name not in our_names}
    for name, our_name in our_names.items():
        if name not in changes:
            continue
        if our_name not in arguments or arguments[our_name] == before.get(our_name):
            arguments[our_name] = changes[name]
    return arguments
