"""`refold permissions import [FILE]`: take over the rules of another agent's settings.

What they become is `permissions.claude_rules`' business. They are shown first, and kept
for this folder beside the person's own settings, not in the folder.
"""

import os
from argparse import Namespace
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, cast

import msgspec

from refold.cli.confirming import confirmed
from refold.cli.out import remark, write
from refold.cli.rights.verdicts import directory
from refold.config.folders import Folders
from refold.config.paths import paths
from refold.config.unlinked import small_file, small_files
from refold.errors import BadInput
from refold.permissions.claude_rules import Carried, carried_over
from refold.permissions.families import is_about
from refold.permissions.rules import parse
from refold.tools.builtin import builtin
from refold.values.rights import Verdict
from refold.views.escape import on_one_line

_DIRECTORY = ".claude"
_FILES = ("settings.json", "settings.local.json")


def run(found: Namespace) -> int:
    folder = os.path.realpath(directory(found.cwd, "--cwd"))
    rules: dict[Verdict, list[str]] = {"allow": [], "ask": [], "deny": []}
    for name, content in _contents(found.file, folder).items():
        carried = carried_over(_permissions(name, content))
        _tell(name, _known(carried, rules))
    for verdict, texts in rules.items():
        write("".join(on_one_line(f"{verdict:<5}  {text}") + "\n" for text in texts))
    if not any(rules.values()):
        raise BadInput("there is no rule to take over")
    if found.print:
        return 0
    if not confirmed(f"Shall these rules hold in {on_one_line(folder)}?"):
        write("Nothing was taken over.\n")
        return 1
    file = paths(os.environ).folders
    Folders(file).add(folder, rules)
    write(f"They hold in {on_one_line(folder)} from now on, and are kept in {file}.\n")
    return 0


def _contents(given: str, folder: str) -> Mapping[str, bytes]:
    if given:
        return {given: small_file(str(Path(given).expanduser()))}
    found = small_files(folder, _DIRECTORY, _FILES, lambda _: False)
    if not found:
        raise BadInput(
            f"there is no {_DIRECTORY}/{_FILES[0]} in {folder}: name a file, or another "
            "folder with --cwd"
        )
    return found


def _permissions(name: str, content: bytes) -> Mapping[str, object]:
    try:
        whole = msgspec.json.decode(content, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput(f"{name} holds no JSON object: {error}") from error
    found = whole.get("permissions", {})
    if not isinstance(found, dict):
        raise BadInput(f"{name}: permissions is no object")
    return cast("dict[str, object]", found)


def _known(carried: Carried, rules: dict[Verdict, list[str]]) -> Iterable[str]:
    """Add the rules that mean something here to `rules`; give what is to be said."""
    tools = builtin()
    yield from carried.left
    taken: dict[Verdict, tuple[str, ...]] = {
        "allow": carried.allow, "ask": carried.ask, "deny": carried.deny,
    }  # fmt: skip
    for verdict, texts in taken.items():
        for text in texts:
            name = parse(text, "deny").tool
            if not any(is_about(name, tool.spec.name, tool.effect) for tool in tools):
                yield f"{text!r} was left out: there is no such tool here"
            elif text not in rules[verdict]:
                rules[verdict].append(text)
    if carried.mode:
        yield f"the mode stays as it is: --permission-mode {carried.mode} chooses that one"
    for each in carried.directories:
        yield f"the directory {each!r} is not added: --add-dir does that"


def _tell(name: str, lines: Iterable[str]) -> None:
    for line in lines:
        remark(on_one_line(f"{name}: {line}"))
