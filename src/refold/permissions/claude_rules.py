"""Converts the `permissions` in a settings file of Claude Code to permission rules of refold.

An allow rule that cannot be converted exactly is left out or matches less; a deny or ask rule
matches more. A remark reports each change. The caller reads the file and asks the user.
"""

import re
from collections.abc import Mapping, Sequence
from itertools import takewhile
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
    """The texts of the converted rules. Each remark is a sentence about a part that was left
    out or changed.
    """

    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    mode: Mode | None = None
    directories: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()


def convert_rules(permissions: Mapping[str, object]) -> ImportedRules:
    """Convert `permissions`, the object with that key in a `settings.json` of Claude Code."""
    remarks = [
        f"{key!r} is not supported here" for key in permissions if key not in _KNOWN_KEYS
    ]
    converted: dict[Verdict, list[str]] = {"allow": [], "ask": [], "deny": []}
    for verdict, texts in converted.items():
        for written in _texts(permissions.get(verdict), verdict, remarks):
            texts += _convert_rule(written, verdict, remarks)
    name = permissions.get("defaultMode")
    mode = _MODE_NAMES.get(name) if isinstance(name, str) else None
    if name is not None and mode is None:
        remarks.append(f"refold has no mode {name!r}")
    if mode == "bypass":
        remarks.append(
            "a settings file cannot switch to bypass: start with --permission-mode bypass"
        )
        mode = None
    directories = permissions.get("additionalDirectories")
    # Each call of `_texts` adds to the remarks, so they are read last.
    directory_texts = tuple(_texts(directories, "additionalDirectories", remarks))
    return ImportedRules(
        allow=tuple(dict.fromkeys(converted["allow"])),
        ask=tuple(dict.fromkeys(converted["ask"])),
        deny=tuple(dict.fromkeys(converted["deny"])),
        mode=mode,
        directories=directory_texts,
        remarks=tuple(remarks),
    )


def _texts(value: object, name: str, remarks: list[str]) -> Sequence[str]:
    """Return the strings in the list `value`. Add a remark for each other item.

    `name` is the name of the list in the remarks.
    """
    if value is None:
        return ()
    if not isinstance(value, list):
        remarks.append(f"{name!r} must be a list")
        return ()
    items = cast("list[object]", value)
    remarks += (
        f"{item!r} in {name!r} must be a text"
        for item in items
        if not isinstance(item, str)
    )
    return [item for item in items if isinstance(item, str)]


def _convert_rule(rule_text: str, verdict: Verdict, remarks: list[str]) -> list[str]:
    """Return a list with the rule in refold's form.

    If the rule cannot be expressed, return [] and add a remark.
    """
    match = _RULE_PATTERN.fullmatch(rule_text.strip())
    if not match:
        remarks.append(f"{rule_text!r} is not a rule")
        return []
    name, pattern = our_tool_name(match[1]), match[2] or ""
    if name == "bash":
        text = _convert_command(pattern, verdict, rule_text, remarks)
    elif name in _FILE_TOOLS:
        text = _convert_path(name, pattern, verdict, rule_text, remarks)
    elif pattern in ("", "*"):
        text = name
    elif name in WEB_TOOLS and pattern.startswith(DOMAIN_PREFIX):
        text = f"{name}({pattern})"
    else:
        text = name if verdict != "allow" else ""
        remarks.append(
            _change_note(rule_text, text, f"rules for {name} take no pattern here")
        )
    try:
        return [str(parse(text, verdict))] if text else []
    except BadInput as error:
        remarks.append(f"{rule_text!r} was left out: {error}")
        return []


def _convert_command(
    pattern: str, verdict: Verdict, rule_text: str, remarks: list[str]
) -> str:
    """Return refold's rule for a command.

    A `*` inside a pattern of Claude Code matches several words, but a `*` of refold only a part
    of a word. So a deny or ask rule with such a `*` becomes wider, and an allow rule becomes
    narrower. A remark reports this.
    """
    if pattern in ("", "*", ":*"):
        return "bash"
    if pattern.endswith(":*") or "*" not in pattern:
        return f"bash({pattern})"
    words = pattern.split()
    has_star_inside = any("*" in word for word in words[:-1])
    if words[-1] == "*" and not has_star_inside:
        return f"bash({pattern})"
    if verdict == "allow":
        remarks.append(
            f"{rule_text!r} matches whole words here: a * in it matches no spaces"
        )
        return f"bash({pattern})"
    words_before_star = takewhile(lambda word: "*" not in word, words)
    start = " ".join(words_before_star) or words[0]
    text = f"bash({start} *)"
    remarks.append(
        _change_note(rule_text, text, "a * in the middle matches whole words here")
    )
    return text


def _convert_path(
    name: str, pattern: str, verdict: Verdict, rule_text: str, remarks: list[str]
) -> str:
    """Return refold's rule for a path, or "" if an allow rule cannot be expressed.

    A deny or ask rule about a tool that searches or lists files becomes a rule about reading
    files.
    """
    if name == "edit_file":
        tool = "edit"
    elif name == "read_file" or verdict != "allow":
        tool = "read"
    else:
        tool = name  # searches or lists files
    if pattern in ("", "*", "**"):
        return tool
    if re.search(r"[\[\]!{}\\]", pattern):
        if verdict == "allow":
            remarks.append(
                _change_note(
                    rule_text, "", "its brackets, braces or signs mean something else here"
                )
            )
            return ""
        pattern = re.sub(r"\[[^\]]*\]|\{[^}]*\}|[\\!\[\]{}]+", "*", pattern)
        remarks.append(
            _change_note(rule_text, f"{tool}({pattern})", "its brackets or braces became *")
        )
    if pattern.startswith("//"):
        return f"{tool}({pattern})"
    # Relative to the folder of the settings, which is the workspace.
    if pattern.startswith("/"):
        return f"{tool}(.{pattern})"
    return f"{tool}({pattern})"


def _change_note(rule_text: str, text: str, reason: str) -> str:
    became = f"became {text!r}" if text else "was left out"
    return f"{rule_text!r} {became}: {reason}"
