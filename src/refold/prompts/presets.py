"""Presets: the prompts of agents without a prompt of their own.

Each is a `PROMPT.md` in a folder of its name: lines `key: words` between two lines `---`, then the
prompt. Four are built in, and a test ties their text to their version. `app` decides which other
folders of presets count.
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
    """`where` is the file, fit for a screen; "" for those that come with refold."""

    name: str
    description: str
    version: str
    text: str
    where: str = ""


class PresetFolder(Struct, frozen=True):
    """A folder of presets. `label` is fit for a screen; links may not lead out of `within`."""

    folder: str
    label: str
    within: str
    trusted: TrustedText = trust_unchanged


def preset(name: str, shelves: Sequence[PresetFolder] = ()) -> Preset:
    """The preset of this name; refold's own come first, then `shelves` in order.

    Raises `BadInput` where there is none, or where it cannot be used.
    """
    if name in BUILT_IN:
        return _own_preset(name)
    for shelf in shelves:
        if name in _list_names(shelf):
            return _read(shelf, name)
    known = names(shelves)
    from difflib import get_close_matches

    suggestions = get_close_matches(name.lower(), known, 1, 0.5)
    hint = f"did you mean {suggestions[0]}? " if suggestions else ""
    listed = ", ".join(known)
    raise BadInput(f"there is no preset {escape_name(name)!r}; {hint}there are {listed}")


def names(shelves: Sequence[PresetFolder] = ()) -> tuple[str, ...]:
    """Every name that `preset` knows, ours first."""
    others = sorted({name for model_files in shelves for name in _list_names(model_files)})
    return tuple(dict.fromkeys((*BUILT_IN, *others)))


def presets(
    shelves: Sequence[PresetFolder] = (),
) -> tuple[tuple[Preset, ...], tuple[str, ...]]:
    """All that can be used, and a sentence for each that cannot."""
    usable, problems = list[Preset](), list(shadow_notices(shelves))
    for name in names(shelves):
        try:
            usable.append(preset(name, shelves))
        except BadInput as error:
            problems.append(str(error))
    return tuple(usable), tuple(problems)


def shadow_notices(shelves: Iterable[PresetFolder]) -> tuple[str, ...]:
    """Sentences about presets that have the name of one of ours, and are ignored."""
    return tuple(
        f"{model_files.label}/{name}/{PRESET_FILE} is ignored: {name} is a preset of refold; "
        "give yours another name"
        for model_files in shelves
        for name in _list_names(model_files)
        if name in BUILT_IN
    )


def parse_preset(text: str, label: str) -> Preset:
    """A PROMPT.md. Raises `BadInput` that names the file and the line."""
    lines = text.split("\n")
    if lines[0].rstrip() != "---":
        raise _preset_error(label, 1, "the file has to begin with a line ---")
    end = next(
        (index for index, line in enumerate(lines[1:], 1) if line.rstrip() == "---"), 0
    )
    if not end:
        raise _preset_error(label, 1, "the line --- that ends the front matter is missing")
    values = dict[str, str]()
    for number, line in enumerate(lines[1:end], 2):
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
    with open(os.path.join(_PRESETS_FOLDER, name, PRESET_FILE), encoding="utf-8") as file:
        result = parse_preset(file.read(), f"{name}/{PRESET_FILE}")
    return Preset(result.name, result.description, result.version, result.text)


def _read(model_files: PresetFolder, name: str) -> Preset:
    label = f"{model_files.label}/{name}/{PRESET_FILE}"
    path = os.path.join(model_files.folder, name, PRESET_FILE)
    try:
        read = content(path, model_files.within, _MAX_FILE_BYTES)
        if read.size > _MAX_FILE_BYTES:
            raise Unreadable(f"it is larger than {_MAX_FILE_BYTES // 1024} KiB")
        trusted = model_files.trusted(os.path.realpath(path), text_of(read))
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


def _list_names(model_files: PresetFolder) -> list[str]:
    try:
        with os.scandir(model_files.folder) as entries:
            names = sorted(e.name for e in entries if re.fullmatch(_NAME_PATTERN, e.name))[
                :_MAX_PRESETS
            ]
    except OSError:
        return []
    return [
        n
        for n in names
        if os.path.lexists(os.path.join(model_files.folder, n, PRESET_FILE))
    ]


def _unquote(text: str) -> str:
    quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "'\""
    return text[1:-1] if quoted else text


def _preset_error(label: str, line: int, problem: str) -> BadInput:
    return BadInput(f"{label}, line {line}: {problem}")


class ShortTool(Struct, frozen=True):
    """A tool in few words; `takes` are the parameters that are left, `may` those it can omit."""

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
    """The tool as a small model sees it. None: it does not see it."""
    short = SMALL_TOOLS.get(spec.name)
    if short is None:
        return None
    whole: dict[str, Any] = msgspec.json.decode(spec.parameters)
    properties = {
        name: {k: v for k, v in about.items() if k != "description"}
        for name, about in whole["properties"].items()
        if name in short.takes
    }
    parameters = {
        "type": "object",
        "properties": properties,
        "required": [name for name in properties if name not in short.may],
        "additionalProperties": False,
    }
    return ToolSpec(spec.name, short.about, Raw(msgspec.json.encode(parameters)))
