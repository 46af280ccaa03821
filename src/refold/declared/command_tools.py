"""Tools written as JSON files: a command line with places for arguments.

Each argument becomes one word of the command line, or a part of one, and is quoted for the shell:
no argument can become code. The command line is judged and confined like one of `bash`, which also
runs it. `agent_files` says where an agent's files may lie, `variant` has the key `tools`.

A template that a shell reads is not safe: quotes around a place undo the quoting. A rule of
its own for each tool would escape `deny = ["bash(rm *)"]`.
"""

import os
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Literal, TypeAlias, cast

import msgspec
from msgspec import Meta, Raw, Struct

from refold.config.project import read_small_file
from refold.declared.variant import Declared
from refold.errors import BadInput, ToolFailed, reason_of
from refold.permissions.rules import our_tool_name
from refold.permissions.shell.nested_commands import SHELL_PROGRAMS
from refold.tools.contract import CommandLine, Reply, Signature, Tool, schema_of
from refold.tools.shell import bash
from refold.values.hosts import expand_all
from refold.values.printable_names import escape_name
from refold.values.tools import Effect

_NAME_PATTERN = re.compile(r"[a-z][a-z0-9_]{0,63}")
_PLACE_PATTERN = re.compile(r"\{([A-Za-z_]\w*)\}")
# The option of a shell before its script.
_SCRIPT_OPTION_PATTERN = re.compile(r"-[A-Za-z]*c[A-Za-z]*")
_WITH_SCRIPT = SHELL_PROGRAMS | {"su", "runuser", "sg", "script", "flock"}
# All words are a script.
_SCRIPT_JOINERS = frozenset(("eval", "ssh", "mosh", "watch", "parallel"))
# The options of programs whose value is code, which no quotes of a shell make safe.
_CODE_OPTIONS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "python": ("c", ()), "pypy": ("c", ()), "guile": ("c", ()),
    "perl": ("eE", ()), "ruby": ("e", ()), "lua": ("e", ()), "julia": ("eE", ("--eval", "--print")),
    "node": ("ep", ("--eval", "--print")), "nodejs": ("ep", ("--eval", "--print")),
    "bun": ("ep", ("--eval", "--print")), "php": ("rBRE", ("--run",)),
    "R": ("e", ()), "Rscript": ("e", ()), "osascript": ("e", ()), "elixir": ("e", ("--eval",)),
    "emacs": ("", ("--eval", "--execute", "-eval")), "env": ("S", ("--split-string",)),
    "sed": ("e", ("--expression",)), "gsed": ("e", ("--expression",)),
    **dict.fromkeys(("awk", "gawk", "mawk", "nawk"), ("e", ("--source",))),
}  # fmt: skip
# The first word of these that is not an option is code, unless it is given by an option.
_FIRST_IS_CODE = {
    "sed": ("efl", ("--expression", "--file")), "gsed": ("efl", ("--expression", "--file")),
    **dict.fromkeys(("awk", "gawk", "mawk", "nawk"), ("efvF", ("--source", "--file"))),
}  # fmt: skip
_SCRIPT_FILE_PATTERN = re.compile(r"\.(?:[cm]?[jt]s|py|pl|rb|php|lua|jl|R|sed|awk)$")
# After "--" of these come the options of a program that they run.
_PASS_ON = frozenset(
    ("npm", "pnpm", "yarn", "bun", "npx", "cargo", "docker", "podman", "kubectl", "uv")
)
_VALUE_TYPES: Mapping[str, Any] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
}
_MAX_FILES = 50  # files in a folder

Kind: TypeAlias = Literal["string", "integer", "number", "boolean"]


class _Parameter(Struct, frozen=True, forbid_unknown_fields=True):
    type: Kind = "string"
    description: str = ""
    enum: tuple[str, ...] = ()
    optional: bool = False


class _ToolFile(Struct, frozen=True, forbid_unknown_fields=True):
    """A tool file, as it is written."""

    name: str
    description: Annotated[str, Meta(min_length=1, max_length=1_000)]
    command: Annotated[tuple[str, ...], Meta(min_length=1)]
    parameters: dict[str, _Parameter] = {}
    network: bool = False
    hosts: tuple[str, ...] = ()
    timeout: Annotated[int, Meta(ge=1, le=600)] = 60  # seconds


