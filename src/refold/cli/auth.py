"""`refold auth set|list|test|remove`: API keys, never shown in full.

A key is read without echo, or from a pipe; never from the command line, which other
programs and the shell's history see. `config.api_keys` says where keys come from,
`config.credentials` and `config.keyring` store them.
"""

import os
import sys
from argparse import SUPPRESS, ArgumentParser, Namespace
from collections.abc import Iterator, Mapping

import anyio
from msgspec import Struct

from refold.app.model_connections import Connections
from refold.config import credentials, keyring
from refold.config.api_keys import FoundKey, Keys, key_problem
from refold.config.load import load
from refold.config.paths import Paths, paths
from refold.errors import BadInput, ProviderError, Refused
from refold.headless.streams import print_document, print_error, print_note, write
from refold.provider import catalog
from refold.provider.model_list import list_models
from refold.provider.spec import ProviderSpec
from refold.views.escape import on_one_line

# Providers that list models without a key, and where it says whose a key is.
_ASKED_ELSEWHERE = {"openrouter": "/key"}
_PROBE_KEY = "refold-asks-whether-any-key-will-do"
_MIN_MASKABLE_CHARS = 12  # characters of a key whose last ones can be shown
_MAX_KEY_CHARS = 65536  # characters that are read from a pipe


class KeyContext(Struct, frozen=True):
    """The values that decide on keys, as found at the start."""

    places: Paths
    environ: Mapping[str, str]
    stored: Mapping[str, str]
    specs: tuple[ProviderSpec, ...]
    keys: Keys

    def spec(self, name: str) -> ProviderSpec:
        spec = catalog.find(name, self.specs)
        if not self.keys.uses_key(spec):
            raise BadInput(f"{spec.label} asks for no key")
        return spec

    def needs_key(self, spec: ProviderSpec) -> bool:
        try:
            return catalog.needs_key(spec, self.environ)
        except BadInput:  # its address is not set yet
            return True


def add_arguments(auth: ArgumentParser) -> None:
    subparsers = auth.add_subparsers(dest="what", metavar="WHAT", required=True)
    keep = subparsers.add_parser(
        "set", help="store a key, typed without echo or read from a pipe"
    )
    keep.add_argument("provider", metavar="PROVIDER")
    keep.add_argument("rest", nargs="*", help=SUPPRESS)
    keep.add_argument("--keyring", action="store_true",
        help="store it in the operating system's keyring instead of a file")  # fmt: skip
    listing = subparsers.add_parser(
        "list", help="list providers and where each one's key comes from"
    )
    listing.add_argument("--json", action="store_true", help="print JSON lines")
    test = subparsers.add_parser(
        "test", help="check that the provider accepts the key; exit code 1 if not"
    )
    test.add_argument("provider", nargs="?", default="", metavar="PROVIDER")
    remove = subparsers.add_parser("remove", help="delete a stored key")
    remove.add_argument("provider", metavar="PROVIDER")


def run(args: Namespace) -> int:
    here = _key_context()
    match args.what:
        case "set":
            return _set(here, args)
        case "list":
            return _list(here, as_json=args.json)
        case "test":
            return anyio.run(_test, here, args.provider)
        case _:
            return _remove(here, args.provider)


def _key_context() -> KeyContext:
    places = paths(os.environ)
    settings = load(places.settings, os.environ, {}).settings
    stored = credentials.read(places.credentials)
    connections = Connections(settings, places, os.environ, stored)
    return KeyContext(places, os.environ, stored, connections.known, connections.keys)


def _set(context: KeyContext, args: Namespace) -> int:
    spec, file = context.spec(args.provider), context.places.credentials
    if args.rest:
        raise BadInput(
            "a key on the command line is visible to other programs and saved by the shell: "
            "make a new one, and give it when asked, or from a pipe"
        )
    key = _read_typed_key(spec) if sys.stdin.isatty() else _read_piped_key()
    if problem := key_problem(key):
        raise BadInput(f"this is not a key: {problem}; nothing was saved")
    if args.keyring:
        keyring.store_key(spec.name, key)
        credentials.remove(file, spec.name)  # one place for it, and the safer one
    else:
        credentials.store(file, spec.name, key)
        _remove_from_keyring(spec.name)  # it would go before the file
    place = "in the keyring" if args.keyring else f"in {file}"
    write(f"The key of {spec.label} ({_last_characters(key)}) is stored {place}.\n")
    if not args.keyring and (open_ := credentials.open_to_others(file)):
        print_error(open_)
    for first in _earlier_sources(context, spec):
        print_error(f"{first} takes precedence")
    return 0


def _read_typed_key(spec: ProviderSpec) -> str:
    import warnings
    from getpass import GetPassWarning, getpass

    with warnings.catch_warnings():
        warnings.simplefilter("error", GetPassWarning)
        try:
            return getpass(f"The key of {spec.label} (it is not shown): ").strip()
        except EOFError:
            return ""
        except GetPassWarning as error:
            raise BadInput(
                "this terminal would show the key: give it from a pipe"
            ) from error


