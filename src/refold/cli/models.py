"""`refold models`: lists the available models, with their context windows and prices.

The list that a provider publishes takes precedence over the built-in list. It is cached for a
day, and used longer if the provider cannot be reached. `provider.model_list` requests lists,
and `provider.model_figures` selects the values that a session needs.
"""

import os
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

import anyio
import anyio.to_thread
from msgspec import Struct
from msgspec.structs import asdict

from refold.app.models import ROLE_NAMES, Models
from refold.config.api_keys import Keys, TenantKey
from refold.config.credentials import read as stored_keys
from refold.config.load import load
from refold.config.paths import paths
from refold.config.settings import Settings
from refold.errors import BadInput, ProviderError
from refold.headless.streams import print_document, print_error, print_note, write
from refold.provider import catalog, known_models, prices
from refold.provider.model_figures import ModelFigures, StoredModelList
from refold.provider.model_list import has_list, list_models
from refold.provider.port import Provider
from refold.provider.prices import Rates
from refold.provider.spec import ProviderSpec, unknown_provider_error
from refold.views.escape import escape_to_one_line
from refold.views.wrap import cells, cut

LOCAL_NAME = "local"
DAY_SECONDS = 24 * 3600.0
DEFAULT_COLUMNS = 80
UNKNOWN_FIGURE = "unknown"
_MIN_NAME_COLUMNS = 20  # for the column with the names
_FIGURE_COLUMNS = 37  # for the other columns and the gaps


class Row(Struct, frozen=True):
    """A model, for a line of the table or a JSON object.

    The name is from a server, so it is escaped before it is shown.
    """

    provider: str
    model: str
    # "live": listed now; "kept": in a cached list; "known": in the built-in list; "local": runs
    # here; "set": only a setting names it
    source: str
    window: int = 0  # tokens; 0: unknown
    rates: Rates | None = None
    marks: tuple[str, ...] = ()  # roles, and remarks
    at: str = ""  # time of the report, as ISO 8601

    @property
    def name(self) -> str:
        return f"{self.provider}/{self.model}"