class _Schema(Struct, frozen=True, forbid_unknown_fields=True):
    """Parameters in the form of a JSON Schema, as other programs write them."""

    type: Literal["object"]
    properties: dict[str, dict[str, Any]] = {}
    required: tuple[str, ...] = ()
    additionalProperties: bool = False


def command_tools(declared: Declared) -> tuple[Tool, ...]:
    """The tools of the files that an agent names. Raises `BadInput`."""
    return every_command_tool((declared,))


def every_command_tool(agents: Iterable[Declared]) -> tuple[Tool, ...]:
    """Return the tools of several agents.

    Raises `BadInput` if different tools have the same name.
    """
    specs = dict[str, tuple[_ToolFile, str]]()
    for declared in agents:
        for path in _paths(declared):
            written = _read(_content(declared, path), path, declared)
            other, other_path = specs.setdefault(written.name, (written, path))
            if other != written:
                raise _definition_error(
                    declared,
                    f"{path!r} has the name {written.name!r}, and so has {other_path!r}: give one of "
                    "them another name",
                )
    return tuple(_tool(written) for written, _ in specs.values())


def is_file(name: str) -> bool:
    """Return True if this entry of `tools` is a file or a folder."""
    return "/" in name or name.endswith(".json")


def _paths(declared: Declared) -> Iterable[str]:
    for name in filter(is_file, declared.variant.tools or ()):
        path = os.path.normpath(os.path.join(declared.folder, os.path.expanduser(name)))
        if declared.pinned is not None:
            inside = [p for p in declared.pinned if os.path.dirname(p) == path]
            yield from [path] if path in declared.pinned or not inside else inside
        elif os.path.isdir(path):
            yield from _files_in_folder(declared, name, path)
        else:
            yield path


def _files_in_folder(declared: Declared, name: str, path: str) -> Sequence[str]:
    try:
        files = sorted(entry for entry in os.listdir(path) if entry.endswith(".json"))
    except OSError as error:
        raise _definition_error(
            declared, f"{name!r} cannot be read: {reason_of(error)}"
        ) from error
    if not 0 < len(files) <= _MAX_FILES:
        raise _definition_error(
            declared,
            f"{name!r} has {len(files)} JSON files: name a folder with 1 to {_MAX_FILES}",
        )
    return [os.path.join(path, entry) for entry in files]


def _content(declared: Declared, path: str) -> bytes:
    if declared.pinned is None:
        try:
            return read_small_file(path)
        except BadInput as error:
            raise _definition_error(
                declared, f"{path!r} cannot be read: name a JSON file that exists"
            ) from error
    if path not in declared.pinned:
        raise _definition_error(
            declared,
            f"{path!r} is not a file of this project's tools: put it into .refold/tools, which "
            "`refold trust add` shows",
        )
    return declared.pinned[path]


def _definition_error(declared: Declared, problem: str) -> BadInput:
    return BadInput(
        f"{declared.where}: {declared.variant.name}.tools: {escape_name(problem)}"
    )


def _read(content: bytes, path: str, declared: Declared) -> _ToolFile:
    """Parse a file of a tool. Raises `BadInput` that names the file and the key."""
    try:
        fields = msgspec.json.decode(content, type=dict[str, Any])
        if isinstance(parameters := fields.get("parameters"), dict):
            if "properties" in parameters:
                fields["parameters"] = _from_schema(cast("dict[str, Any]", parameters))
            _check_types(fields["parameters"])
        spec = msgspec.convert(fields, _ToolFile)
        _check(spec)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError) as error:
        no_json = type(error) is msgspec.DecodeError
        why = f"it is not valid JSON: {error}" if no_json else error
        raise _definition_error(declared, f"{path!r}: {why}") from error
    return spec


