"""`refold auth set|list|test|remove`: API keys, never shown in full.

A key is typed without echo, or read from a pipe, but never from the command line, which other
programs can see. `client.settings.provider_keys` checks and stores keys.
"""

import os
import sys
from argparse import SUPPRESS, ArgumentParser, Namespace

import anyio

from refold.client.settings.provider_keys import (
    KeyCheck,
    KeyRow,
    ProviderKeys,
    last_characters,
)
from refold.config.api_keys import key_problem
from refold.config.paths import paths
from refold.errors import BadInput
from refold.headless.streams import print_document, print_error, print_note, write
from refold.views.escape import escape_to_one_line

ARGUMENT_SHOWS_KEY = (
    "a key on the command line is visible to other programs and saved by the shell: "
    "make a new one, and give it when asked, or from a pipe"
)
_MAX_KEY_CHARS = 65536  # read from a pipe


def add_arguments(auth: ArgumentParser) -> None:
    subparsers = auth.add_subparsers(dest="what", metavar="WHAT", required=True)
    keep = subparsers.add_parser(
        "set", help="store a key, typed without echo or read from a pipe"
    )
    keep.add_argument("provider", metavar="PROVIDER", help="such as anthropic or openai")
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
    test.add_argument("provider", nargs="?", default="", metavar="PROVIDER",
        help="test only this one (default: all with a key)")  # fmt: skip
    remove = subparsers.add_parser("remove", help="delete a stored key")
    remove.add_argument("provider", metavar="PROVIDER", help="such as anthropic or openai")


def run(args: Namespace) -> int:
    keys = ProviderKeys(paths(os.environ), os.environ)
    match args.what:
        case "set":
            return _set(keys, args)
        case "list":
            return _list(keys, as_json=args.json)
        case "test":
            return anyio.run(_test, keys, args.provider)
        case _:
            return _remove(keys, args.provider)


def _set(keys: ProviderKeys, args: Namespace) -> int:
    """Read a key from the user or a pipe, and store it. Raises `BadInput` if it is invalid."""
    spec = keys.spec(args.provider)
    if args.rest:  # a key on the command line
        raise BadInput(ARGUMENT_SHOWS_KEY)
    key = read_key(spec.label)
    if problem := key_problem(key):
        raise BadInput(f"this is not a key: {problem}; nothing was saved")
    change = keys.store(spec, key, in_keyring=args.keyring)
    (place,) = change.places
    write(f"The key of {spec.label} ({last_characters(key)}) is stored in {place}.\n")
    for notice in change.notices:
        print_error(escape_to_one_line(notice))
    return 0


def read_key(label: str) -> str:
    """Return the key that is typed without echo, or read from a pipe; "" if there is none."""
    if not sys.stdin.isatty():
        return _read_piped_key()
    return read_typed_secret(f"The key of {label} (it is not shown): ")


def read_typed_secret(prompt: str) -> str:
    """Return the secret that is typed at a terminal; "" at the end of the input.

    Raises `BadInput` if the echo of the terminal cannot be turned off.
    """
    import warnings
    from getpass import GetPassWarning, getpass

    with warnings.catch_warnings():
        warnings.simplefilter("error", GetPassWarning)
        try:
            return getpass(prompt).strip()
        except EOFError:
            return ""
        except GetPassWarning as error:
            raise BadInput(
                "this terminal would show the key: give it from a pipe"
            ) from error


def _read_piped_key() -> str:
    """Return the key in the pipe; "" if the pipe is empty."""
    try:
        return sys.stdin.read(_MAX_KEY_CHARS).strip()
    except UnicodeDecodeError as error:
        raise BadInput("this is not a key: it is not text; nothing was saved") from error


def _list(keys: ProviderKeys, *, as_json: bool) -> int:
    """Print a line for each provider, with the origin and the last characters of its key."""
    rows = tuple(keys.rows())
    width = max((len(row.provider) for row in rows), default=0)
    for row in rows:
        if as_json:
            print_document(_document(row))
        else:
            origin = " ".join(filter(None, (row.source or "none", row.variable)))
            write(f"{row.provider:<{width}}  {row.ends:<5}  {origin}\n")
    if keys.trouble:
        print_error(escape_to_one_line(keys.trouble))
    return 0


def _document(row: KeyRow) -> dict[str, str | None]:
    return {"provider": row.provider, "from": row.source or None,
            "variable": row.variable or None, "ends": row.ends or None}  # fmt: skip


async def _test(keys: ProviderKeys, name: str) -> int:
    """Test the key of one provider, or all keys if `name` is "". Return the exit code."""
    specs = [keys.spec(name)] if name else keys.specs
    accepted: list[bool] = []
    for spec in specs:
        try:
            key = keys.find(spec)
            if key is None and not name:
                continue
            check = await keys.check(spec, key)
        except BadInput as error:
            check = KeyCheck(str(error))
        accepted.append(check.good)
        write(f"{spec.name}: {escape_to_one_line(check.text)}\n")
    if not accepted:
        print_note("no provider has a key (refold auth set PROVIDER stores one)")
    return 0 if accepted and all(accepted) else 1


def _remove(keys: ProviderKeys, name: str) -> int:
    """Delete the stored key of a provider. Return 1 if none was stored, otherwise 0."""
    change = keys.remove(name)
    if change.places:
        places = " and ".join(change.places)
        write(f"The key of {change.provider} was removed from {places}.\n")
    else:
        print_error(f"no key of {change.provider} was kept")
    for notice in change.notices:
        print_error(escape_to_one_line(notice))
    return 0 if change.places else 1
