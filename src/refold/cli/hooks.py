"""`refold hooks list|test`: lists the hooks that apply in this directory, and tests them.

`list` runs no hook. `test` runs the hooks of one event with a sample document, as a session
would, and shows the output of each. `app.session_hooks` finds and runs the hooks.
"""

import json
import os
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import anyio

from refold.app.session_hooks import (
    ConfiguredHooks,
    SessionHooks,
    load_hooks,
    tool_names,
    user_file,
)
from refold.app.workspace import Workspace, WorkspaceDirectories
from refold.config.folder_settings import (
    load_folder_settings,
    project_and_trust,
    reason_settings_ignored,
)
from refold.config.paths import Paths, current_directory, paths
from refold.config.secret_values import masks_of
from refold.errors import BadInput
from refold.headless.streams import print_document, print_error, write
from refold.hooks.answers import HookAnswer
from refold.hooks.configuration import HOOK_EVENTS, Hook, HookFile, describe
from refold.hooks.tool_names import (
    arguments_from_hook,
    input_for_hook,
    name_for_hook,
    names_of,
    our_name,
)
from refold.plugins import find_plugins
from refold.tools.builtin import TOOLS_GROUP, load_tools
from refold.tools.contract import Tool
from refold.values.modes import HookEvent
from refold.values.similar_names import similar
from refold.views.escape import escape_to_one_line

_SAMPLE_INPUTS: Mapping[HookEvent, Mapping[str, object]] = {
    "PreToolUse": {"tool_use_id": "test"},
    "PostToolUse": {"tool_use_id": "test", "tool_response": {"text": "", "success": True}},
    "UserPromptSubmit": {"prompt": "Hello."},
    "SessionStart": {"source": "startup", "model": ""},
    "SessionEnd": {"reason": "other"},
    "Stop": {"stop_hook_active": False, "last_assistant_message": "Done."},
    "SubagentStop": {"stop_hook_active": False, "last_assistant_message": "Done."},
    "PreCompact": {"trigger": "manual", "custom_instructions": ""},
    "Notification": {
        "message": "refold needs your permission to use Bash",
        "notification_type": "permission_prompt",
    },
}
# The field that the matcher of an event without a tool is compared with.
_MATCHED_FIELDS = {"SessionStart": "source", "SessionEnd": "reason", "PreCompact": "trigger",
            "Notification": "notification_type"}  # fmt: skip


def add_arguments(hooks: ArgumentParser) -> None:
    subparsers = hooks.add_subparsers(dest="what", metavar="WHAT")
    hooks.set_defaults(what="list", json=False)
    listing = subparsers.add_parser(
        "list", help="list the hooks of this directory; none is run"
    )
    listing.add_argument("--json", action="store_true", help="print JSON lines")
    test = subparsers.add_parser(
        "test", help="run the hooks of an event, and show what they say"
    )
    test.add_argument(
        "event", metavar="EVENT", choices=HOOK_EVENTS, help=", ".join(HOOK_EVENTS)
    )
    test.add_argument(
        "--tool",
        default="bash",
        metavar="NAME",
        help="the tool of the call (default: bash)",
    )
    test.add_argument(
        "--input", default="{}", metavar="JSON", help="the arguments of the call"
    )


def run(args: Namespace) -> int:
    """List the hooks, or run the hooks of an event. Return 1 if a hook failed, otherwise 0."""
    places, directory = paths(os.environ), current_directory()
    hooks = load_hooks(str(directory), places)
    ignored = reason_settings_ignored(*project_and_trust(directory, places))
    if args.what == "list":
        _list(hooks, places, as_json=args.json)
        status = 0
    else:
        arguments = _arguments(args.input)
        tool = _tool(args.tool)
        status = _test(args.event, tool, arguments, hooks, places, directory)
    notices = _bind_hooks(hooks, places).notices(_plugin_tools(), str(directory))
    for notice in filter(None, (*notices, ignored)):
        print_error(escape_to_one_line(notice))
    return status


def _list(file: HookFile, paths: Paths, *, as_json: bool) -> None:
    for hook in file.hooks:
        if as_json:
            row = {
                "event": hook.on, "matcher": hook.matcher, "command": hook.command,
                "entry_point": hook.entry_point, "timeout": hook.seconds,
                "sandbox": hook.sandbox, "required": hook.required, "source": hook.source,
            }  # fmt: skip
            print_document(row)
        else:
            write(
                f"{escape_to_one_line(describe(hook))}\n    {escape_to_one_line(hook.source)}\n"
            )
    if not file.hooks and not as_json:
        write(f"There are no hooks here. Yours go into {user_file(paths)}.\n")


