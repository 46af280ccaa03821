"""Combines the layers of settings, key by key; later layers win.

The layers are the defaults, the user's file, the project's files, the environment, flags, and
last the file of the machine's administrator. Permission rules of all layers are combined. An
invalid setting raises an error that names its place and value. `folder_settings` decides
whether a project's files apply.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain
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


# Names that users know from other agents, or from the command line.
_KEY_SYNONYMS = {"model": "models.main"}
# Tables whose entries the user names.
_TABLE_TYPES: dict[str, type[Struct]] = {
    "providers": Provider,
    "prices": Override,
    "commands": ProgramSettings,
}
# Former names of settings. A file with one of them gets an error with the new name.
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
# Surrogates: Python decodes bytes of a variable or flag that are not UTF-8 to them.
_NO_UTF8 = r"[\ud800-\udfff]"
_MAX_VALUE_CHARS = 300  # of a value in an error
_MIN_SIMILARITY = 0.5  # of a setting that an error suggests, from 0 to 1


class UnknownSetting(BadInput):
    """Raised for a key that does not name a setting."""


class Loaded(Struct, frozen=True):
    """The settings, and the origin of each value that some layer sets.

    `unknown` are sentences about what was skipped: environment variables that name no setting,
    and rules of another agent that cannot be read.
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
    """Return the settings of all layers. Raises `BadInput` for the first error.

    The layers `between` win over the user's file; environment, flags and `managed` win over
    `between`. An environment variable that names no setting is skipped, because another program
    may use it.
    """
    known, unknown = _split_variables(environ)
    layers = layers_of(file, known, flags, between, managed)
    return replace(combine(layer() for layer in layers), unknown=unknown)


def _split_variables(
    environ: Mapping[str, str],
) -> tuple[Mapping[str, str], tuple[str, ...]]:
    """Return `environ` without variables that begin with REFOLD_ but name no setting.

    The second value has a sentence about each of these variables.
    """
    unknown = dict[str, str]()
    for name in environ:
        if name.startswith("REFOLD_"):
            try:
                list(check_layer(from_environment({name: environ[name]})))
            except UnknownSetting as error:
                unknown[name] = str(error)
            except BadInput:
                pass  # the layer of the variable reports it
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
    """Return for each layer a function that reads the layer. Later layers win."""
    return (
        lambda: from_file(file, "user"),
        *(partial(_identity, layer) for layer in between),
        lambda: from_environment(environ),
        lambda: from_flags(flags),
        lambda: from_file(managed, "managed"),
    )