def _check_types(parameters: Mapping[str, Any]) -> None:
    """Check the types of parameters. Raises `ValueError` that names the parameter.

    The decoder does not do this, because its errors have only a path.
    """
    for name, about in parameters.items():
        fields = cast("dict[str, Any]", about) if isinstance(about, dict) else {}
        if (kind := fields.get("type", "string")) not in tuple(_VALUE_TYPES):
            raise ValueError(
                f"the parameter {name!r} has the type {kind!r}: choose {', '.join(_VALUE_TYPES)}"
            )


def _tool(spec: _ToolFile) -> Tool:
    kinds = {name: _type_of(parameter) for name, parameter in spec.parameters.items()}
    fields = [
        (name, kinds[name] | None, None) if parameter.optional else (name, kinds[name])
        for name, parameter in spec.parameters.items()
    ]
    arguments = msgspec.defstruct(spec.name, fields, frozen=True, kw_only=True)
    schema = Raw(msgspec.json.encode(schema_of(arguments)))
    signature = Signature(arguments, schema, bash.signature().needs)
    return Tool(
        spec.name,
        spec.description,
        Effect.RUN,
        partial(_run, spec),
        lambda: signature,
        command=partial(_command_line, spec),
    )


def _from_schema(parameters: dict[str, Any]) -> dict[str, Any]:
    schema = msgspec.convert(parameters, _Schema)
    return {
        name: {**about, "optional": name not in schema.required}
        for name, about in schema.properties.items()
    }


def _type_of(parameter: _Parameter) -> Any:
    kind = Literal[parameter.enum] if parameter.enum else _VALUE_TYPES[parameter.type]
    return Annotated[kind, Meta(description=parameter.description)]


def _check(spec: _ToolFile) -> None:
    """Check what concerns more than one key. Raises `ValueError`."""
    if not _NAME_PATTERN.fullmatch(spec.name) or "__" in spec.name:
        raise ValueError(
            f"the name {spec.name!r} must have letters a to z, digits and single _"
        )
    if our_tool_name(spec.name) != spec.name:
        raise ValueError(
            f"the name {spec.name!r} means another tool in rules: give another"
        )
    _check_parameters(spec)
    expand_all(spec.hosts)
    places = {name for word in spec.command for name in _PLACE_PATTERN.findall(word)}
    if unknown := sorted(places - spec.parameters.keys()):
        raise ValueError(f"command names {{{unknown[0]}}}, which is not a parameter")
    if unused := sorted(spec.parameters.keys() - places):
        raise ValueError(f"the parameter {unused[0]!r} does not occur in command")
    if not spec.command[0] or _PLACE_PATTERN.search(spec.command[0]):
        raise ValueError("the first word of command must be the program itself")
    for index, word in enumerate(spec.command):
        if _PLACE_PATTERN.search(word) and _is_script(spec.command[:index]):
            raise ValueError(
                f"{word!r} is a script, and an argument in it would be code: use $1 in the "
                "script, and give the argument after it"
            )
        if _PLACE_PATTERN.search(word) and (
            program := _reads_as_code(spec.command[:index], word)
        ):
            raise ValueError(
                f"{word!r} is code to {program}, and so an argument in it would be: let the "
                "code read it from a word of its own, after the code"
            )


def _check_parameters(spec: _ToolFile) -> None:
    for name, parameter in spec.parameters.items():
        if not name.isidentifier() or name.startswith("_"):
            raise ValueError(f"the parameter {name!r} must have letters, digits and _")
        if name in bash.signature().needs:
            raise ValueError(
                f"the parameter {name!r} needs another name: refold uses this one"
            )
        if parameter.enum and parameter.type != "string":
            raise ValueError(f"the parameter {name!r} has an enum, so its type is string")


def _is_script(before: Sequence[str]) -> bool:
    """Whether a shell takes the word after these as a script, or as a part of one."""
    names = [os.path.basename(word) for word in before]
    if any(name in _SCRIPT_JOINERS for name in names):
        return True
    options = [
        index for index, word in enumerate(before) if _SCRIPT_OPTION_PATTERN.fullmatch(word)
    ]
    if not options or not any(name in _WITH_SCRIPT for name in names[: options[0]]):
        return False
    after = before[options[0] + 1 :]
    plain = [
        word
        for index, word in enumerate(after)
        if word[:1] not in ("-", "+")
        and (index == 0 or after[index - 1] not in ("-o", "+o", "-O"))
    ]
    return not plain  # the first of these is the script


