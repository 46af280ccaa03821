"""Reads presets: named prompts for agents that have no prompt of their own.

A preset is a file `PROMPT.md` in a folder with its name. It has lines `key: words` between two
lines `---`, and then the prompt. Four presets are built in; a test fails if the text of one
changes and its version does not. `app` decides which other folders of presets are used.
"""

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw, Struct

from refold.errors import BadInput
from refold.prompts.read_text import Unreadable, content, remove_invisible, text_of
from refold.values.printable_names import escape_name
from refold.values.text import NEW_TEXT_REASON, TrustedText, trust_unchanged
from refold.values.tools import ToolSpec

PRESET_FILE = "PROMPT.md"
BUILT_IN = ("coding", "work", "research", "review")
_PRESETS_FOLDER = os.path.dirname(__file__)
_MAX_FILE_BYTES = 32 * 1024
_MAX_PRESETS = 100  # presets in one folder
_NAME_PATTERN = r"[a-z0-9]+(?:-[a-z0-9]+)*"
_LINE_PATTERN = r"([A-Za-z][\w-]*):(?:[ \t]+(.*))?"
_REQUIRED_KEYS = ("name", "description")


class Preset(Struct, frozen=True):
    """A preset. `where` is its file, with invisible characters escaped; "" if it is built in."""

    name: str
    description: str
    version: str
    text: str
    where: str = ""


class PresetFolder(Struct, frozen=True):
    """A folder that contains presets.

    `label` is its name with invisible characters escaped. Links may not lead out of `within`.
    `trusted` returns the version of a file's text that the user has trusted, or None.
    """

    folder: str
    label: str
    within: str
    trusted: TrustedText = trust_unchanged


def preset(name: str, folders: Sequence[PresetFolder] = ()) -> Preset:
    """Return the preset with this name: the built-in one, or else the first one in `folders`.

    Raises `BadInput` if it does not exist, or cannot be used.
    """
    if name in BUILT_IN:
        return _own_preset(name)
    for preset_folder in folders:
        if name in _list_names(preset_folder):
            return _read(preset_folder, name)
    known = names(folders)
    from difflib import get_close_matches

    suggestions = get_close_matches(name.lower(), known, n=1, cutoff=0.5)
    hint = f"did you mean {suggestions[0]}? " if suggestions else ""
    listed = ", ".join(known)
    raise BadInput(f"there is no preset {escape_name(name)!r}; {hint}there are {listed}")


def names(folders: Sequence[PresetFolder] = ()) -> tuple[str, ...]:
    """Return the names of all presets: the built-in ones, then those in `folders`."""
    others = sorted(
        {name for preset_folder in folders for name in _list_names(preset_folder)}
    )
    return tuple(dict.fromkeys((*BUILT_IN, *others)))


def presets(
    folders: Sequence[PresetFolder] = (),
) -> tuple[tuple[Preset, ...], tuple[str, ...]]:
    """Return all presets that can be used, and a sentence for each that is ignored or invalid."""
    usable = list[Preset]()
    problems = list(shadow_notices(folders))
    for name in names(folders):
        try:
            usable.append(preset(name, folders))
        except BadInput as error:
            problems.append(str(error))
    return tuple(usable), tuple(problems)


def shadow_notices(folders: Iterable[PresetFolder]) -> tuple[str, ...]:
    """Return a sentence for each preset that is ignored because a built-in one has its name."""
    return tuple(
        f"{preset_folder.label}/{name}/{PRESET_FILE} is ignored: {name} is a preset of refold; "
        "give yours another name"
        for preset_folder in folders
        for name in _list_names(preset_folder)
        if name in BUILT_IN
    )


def parse_preset(text: str, label: str) -> Preset:
    """Parse the text of a `PROMPT.md`. `label` is the name of the file for messages.

    Raises `BadInput` if the text is invalid; the message names the file and the line.
    """
    lines = text.split("\n")
    if lines[0].rstrip() != "---":
        raise _preset_error(label, 1, "the file has to begin with a line ---")
    ends = [index for index, line in enumerate(lines) if index and line.rstrip() == "---"]
    if not ends:
        raise _preset_error(label, 1, "the line --- that ends the front matter is missing")
    end = ends[0]
    values = dict[str, str]()
    for number, line in enumerate(lines[1:end], start=2):  # line 1 is the first ---
        if not line.strip() or line.startswith("#"):
            continue
        match = re.fullmatch(_LINE_PATTERN, line.rstrip())
        if not match:
            raise _preset_error(
                label, number, f"{escape_name(line[:80])!r} is not a line `key: words`"
            )
        if match[1] in values:
            raise _preset_error(label, number, f"{match[1]} stands there twice")
        values[match[1]] = _unquote(match[2] or "")
    for key in _REQUIRED_KEYS:
        if not values.get(key):
            raise _preset_error(label, end + 1, f"the front matter says no {key}")
    body = "\n".join(lines[end + 1 :]).strip()
    if not body:
        raise _preset_error(label, end + 1, "there is no prompt after the front matter")
    return Preset(
        values["name"], values["description"], values.get("version", ""), body, label
    )


