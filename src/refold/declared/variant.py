"""Parses declared agents from a table that any of the file formats gives. Pure.

An error names the file, the line and the key, and lists what is allowed. `agent_files` finds
and parses files, `facts` reads Prolog, and `overlay` computes what an agent changes at a start.
"""

import re
from collections.abc import Callable, Mapping
from typing import (
    Annotated,
    Any,
    Literal,
    TypeAlias,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import asdict

from refold.errors import BadInput
from refold.provider.settings import Context, Format
from refold.values.printable_names import escape_name

Positive: TypeAlias = Annotated[int, Meta(ge=1)]
Port: TypeAlias = Annotated[int, Meta(ge=1, le=65535)]
Seconds: TypeAlias = Annotated[float, Meta(gt=0)]
Approval: TypeAlias = Literal[
    "", "default", "auto_edit", "yolo", "accept-edits", "sandbox", "plan", "rules-only", "bypass"
]  # fmt: skip
Display: TypeAlias = Literal["", "auto", "plain", "status", "line"]
KeyPath: TypeAlias = tuple[str, ...]
_NAME_PATTERN = re.compile(r"[a-z0-9]+(?:[-_.][a-z0-9]+)*")
_VARIABLE_PATTERN = re.compile(r"\$\{(\w*)\}")


class Variant(Struct, frozen=True, kw_only=True):
    """One declared agent. For an empty field, the settings of the start apply."""

    name: str
    description: str = ""
    backend: str = ""
    model: str = ""
    host: str = ""
    port: Port | None = None
    base_url: str = ""
    api_key: str = ""
    api_key_env: str = ""
    command: tuple[str, ...] = ()
    own_tools: Literal["", "none"] = ""  # the tools of `command`, which must be "none"
    system_prompt: str = ""
    agent_md: str = ""
    skills: tuple[str, ...] = ()
    tools: tuple[str, ...] | None = None
    confirm: tuple[str, ...] = ()
    # "TOOL: words", which the model reads before the tool's own description
    describe: tuple[str, ...] = ()
    auto_tools: bool = False
    approval: Approval = ""
    context_mode: Context | Literal[""] = ""
    context_format: Format | Literal[""] = ""
    max_context_tokens: Positive | None = None
    max_context_chars: Positive | None = None
    max_context_words: Positive | None = None
    max_messages: Positive | None = None
    max_iterations: Positive | None = None
    timeout: Seconds | None = None
    show_tokens: bool | None = None
    display: Display = ""


class Declared(Struct, frozen=True):
    """A declared agent, and the file that declares it. Relative paths start from `folder`."""

    variant: Variant
    file: str
    line: int = 0
    folder: str = ""
    ours: bool = True  # false for a project's file
    # A project's tool files, with the content that was shown to the user.
    pinned: Mapping[str, bytes] | None = None

    @property
    def where(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


class Source(Struct, frozen=True):
    """The file from which agents are parsed.

    `line` returns the line of a key path; 0 if unknown.
    """

    file: str
    folder: str
    ours: bool
    line: Callable[[KeyPath], int]
    pinned: Mapping[str, bytes] | None = None

    def definition_error(self, path: KeyPath, problem: str) -> BadInput:
        """Return an error about the key at this path; the path () means the whole file."""
        line = self.line(path)
        place = f"{self.file}:{line}" if line else self.file
        key = ".".join(escape_name(part)[:60] for part in path)
        return BadInput(f"{place}: {key}: {problem}" if key else f"{place}: {problem}")


class AgentFile(Struct, frozen=True):
    """The agents of one file, and the name of the agent to use without --agent."""

    agents: tuple[Declared, ...] = ()
    default: str = ""


def agents_of(
    document: Mapping[str, Any], source: Source, environ: Mapping[str, str]
) -> AgentFile:
    """Parse the agents that a file declares, from its content `document`. Raises `BadInput`."""
    for key in document:
        if key not in ("default", "agents"):
            raise source.definition_error(
                (key,), _unknown_key_text(key, ("default", "agents"))
            )
    tables = _table(document.get("agents", {}), ("agents",), source)
    reader = _Reader(tables, source, environ)
    agents = tuple(reader.read_agent(name) for name in tables)
    default = document.get("default", "")
    names = [agent.variant.name for agent in agents]
    if default and default not in names:
        raise source.definition_error(("default",), _unknown_agent_text(default, names))
    return AgentFile(agents, default)


class _Reader:
    """Parses the agents of one file. An agent may extend another agent of the file."""

    def __init__(
        self, tables: Mapping[str, Any], source: Source, environ: Mapping[str, str]
    ) -> None:
        self._tables, self._source, self._environ = tables, source, environ

    def read_agent(self, name: str) -> Declared:
        """Return an agent, with the keys of those that it extends. Raises `BadInput`."""
        path, source = ("agents", name), self._source
        if not _NAME_PATTERN.fullmatch(name) or len(name) > 64:
            raise source.definition_error(
                path, "a name has letters a to z, digits and hyphens, 64 at most"
            )
        values = self._values(name, ())
        values.pop("extends", None)
        try:
            variant = msgspec.convert({**values, "name": name}, Variant)
        except msgspec.ValidationError as error:  # each value is valid by itself
            raise source.definition_error(path, str(error)) from error
        self._check_combinations(variant, path)
        return Declared(
            variant,
            source.file,
            source.line(path),
            source.folder,
            source.ours,
            source.pinned,
        )

    def _values(self, name: str, extending: tuple[str, ...]) -> dict[str, Any]:
        """Return the keys of an agent, and those of the agent that it extends.

        A key of the agent itself has precedence. `extending` are the agents that extend this
        one, directly or indirectly.
        """
        path, source = ("agents", name), self._source
        own = _table(self._tables[name], path, source)
        values = {key: self._check_value(v, (*path, key)) for key, v in own.items()}
        base = values.get("extends")
        if base is None:
            return values
        if base not in self._tables:
            raise source.definition_error(
                (*path, "extends"), _unknown_agent_text(base, tuple(self._tables))
            )
        if base in (*extending, name):
            raise source.definition_error(
                (*path, "extends"), f"{base!r} would extend itself"
            )
        return {**self._values(base, (*extending, name)), **values}

    def _check_value(self, value: Any, path: KeyPath) -> Any:
        """Return the value of a key with its variables replaced.

        Raises `BadInput` if it is invalid.
        """
        key, source = path[-1], self._source
        if key not in _KEY_TYPES:
            raise source.definition_error(path, _unknown_key_text(key, tuple(_KEY_TYPES)))
        value = self._expand(value, path)
        try:
            msgspec.convert(value, _KEY_TYPES[key])
        except msgspec.ValidationError as error:
            raise source.definition_error(
                path, f"{_excerpt(value)} is not allowed: {_describe_choices(key, error)}"
            ) from error
        return value

    def _expand(self, value: Any, path: KeyPath) -> Any:
        """Return the value with each `${NAME}` replaced by the environment variable NAME."""
        if isinstance(value, list):
            return [self._expand(item, path) for item in cast("list[Any]", value)]
        if not isinstance(value, str):
            return value

        def variable_value(match: re.Match[str]) -> str:
            """Return the value of the named variable. Raises `BadInput` if it is not set."""
            if match[1] not in self._environ:
                raise self._source.definition_error(
                    path,
                    f"the environment variable {match[1]!r} is not set; set it, or write the value",
                )
            return self._environ[match[1]]

        return _VARIABLE_PATTERN.sub(variable_value, value)

    def _check_combinations(self, variant: Variant, path: KeyPath) -> None:
        """Raise `BadInput` if several keys of an agent do not fit together."""
        error = self._source.definition_error
        if variant.api_key and not self._source.ours:
            raise error(
                (*path, "api_key"),
                "a project must not hold a key: name its variable in api_key_env",
            )
        if variant.command and variant.backend not in ("", "command"):
            raise error(
                (*path, "command"), 'it goes with backend = "command", or with none'
            )
        if variant.command and variant.own_tools != "none":
            raise error(
                (*path, "command"),
                'add own_tools = "none", which says that the program itself runs and '
                "changes nothing",
            )
        if variant.backend == "command" and not variant.command:
            raise error((*path, "backend"), 'it needs command = ["prog", …]')


def to_table(variant: Variant) -> dict[str, Any]:
    """Return the set fields of an agent, except the name, as a table of agents.toml."""
    table = dict[str, Any]()
    for key, value in asdict(variant).items():
        is_set = value not in (None, False, "", ())
        if key in ("tools", "show_tokens"):
            is_set = value is not None  # () means no tools, and False hides the tokens
        if is_set and key != "name":
            is_tuple = isinstance(value, tuple)
            table[key] = list(cast("tuple[str, ...]", value)) if is_tuple else value
    return table


def _table(value: object, path: KeyPath, source: Source) -> Mapping[str, Any]:
    """Check that the value at this path is a table, and return it. Raises `BadInput`."""
    if not isinstance(value, dict):
        raise source.definition_error(path, "it must be a table")
    table = cast("dict[object, Any]", value)
    if not all(isinstance(key, str) for key in table):
        raise source.definition_error(path, "its keys must be text")
    return cast("dict[str, Any]", value)


def _unknown_key_text(key: str, keys: tuple[str, ...]) -> str:
    """Return the error for an unknown key: the most similar key, if any, and the others."""
    from refold.values.similar_names import similar

    suggestions = similar(key, keys, 1)
    hint = f"did you mean {suggestions[0]}? There are also" if suggestions else "there are"
    remaining = ", ".join(name for name in keys if name not in suggestions)
    return f"there is no such key; {hint} {remaining}"


def _unknown_agent_text(name: object, names: list[str] | tuple[str, ...]) -> str:
    """Return the error for an unknown agent, with the most similar name or all names."""
    from refold.values.similar_names import similar

    suggestions = similar(str(name), names, 1)
    hint = (
        f"did you mean {suggestions[0]}?"
        if suggestions
        else f"there are {', '.join(names) or 'none'}"
    )
    return f"there is no agent {escape_name(str(name))[:80]!r} in this file; {hint}"


def _excerpt(value: object) -> str:
    return escape_name(repr(value))[:80]


def _describe_choices(key: str, error: msgspec.ValidationError) -> str:
    """Return the values that a key may have, or else the text of the error."""
    choices = _KEY_CHOICES.get(key)
    return f"one of {', '.join(choices)}" if choices else str(error)


def _choices(hint: Any) -> tuple[str, ...]:
    """Return the words that the type `hint` allows.

    It is a `Literal`, or a union that may contain one. Return () for any other type.
    """
    if get_origin(hint) is Literal:
        return tuple(word for word in get_args(hint) if word)  # "" means an unset key
    return tuple(word for member in get_args(hint) for word in _choices(member))


_KEY_TYPES: Mapping[str, Any] = {
    key: hint for key, hint in get_type_hints(Variant, include_extras=True).items() if key != "name"
} | {"extends": str}  # fmt: skip
_KEY_CHOICES = {
    key: _choices(_KEY_TYPES[key])
    for key in ("own_tools", "approval", "context_mode", "context_format", "display")
}
