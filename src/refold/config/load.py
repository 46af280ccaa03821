"""Settings out of their layers: defaults, the user's file, environment, flags.

A later layer wins, key by key; permission rules of all layers add up. What is
wrong is named with the place it stands in, quoted, and never skipped. Files
inside a project do not count yet: a repository somebody else wrote must not
decide where a key is sent.
"""

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple, cast

import msgspec
from msgspec import Struct

from refold.config.settings import Provider, Settings
from refold.errors import BadInput
from refold.provider.command.given import Command
from refold.provider.override import Override

_PREFIX = "REFOLD_"
# What people write who know it from elsewhere, or from the command line.
_SYNONYMS = {"model": "models.main"}
# Tables whose entries a person names.
_TABLES: dict[str, type[Struct]] = {
    "providers": Provider,
    "prices": Override,
    "commands": Command,
}
_NOT_SETTINGS = frozenset(
    {"REFOLD_HOME", "REFOLD_MODELS", "REFOLD_PEERS", "REFOLD_REQUIRE_PEERS"}
)


class Origin(NamedTuple):
    """A value, and where it was written."""

    value: object
    origin: str


class Loaded(NamedTuple):
    """The settings, and where each value that is no default came from."""

    settings: Settings
    origins: dict[str, Origin]


def load(file: Path, environ: Mapping[str, str], flags: Mapping[str, object]) -> Loaded:
    """Read every layer. Raises `BadInput` for the first thing that is wrong."""
    origins: dict[str, Origin] = {}
    layers = (_from_file(file), _from_environment(environ), _from_flags(flags))
    for given, found in (pair for layer in layers for pair in layer):
        key = _canonical(given)
        _check(key, found, given)
        before = origins.get(key)
        if before and key.startswith("permissions."):
            both = (*_items(before.value), *_items(found.value))
            found = Origin(both, f"{before.origin}, {found.origin}")
        origins[key] = found
    settings = msgspec.convert(_nested(origins), Settings, strict=False)
    return Loaded(settings, origins)


def flat(settings: Struct, before: str = "") -> dict[str, object]:
    """Every setting by its dotted key."""
    found: dict[str, object] = {}
    for name in settings.__struct_fields__:
        value = getattr(settings, name)
        if isinstance(value, Struct):
            found |= flat(value, f"{before}{name}.")
        elif name in _TABLES:
            for key, inner in cast("dict[str, Struct]", value).items():
                found |= flat(inner, f"{before}{name}.{joined(key)}.")
        else:
            found[f"{before}{name}"] = value
    return found


def _canonical(given: str) -> str:
    """A key as it is looked up: names of providers and programs know no capitals."""
    parts = _parts(_SYNONYMS.get(given, given))
    if parts[0] in ("providers", "commands") and len(parts) > 1:
        parts[1] = parts[1].lower()
    return joined(*parts)


def joined(*parts: str) -> str:
    """A dotted key. A part with a dot of its own stands in quotes, as in TOML."""
    return ".".join(p if re.fullmatch(r"[\w-]+", p) else f'"{p}"' for p in parts)


def _parts(key: str) -> list[str]:
    return [part.strip('"') for part in re.findall(r'"[^"]*"|[^."]+', key)]


def _from_file(file: Path) -> Iterable[tuple[str, Origin]]:
    if file.exists() and not file.is_file():
        raise BadInput(f"the settings in {file} cannot be read: it is no file")
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"the settings in {file} cannot be read: {error}") from error
    import tomllib  # only who has a file pays for it

    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadInput(f"{file} is no TOML: {error}") from error
    yield from ((key, Origin(value, str(file))) for key, value in _dotted(found))


def _from_environment(environ: Mapping[str, str]) -> Iterable[tuple[str, Origin]]:
    for name, text in sorted(environ.items()):
        if name.startswith(_PREFIX) and name not in _NOT_SETTINGS and text:
            key = name.removeprefix(_PREFIX).lower().replace("__", ".")
            several = key.startswith("permissions.") or key == "fallback"
            value = tuple(text.split(",")) if several else text
            yield key, Origin(value, f"environment variable {name}")


def _from_flags(flags: Mapping[str, object]) -> Iterable[tuple[str, Origin]]:
    for key, value in flags.items():
        if value is not None and value != ():
            yield key, Origin(value, "command line")


def _check(key: str, found: Origin, given: str) -> None:
    """Convert one value alone, so that an error can name it and its place."""
    parts = _parts(key)
    if parts[0] in _TABLES and len(parts) >= 3:
        whole, asked = _TABLES[parts[0]], joined(*parts[2:])
        nested = _nested({asked: found})
    else:
        whole, asked, nested = Settings, key, _nested({key: found})
    known = flat(whole())
    if asked not in known and _parts(asked)[0] not in known:  # a table within
        near = get_close_matches(asked, [*_SYNONYMS, *known], 1, 0.5)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
        raise BadInput(f"{found.origin}: there is no setting {given!r}; {hint}")
    try:
        msgspec.convert(nested, whole, strict=False)
    except msgspec.ValidationError as error:
        problem = str(error).split(" - at ")[0]
        raise BadInput(
            f"{found.origin}: the setting {given} cannot be {found.value!r}: {problem}"
        ) from error


def _dotted(found: Mapping[str, Any], before: str = "") -> Iterable[tuple[str, object]]:
    for name, value in found.items():
        if isinstance(value, dict):
            yield from _dotted(cast("dict[str, Any]", value), f"{before}{joined(name)}.")
        else:
            yield f"{before}{joined(name)}", value


def _nested(found: Mapping[str, Origin]) -> dict[str, Any]:
    whole: dict[str, Any] = {}
    for key, (value, _) in found.items():
        *above, name = _parts(key)
        inside = whole
        for part in above:
            inside = inside.setdefault(part, {})
        inside[name] = value
    return whole


def _items(value: object) -> tuple[object, ...]:
    return (
        tuple(cast("Iterable[object]", value))
        if isinstance(value, list | tuple)
        else (value,)
    )
