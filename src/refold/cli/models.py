"""`refold models`: which models can be asked, what they read, what they cost.

A provider's own list goes before what we know without asking. It is kept for a
day, and for longer where the provider cannot be reached. Asking and reading lists
is `provider.listing`'s business, a table's shape `models_table`'s.
"""

import os
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import anyio
import msgspec
from msgspec import Struct

from refold.cli.models_table import Row, document, lines
from refold.cli.out import write
from refold.config.credentials import read as stored_keys
from refold.config.load import load
from refold.config.paths import paths
from refold.config.settings import Settings
from refold.connections import Connections
from refold.errors import BadInput, ProviderError
from refold.provider import catalog, known, prices
from refold.provider.listing import (
    Found,
    Listed,
    has_list,
    list_models,
    remember,
    remembered,
)
from refold.provider.spec import ProviderSpec
from refold.views.escape import on_one_line

LOCAL = "local"
DAY = 24 * 3600.0


class Subparsers(Protocol):
    """What argparse's `add_subparsers` gives, as far as we use it."""

    def add_parser(self, name: str, *, help: str) -> ArgumentParser: ...


class Here(Struct, frozen=True):
    """What decides on models, as it was found at the start."""

    settings: Settings
    environ: Mapping[str, str]
    keys: Mapping[str, str]  # those that were stored, by provider
    specs: tuple[ProviderSpec, ...]
    directory: Path  # where lists are kept
    now: float

    def keyed(self, spec: ProviderSpec) -> bool:
        """Is there nothing in the way of asking?"""
        held = catalog.has_key(spec, self.environ) or spec.name in self.keys
        return held or not spec.key_env or spec.keyless or self._moved(spec)

    def address(self, spec: ProviderSpec) -> str:
        """Where the provider is; "" if nobody said."""
        try:
            return catalog.address(spec, self.environ)
        except BadInput:
            return ""

    def _moved(self, spec: ProviderSpec) -> bool:
        """A server of the person's own need not ask for a key."""
        return bool(spec.base_url) and self.address(spec) != spec.base_url


class Told(Struct, frozen=True):
    """What a provider says, now or the last time; and why not, if it does not."""

    spec: ProviderSpec
    listed: Listed | None = None
    error: str = ""


def add_models(subparsers: Subparsers) -> None:
    models = subparsers.add_parser("models", help="which models there are, and prices")
    add = models.add_argument
    add(
        "provider", nargs="?", default="", metavar="PROVIDER", help="only those of this one"
    )
    add("--all", action="store_true", help="of providers without a key too")
    add("--refresh", action="store_true", help="ask the providers again")
    add("--json", action="store_true", help="as JSON, one a line, with every price")


def run(found: Namespace) -> int:
    here = _here()
    specs = _wanted(here, found.provider, everything=found.all)
    told = anyio.run(_ask_all, here, specs, found.refresh)
    rows = [row for each in told for row in _rows(here, each)]
    rows += _embedded(here, found.provider)
    for each in told:
        # Who did not ask for a server of their own need not hear that none runs.
        if each.error and (found.provider or not _own(each.spec)):
            sys.stderr.write(f"refold: {on_one_line(each.error)}\n")
    if found.json:
        for row in rows:
            write(msgspec.json.encode(document(row)).decode() + "\n")
    elif rows:
        told_too = (*_notes(here, told), *(() if found.provider else _advice(told)))
        write("".join(f"{line}\n" for line in (*lines(rows), "", *told_too)))
    if not rows:
        sys.stderr.write("no models found (refold models --all shows all that are known)\n")
    return 0 if rows else 1


def _here() -> Here:
    places = paths(os.environ)
    settings, _ = load(places.settings, os.environ, {})
    keys = stored_keys(places.credentials)
    specs = Connections(settings, places, os.environ, keys).known
    return Here(settings, os.environ, keys, specs, places.state / "models", time.time())


def _wanted(here: Here, name: str, *, everything: bool) -> list[ProviderSpec]:
    if name.lower() == LOCAL:
        return []
    if name:
        return [catalog.find(name, here.specs)]
    found: dict[object, ProviderSpec] = {}
    for spec in here.specs:
        if everything or here.keyed(spec):
            # The same server by another wire has the same models.
            found.setdefault((spec.label, spec.base_url, spec.key_env), spec)
    return list(found.values())


def _own(spec: ProviderSpec) -> bool:
    return spec.keyless or spec.wire == "ollama"


async def _ask_all(here: Here, specs: Sequence[ProviderSpec], refresh: bool) -> list[Told]:
    found: dict[str, Told] = {}

    async def ask(spec: ProviderSpec) -> None:
        found[spec.name] = await _ask(here, spec, refresh)

    async with anyio.create_task_group() as tasks:
        for spec in specs:
            tasks.start_soon(ask, spec)
    return [found[spec.name] for spec in specs]


