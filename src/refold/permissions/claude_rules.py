"""Converts the `permissions` of a Claude Code settings file to rules.

What cannot be expressed exactly is left out of allow rules and made wider in deny and ask rules; both
are reported. Reading the file and asking the user is up to the caller.
"""

import re
from collections.abc import Mapping, Sequence
from typing import cast

from msgspec import Struct

from refold.errors import BadInput
from refold.permissions.rules import DOMAIN_PREFIX, WEB_TOOLS, our_tool_name, parse
from refold.values.modes import Mode, Verdict

_MODE_NAMES: dict[str, Mode] = {
    "default": "default",
    "acceptEdits": "accept-edits",
    "plan": "plan",
    "bypassPermissions": "bypass",
    "dontAsk": "rules-only",
}
_RULE_PATTERN = re.compile(r"([A-Za-z0-9_*-]+)(?:\((.*)\))?", re.DOTALL)
_FILE_TOOLS = frozenset(("read_file", "edit_file", "glob", "grep", "list_files", "tree"))
_KNOWN_KEYS = frozenset(["allow", "ask", "deny", "defaultMode", "additionalDirectories"])


class ImportedRules(Struct, frozen=True):
    """Rule texts in refold's form. Each sentence in `left` reports what was left out or
    changed.
    """

    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    mode: Mode | None = None
    directories: tuple[str, ...] = ()
    left: tuple[str, ...] = ()


def convert_rules(permissions: Mapping[str, object]) -> ImportedRules:
    """Convert `permissions`, the object of that name in a `settings.json`."""
    left = [
        f"{key!r} is not supported here" for key in permissions if key not in _KNOWN_KEYS
    ]
    converted: dict[Verdict, list[str]] = {"allow": [], "ask": [], "deny": []}
    for verdict, texts in converted.items():
        for written in _texts(permissions.get(verdict), verdict, left):
            texts += _convert_rule(written, verdict, left)
    mode = permissions.get("defaultMode")
    if mode is not None and not (isinstance(mode, str) and mode in _MODE_NAMES):
        left.append(f"refold has no mode {mode!r}")
    if mode == "bypassPermissions":
        left.append(
            "a settings file cannot switch to bypass: start with --permission-mode bypass"
        )
        mode = None
    return ImportedRules(
        tuple(dict.fromkeys(converted["allow"])),
        tuple(dict.fromkeys(converted["ask"])),
        tuple(dict.fromkeys(converted["deny"])),
        _MODE_NAMES.get(mode) if isinstance(mode, str) else None,
        tuple(
            _texts(permissions.get("additionalDirectories"), "additionalDirectories", left)
        ),
        tuple(left),
    )


def _texts(value: object, name: str, left: list[str]) -> Sequence[str]:
    if value is None:
        return ()
    if not isinstance(value, list):
        left.append(f"{name!r} must be a list")
        return ()
    items = cast("list[object]", value)
    left += (
        f"{item!r} in {name!r} must be a text"
        for item in items
        if not isinstance(item, str)
    )
    return [item for item in items if isinstance(item, str)]


def _convert_rule(rule_text: str, verdict: Verdict, left: list[str]) -> list[str]:
    match = _RULE_PATTERN.fullmatch(rule_text.strip())
    if not match:
        left.append(f"{rule_text!r} is not a rule")
        return []
    name, pattern = our_tool_name(match[1]), match[2] or ""
    if name == "bash":
        text = _convert_command(pattern, verdict, rule_text, left)
    elif name in _FILE_TOOLS:
        text = _convert_path(name, pattern, verdict, rule_text, left)
    elif pattern in ("", "*"):
        text = name
    elif name in WEB_TOOLS and pattern.startswith(DOMAIN_PREFIX):
        text = f"{name}({pattern})"
    else:
        text = name if verdict != "allow" else ""
        left.append(_change_note(rule_text, text, f"rules for {name} take no pattern here"))
    try:
        return [str(parse(text, verdict))] if text else []
    except BadInput as error:
        left.append(f"{rule_text!r} was left out: {error}")
        return []


def _convert_command(
    pattern: str, verdict: Verdict, rule_text: str, left: list[str]
) -> str:
    if pattern in ("", "*", ":*"):
        return "bash"
    if pattern.endswith(":*") or "*" not in pattern:
        return f"bash({pattern})"
    words = pattern.split()
    if all("*" not in word for word in words[:-1]) and words[-1] == "*":
        return f"bash({pattern})"
    # A star matches several words there, but only part of one here.
    if verdict == "allow":
        left.append(f"{rule_text!r} matches whole words here: a * in it matches no spaces")
        return f"bash({pattern})"
    start = " ".join(
        words[: next(index for index, word in enumerate(words) if "*" in word)]
    )
    text = f"bash({start} *)" if start else f"bash({words[0]} *)"
    left.append(_change_note(rule_text, text, "a * in the middle matches whole words here"))
    return text


def _convert_path(
    name: str, pattern: str, verdict: Verdict, rule_text: str, left: list[str]
) -> str:
    tool = {"read_file": "read", "edit_file": "edit"}.get(name, name)
    if tool in ("glob", "grep", "list_files", "tree"):
        tool = "read" if verdict != "allow" else tool
    if pattern in ("", "*", "**"):
        return tool
    if re.search(r"[\[\]!{}\\]", pattern):
        if verdict == "allow":
            left.append(
                _change_note(
                    rule_text, "", "its brackets, braces or signs mean something else here"
                )
            )
            return ""
        pattern = re.sub(r"\[[^\]]*\]|\{[^}]*\}|[\\!\[\]{}]+", "*", pattern)
        left.append(
            _change_note(rule_text, f"{tool}({pattern})", "its brackets or braces became *")
        )
    if pattern.startswith("//"):
        return f"{tool}({pattern})"
    if pattern.startswith("/"):  # from the folder of the settings, which is the workspace
        return f"{tool}(.{pattern})"
    return f"{tool}({pattern})"


def _change_note(rule_text: str, text: str, reason: str) -> str:
    became = f"became {text!r}" if text else "was left out"
    return f"{rule_text!r} {became}: {reason}"
