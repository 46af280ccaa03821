"""Combines the layers of settings: later ones win, key by key.

These are the defaults, the user's file, the project's files, the environment, flags, and
last the file of the machine's administrator; permission rules of all layers add up. An
invalid setting is an error with its place and value, and never skipped. `folder_settings`
decides whether a project's files count.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from refold.config.layers import (
    MANAGED_FILE,
    VARIABLE_LAYER,
    Layer,
    Origin,
    from_environment,
    from_file,
    from_flags,
    join_key,
    parts_of,
    rules_of,
    rules_with_source,
)
from refold.config.settings import Permissions, Provider, RuleWithCases, Settings
from refold.errors import BadInput
from refold.provider.settings import Override, ProgramSettings
from refold.values.modes import MODE_NAMES
from refold.values.printable_names import shorten

_DOLLARS, _TOKENS = "budget.dollars", "budget.tokens"

if TYPE_CHECKING:
    from msgspec import Struct
    from msgspec.inspect import Type


# Other names that users know from elsewhere, or from the command line.
_KEY_SYNONYMS = {"model": "models.main"}
# Tables whose entries the user names.
_TABLE_TYPES: dict[str, type[Struct]] = {
    "providers": Provider,
    "prices": Override,
    "commands": ProgramSettings,
}
# Names that settings had before. A file with one of them gets an error with the new name.
RENAMED_SETTINGS: Mapping[str, str] = MappingProxyType({
    "log": "log_level", "fallback": "fallback_models", "notify": "notify_seconds",
    "children": "subagents", "children.depth": "subagents.max_depth",
    "children.at_once": "subagents.max_concurrent", "children.total": "subagents.max_per_turn",
    "limits.warn": "limits.wrap_up_steps", "limits.summary": "limits.final_summary",
    "limits.repeats": "limits.repeated_calls",
    "limits.alternations": "limits.alternating_calls",
    "limits.errors": "limits.repeated_errors", "limits.refusals": "limits.refused_responses",
    "limits.result": "limits.result_chars", "limits.output": "limits.output_tokens",
    "limits.question": "limits.question_seconds", "limits.answer": "limits.answer_seconds",
    "limits.processes": "limits.command_processes",
    "limits.memory": "limits.command_memory_mib",
    "context.window": "context.default_window_tokens", "context.prune": "context.prune_share",
    "context.frees": "context.min_freed_share", "context.results": "context.kept_results",
    "context.compact": "context.compact_share", "context.messages": "context.kept_messages",
    "python.at_once": "python.max_concurrent", "python.depth": "python.rlm_depth",
    "python.steps": "python.rlm_steps", "python.cell": "python.cell_seconds",
    "python.call": "python.call_seconds", "python.memory": "python.memory_mib",
    "python.memo": "python.cache", "python.per_minute": "python.calls_per_minute",
    "http.connect": "http.connect_seconds", "http.idle": "http.idle_seconds",
    "http.longest_wait": "http.max_retry_wait_seconds",
    "backend.window": "backend.window_messages",
})  # fmt: skip
_RULES_PREFIX = "permissions."
_NO_UTF8 = r"[\ud800-\udfff]"  # bytes of a variable or flag that are not UTF-8
_MAX_VALUE_CHARS = 300  # letters of a value in an error


class UnknownSetting(BadInput):
    """Raised for a name that no setting has."""


class Loaded(Struct, frozen=True):
    """The settings, and the origin of each value that is not the default.

    `unknown` are sentences about what was skipped: environment variables that name no setting,
    rules of another agent that cannot be read.
    """

    settings: Settings
    origins: dict[str, Origin]
    unknown: tuple[str, ...] = ()


def load(
    file: Path,
    environ: Mapping[str, str],
    flags: Mapping[str, object],
    between: Sequence[Layer] = (),
    managed: Path = MANAGED_FILE,
) -> Loaded:
    """Read every layer. Raises `BadInput` for the first error.

    The layers `between` win over the user's file and nothing else. A variable that names no
    setting is skipped: it may belong to another program, or be a secret for a server.
    """
    known, unknown = _split_variables(environ)
    layers = layers_of(file, known, flags, between, managed)
    return replace(combine(layer() for layer in layers), unknown=unknown)


def _split_variables(
    environ: Mapping[str, str],
) -> tuple[Mapping[str, str], tuple[str, ...]]:
    """The variables that name a setting, and a sentence for each of the others."""
    unknown = dict[str, str]()
    for name in environ:
        if name.startswith("REFOLD_"):
            try:
                list(check_layer(from_environment({name: environ[name]})))
            except UnknownSetting as error:
                unknown[name] = str(error)
            except BadInput:
                pass  # its layer reports it
    if not unknown:
        return environ, ()
    known = {name: text for name, text in environ.items() if name not in unknown}
    return known, tuple(unknown.values())


def layers_of(
    file: Path,
    environ: Mapping[str, str],
    flags: Mapping[str, object],
    between: Sequence[Layer] = (),
    managed: Path = MANAGED_FILE,
) -> tuple[Callable[[], Layer], ...]:
    """The layers that `load` reads, in order, each read when it is called."""
    return (
        lambda: from_file(file, "user"),
        *(partial(_identity, layer) for layer in between),
        lambda: from_environment(environ),
        lambda: from_flags(flags),
        lambda: from_file(managed, "managed"),
    )


def combine(layers: Iterable[Layer]) -> Loaded:
    """The combined settings of these layers.

    Rules that contradict their own examples are an error.
    """
    origins: dict[str, Origin] = {}
    for key, origin in settings_in_order(layers):
        before = origins.get(key)
        if before and key.startswith(_RULES_PREFIX):
            both = (*_items(before.value), *_items(origin.value))
            origin = Origin(both, f"{before.origin}, {origin.origin}")
        origins[key] = origin
    settings = msgspec.convert(_to_tables(origins), Settings, strict=False)
    if settings.budget.dollars and _DOLLARS in origins and _TOKENS not in origins:
        # A limit in dollars was chosen: the default in tokens must not replace it if the
        # price is unknown. `engine.policies.budget` refuses such a model.
        settings = replace(settings, budget=replace(settings.budget, tokens=0))
    rules_of(settings.permissions)
    return Loaded(settings, origins)


def settings_in_order(layers: Iterable[Layer]) -> Layer:
    """Yield each setting of all layers, checked, including those of the security profile."""
    lists = [list(check_layer(layer)) for layer in layers]
    if any(key == "security_profile" for layer in lists for key, _ in layer):
        from refold.config.security_profiles import with_profile

        lists = [list(check_layer(layer)) for layer in with_profile(lists)]
    for layer in lists:
        yield from layer


def check_layer(layer: Layer) -> Layer:
    """Yield each setting of a layer, checked. Raises `BadInput`, also for unknown tables."""
    for raw, origin in layer:
        if origin.value == {} and is_table(canonical_key(raw)):
            continue
        key, counts = check(raw, origin)
        if key.startswith(_RULES_PREFIX):
            name = key.removeprefix(_RULES_PREFIX)
            items = cast("tuple[RuleWithCases, ...]", counts.value)
            rules_of(Permissions(**{name: items}), counts.place)
        yield key, counts


def check(raw: str, origin: Origin) -> tuple[str, Origin]:
    """The canonical key and the converted value. Raises `BadInput`."""
    key = canonical_key(raw)
    if key == "permission_mode" and isinstance(origin.value, str):
        origin = replace(origin, value=MODE_NAMES.get(origin.value, origin.value))
    _check(key, origin, raw)
    if key.startswith(_RULES_PREFIX):
        origin = replace(origin, value=rules_with_source(_items(origin.value), origin))
    return key, origin


def flatten(settings: Struct, before: str = "") -> dict[str, object]:
    """Every setting by its dotted key."""
    result: dict[str, object] = {}
    for name in settings.__struct_fields__:
        value = getattr(settings, name)
        if isinstance(value, Struct):
            result |= flatten(value, f"{before}{name}.")
        elif name in _TABLE_TYPES:
            for key, inner in cast("dict[str, Struct]", value).items():
                result |= flatten(inner, f"{before}{name}.{join_key(key)}.")
        else:
            result[f"{before}{name}"] = value
    return result


def canonical_key(raw: str) -> str:
    """The canonical form of a key: names of providers and programs in lower case."""
    parts = parts_of(_KEY_SYNONYMS.get(raw, raw))
    if not parts:
        return raw
    if parts[0] in ("providers", "commands") and len(parts) > 1:
        parts[1] = parts[1].lower()
    return join_key(*parts)


def defaults_of(key: str) -> dict[str, object]:
    """The defaults of the provider, price or program of this key."""
    parts = parts_of(key)
    if len(parts) < 2 or parts[0] not in _TABLE_TYPES:
        return {}
    return flatten(_TABLE_TYPES[parts[0]](), f"{join_key(*parts[:2])}.")


def defining_class(key: str) -> tuple[type[Struct], str]:
    """The class that defines `key`, and its name there."""
    parts = parts_of(key) or [key]
    if parts[0] in _TABLE_TYPES and len(parts) >= 3:
        return _TABLE_TYPES[parts[0]], join_key(*parts[2:])
    return Settings, key


def default_of(key: str) -> object:
    """The default of the setting `key`; "" where there is none."""
    whole, asked = defining_class(key)
    return flatten(whole()).get(asked, "")


def is_table(key: str) -> bool:
    """Whether `key` is a table, which may be empty."""
    if key in _TABLE_TYPES or (
        key.partition(".")[0] in _TABLE_TYPES and len(parts_of(key)) == 2
    ):
        return True
    whole, asked = defining_class(key)
    known = flatten(whole())
    return known.get(asked) == {} or any(name.startswith(f"{asked}.") for name in known)


def _check(key: str, entry: Origin, raw: str) -> None:
    """Convert one value alone, so that an error can name it and its place."""
    whole, asked = defining_class(key)
    known = flatten(whole())
    if asked not in known and (parts_of(asked) or [""])[0] not in known:  # a table within
        tables = {name.rpartition(".")[0] for name in known if entry.value == {}}
        from difflib import get_close_matches

        if asked in RENAMED_SETTINGS:
            now = _written_name(RENAMED_SETTINGS[asked], entry)
            raise UnknownSetting(
                f"{entry.error_prefix}the setting {raw!r} was renamed to {now!r}"
            )
        settings = [name for name, value in known.items() if value != {}]
        suggestions = get_close_matches(
            asked, tables or [*_KEY_SYNONYMS, *settings], 1, 0.5
        )
        suggestions = [_written_name(name, entry) for name in suggestions]
        hint = (
            f"did you mean {suggestions[0]!r}?"
            if suggestions
            else "refold config show lists all"
        )
        if inside := [name for name in known if name.startswith(f"{asked}.")]:
            hint = f"it is a table of settings, such as {inside[0]}"
        raise UnknownSetting(
            f"{entry.error_prefix}there is no setting {_shorten(repr(raw))}; {hint}"
        )
    texts = (raw, *_items(entry.value))
    texts = (text for text in texts if isinstance(text, str) and not text.isascii())
    if any(re.search(_NO_UTF8, text) for text in texts):
        raise BadInput(
            f"{entry.error_prefix}the setting {_shorten(repr(raw)[1:-1])} cannot be "
            f"{_shorten(repr(entry.value))}: that is not UTF-8"
        )
    try:
        msgspec.convert(_to_tables({asked: entry}), whole, strict=False)
    except msgspec.ValidationError as error:
        problem = _choices_hint(whole, asked) or _shorten(str(error).split(" - at ")[0])
        raise BadInput(
            f"{entry.error_prefix}the setting {raw} cannot be {_shorten(repr(entry.value))}: {problem}"
        ) from error


def _written_name(key: str, entry: Origin) -> str:
    """The key, or its environment variable if `entry` is from the environment."""
    variable = entry.origin.startswith(VARIABLE_LAYER)
    return "REFOLD_" + key.upper().replace(".", "__") if variable else key


def _choices_hint(whole: type[Struct], key: str) -> str:

    may = choices(whole, parts_of(key))
    return f"it can be {', '.join(map(repr, may))}" if may else ""


def _shorten(text: str) -> str:
    """Shorten a value for an error: it may be a whole file."""
    return shorten(text, _MAX_VALUE_CHARS)


def _to_tables(origins: Mapping[str, Origin]) -> dict[str, Any]:
    whole: dict[str, Any] = {}
    for key, origin in origins.items():
        *above, name = parts_of(key) or [key]
        inside = whole
        for part in above:
            inside = inside.setdefault(part, {})
        inside[name] = origin.value
    return whole


def _identity(layer: Layer) -> Layer:
    return layer


def _items(value: object) -> tuple[object, ...]:
    return (
        tuple(cast("Iterable[object]", value))
        if isinstance(value, list | tuple)
        else (value,)
    )


def choices(whole: "type[Struct]", path: Sequence[str]) -> tuple[str, ...]:
    """The choices of the setting at this path in the class `whole`, or ()."""
    import msgspec.inspect as inspect

    kind = _type_at(inspect.type_info(whole), path)
    return tuple(dict.fromkeys(_values(kind))) if kind is not None else ()


def _type_at(kind: "Type", path: Sequence[str]) -> "Type | None":
    import msgspec.inspect as inspect

    for name in path:
        if isinstance(kind, inspect.StructType):
            types = {field.name: field.type for field in kind.fields}
            if name not in types:
                return None
            kind = types[name]
        elif isinstance(kind, inspect.DictType):
            kind = kind.value_type
        else:
            return None
    return kind


def _values(kind: "Type") -> tuple[str, ...]:
    import msgspec.inspect as inspect

    match kind:
        case inspect.LiteralType(values):
            return tuple(str(value) for value in values if value != "")
        case inspect.BoolType():
            return ("true", "false")
        case inspect.UnionType(types):
            # A choice or any text means any text.
            sets = [_values(one) for one in types]
            return tuple(value for values in sets for value in values) if all(sets) else ()
        case inspect.Metadata(inner):
            return _values(inner)
        case _:
            return ()
