"""Reads the layers of settings: files, environment variables and flags.

Each setting keeps the place where it is written. This module does not check values: `load`
checks them and decides which layer wins. `folder_settings` decides which files of a folder
apply.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from refold.config.settings import Permissions, RuleWithCases
from refold.errors import BadInput, reason_of
from refold.permissions.rules import Rule, check_examples, parse
from refold.values.modes import Verdict

MANAGED_FILE = Path("/etc/refold/config.toml")  # of the machine's administrator
COMMAND_LINE = "command line"
VARIABLE_LAYER = "environment variable"
_LAYER_OWNERS = ("user", "managed", "project", "project-local")
SHARED_MODEL = "AGENT_MODEL"
_VARIABLE_PREFIX = "REFOLD_"
_NOT_SETTINGS = frozenset(
    {
        "REFOLD_BUCKET",
        "REFOLD_CLUSTER_KEY",
        "REFOLD_HOME",
        "REFOLD_IMAGE",
        "REFOLD_MODELS",
        "REFOLD_NATS",
        "REFOLD_NO_BACKGROUND",
        "REFOLD_PEERS",
        "REFOLD_REQUIRE_PEERS",
        "REFOLD_SESSIONS",
        "REFOLD_TEMPORAL",
        "REFOLD_TENANT",
        "REFOLD_TOKEN",
    }
)
_LIST_SETTINGS = (
    "fallback_models",
    "secret_variables",
    "sandbox.writable",
    "sandbox.readable",
)


class Origin(Struct, frozen=True):
    """The value of a setting, and the place where it is written."""

    value: object
    origin: str
    text: str = ""  # the text of its file, if it has one
    path: tuple[str, ...] = ()  # the path of the setting in the file

    @property
    def line(self) -> int:
        """The number of the line in the file; 0 if the value is not from a file."""
        if not self.text:
            return 0
        from refold.config.toml_text import line_of, lines_of

        return line_of(lines_of(self.text), self.path)

    @property
    def error_prefix(self) -> str:
        """The beginning of an error message: the place and ": ", or "" for the command line."""
        return "" if self.origin == COMMAND_LINE else f"{self.place}: "

    @property
    def place(self) -> str:
        """The origin for an error message. For a file it is the name and the line."""
        owner, _, file = self.origin.partition(" ")
        return self._with_line(file) if owner in _LAYER_OWNERS else self.origin

    @property
    def where(self) -> str:
        """The origin for a list of settings: the layer, the file and the line."""
        return self._with_line(self.origin)

    def _with_line(self, text: str) -> str:
        return f"{text}:{self.line}" if self.line else text


def is_flag(origin: str) -> bool:
    """Whether a value was set on the command line, or by a profile chosen there."""
    return origin == COMMAND_LINE or origin.endswith(f" ({COMMAND_LINE})")


Layer: TypeAlias = Iterable[tuple[str, Origin]]
BYTE_ORDER_MARK = "\ufeff"  # some editors write it first


def from_file(file: Path, owner: str) -> Layer:
    """Return the settings in a file; () if it does not exist. Raises `BadInput`.

    `owner` names the layer of the file.
    """
    text = text_of(file)
    if not text and file.exists():  # it is treated like a file whose content was lost
        raise BadInput(
            f"{file} is empty, so refold cannot know which rules you set: restore the file, or "
            "delete it to start without settings"
        )
    return from_text(text, str(file), f"{owner} {file}") if text else ()


def text_of(file: Path) -> str:
    """Return the content of the file, unchanged; "" if it does not exist.

    Raises `BadInput` if it cannot be read.
    """
    try:
        if file.exists() and not file.is_file():
            raise BadInput(f"the settings in {file} cannot be read: it is not a file")
        return file.read_bytes().decode("utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except UnicodeDecodeError as error:
        raise BadInput(
            f"the settings in {file} cannot be read: it is not UTF-8 from byte {error.start + 1} on"
        ) from error
    except OSError as error:
        raise BadInput(
            f"the settings in {file} cannot be read: {reason_of(error)}"
        ) from error


def from_text(text: str, name: str, origin: str) -> Layer:
    """Return the settings in a TOML text.

    Raises `BadInput` if the text is not valid TOML; the error begins with `name`. `origin`
    names the layer and the file of the settings.
    """
    import tomllib  # imported late: only if a file exists

    text = text.removeprefix(BYTE_ORDER_MARK)
    try:
        table = tomllib.loads(text)
        return [
            (join_key(*path), Origin(value, origin, text, path))
            for path, value in _flatten(table)
        ]
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise BadInput(_toml_error(name, text, error)) from error


def from_environment(environ: Mapping[str, str]) -> Layer:
    """Yield a setting for each environment variable like REFOLD_A__B, which sets `a.b`."""
    # Other agents use this variable, too. It comes first, so that a variable of refold wins.
    if model := environ.get(SHARED_MODEL, ""):
        yield "models.main", Origin(model, f"{VARIABLE_LAYER} {SHARED_MODEL}")
    for name, text in sorted(environ.items()):
        if name.startswith(_VARIABLE_PREFIX) and name not in _NOT_SETTINGS and text:
            key = name.removeprefix(_VARIABLE_PREFIX).lower().replace("__", ".")
            is_list = key.startswith("permissions.") or key in _LIST_SETTINGS
            value = tuple(_split(text)) if is_list else text
            yield key, Origin(value, f"{VARIABLE_LAYER} {name}")


def from_flags(flags: Mapping[str, object]) -> Layer:
    """Yield the settings of the flags that were given."""
    for key, value in flags.items():
        if value is not None and value != ():
            yield key, Origin(value, COMMAND_LINE)


def join_key(*parts: str) -> str:
    """Join the parts of a dotted key. A part that contains a dot is quoted, as in TOML."""
    return ".".join(p if re.fullmatch(r"[\w-]+", p) else f'"{p}"' for p in parts)


def parts_of(key: str) -> list[str]:
    """Return the parts of a dotted key without their quotes; [] for an invalid key."""
    return [part.strip('"') for part in re.findall(r'"[^"]*"|[^."]+', key)]


def _split(text: str) -> list[str]:
    """Split `text` at commas, but not at those within the brackets of a rule."""
    depth, parts = 0, [""]  # the number of open brackets
    for letter in text:
        if letter == "(":
            depth += 1
        elif letter == ")" and depth:
            depth -= 1
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


def _flatten(
    table: Mapping[str, Any], before: tuple[str, ...] = ()
) -> Iterable[tuple[tuple[str, ...], object]]:
    """Yield the path and the value of each setting in nested tables.

    `before` is the path of `table` itself.
    """
    for name, value in table.items():
        if isinstance(value, dict) and value:
            yield from _flatten(cast("dict[str, Any]", value), (*before, name))
        else:
            yield (*before, name), value


def _toml_error(name: str, text: str, error: Exception) -> str:
    """Return a sentence about an error of `tomllib`. It begins with `name` and the position."""
    # The message ends with "(at line 1, column 2)" or "(at end of document)".
    message = str(error)
    reason, _, position = message.partition(" (at ")
    if match := re.fullmatch(r"line (\d+), column (\d+)\)", position):
        line, column = int(match[1]), int(match[2])
    elif position:  # the end of the document
        line = text.count("\n") + 1
        column = len(text) - text.rfind("\n")
    else:
        return f"{name} is not valid TOML: {message}"
    return f"{name}:{line}:{column}: this is not valid TOML: {reason}"


# The source of a rule that is neither from a file nor from a flag.
SETTINGS_SOURCE = "settings"


def rules_of(permissions: Permissions, place: str = "") -> tuple[Rule, ...]:
    """Return all rules of `permissions`, parsed.

    Raises `BadInput` if a rule is invalid or contradicts its examples. The error about an
    invalid rule begins with `place`, or with the rule's source if `place` is "".
    """
    pairs: list[tuple[Verdict, RuleWithCases | str]] = [
        *(("deny", rule) for rule in permissions.deny),
        *(("ask", rule) for rule in permissions.ask),
        *(("allow", rule) for rule in permissions.allow),
    ]
    return tuple(_rule(verdict, rule, place) for verdict, rule in pairs)


def rules_with_source(items: Iterable[object], origin: Origin) -> tuple[RuleWithCases, ...]:
    """Return the rules `items`, with the place in `origin` as the source of each."""
    return tuple(_rule_with_source(rule, origin) for rule in items)


def _rule(verdict: Verdict, item: RuleWithCases | str, place: str) -> Rule:
    """Return the rule, parsed and checked against its examples. Raises `BadInput`.

    The error about an invalid rule begins with `place`, or with the rule's source if `place` is
    "".
    """
    written = RuleWithCases(rule=item) if isinstance(item, str) else item
    source = written.source or SETTINGS_SOURCE
    try:
        rule = parse(written.rule, verdict, source)
    except BadInput as error:
        prefix = f"{place}: " if place else Origin(value=None, origin=source).error_prefix
        raise BadInput(f"{prefix}{error}") from error
    return check_examples(replace(rule, match=written.match, not_match=written.not_match))


def _rule_with_source(item: object, origin: Origin) -> RuleWithCases:
    """Return the rule with the place in `origin` as its source, unless it has one already.

    `item` is a text, a rule, or a table of a file, which must have no source.
    """
    if isinstance(item, str):
        return RuleWithCases(rule=item, source=origin.origin)
    if isinstance(item, RuleWithCases):
        return item if item.source else replace(item, source=origin.origin)
    if "source" in cast("dict[str, object]", item):
        raise BadInput(
            f"{origin.error_prefix}the rule {item!r} must not have a source: refold sets it"
        )
    return replace(msgspec.convert(item, RuleWithCases), source=origin.origin)