async def _ask(here: Here, spec: ProviderSpec, refresh: bool) -> Told:
    """Its list. One that is kept will do, unless it is old or of a server that changes."""
    address = here.address(spec)
    kept = remembered(here.directory, spec.name, address)
    young = kept is not None and 0 <= here.now - kept.at < DAY
    enough = young and not refresh and not _own(spec)
    if enough or not (here.keyed(spec) and has_list(spec)):
        return Told(spec, kept)
    stored = "" if catalog.has_key(spec, here.environ) else here.keys.get(spec.name, "")
    try:
        models = await list_models(spec, here.environ, key=stored)
    except (ProviderError, BadInput) as error:
        return Told(spec, kept, str(error))
    listed = Listed(here.now, address, models)
    remember(here.directory, spec.name, listed)
    return Told(spec, listed)


def _rows(here: Here, told: Told) -> Iterator[Row]:
    spec, listed = told.spec, told.listed
    if listed is not None:
        source = "live" if listed.at == here.now else "kept"
        found = {model.name: (model, source) for model in listed.models}
    else:
        sold = known.seller(prices.sold_by(spec.name)).models
        found = {m.names[0]: (Found(m.names[0], m.window), "known") for m in sold}
    roles = _roles(here, spec)
    for model in roles:
        found.setdefault(model, (Found(model), "set"))
    address = here.address(spec)
    for name, (model, source) in sorted(found.items()):
        rates = prices.rates(
            spec.name,
            name,
            here.settings.prices,
            here=bool(address) and prices.runs_here(spec, address, name),
            told=model.steps,
            now=here.now,
        )
        marks = tuple(roles.get(name, ()))
        window = _window(here, spec, model)
        yield Row(spec.name, name, source, window, rates, marks, _when(source, listed))


def _when(source: str, listed: Listed | None) -> str:
    if listed is None or source == "set":
        return known.table().as_of if source == "known" else ""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(listed.at))


def _window(here: Here, spec: ProviderSpec, model: Found) -> int:
    own = prices.override(spec.name, model.name, here.settings.prices)
    whole = here.settings.providers.get(spec.name)
    listed = prices.find(spec.name, model.name)
    return (
        (own.window if own else 0)
        or (whole.window if whole else 0)
        or model.window
        or (listed.window if listed else 0)
        or catalog.window_of(spec, model.name)
    )


def _roles(here: Here, spec: ProviderSpec) -> dict[str, list[str]]:
    """What the provider's models are set to do, by model."""
    found: dict[str, list[str]] = {}
    for role in here.settings.models.__struct_fields__:
        name: str = getattr(here.settings.models, role)
        try:
            owner, model = catalog.named(name, here.specs)
        except BadInput:  # none is set, or an embedded one
            continue
        if owner.name == spec.name:
            found.setdefault(model, []).append(role)
    return found


def _embedded(here: Here, wanted: str) -> Iterator[Row]:
    if wanted.lower() not in ("", LOCAL):
        return
    from refold.provider.local.models import MODELS
    from refold.provider.local.server import CONTEXT
    from refold.provider.local.shelf import Shelf, default_directory

    shelf = Shelf(default_directory(here.environ))
    for model in MODELS:
        name = f"{LOCAL}/{model.name}"
        roles = here.settings.models
        marks = [role for role in roles.__struct_fields__ if getattr(roles, role) == name]
        if not shelf.holds(model):
            marks.append("not installed")
        rates = prices.rates(LOCAL, model.name, here.settings.prices)
        yield Row(LOCAL, model.name, LOCAL, CONTEXT, rates, tuple(marks))


def _notes(here: Here, told: Sequence[Told]) -> Iterator[str]:
    table = known.table()
    yield f"$: US dollars for a million tokens, from {table.source} of {table.as_of},"
    yield "or what the provider or your settings say. +: more for long inputs."
    for each in told:
        name = each.spec.name
        if each.listed is not None and each.listed.at != here.now:
            yield f"{name}: its list of {_ago(here.now - each.listed.at)}; --refresh asks again"
        elif each.listed is None and not here.keyed(each.spec):
            yield f"{name}: not asked, there is no key in {each.spec.key_env}"


def _advice(told: Sequence[Told]) -> Iterator[str]:
    if all(_own(each.spec) for each in told):
        yield "No provider has a key here: set one, such as ANTHROPIC_API_KEY. --all shows"
        yield "what is known of every provider."


def _ago(seconds: float) -> str:
    for size, unit in ((DAY, "day"), (3600.0, "hour"), (60.0, "minute")):
        if seconds >= size:
            count = int(seconds // size)
            return f"{count} {unit}{'s' if count > 1 else ''} ago"
    return "just now"