def _read_piped_key() -> str:
    try:
        return sys.stdin.read(_MAX_KEY_CHARS).strip()
    except UnicodeDecodeError as error:
        raise BadInput("this is not a key: it is not text; nothing was saved") from error


def _earlier_sources(context: KeyContext, spec: ProviderSpec) -> Iterator[str]:
    """Return the sources that are tried before those in which we store keys."""
    if key := context.keys.in_environment(spec):
        yield f"the key in {key.variable} (environment)"
    if context.keys.command(spec):
        yield "the key_command in the settings"


def _list(context: KeyContext, *, as_json: bool) -> int:
    rows: list[dict[str, str | None]] = []
    for spec in context.specs:
        source, key = _source(context, spec)
        if source or context.needs_key(spec):
            variable = key.variable if key else ""
            ends = _last_characters(key.key) if key else None
            rows.append({"provider": spec.name, "from": source or None,
                         "variable": variable or None, "ends": ends})  # fmt: skip
    wide = max(len(row["provider"] or "") for row in rows) if rows else 0
    for row in rows:
        if as_json:
            print_document(row)
        else:
            origin = " ".join(filter(None, (row["from"] or "none", row["variable"])))
            write(f"{row['provider']:<{wide}}  {row['ends'] or '':<5}  {origin}\n")
    if context.keys.trouble:
        print_error(on_one_line(context.keys.trouble))
    return 0


def _source(context: KeyContext, spec: ProviderSpec) -> tuple[str, FoundKey | None]:
    """Return where the key comes from. A `key_command` is not run only to be listed."""
    if not context.keys.in_environment(spec) and context.keys.command(spec):
        return "key_command", None
    try:
        key = context.keys.find_quietly(spec)
    except BadInput:
        return "", None
    return (key.source if key else ""), key


async def _test(context: KeyContext, name: str) -> int:
    specs = [context.spec(name)] if name else context.specs
    verdicts: list[bool] = []
    for spec in specs:
        try:
            key = context.keys.find_quietly(spec)
            if key is None and not name:
                continue
            text, good = await _check_key(context, spec, key)
        except BadInput as error:
            text, good = str(error), False
        verdicts.append(good)
        write(f"{spec.name}: {on_one_line(text)}\n")
    if not verdicts:
        print_note("no provider has a key (refold auth set PROVIDER stores one)")
    return 0 if verdicts and all(verdicts) else 1


async def _check_key(
    context: KeyContext, spec: ProviderSpec, key: FoundKey | None
) -> tuple[str, bool]:
    if key is None:
        if context.needs_key(spec):
            return f"there is no key (refold auth set {spec.name} stores one)", False
        return "there is no key, and none is needed", True
    subject = f"the key {_last_characters(key.key)} ({_key_source(key)})"
    try:
        await try_key(spec, context.environ, key.text_for_wire)
    except Refused as error:
        return f"{subject} was not accepted: {error}", False
    except (ProviderError, BadInput) as error:
        return f"{subject} was not tried: {error}", False
    if spec.name in _ASKED_ELSEWHERE:
        return f"{subject} is accepted", True
    try:
        await try_key(spec, context.environ, _PROBE_KEY)
    except ProviderError:
        return f"{subject} is accepted", True
    return f"{spec.label} lists its models for any key, so {subject} was not verified", True


async def try_key(spec: ProviderSpec, environ: Mapping[str, str], key: str) -> None:
    """Send one request that costs nothing. Raises `Refused` if the provider refuses the
    key.
    """
    if path := _ASKED_ELSEWHERE.get(spec.name):
        http = catalog.server(spec, environ, key=key, idle=20, connecting=5)
        try:
            await http.get(path)
        finally:
            await http.aclose()
    else:
        await list_models(spec, environ, key=key)


def _remove(context: KeyContext, name: str) -> int:
    file = context.places.credentials
    specs = [spec for spec in context.specs if spec.name == name]
    if name not in context.stored:  # whose key is kept need not be in the settings any more
        specs = [context.spec(name)]
        name = specs[0].name
    gone = [str(file)] if credentials.remove(file, name) else []
    if _remove_from_keyring(name):
        gone.append("the keyring")
    if gone:
        write(f"The key of {name} was removed from {' and '.join(gone)}.\n")
    else:
        print_error(f"no key of {name} was kept")
    for first in (line for spec in specs for line in _earlier_sources(context, spec)):
        print_error(f"{first} is still there")
    return 0 if gone else 1


def _remove_from_keyring(provider: str) -> bool:
    if not keyring.is_installed():
        return False
    try:
        return keyring.remove(provider)
    except BadInput as error:
        print_error(on_one_line(str(error)))
        return False


def _key_source(key: FoundKey) -> str:
    return f"{key.source} {key.variable}".strip()


def _last_characters(key: str) -> str:
    return f"…{key[-4:]}" if len(key) >= _MIN_MASKABLE_CHARS else "…"