def table_lines(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the heading of the table, and a line for each model, or two for a long name."""
    marks_width = max((cells(_marks(row)) for row in rows), default=0)
    longest_name = max((cells(escape_to_one_line(row.name)) for row in rows), default=0)
    free_columns = DEFAULT_COLUMNS - _FIGURE_COLUMNS - marks_width
    heading = "MODEL"
    needed_width = max(longest_name, len(heading))
    max_width = max(free_columns, _MIN_NAME_COLUMNS)
    name_width = min(needed_width, max_width)
    yield _line(name_width, heading, ("WINDOW", "$ IN", "$ OUT", "FROM"), marks="")
    for row in rows:
        name = escape_to_one_line(row.name)
        figures = (short_count(row.window), _dollars(row, "input"), _dollars(row, "output"))
        if cells(name) > name_width:  # a line of its own, above that of the figures
            yield cut(name, DEFAULT_COLUMNS)
            name = ""
        yield _line(name_width, name, (*figures, row.source), _marks(row))


def row_document(row: Row) -> dict[str, object]:
    """Return all values of a row as JSON values. An unknown value is null."""
    steps = row.rates.steps if row.rates else ()
    return {
        "name": row.name,
        "provider": row.provider,
        "model": row.model,
        "window": row.window or None,
        "prices": [asdict(step) for step in steps] or None,
        "from": row.source,
        "at": row.at or None,
        "marks": list(row.marks),
    }


def short_count(tokens: int) -> str:
    """Return the number of tokens as text of at most five characters."""
    if not tokens:
        return UNKNOWN_FIGURE
    if tokens < 1000:
        return str(tokens)
    if tokens < 999_500:  # from here on, it would be rounded to 1000k
        return f"{tokens / 1000:.0f}k"
    return f"{tokens / 1e6:.3g}M"


def _line(width: int, name: str, figures: tuple[str, str, str, str], marks: str) -> str:
    """Return a row of the table. `figures` are the window, the two prices and the source."""
    window, read, written, source = figures
    padded = name + " " * (width - cells(name))
    line = f"{padded}  {window:>7}  {read:>8}  {written:>8}  {source:<5} {marks}"
    return line.rstrip()


def _dollars(row: Row, kind: str) -> str:
    """Return the price `kind` as text with two to four decimals.

    A + means that long inputs cost more.
    """
    if row.rates is None:
        return UNKNOWN_FIGURE
    value: float = getattr(row.rates.first, kind)
    whole, _, decimals = f"{value:.4f}".rstrip("0").partition(".")
    plus = "+" if len(row.rates.steps) > 1 else ""
    return f"{whole}.{decimals:0<2}{plus}"


def _marks(row: Row) -> str:
    return " ".join(row.marks)


class ModelContext(Struct, frozen=True):
    """The settings, keys and roles that are needed to list models."""

    environ: Mapping[str, str]
    keys: Keys
    specs: tuple[ProviderSpec, ...]
    figures: ModelFigures
    roles: Mapping[str, list[str]]  # by the full name of a model
    now: float

    def can_ask(self, spec: ProviderSpec) -> bool:
        """Return whether the provider needs no key, or has a key."""
        try:
            if not catalog.needs_key(spec, self.environ):
                return True
            return self.keys.has_known_key(spec) or self.keys.find_quietly(spec) is not None
        except BadInput:
            return False

    def roles_of(self, provider: str) -> dict[str, list[str]]:
        """Return the roles of the models of `provider`, by the name of the model."""
        prefix = f"{provider}/"
        return {
            name.removeprefix(prefix): roles
            for name, roles in self.roles.items()
            if name.startswith(prefix)
        }


class NoModelOptions(Struct, frozen=True):
    """The options of a start in which no option about models is set."""

    model: str = ""
    tenant_keys: Mapping[str, TenantKey] = {}
    script: None = None
    record: None = None
    replay: None = None
    provider: Provider | None = None
    timed: bool = False


class ProviderModels(Struct, frozen=True):
    """The current or cached models of a provider, or why there are none."""

    spec: ProviderSpec
    listed: StoredModelList | None = None
    error: str = ""


def add_arguments(models: ArgumentParser) -> None:
    add = models.add_argument
    add(
        "provider",
        nargs="?",
        default="",
        metavar="PROVIDER",
        help="list only models of this provider",
    )
    add("--all", action="store_true", help="include providers without a key")
    add("--refresh", action="store_true", help="ask the providers for a new list")
    add("--json", action="store_true", help="print JSON lines, with all prices")


def run(args: Namespace) -> int:
    """Print the models of the chosen providers. Return 1 if there are none, otherwise 0."""
    context = _model_context()
    specs = _select_providers(context, args.provider, everything=args.all)
    listings = anyio.run(_ask_all, context, specs, args.refresh)
    rows = [row for listing in listings for row in _rows(context, listing)]
    rows += _embedded_rows(context, args.provider)
    for listing in listings:
        # The failure of a user's own server is reported only if its provider is named.
        if listing.error and (args.provider or not listing.spec.own):
            print_error(escape_to_one_line(listing.error))
    if args.json:
        for row in rows:
            print_document(row_document(row))
    elif rows:
        advice = () if args.provider else _advice(listings)
        lines = (*table_lines(rows), "", *_notes(context, listings), *advice)
        write("".join(f"{line}\n" for line in lines))
    if not rows:
        print_note("no models found (refold models --all shows all that are known)")
    return 0 if rows else 1


def _model_context() -> ModelContext:
    """Return what is known of providers, their keys and models, from the user's settings."""
    places = paths(os.environ)
    settings = load(places.settings, os.environ, {}).settings
    keys = stored_keys(places.credentials)
    models = Models(settings, places, os.environ, keys, NoModelOptions())
    connections = models.connections
    roles = _roles(settings, models)
    return ModelContext(
        os.environ, connections.keys, connections.known, models.figures, roles, time.time()
    )


def _roles(settings: Settings, models: Models) -> dict[str, list[str]]:
    """Return the roles of each model that has one, by the full name of the model.

    The main model is included even if no setting names it.
    """
    roles_by_model: dict[str, list[str]] = {}
    for role in ROLE_NAMES:
        if role == "main" or getattr(settings.models, role):
            with suppress(BadInput):  # the setting is not the name of a model
                model = models.full_name(role)
                roles_by_model.setdefault(model, []).append(role)
    return roles_by_model


def _select_providers(
    context: ModelContext, name: str, *, everything: bool
) -> list[ProviderSpec]:
    """Return the providers to list: the provider `name`, or all if `name` is "".

    Providers that cannot be asked are left out, unless `everything` is true. Of several
    providers with the same server, return those with a role, or the first if no role uses the
    server. For `local`, return [].
    """
    if name.lower() == LOCAL_NAME:  # `_embedded_rows` lists its models
        return []
    if name:
        return [_find_provider(context, name)]
    candidates = [spec for spec in context.specs if everything or context.can_ask(spec)]
    listed_servers = {
        _server_identity(spec) for spec in candidates if context.roles_of(spec.name)
    }
    selected: list[ProviderSpec] = []
    for spec in candidates:
        # a server has the same models whatever wire protocol a provider uses for it
        if context.roles_of(spec.name) or _server_identity(spec) not in listed_servers:
            listed_servers.add(_server_identity(spec))
            selected.append(spec)
    return selected


def _find_provider(context: ModelContext, name: str) -> ProviderSpec:
    """Return the provider with this name or alias. Raises `BadInput`."""
    by_name = dict[str, ProviderSpec]()
    for spec in context.specs:
        by_name |= dict.fromkeys((spec.name, *spec.aliases), spec)
    if name.lower() not in by_name:
        raise unknown_provider_error(name, (*by_name, LOCAL_NAME))
    return by_name[name.lower()]


def _server_identity(spec: ProviderSpec) -> tuple[str, str, str]:
    return spec.label, spec.base_url, spec.key_env


async def _ask_all(
    context: ModelContext, specs: Sequence[ProviderSpec], refresh: bool
) -> list[ProviderModels]:
    """Return the models of all providers, in the order of `specs`. All are asked at once."""
    listings: dict[str, ProviderModels] = {}

    async def ask(spec: ProviderSpec) -> None:
        listings[spec.name] = await _ask(context, spec, refresh)

    async with anyio.create_task_group() as tasks:
        for spec in specs:
            tasks.start_soon(ask, spec)
    return [listings[spec.name] for spec in specs]


async def _ask(context: ModelContext, spec: ProviderSpec, refresh: bool) -> ProviderModels:
    """Return the models of a provider, from a recent cached list or else from a new list.

    With `refresh`, and for a user's own server, a new list is always requested. If the request
    fails, return the cached list and the error.
    """
    entry = context.figures.get_list(spec)
    is_recent = entry is not None and 0 <= context.now - entry.at < DAY_SECONDS
    is_usable = is_recent and not refresh and not spec.own
    if is_usable or not (context.can_ask(spec) and has_list(spec)):
        return ProviderModels(spec, entry)
    try:
        key = await anyio.to_thread.run_sync(context.keys.find_quietly, spec)
        models = await list_models(
            spec, context.environ, key=key.text_for_wire if key else ""
        )
    except (ProviderError, BadInput) as error:
        return ProviderModels(spec, entry, error=str(error))
    return ProviderModels(spec, context.figures.learn(spec, models, context.now))


def _rows(context: ModelContext, listing: ProviderModels) -> Iterator[Row]:
    """Yield a row for each model that the provider's list, the catalogue or a setting names."""
    spec, listed = listing.spec, listing.listed
    roles = context.roles_of(spec.name)
    # where each model is known from; "set": only from a setting
    sources = dict.fromkeys(roles, "set")
    if listed is not None:
        source = "live" if listed.at == context.now else "kept"
        sources |= {model.name: source for model in listed.models}
    else:
        vendor_models = known_models.seller(prices.vendor_name(spec.name)).models
        sources |= {model.names[0]: "known" for model in vendor_models}
    for name, source in sorted(sources.items()):
        window = context.figures.window(spec, name)
        rates = context.figures.rates(spec, name, context.now)
        marks = tuple(roles.get(name, ()))
        yield Row(spec.name, name, source, window, rates, marks, _list_date(source, listed))


def _list_date(source: str, model_list: StoredModelList | None) -> str:
    """Return the date of the list that names a model; "" if no list does.

    `source` says how the model is known.
    """
    if source == "known":
        return known_models.table().as_of
    if model_list is None or source == "set":
        return ""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(model_list.at))


