"""Makes tools from JSON files: each has a command line with placeholders for arguments.

Each argument becomes one word of the command line, or a part of one, and is quoted for the
shell, so no argument can become code. The command line is judged, confined and run like one of
`bash`. `agent_files` decides where an agent's files may be, and `variant` reads the key
`tools`.

A template that a shell parses again is not safe, because quotes around a placeholder undo the
quoting. The tools have no permission rules of their own: these would bypass the rules for
`bash`.
"""

import os
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import pairwise
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
_PLACEHOLDER_PATTERN = re.compile(r"\{([A-Za-z_]\w*)\}")
# The option of a shell before its script.
_SCRIPT_OPTION_PATTERN = re.compile(r"-[A-Za-z]*c[A-Za-z]*")
_SCRIPT_PROGRAMS = SHELL_PROGRAMS | {"su", "runuser", "sg", "script", "flock"}
# These programs treat all their words as a script.
_SCRIPT_JOINERS = frozenset(("eval", "ssh", "mosh", "watch", "parallel"))
# Options of programs whose value is code, which no quotes of a shell make safe.
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
# The first word of these that is not an option is code, unless an option provides the code.
_FIRST_IS_CODE = {
    "sed": ("efl", ("--expression", "--file")), "gsed": ("efl", ("--expression", "--file")),
    **dict.fromkeys(("awk", "gawk", "mawk", "nawk"), ("efvF", ("--source", "--file"))),
}  # fmt: skip
_SCRIPT_FILE_PATTERN = re.compile(r"\.(?:[cm]?[jt]s|py|pl|rb|php|lua|jl|R|sed|awk)$")
# Words after "--" in a command line of these are options of a program that they run.
_PROGRAM_STARTERS = frozenset(
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
    """The content of a tool file."""

    name: str
    description: Annotated[str, Meta(min_length=1, max_length=1_000)]
    command: Annotated[tuple[str, ...], Meta(min_length=1)]
    parameters: dict[str, _Parameter] = {}
    network: bool = False
    hosts: tuple[str, ...] = ()
    timeout: Annotated[int, Meta(ge=1, le=600)] = 60  # seconds


class _Schema(Struct, frozen=True, forbid_unknown_fields=True):
    """The parameters of a tool as a JSON Schema, which other programs write."""

    type: Literal["object"]
    properties: dict[str, dict[str, Any]] = {}
    required: tuple[str, ...] = ()
    additionalProperties: bool = False


def command_tools(declared: Declared) -> tuple[Tool, ...]:
    """Return the tools of the JSON files that an agent names. Raises `BadInput`."""
    return every_command_tool((declared,))


def every_command_tool(agents: Iterable[Declared]) -> tuple[Tool, ...]:
    """Return the tools of the JSON files that several agents name.

    Raises `BadInput` if different tools have the same name.
    """
    specs = dict[str, tuple[_ToolFile, str]]()
    for declared in agents:
        for path in _paths(declared):
            spec = _parse_tool_file(_content(declared, path), path, declared)
            first_spec, first_path = specs.setdefault(spec.name, (spec, path))
            if first_spec != spec:
                raise _definition_error(
                    declared,
                    f"{path!r} has the name {spec.name!r}, and so has {first_path!r}: give one of "
                    "them another name",
                )
    return tuple(_to_tool(spec) for spec, _ in specs.values())


def is_file(name: str) -> bool:
    """Return whether this entry of an agent's `tools` is a path, and not the name of a tool."""
    return "/" in name or name.endswith(".json")


def _paths(declared: Declared) -> Iterable[str]:
    """Yield the paths of an agent's tool files. A folder means all JSON files in it.

    For a project's agent, only the trusted files in `declared.pinned` count, not the disk.
    """
    for name in filter(is_file, declared.variant.tools or ()):
        path = os.path.normpath(os.path.join(declared.folder, os.path.expanduser(name)))
        if declared.pinned is not None:
            in_folder = [file for file in declared.pinned if os.path.dirname(file) == path]
            if in_folder and path not in declared.pinned:
                yield from in_folder
            else:
                yield path
        elif os.path.isdir(path):
            yield from _files_in_folder(declared, name, path)
        else:
            yield path


def _files_in_folder(declared: Declared, name: str, path: str) -> Sequence[str]:
    """Return the paths of the JSON files in a folder.

    Raises `BadInput` if there are none or too many. `name` is the folder, for errors.
    """
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
    """Return the content of a tool file.

    For a project's agent, it is the content that was trusted.
    """
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
    """Return the error for a problem with the `tools` of an agent, with its file."""
    return BadInput(
        f"{declared.where}: {declared.variant.name}.tools: {escape_name(problem)}"
    )


def _parse_tool_file(content: bytes, path: str, declared: Declared) -> _ToolFile:
    """Parse a tool file. Raises `BadInput`, which names the file and the key."""
    try:
        fields = msgspec.json.decode(content, type=dict[str, Any])
        if isinstance(parameters := fields.get("parameters"), dict):
            if "properties" in parameters:
                fields["parameters"] = _from_schema(cast("dict[str, Any]", parameters))
            _check_types(fields["parameters"])
        spec = msgspec.convert(fields, _ToolFile)
        _check_tool_file(spec)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError) as error:
        # A value of the wrong type is a subclass of this error.
        is_json = type(error) is not msgspec.DecodeError
        why = error if is_json else f"it is not valid JSON: {error}"
        raise _definition_error(declared, f"{path!r}: {why}") from error
    return spec