def combine(layers: Iterable[Layer]) -> Loaded:
    """Return the settings of these layers, combined.

    Raises `BadInput` for an invalid setting, and for a rule that contradicts its examples.
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
        # If a limit in dollars was chosen, the default limit in tokens must not replace it
        # when the price is unknown. `engine.policies.budget` refuses a model without price.
        settings = replace(settings, budget=replace(settings.budget, tokens=0))
    rules_of(settings.permissions)
    return Loaded(settings, origins)


def settings_in_order(layers: Iterable[Layer]) -> Layer:
    """Check and yield all settings of all layers, and those of the chosen security profile."""
    checked_layers = [list(check_layer(layer)) for layer in layers]
    keys = {key for layer in checked_layers for key, _ in layer}
    if "security_profile" in keys:
        from refold.config.security_profiles import with_profile

        with_layers = with_profile(checked_layers)
        checked_layers = [list(check_layer(layer)) for layer in with_layers]
    for layer in checked_layers:
        yield from layer


def check_layer(layer: Layer) -> Layer:
    """Check and yield each setting of a layer.

    Raises `BadInput` if a setting is invalid or unknown.
    """
    for raw, origin in layer:
        if origin.value == {} and is_table(canonical_key(raw)):
            continue  # an empty table sets nothing
        key, checked = check(raw, origin)
        if key.startswith(_RULES_PREFIX):
            name = key.removeprefix(_RULES_PREFIX)
            items = cast("tuple[RuleWithCases, ...]", checked.value)
            rules_of(Permissions(**{name: items}), checked.place)
        yield key, checked


def check(raw: str, origin: Origin) -> tuple[str, Origin]:
    """Check the setting in `origin`. Return its canonical key, and the origin to use.

    `raw` is the key as it was written. In the returned origin, a mode has its canonical
    name, and rules have their source; other values are unchanged. Raises `BadInput` for an
    unknown key or an invalid value.
    """
    key = canonical_key(raw)
    if key == "permission_mode" and isinstance(origin.value, str):
        origin = replace(origin, value=MODE_NAMES.get(origin.value, origin.value))
    _check_value(key, origin, raw)
    if key.startswith(_RULES_PREFIX):
        origin = replace(origin, value=rules_with_source(_items(origin.value), origin))
    return key, origin


def flatten(settings: Struct, before: str = "") -> dict[str, object]:
    """Return every setting by its dotted key. `before` is put before each key."""
    result: dict[str, object] = {}
    for name in settings.__struct_fields__:
        value = getattr(settings, name)
        if isinstance(value, Struct):
            result |= flatten(value, f"{before}{name}.")
        elif name in _TABLE_TYPES:
            for key, entry in cast("dict[str, Struct]", value).items():
                result |= flatten(entry, f"{before}{name}.{join_key(key)}.")
        else:
            result[f"{before}{name}"] = value
    return result


def canonical_key(raw: str) -> str:
    """Return the key with the names of providers and programs in lower case."""
    parts = parts_of(_KEY_SYNONYMS.get(raw, raw))
    if not parts:  # an invalid key
        return raw
    if parts[0] in ("providers", "commands") and len(parts) > 1:
        parts[1] = parts[1].lower()
    return join_key(*parts)


def defaults_of(key: str) -> dict[str, object]:
    """Return the default settings of the provider, price or program that `key` names.

    Return {} for any other key.
    """
    parts = parts_of(key)
    if len(parts) < 2 or parts[0] not in _TABLE_TYPES:
        return {}
    return flatten(_TABLE_TYPES[parts[0]](), f"{join_key(*parts[:2])}.")


def defining_class(key: str) -> tuple[type[Struct], str]:
    """Return the class that defines the setting `key`, and the key within that class."""
    parts = parts_of(key) or [key]
    # The second part is a name that the user chose, as in `providers.mine.base_url`.
    if parts[0] in _TABLE_TYPES and len(parts) >= 3:
        return _TABLE_TYPES[parts[0]], join_key(*parts[2:])
    return Settings, key


def default_of(key: str) -> object:
    """Return the default of the setting `key`; "" if it has none."""
    class_, name = defining_class(key)
    return flatten(class_()).get(name, "")


def is_table(key: str) -> bool:
    """Whether `key` names a table of settings, which may be empty."""
    if key in _TABLE_TYPES:
        return True
    if key.partition(".")[0] in _TABLE_TYPES and len(parts_of(key)) == 2:
        return True  # such as `providers.mine`
    class_, table = defining_class(key)
    known = flatten(class_())
    has_free_names = known.get(table) == {}  # such as `model_aliases`
    return has_free_names or any(name.startswith(f"{table}.") for name in known)


def _check_value(key: str, origin: Origin, raw: str) -> None:
    """Raise `BadInput` if there is no setting `key`, or if its value is invalid.

    The error names the value and its place. `raw` is the key as it was written.
    """
    class_, name = defining_class(key)
    known = flatten(class_())
    # A key such as `model_aliases.mine` is known by its table.
    first_part = (parts_of(name) or [""])[0]
    if name not in known and first_part not in known:
        raise _unknown_setting(name, known, origin, raw)
    texts = [text for text in (raw, *_items(origin.value)) if isinstance(text, str)]
    if any(re.search(_NO_UTF8, text) for text in texts if not text.isascii()):
        raise BadInput(
            f"{origin.error_prefix}the setting {_shorten(repr(raw)[1:-1])} cannot be "
            f"{_shorten(repr(origin.value))}: that is not UTF-8"
        )
    try:
        msgspec.convert(_to_tables({name: origin}), class_, strict=False)
    except msgspec.ValidationError as error:
        reason, _, _ = str(error).partition(" - at ")  # without the path in the tables
        problem = _choices_hint(class_, name) or _shorten(reason)
        raise BadInput(
            f"{origin.error_prefix}the setting {raw} cannot be "
            f"{_shorten(repr(origin.value))}: {problem}"
        ) from error


def _unknown_setting(
    name: str, known: Mapping[str, object], origin: Origin, raw: str
) -> UnknownSetting:
    """Return the error for a setting `name` that is not in `known`, with a suggestion.

    `raw` is the key as it was written.
    """
    from difflib import get_close_matches

    if name in RENAMED_SETTINGS:
        new_name = _written_name(RENAMED_SETTINGS[name], origin)
        return UnknownSetting(
            f"{origin.error_prefix}the setting {raw!r} was renamed to {new_name!r}"
        )
    if origin.value == {}:  # an empty table
        candidates = list({key.rpartition(".")[0] for key in known})
    else:
        settings = [key for key, value in known.items() if value != {}]
        candidates = [*_KEY_SYNONYMS, *settings]
    if inside := [key for key in known if key.startswith(f"{name}.")]:
        hint = f"it is a table of settings, such as {inside[0]}"
    elif similar := get_close_matches(name, candidates, n=1, cutoff=_MIN_SIMILARITY):
        hint = f"did you mean {_written_name(similar[0], origin)!r}?"
    else:
        hint = "refold config show lists all"
    return UnknownSetting(
        f"{origin.error_prefix}there is no setting {_shorten(repr(raw))}; {hint}"
    )


def _written_name(key: str, origin: Origin) -> str:
    """Return `key`, or the name of its environment variable if `origin` is the environment."""
    if origin.origin.startswith(VARIABLE_LAYER):
        return "REFOLD_" + key.upper().replace(".", "__")
    return key


def _choices_hint(class_: type[Struct], key: str) -> str:
    """Return a sentence that lists the values of the setting; "" if it has no fixed values."""
    allowed = choices(class_, parts_of(key))
    return f"it can be {', '.join(map(repr, allowed))}" if allowed else ""


def _shorten(text: str) -> str:
    """Return `text`, shortened for an error message, because it may be a whole file."""
    return shorten(text, _MAX_VALUE_CHARS)


def _to_tables(origins: Mapping[str, Origin]) -> dict[str, Any]:
    """Return the values as nested tables: `a.b.c` becomes the key `c` in table `b` of `a`."""
    top: dict[str, Any] = {}
    for key, origin in origins.items():
        *table_names, name = parts_of(key) or [key]
        table = top
        for table_name in table_names:
            table = table.setdefault(table_name, {})
        table[name] = origin.value
    return top


def _identity(layer: Layer) -> Layer:
    return layer


def _items(value: object) -> tuple[object, ...]:
    """Return the items of a list as a tuple; a single value becomes a tuple of one item."""
    if isinstance(value, list | tuple):
        return tuple(cast("Iterable[object]", value))
    return (value,)


def choices(class_: "type[Struct]", path: Sequence[str]) -> tuple[str, ...]:
    """Return the values that the setting at `path` in `class_` permits.

    Return () if the setting permits any text or number, or if it does not exist.
    """
    import msgspec.inspect as inspect

    kind = _type_at(inspect.type_info(class_), path)
    return tuple(dict.fromkeys(_values(kind))) if kind is not None else ()


def _type_at(kind: "Type", path: Sequence[str]) -> "Type | None":
    """Return the type of the setting at `path` in `kind`; None if it does not exist."""
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
    """Return the values that the type permits; () if it permits any text or number."""
    import msgspec.inspect as inspect

    match kind:
        case inspect.LiteralType(values):
            return tuple(str(value) for value in values if value != "")
        case inspect.BoolType():
            return ("true", "false")
        case inspect.UnionType(types):
            choices_by_type = [_values(type_) for type_ in types]
            # A setting with choices that also takes any text has no list of choices.
            if not all(choices_by_type):
                return ()
            return tuple(chain.from_iterable(choices_by_type))
        case inspect.Metadata(inner):
            return _values(inner)
        case _:
            return ()
