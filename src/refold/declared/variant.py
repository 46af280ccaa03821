"""A declared agent as a value, read from a table of any file format. Pure.

An error names the file, the line and the key, and what is allowed. `agent_files` finds and
parses files, `facts` reads Prolog, and `overlay` turns a variant into what a start uses.
"""

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, TypeAlias, cast, get_type_hints

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
Path: TypeAlias = tuple[str, ...]
_NAME_PATTERN = re.compile(r"[a-z0-9]+(?:[-_.][a-z0-9]+)*")
_VARIABLE_PATTERN = re.compile(r"\$\{(\w*)\}")


class Variant(Struct, frozen=True, kw_only=True):
    """One declared agent. An empty field is left to the settings."""

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
    own_tools: Literal["", "none"] = ""  # of `command`: it must be "none"
    system_prompt: str = ""
    agent_md: str = ""
    skills: tuple[str, ...] = ()
    tools: tuple[str, ...] | None = None
    confirm: tuple[str, ...] = ()
    describe: tuple[str, ...] = ()  # "TOOL: words", which the model reads first
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
    """Where a variant was written. `folder`: its relative paths begin there."""

    variant: Variant
    file: str
    line: int = 0
    folder: str = ""
    ours: bool = True  # false: a project's file
    # A project's files of tools, as they were shown.
    pinned: Mapping[str, bytes] | None = None

    @property
    def where(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


class Source(Struct, frozen=True):
    """A parsed file. `line` gives the line of a key, by its path; 0: unknown."""

    file: str
    folder: str
    ours: bool
    line: Callable[[Path], int]
    pinned: Mapping[str, bytes] | None = None

    def definition_error(self, path: Path, problem: str) -> BadInput:
        line = self.line(path)
        place = f"{self.file}:{line}" if line else self.file
        key = ".".join(escape_name(part)[:60] for part in path)
        return BadInput(f"{place}: {key + ': ' if key else ''}{problem}")


class AgentFile(Struct, frozen=True):
    """The agents of one file. `default` is the name of the agent to use without --agent."""

    agents: tuple[Declared, ...] = ()
    default: str = ""


def agents_of(
    document: Mapping[str, Any], source: Source, environ: Mapping[str, str]
) -> AgentFile:
    """Return the agents that the file declares. Raises `BadInput`."""
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
    """Reads the agents of one file, which may extend each other."""

    def __init__(
        self, tables: Mapping[str, Any], source: Source, environ: Mapping[str, str]
    ) -> None:
        self._tables, self._source, self._environ = tables, source, environ

    def read_agent(self, name: str) -> Declared:
        path, source = ("agents", name), self._source
        if not _NAME_PATTERN.fullmatch(name) or len(name) > 64:
            raise source.definition_error(
                path, "a name has letters a to z, digits and hyphens, 64 at most"
            )
        values = self._values(name, ())
        values.pop("extends", None)
        try:
            variant = msgspec.convert({**values, "name": name}, Variant)
        except msgspec.ValidationError as error:  # each value fits by itself
            raise source.definition_error(path, str(error)) from error
        self._check(variant, path)
        return Declared(
            variant,
            source.file,
            source.line(path),
            source.folder,
            source.ours,
            source.pinned,
        )

    def _values(self, name: str, folder: Path) -> dict[str, Any]:
        path, source = ("agents", name), self._source
        own = _table(self._tables[name], path, source)
        values = {key: self._value(value, (*path, key)) for key, value in own.items()}
        base = values.get("extends")
        if base is None:
            return values
        if base not in self._tables:
            raise source.definition_error(
                (*path, "extends"), _unknown_agent_text(base, tuple(self._tables))
            )
        if base in (*folder, name):
            raise source.definition_error(
                (*path, "extends"), f"{base!r} would extend itself"
            )
        return {**self._values(base, (*folder, name)), **values}

    def _value(self, value: Any, path: Path) -> Any:
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

    def _expand(self, value: Any, path: Path) -> Any:
        if isinstance(value, list):
            return [self._expand(item, path) for item in cast("list[Any]", value)]
        if not isinstance(value, str):
            return value

        def variable(match: re.Match[str]) -> str:
            if match[1] not in self._environ:
                raise self._source.definition_error(
                    path,
                    f"the environment variable {match[1]!r} is not set; set it, or write the value",
                )
            return self._environ[match[1]]

        return _VARIABLE_PATTERN.sub(variable, value)

    def _check(self, variant: Variant, path: Path) -> None:
        """Check what concerns more than one key. Raises `BadInput`."""
        wrong = self._source.definition_error
        if variant.api_key and not self._source.ours:
            raise wrong(
                (*path, "api_key"),
                "a project must not hold a key: name its variable in api_key_env",
            )
        if variant.command and variant.backend not in ("", "command"):
            raise wrong(
                (*path, "command"), 'it goes with backend = "command", or with none'
            )
        if variant.command and variant.own_tools != "none":
            raise wrong(
                (*path, "command"),
                'add own_tools = "none", which says that the program itself runs and '
                "changes nothing",
            )
        if variant.backend == "command" and not variant.command:
            raise wrong((*path, "backend"), 'it needs command = ["prog", …]')


def to_table(variant: Variant) -> dict[str, Any]:
    """Return the fields that are set, as a table."""
    fields = {k: v for k, v in asdict(variant).items() if k != "name"}
    return {
        key: list(cast("tuple[str, ...]", value)) if isinstance(value, tuple) else value
        for key, value in fields.items()
        if (value is not None and value is not False and value != "" and value != ())
        or (key == "tools" and value == ())
        or (key == "show_tokens" and value is False)
    }


def _table(value: object, path: Path, source: Source) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise source.definition_error(path, "it must be a table")
    table = cast("dict[object, Any]", value)
    if not all(isinstance(key, str) for key in table):
        raise source.definition_error(path, "its keys must be text")
    return cast("dict[str, Any]", value)


def _unknown_key_text(key: str, keys: tuple[str, ...]) -> str:
    from refold.values.similar_names import similar

    suggestions = similar(key, keys, 1)
    hint = f"did you mean {suggestions[0]}? There are also" if suggestions else "there are"
    others = ", ".join(other for other in keys if other not in suggestions)
    return f"there is no such key; {hint} {others}"


def _unknown_agent_text(name: object, names: list[str] | tuple[str, ...]) -> str:
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
    words = _KEY_CHOICES.get(key)
    return f"one of {', '.join(words)}" if words else str(error)


def _choices(hint: Any) -> tuple[str, ...]:
    """The words of a `Literal`, also within a union."""
    inside = getattr(hint, "__args__", ())
    if all(isinstance(item, str) for item in inside):
        return tuple(item for item in inside if item)
    return tuple(word for item in inside for word in _choices(item))


_KEY_TYPES: Mapping[str, Any] = {
    key: hint for key, hint in get_type_hints(Variant, include_extras=True).items() if key != "name"
} | {"extends": str}  # fmt: skip
_KEY_CHOICES = {
    key: found
    for key in ("own_tools", "approval", "context_mode", "context_format", "display")
    if (found := _choices(_KEY_TYPES[key]))
}