def _own_preset(name: str) -> Preset:
    """Return a built-in preset."""
    with open(os.path.join(_PRESETS_FOLDER, name, PRESET_FILE), encoding="utf-8") as file:
        result = parse_preset(file.read(), f"{name}/{PRESET_FILE}")
    return Preset(result.name, result.description, result.version, result.text)


def _read(preset_folder: PresetFolder, name: str) -> Preset:
    """Read and parse a preset of a folder. Raises `BadInput` if it cannot be used."""
    label = f"{preset_folder.label}/{name}/{PRESET_FILE}"
    path = os.path.join(preset_folder.folder, name, PRESET_FILE)
    try:
        read = content(path, preset_folder.within, _MAX_FILE_BYTES)
        if read.size > _MAX_FILE_BYTES:
            raise Unreadable(f"it is larger than {_MAX_FILE_BYTES // 1024} KiB")
        trusted = preset_folder.trusted(os.path.realpath(path), text_of(read))
        if trusted is None:
            raise Unreadable(NEW_TEXT_REASON)
        text = remove_invisible(trusted).text
    except FileNotFoundError as error:
        raise BadInput(f"the preset {label} cannot be read: it is gone") from error
    except Unreadable as error:
        raise BadInput(f"the preset {label} cannot be read: {error}") from error
    result = parse_preset(text, label)
    if result.name != name:
        raise BadInput(
            f"{label}: it is named {escape_name(result.name)!r}, and its folder {name!r}: "
            "the two must be the same"
        )
    return result


def _list_names(preset_folder: PresetFolder) -> list[str]:
    """Return the names of the presets in a folder; [] if the folder cannot be read."""
    try:
        with os.scandir(preset_folder.folder) as entries:
            valid = [e.name for e in entries if re.fullmatch(_NAME_PATTERN, e.name)]
    except OSError:
        return []
    return [
        name
        for name in sorted(valid)[:_MAX_PRESETS]
        if os.path.lexists(os.path.join(preset_folder.folder, name, PRESET_FILE))
    ]


def _unquote(text: str) -> str:
    """Return the text without a pair of quotes around it, if it has one."""
    quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "'\""
    return text[1:-1] if quoted else text


def _preset_error(label: str, line: int, problem: str) -> BadInput:
    return BadInput(f"{label}, line {line}: {problem}")


class ShortTool(Struct, frozen=True):
    """A tool as small models see it: a description and fewer parameters.

    `takes` are its parameters; those that are optional are also in `may`.
    """

    about: str
    takes: tuple[str, ...]
    may: tuple[str, ...] = ()


SMALL_TOOLS = {
    "read_file": ShortTool("show a file, with line numbers", ("path",)),
    "list_files": ShortTool('show what is in a folder ("." is here)', ("path",)),
    "grep": ShortTool("find text in the files here", ("pattern",)),
    "write_file": ShortTool("make a new file", ("path", "content")),
    "edit_file": ShortTool(
        "replace text in a file; to insert a line, repeat the line above it in new",
        ("path", "old", "new", "all"),
        may=("all",),
    ),
    "bash": ShortTool("run a shell command", ("command",)),
    "finish": ShortTool("end, and tell the person the answer", ("answer",)),
}


def small_system() -> str:
    return Path(__file__).with_name("small.md").read_text(encoding="utf-8").strip()


def small_tool(spec: ToolSpec) -> ToolSpec | None:
    """Return the tool as small models see it, or None if it is left out for them."""
    short = SMALL_TOOLS.get(spec.name)
    if short is None:
        return None
    whole: dict[str, Any] = msgspec.json.decode(spec.parameters)
    properties = dict[str, dict[str, Any]]()
    for name, schema in whole["properties"].items():
        if name in short.takes:
            properties[name] = {
                key: value for key, value in schema.items() if key != "description"
            }
    parameters = {
        "type": "object",
        "properties": properties,
        "required": [name for name in properties if name not in short.may],
        "additionalProperties": False,
    }
    return ToolSpec(spec.name, short.about, Raw(msgspec.json.encode(parameters)))