def _tool(text: str) -> str:
    """Return refold's name of the tool `text`. Raises `BadInput` for an unknown tool.

    Any name for a tool of an MCP server is accepted, because the servers are not running.
    """
    tool = our_name(text)
    known = tool_names(_plugin_tools())
    if tool in known or tool.startswith("mcp__"):
        return tool
    aliases = (alias for name in known for alias in names_of(name))
    suggestions = similar(text, aliases, limit=1)
    hint = f"; did you mean {suggestions[0]}?" if suggestions else ""
    raise BadInput(f"there is no tool {text!r}{hint}")


def _plugin_tools() -> tuple[Tool, ...]:
    tools, _problems = load_tools(find_plugins(TOOLS_GROUP), tool_names(()))
    return tools


def _arguments(text: str) -> dict[str, Any]:
    """Return the JSON object `text`, the arguments of a call. Raises `BadInput`."""
    try:
        value = json.loads(text)
    except ValueError as error:
        raise BadInput(f"--input is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise BadInput('--input must be an object, such as \'{"command": "ls"}\'')
    return cast("dict[str, Any]", value)


def _test(
    event: HookEvent,
    tool: str,
    arguments: Mapping[str, object],
    hooks: HookFile,
    paths: Paths,
    directory: Path,
) -> int:
    """Run the hooks for a sample of `event`. Return 1 if a hook failed, otherwise 0."""
    settings = load_folder_settings(directory, paths, os.environ, {}).settings
    workspace = Workspace(settings, paths, os.environ, WorkspaceDirectories(directory))
    session = _bind_hooks(hooks, paths).in_workspace(workspace, transcript="")
    about: dict[str, object] = {
        "session_id": "test", "cwd": str(directory), "permission_mode": "default",
        "hook_event_name": event, "agent": "root", "agent_type": "main", **_SAMPLE_INPUTS[event],
    }  # fmt: skip
    matched_names: tuple[str, ...] = ()  # what the matcher of a hook is compared with
    if "tool_use_id" in about:  # the event is about a call
        # accepts the names of the arguments of Claude Code, too
        own_arguments = arguments_from_hook(tool, before={}, changes=arguments)
        hook_input = input_for_hook(tool, own_arguments)
        about |= {"tool_name": name_for_hook(tool), "tool_input": hook_input, "tool": tool}
        matched_names = (tool,)
    elif event in _MATCHED_FIELDS:
        matched_names = (str(about[_MATCHED_FIELDS[event]]),)
    try:
        matching_hooks = session.hooks_for(event, *matched_names)
        return anyio.run(_try_hooks, session, matching_hooks, about)
    finally:
        workspace.close()


def _bind_hooks(hooks: HookFile, paths: Paths) -> ConfiguredHooks:
    return ConfiguredHooks(hooks, os.environ, masks_of(os.environ, paths).mask)


async def _try_hooks(
    session: SessionHooks, hooks: tuple[Hook, ...], about: Mapping[str, object]
) -> int:
    """Run the hooks, and print their answers. Return exit code 1 if a hook failed, else 0."""
    has_failed = False
    for hook in hooks:
        started_at = time.monotonic()
        answer = await session.run(hook, about)
        elapsed = time.monotonic() - started_at
        write(f"{escape_to_one_line(hook.name)}  {answer.outcome} after {elapsed:.1f} s\n")
        for line in _answer_lines(answer):
            write(f"    {escape_to_one_line(line)}\n")
        has_failed = has_failed or answer.outcome == "failed" or answer.by_failure
    if not hooks:
        write("No hook matches this event.\n")
    return 1 if has_failed else 0


def _answer_lines(answer: HookAnswer) -> list[str]:
    """Return a line about each thing that the answer of a hook does; [] if it does nothing."""
    lines = list[str]()
    if answer.asks:
        lines.append("the user is asked about the call")
    if answer.reason:
        lines.append(f"reason: {answer.reason}")
    if answer.context:
        lines.append(f"for the model: {answer.context}")
    if answer.notice:
        lines.append(f"for you: {answer.notice}")
    if answer.arguments is not None:
        new_input = json.dumps(answer.arguments, ensure_ascii=False)
        lines.append(f"changes the input to: {new_input}")
    if answer.stop:
        lines.append("the turn is stopped")
    return lines