def _reads_as_code(before: Sequence[str], word: str) -> str:
    """The program that takes the word after these as code, or a part of it; or ""."""
    begins = word[: word.index("{")]
    for index, path in enumerate(before):
        name = os.path.basename(path).rstrip("0123456789.") or path
        after = before[index + 1 :]
        if name in _CODE_OPTIONS and not _has_program(after[:-1]):
            letters, long = _CODE_OPTIONS[name]
            last = after[-1] if after else ""
            if last in long or _is_cluster(last, letters):
                return name
            attached = tuple(f"{option}=" for option in long if option.startswith("--"))
            own = begins.startswith(attached) or _begins_cluster(begins, letters)
            if own and not _has_program(after):
                return name
        if name in _FIRST_IS_CODE and _is_first_operand(after, word, *_FIRST_IS_CODE[name]):
            return name
    return ""


def _has_program(after: Sequence[str]) -> bool:
    """Whether these words name a file or module to run, so that later options are its
    own."""
    return any(
        not word.startswith("-")
        and (
            before in ("", "-m")
            or not before.startswith("-")
            or _SCRIPT_FILE_PATTERN.search(word)
        )
        for before, word in zip(("", *after), after, strict=False)
    )


def _is_cluster(word: str, letters: str) -> bool:
    """Whether the word is a cluster of short options, like -xe, whose last letter is one of
    `letters`: its value is the next word.
    """
    return bool(letters and re.fullmatch(f"-[A-Za-z0-9]*[{letters}]", word))


def _begins_cluster(word: str, letters: str) -> bool:
    """Whether the word is a cluster of short options with one of `letters` in it; the rest of the
    word is then the value of that option.
    """
    return bool(letters and re.match(f"-[A-Za-z0-9]*?[{letters}]", word))


def _is_first_operand(
    after: Sequence[str], word: str, letters: str, long: tuple[str, ...]
) -> bool:
    """Whether the word is the first after a program that is neither an option nor the value
    of one.
    """
    if word.startswith("-"):
        return False
    values = False
    for argument in after:
        if values:
            values = False
        elif argument.startswith("-") and argument != "--":
            values = _is_cluster(argument, letters)
            if argument.startswith(long) or re.match(r"-[A-Za-z]*?[ef]", argument):
                return False  # the code, or a file with it, is given there
        elif argument != "--":
            return False
    return not values


def _command_line(spec: _ToolFile, arguments: Mapping[str, object]) -> CommandLine:
    """The command line of a call, each word quoted. Raises `ToolFailed`."""
    words = list[str]()
    ends = False  # of options: "--" stands before it, with nothing but arguments between
    for word in spec.command:
        if not _PLACE_PATTERN.search(word):
            ends = word == "--" and os.path.basename(spec.command[0]) not in _PASS_ON
        names = _PLACE_PATTERN.findall(word)
        if any(arguments.get(name) is None for name in names):
            continue  # an optional argument that is not given
        text = _PLACE_PATTERN.sub(lambda place: _text(arguments[place[1]]), word)
        if "\0" in text:
            raise ToolFailed(f"An argument of {spec.name} has a NUL character: remove it.")
        chosen = (
            word == f"{{{names[0]}}}" and spec.parameters[names[0]].enum if names else ()
        )
        if _PLACE_PATTERN.match(word) and text.startswith("-") and not chosen and not ends:
            raise ToolFailed(
                f"The argument {names[0]!r} must not begin with '-': {spec.command[0]} would "
                "take it as an option."
            )
        words.append(text)
    hosts = expand_all(spec.hosts)
    return CommandLine(shlex.join(words), spec.network or bool(hosts), hosts)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


async def _run(spec: _ToolFile, **given: object) -> Reply:
    arguments = {name: given.pop(name, None) for name in spec.parameters}
    line = _command_line(spec, arguments)
    return await bash.run(
        command=line.text,
        timeout=spec.timeout,
        network=line.network,
        hosts=line.hosts,
        **given,
    )
