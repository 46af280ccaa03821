"""Reads the permission rules of Claude Code for a folder, and converts them to rules of refold.

Deny rules of Claude Code apply at once. Its allow and ask rules apply when the user imports
them. `permissions.claude_rules` converts a rule; `trusted_folders` stores what was imported.

Deny rules apply even in a folder that is not trusted, because they can only forbid calls. Ask
rules wait for the import, because they would win over the user's own allow rules. A file that
cannot be read is reported, but does not keep refold from starting.
"""

from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Any, cast

import msgspec
from msgspec import Struct

from refold.config.layers import Layer, Origin
from refold.config.project import read_small_files
from refold.errors import BadInput
from refold.permissions.claude_rules import ImportedRules, convert_rules
from refold.permissions.rules import is_about, may_be_tool_of_other_session, parse
from refold.values.modes import Verdict
from refold.views.escape import escape_to_one_line

CLAUDE_DIRECTORY = ".claude"
CLAUDE_FILES = ("settings.json", "settings.local.json")
_DENY_KEY = "permissions.deny"


class ClaudeRules(Struct, frozen=True):
    """The rules of Claude Code for a folder, converted to rules of refold.

    `notes` are sentences about rules that were left out or changed; each names the file.
    """

    rules: Mapping[Verdict, tuple[str, ...]]
    notes: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return any(self.rules.values())

    @property
    def sha256(self) -> str:
        """The SHA-256 of the rules."""
        return sha256(msgspec.json.encode(self.rules)).hexdigest()

    def lines(self, ending: Mapping[Verdict, str] | None = None) -> Iterator[str]:
        """Yield a line for each rule, safe for a screen.

        `ending` maps each verdict to a text, which is appended in brackets to the lines of its
        rules.
        """
        for verdict, texts in self.rules.items():
            after = f"  ({ending[verdict]})" if ending else ""
            yield from (
                f"{verdict:<5}  {escape_to_one_line(text)}{after}" for text in texts
            )


def rules_of_folder(folder: str) -> ClaudeRules:
    """Return the rules of Claude Code in `folder`, a real path.

    Raises `BadInput` if a file of rules is invalid or unreadable.
    """
    return rules_of_files(
        read_small_files(folder, CLAUDE_DIRECTORY, CLAUDE_FILES, skip=lambda _: False)
    )


def rules_of_files(files: Mapping[str, bytes]) -> ClaudeRules:
    """Return the rules in `files`, which maps the name of each file to its content.

    Raises `BadInput` for an invalid file.
    """
    rules: dict[Verdict, tuple[str, ...]] = {"allow": (), "ask": (), "deny": ()}
    notes = list[str]()
    for name, content in files.items():
        converted = convert_rules(_permissions(name, content))
        notes += (f"{name}: {note}" for note in _take_valid(converted, rules))
    return ClaudeRules(rules, tuple(notes))


def deny_layer(folder: str, problems: list[str]) -> Layer:
    """Yield the deny rules of Claude Code in `folder`.

    A file that cannot be read or parsed is skipped, and the error is added to `problems`.
    """
    for name in CLAUDE_FILES:
        try:
            files = read_small_files(
                folder, CLAUDE_DIRECTORY, (name,), skip=lambda _: False
            )
            denied = rules_of_files(files).rules["deny"]
        except BadInput as error:
            problems.append(f"{escape_to_one_line(str(error))}; its deny rules are ignored")
            continue
        if denied:
            path = next(iter(files))  # the only one
            yield _DENY_KEY, Origin(denied, path)


def _permissions(name: str, content: bytes) -> Mapping[str, object]:
    """Return the object `permissions` of Claude Code's file `name`; {} if it has none.

    Raises `BadInput` if the content is not an object of this form.
    """
    try:
        document = msgspec.json.decode(content, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput(f"{name} holds no JSON object: {error}") from error
    value = document.get("permissions", {})
    if not isinstance(value, dict):
        raise BadInput(f"{name}: permissions is not an object")
    return cast("dict[str, object]", value)


def _take_valid(
    imported: ImportedRules, rules: dict[Verdict, tuple[str, ...]]
) -> Iterator[str]:
    """Add the imported rules that name existing tools to `rules`.

    Yield a note about each rule and setting of Claude Code that is not imported.
    """
    yield from imported.remarks
    by_verdict: dict[Verdict, tuple[str, ...]] = {
        "allow": imported.allow, "ask": imported.ask, "deny": imported.deny,
    }  # fmt: skip
    for verdict, texts in by_verdict.items():
        for text in texts:
            tool = parse(text, "deny").tool  # the same for each verdict
            if not _is_tool_name(tool):
                yield f"{text!r} was left out: there is no such tool here"
            elif text not in rules[verdict]:
                rules[verdict] = (*rules[verdict], text)
    if imported.mode:
        yield f"the mode was not imported: choose it with --permission-mode {imported.mode}"
    for path in imported.directories:
        yield f"the directory {path!r} was not imported: add it with --add-dir"


def _is_tool_name(name: str) -> bool:
    """Whether a rule with this name is about a built-in tool, or may be about another tool."""
    from refold.tools.builtin import builtin

    return may_be_tool_of_other_session(name) or any(
        is_about(name, tool.name, tool.effect) for tool in builtin()
    )