def _embedded_rows(context: ModelContext, provider: str) -> Iterator[Row]:
    """Yield a row for each model that can run here, unless `provider` is another provider."""
    if provider.lower() not in ("", LOCAL_NAME):
        return
    from refold.provider.local.models import (
        EMBEDDED_MODELS,
        ModelDirectory,
        default_directory,
    )
    from refold.provider.local.server import context_tokens, machine_memory

    model_files = ModelDirectory(default_directory(context.environ))
    for model in (*EMBEDDED_MODELS, *model_files.list_own()):
        marks = [*context.roles_of(LOCAL_NAME).get(model.name, ())]
        if not model_files.is_installed(model):
            marks.append("not installed")
        rates = context.figures.rates_here(model.name)
        yield Row(
            LOCAL_NAME,
            model.name,
            LOCAL_NAME,
            context_tokens(model, machine_memory()),
            rates,
            tuple(marks),
        )


def _notes(context: ModelContext, listings: Sequence[ProviderModels]) -> Iterator[str]:
    """Yield lines about the origin of the prices, and about lists that are old or missing."""
    table = known_models.table()
    yield f"$: US dollars for a million tokens, from {table.source} of {table.as_of},"
    yield "or what the provider or your settings say. +: more for long inputs."
    for item in listings:
        name = item.spec.name
        if item.listed is not None and item.listed.at != context.now:
            yield f"{name}: its list of {_format_age(context.now - item.listed.at)}; --refresh asks again"
        elif item.listed is None and not context.can_ask(item.spec):
            yield f"{name}: not asked, there is no key in {item.spec.key_env}"


def _advice(listings: Sequence[ProviderModels]) -> Iterator[str]:
    if all(listing.spec.own for listing in listings):
        yield "No provider has a key here: set one, such as ANTHROPIC_API_KEY. --all shows"
        yield "what is known of every provider."


def _format_age(seconds: float) -> str:
    """Return an age in its largest unit, such as "2 hours ago"; below a minute, "just now"."""
    for size, unit in ((DAY_SECONDS, "day"), (3600.0, "hour"), (60.0, "minute")):
        if seconds >= size:
            count = int(seconds // size)
            return f"{count} {unit}{'s' if count > 1 else ''} ago"
    return "just now"