def _check_types(parameters: Mapping[str, Any]) -> None:
    """Raise `ValueError`, which names the parameter, if a parameter has an unknown type.

    The decoder does not check this, because its errors name only a path.
    """
    for name, about in parameters.items():
        fields = cast("dict[str, Any]", about) if isinstance(about, dict) else {}
        if (kind := fields.get("type", "string")) not in tuple(_VALUE_TYPES):
            raise ValueError(
                f"the parameter {name!r} has the type {kind!r}: choose {', '.join(_VALUE_TYPES)}"
            )


def _to_tool(spec: _ToolFile) -> Tool:
    """Return the tool that a file describes.

    The command line of the tool is judged and run like a command of `bash`.
    """
    fields = list[Any]()
    for name, parameter in spec.parameters.items():
        kind = _type_of(parameter)
        fields.append((name, kind | None, None) if parameter.optional else (name, kind))
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
    """Return the parameters of a JSON Schema in the form that tool files use."""
    schema = msgspec.convert(parameters, _Schema)
    return {
        name: {**about, "optional": name not in schema.required}
        for name, about in schema.properties.items()
    }


def _type_of(parameter: _Parameter) -> Any:
    """Return the type of a parameter as msgspec needs it, with the description."""
    kind = Literal[parameter.enum] if parameter.enum else _VALUE_TYPES[parameter.type]
    return Annotated[kind, Meta(description=parameter.description)]


def _check_tool_file(spec: _ToolFile) -> None:
    """Raise `ValueError` if several keys of a tool file do not fit together."""
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
    placeholders = {
        name for word in spec.command for name in _PLACEHOLDER_PATTERN.findall(word)
    }
    if unknown := sorted(placeholders - spec.parameters.keys()):
        raise ValueError(f"command names {{{unknown[0]}}}, which is not a parameter")
    if unused := sorted(spec.parameters.keys() - placeholders):
        raise ValueError(f"the parameter {unused[0]!r} does not occur in command")
    if not spec.command[0] or _PLACEHOLDER_PATTERN.search(spec.command[0]):
        raise ValueError("the first word of command must be the program itself")
    for index, word in enumerate(spec.command):
        if not _PLACEHOLDER_PATTERN.search(word):
            continue
        if _is_script(spec.command[:index]):
            raise ValueError(
                f"{word!r} is a script, and an argument in it would be code: use $1 in the "
                "script, and give the argument after it"
            )
        if program := _program_that_runs(word, spec.command[:index]):
            raise ValueError(
                f"{word!r} is code to {program}, and so an argument in it would be: let the "
                "code read it from a word of its own, after the code"
            )


def _check_parameters(spec: _ToolFile) -> None:
    """Raise `ValueError` if a parameter of the tool has a name or type that it cannot have."""
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
    """Return whether a shell takes the word after `before` as its script, or a part of it."""
    names = [os.path.basename(word) for word in before]
    if any(name in _SCRIPT_JOINERS for name in names):
        return True
    options = [
        index for index, word in enumerate(before) if _SCRIPT_OPTION_PATTERN.fullmatch(word)
    ]
    if not options:
        return False
    script_option = options[0]
    if not any(name in _SCRIPT_PROGRAMS for name in names[:script_option]):
        return False
    after = before[script_option + 1 :]
    for previous, word in pairwise(("", *after)):
        is_value = previous in ("-o", "+o", "-O")
        if not is_value and not word.startswith(("-", "+")):
            return False  # this word is the script
    return True


def _program_that_runs(word: str, before: Sequence[str]) -> str:
    """Return the program that takes a word with a placeholder as code; "" if none does.

    `before` are the words before `word` in the command line.
    """
    before_placeholder = word[: word.index("{")]
    for index, path in enumerate(before):
        # without a version: python3.12 is python
        name = os.path.basename(path).rstrip("0123456789.") or path
        after = before[index + 1 :]
        if name in _CODE_OPTIONS and _is_option_value(
            after, before_placeholder, *_CODE_OPTIONS[name]
        ):
            return name
        if name in _FIRST_IS_CODE and _is_first_operand(after, word, *_FIRST_IS_CODE[name]):
            return name
    return ""


