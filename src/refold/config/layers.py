"""Reads the layers of settings, key by key, with the place where each is written.

Files, environment and flags are parsed here, but not checked: `load` checks values and
decides which layer wins; `folder_settings` decides which files of a folder count.
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
        "REFOLD_MODELS",
        "REFOLD_NATS",
        "REFOLD_NO_BACKGROUND",
        "REFOLD_PEERS",
        "REFOLD_REQUIRE_PEERS",
        "REFOLD_SESSIONS",
        "REFOLD_TEMPORAL",
        "REFOLD_TENANT",
    }
)
_LIST_SETTINGS = (
    "fallback_models",
    "secret_variables",
    "sandbox.writable",
    "sandbox.readable",
)


class Origin(Struct, frozen=True):
    """A value, and where it was written: "user /home/x/.config/refold/config.toml"."""

    value: object
    origin: str
    text: str = ""  # of the file, if it is from one
    path: tuple[str, ...] = ()  # of the setting in it

    @property
    def line(self) -> int:
        """The line in the file; 0 without one. Computed when it is first used."""
        if not self.text:
            return 0
        from refold.config.toml_text import line_of, lines_of

        return line_of(lines_of(self.text), self.path)

    @property
    def error_prefix(self) -> str:
        """The place and a colon, to begin an error; "" for a value from the command line."""
        return "" if self.origin == COMMAND_LINE else f"{self.place}: "

    @property
    def place(self) -> str:
        """The origin as it begins an error; for a file its name and line."""
        owner, _, file = self.origin.partition(" ")
        return self._with_line(file) if owner in _LAYER_OWNERS else self.origin

    @property
    def where(self) -> str:
        """The whole origin as shown in a list, with the line in a file."""
        return self._with_line(self.origin)

    def _with_line(self, text: str) -> str:
        return f"{text}:{line}" if (line := self.line) else text


def is_flag(origin: str) -> bool:
    """Whether a value comes from the command line, or from a profile that it chose."""
    return origin == COMMAND_LINE or origin.endswith(f" ({COMMAND_LINE})")


Layer: TypeAlias = Iterable[tuple[str, Origin]]
BYTE_ORDER_MARK = "\ufeff"  # some editors write it first


def from_file(file: Path, owner: str) -> Layer:
    text = text_of(file)
    if not text and file.exists():  # like a file whose content was lost
        raise BadInput(
            f"{file} is empty, so refold cannot know which rules you set: restore the file, or "
            "delete it to start without settings"
        )
    return from_text(text, str(file), f"{owner} {file}") if text else ()


def text_of(file: Path) -> str:
    """The content of the file, unchanged; "" if there is none. Raises `BadInput`."""
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
    """The settings in a text of TOML. Raises `BadInput` that begins with `name`."""
    import tomllib  # imported only if there is a file

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
    # Other agents' name for it. It comes first, so that any other spelling wins.
    if model := environ.get(SHARED_MODEL, ""):
        yield "models.main", Origin(model, f"{VARIABLE_LAYER} {SHARED_MODEL}")
    for name, text in sorted(environ.items()):
        if name.startswith(_VARIABLE_PREFIX) and name not in _NOT_SETTINGS and text:
            key = name.removeprefix(_VARIABLE_PREFIX).lower().replace("__", ".")
            several = key.startswith("permissions.") or key in _LIST_SETTINGS
            value = tuple(_split(text)) if several else text
            yield key, Origin(value, f"{VARIABLE_LAYER} {name}")


def from_flags(flags: Mapping[str, object]) -> Layer:
    for key, value in flags.items():
        if value is not None and value != ():
            yield key, Origin(value, COMMAND_LINE)


def join_key(*parts: str) -> str:
    """Join the parts of a dotted key. A part that contains a dot is quoted, as in TOML."""
    return ".".join(p if re.fullmatch(r"[\w-]+", p) else f'"{p}"' for p in parts)


def parts_of(key: str) -> list[str]:
    return [part.strip('"') for part in re.findall(r'"[^"]*"|[^."]+', key)]


def _split(text: str) -> list[str]:
    """Split at commas, except those within the brackets of a rule."""
    depth, parts = 0, [""]
    for letter in text:
        depth += (letter == "(") - (letter == ")" and depth > 0)
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


def _flatten(
    table: Mapping[str, Any], before: tuple[str, ...] = ()
) -> Iterable[tuple[tuple[str, ...], object]]:
    for name, value in table.items():
        if isinstance(value, dict) and value:
            yield from _flatten(cast("dict[str, Any]", value), (*before, name))
        else:
            yield (*before, name), value


def _toml_error(name: str, text: str, error: Exception) -> str:
    """The error, with the position that `tomllib` puts at its end."""
    message = str(error)
    reason, _, place = message.partition(" (at ")
    if match := re.fullmatch(r"line (\d+), column (\d+)\)", place):
        line, column = int(match[1]), int(match[2])
    elif place:  # the end of the text
        line, column = text.count("\n") + 1, len(text) - text.rfind("\n")
    else:
        return f"{name} is not valid TOML: {message}"
    return f"{name}:{line}:{column}: this is not valid TOML: {reason}"


SETTINGS_SOURCE = "settings"  # the source of a rule that came from no file and no flag


def rules_of(permissions: Permissions, place: str = "") -> tuple[Rule, ...]:
    """Parse the rules. Raises `BadInput` if one is invalid or breaks its examples.

    It begins with `place`, or else with the source of the rule.
    """
    pairs: list[tuple[Verdict, RuleWithCases | str]] = [
        *(("deny", rule) for rule in permissions.deny),
        *(("ask", rule) for rule in permissions.ask),
        *(("allow", rule) for rule in permissions.allow),
    ]
    return tuple(_rule(verdict, rule, place) for verdict, rule in pairs)


def rules_with_source(items: Iterable[object], origin: Origin) -> tuple[RuleWithCases, ...]:
    """Rules, each with its source."""
    return tuple(_rule_with_source(rule, origin) for rule in items)


def _rule(verdict: Verdict, item: RuleWithCases | str, place: str) -> Rule:
    written = RuleWithCases(rule=item) if isinstance(item, str) else item
    source = written.source or SETTINGS_SOURCE
    try:
        rule = parse(written.rule, verdict, source)
    except BadInput as error:
        before = f"{place}: " if place else Origin(None, source).error_prefix
        raise BadInput(f"{before}{error}") from error
    return check_examples(replace(rule, match=written.match, not_match=written.not_match))


def _rule_with_source(item: object, origin: Origin) -> RuleWithCases:
    if isinstance(item, str):
        return RuleWithCases(rule=item, source=origin.origin)
    if isinstance(item, RuleWithCases):
        return item if item.source else replace(item, source=origin.origin)
    if "source" in cast("dict[str, object]", item):
        raise BadInput(
            f"{origin.error_prefix}the rule {item!r} must not have a source: refold sets it"
        )
    return replace(msgspec.convert(item, RuleWithCases), source=origin.origin)
