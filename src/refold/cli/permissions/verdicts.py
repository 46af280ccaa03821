"""What a session would say of a call, without a session. Shared by the `permissions` doors.

It goes the way that a session goes: the tool reads its arguments, `engine.authorize`
gathers what they touch, `permissions.decide` decides.
"""

import os
import re
from argparse import Namespace
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from refold.app.workspace import Where, Workspace, home
from refold.config.folder_settings import load_here
from refold.config.layers import from_flags
from refold.config.load import combined
from refold.config.paths import Paths, paths
from refold.config.settings import Settings
from refold.engine.authorize import describe_access, judge
from refold.errors import BadInput, ToolFailed
from refold.journal.state.fold import View
from refold.permissions.facts import Decision, Facts
from refold.permissions.rules import Rule
from refold.tools.builtin import builtin
from refold.tools.contract import Tool
from refold.values.modes import MODES, Mode
from refold.values.tools import Effect

Profile: TypeAlias = Literal["read-only", "workspace", "off"]
_SHORT = re.compile(r"([A-Za-z0-9_]+)(?:\((.*)\))?", re.DOTALL)


class CallInQuestion(Struct, frozen=True):
    """A call as a model would make it, or only what it is about."""

    tool: Tool
    arguments: Mapping[str, object]

    @property
    def label(self) -> str:
        return self.tool.label(self.arguments)


class PolicyContext(Struct, frozen=True):
    """What calls are judged by in a folder. `unheeded`: what is said of its own settings."""

    settings: Settings
    rules: Sequence[Rule]
    mode: Mode
    place: Facts
    unheeded: str = ""

    def facts(self) -> Facts:
        return self.place

    def judged(self, call: CallInQuestion, view: View) -> Decision:
        try:
            found = describe_access(call.tool, call.arguments, self.place)
        except ToolFailed as error:  # no path can be meant; a session says it so, too
            return Decision("deny", reason=str(error))
        return judge(found, self, view)

    def sandbox(self, call: CallInQuestion, decision: Decision) -> Profile | None:
        """What the call is held to; None for what runs no command."""
        if call.tool.effect is not Effect.RUN:
            return None
        if not self.place.sandboxed:
            return "off"
        may_write = (
            decision.confines.writes and self.settings.sandbox.profile != "read-only"
        )
        return "workspace" if may_write else "read-only"

    def network(self, call: CallInQuestion, decision: Decision) -> bool | None:
        sandbox = self.sandbox(call, decision)
        if sandbox is None:
            return None
        allowed = decision.confines.network or self.settings.sandbox.network
        return allowed or sandbox == "off"


def ground_of(found: Namespace) -> PolicyContext:
    """As the flags of a door say: --cwd, --add-dir, --mode, --allow, --ask, --deny."""
    folder = directory(found.cwd, "--cwd")
    roots = (folder, *(directory(each, "--add-dir") for each in found.add_dir))
    flags: dict[str, object] = {
        "permission_mode": MODES.get(found.mode or ""),
        "permissions.allow": tuple(found.allow),
        "permissions.ask": tuple(found.ask),
        "permissions.deny": tuple(found.deny),
    }
    if found.no_config:
        environ: Mapping[str, str] = {"PATH": os.defpath}
        settings = combined([from_flags(flags)]).settings
        return ground(settings, paths({"HOME": home({})}), environ, roots)
    places = paths(os.environ)
    here = load_here(folder, places, os.environ, flags)
    found_here = ground(here.settings, places, os.environ, roots)
    return replace(found_here, unheeded=here.unheeded)


def ground(
    settings: Settings, places: Paths, environ: Mapping[str, str], roots: Sequence[Path]
) -> PolicyContext:
    """As a session with these settings has it; `roots` are those of its workspace."""
    where = Where(roots[0], tuple(roots[1:]))
    workspace = Workspace(settings, places, environ, where)
    try:
        return PolicyContext(
            settings, workspace.rules, settings.permission_mode, workspace.facts()
        )
    finally:
        workspace.close()


def named(name: str) -> Tool:
    """The built-in tool of this name. Raises `BadInput`."""
    tools = {tool.spec.name: tool for tool in builtin()}
    if name in tools:
        return tools[name]
    near = get_close_matches(name.lower(), tools, 1, 0.4)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(tools)}"
    raise BadInput(f"there is no tool {name!r}; {hint}")


def call_of(name: str, given: str) -> CallInQuestion:
    """A call with its arguments as JSON. Raises `BadInput`."""
    tool = named(name)
    try:
        return CallInQuestion(tool, tool.parse(given.encode("utf-8", errors="replace")))
    except ToolFailed as error:
        raise BadInput(f"{name} cannot be called with {given[:200]!r}: {error}") from error


def in_short(given: str) -> CallInQuestion:
    """The call that `tool(what it is about)` means. Raises `BadInput`."""
    found = _SHORT.fullmatch(given.strip())
    if not found:
        raise BadInput(f"{given!r} is no call: write it as bash(git status)")
    tool = named(found[1])
    if found[2] is None and tool.subject:
        raise BadInput(f"{given!r} does not say its {tool.subject}: write {found[1]}(…)")
    return CallInQuestion(tool, {tool.subject: found[2]} if tool.subject else {})


def directory(given: str, flag: str) -> Path:
    found = Path(given or ".").expanduser().absolute()
    if not found.is_dir():
        raise BadInput(f"{flag} {given!r}: there is no such directory")
    return found