def _is_option_value(
    after: Sequence[str], beginning: str, letters: str, long_options: tuple[str, ...]
) -> bool:
    """Return whether a word, which follows the arguments `after`, has code for an option.

    `beginning` is the word up to its placeholder. The options in `letters` (short ones) and
    `long_options` take code.
    """
    if _has_program(after[:-1]):
        return False
    last = after[-1] if after else ""
    if last in long_options or _is_cluster(last, letters):
        return True  # the word is the value of the option before it
    with_equals = tuple(f"{option}=" for option in long_options if option.startswith("--"))
    if beginning.startswith(with_equals) or _begins_cluster(beginning, letters):
        return not _has_program(after)  # the word has the option and its value
    return False


def _has_program(after: Sequence[str]) -> bool:
    """Return whether one of the words names a file or module to run.

    Options after it belong to that file or module.
    """
    previous = ""
    for word in after:
        # A word after another option may be the value of that option.
        may_be_value = previous.startswith("-") and previous != "-m"
        names_script = not may_be_value or _SCRIPT_FILE_PATTERN.search(word)
        if names_script and not word.startswith("-"):
            return True
        previous = word
    return False


def _is_cluster(word: str, letters: str) -> bool:
    """Return whether the word is short options, like -xe, whose last takes a value.

    `letters` are the options that take a value. The value is then the next word.
    """
    return bool(letters and re.fullmatch(f"-[A-Za-z0-9]*[{letters}]", word))


def _begins_cluster(word: str, letters: str) -> bool:
    """Return whether the word begins with short options whose last takes a value.

    `letters` are the options that take a value. The value is then the rest of the word.
    """
    return bool(letters and re.match(f"-[A-Za-z0-9]*?[{letters}]", word))


def _is_first_operand(
    after: Sequence[str], word: str, letters: str, code_options: tuple[str, ...]
) -> bool:
    """Return whether `word`, which follows the arguments `after`, is the first operand.

    An operand is neither an option nor the value of an option. `letters` are the short options
    that take a value. Return False if `after` has `-e`, `-f` or one of `code_options`,
    because that option provides the code.
    """
    if word.startswith("-"):
        return False
    is_value = False  # whether the next word is the value of an option
    for argument in after:
        if is_value:
            is_value = False
        elif argument.startswith("-") and argument != "--":
            is_value = _is_cluster(argument, letters)
            if argument.startswith(code_options) or re.match(r"-[A-Za-z]*?[ef]", argument):
                return False  # an option provides the code, or a file with it
        elif argument != "--":
            return False
    return not is_value


def _command_line(spec: _ToolFile, arguments: Mapping[str, object]) -> CommandLine:
    """Return the command line of a call, with each argument quoted. Raises `ToolFailed`."""
    words = list[str]()
    options_ended = False  # whether only arguments came after "--", which ends the options
    program = os.path.basename(spec.command[0])
    for word in spec.command:
        names = _PLACEHOLDER_PATTERN.findall(word)
        if not names:
            options_ended = word == "--" and program not in _PROGRAM_STARTERS
        if any(arguments.get(name) is None for name in names):
            continue  # an optional argument that is missing
        text = _PLACEHOLDER_PATTERN.sub(
            lambda match: _argument_text(arguments[match[1]]), word
        )
        if "\0" in text:
            raise ToolFailed(f"An argument of {spec.name} has a NUL character: remove it.")
        begins_with_argument = _PLACEHOLDER_PATTERN.match(word) is not None
        is_free = begins_with_argument and not _is_enum(spec, word)
        if is_free and text.startswith("-") and not options_ended:
            raise ToolFailed(
                f"The argument {names[0]!r} must not begin with '-': {spec.command[0]} would "
                "take it as an option."
            )
        words.append(text)
    hosts = expand_all(spec.hosts)
    return CommandLine(shlex.join(words), spec.network or bool(hosts), hosts)


def _is_enum(spec: _ToolFile, word: str) -> bool:
    """Return whether the word is a parameter with fixed values, which may begin with a dash."""
    match = _PLACEHOLDER_PATTERN.fullmatch(word)
    return match is not None and bool(spec.parameters[match[1]].enum)


def _argument_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


async def _run(spec: _ToolFile, **values: object) -> Reply:
    """Run the command line of a tool.

    `values` are the model's arguments, and what `bash` needs from refold.
    """
    arguments = {name: values.pop(name, None) for name in spec.parameters}
    line = _command_line(spec, arguments)
    return await bash.run(
        command=line.text,
        timeout=spec.timeout,
        network=line.network,
        hosts=line.hosts,
        **values,
    )
