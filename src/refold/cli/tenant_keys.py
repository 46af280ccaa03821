"""`refold tenants keys`: manages the API keys for a tenant's model calls in the database.

The keys are stored in sealed (encrypted) rows, which the tenant's workers read. A key is read
from a pipe or typed, and is never shown. Listing and removing rows is possible without the
encryption key (`REFOLD_CLUSTER_KEY`).
"""

import os
from argparse import SUPPRESS, ArgumentParser, Namespace
from typing import TYPE_CHECKING

import msgspec
from anyio import to_thread

from refold.cli.auth import ARGUMENT_SHOWS_KEY, read_key
from refold.config.api_keys import TenantKey
from refold.config.paths import paths
from refold.config.tenant_keys import (
    NAME_PREFIX,
    check_tenant_key,
    encode_tenant_key,
    open_secrets,
)
from refold.errors import BadInput
from refold.headless.streams import write

if TYPE_CHECKING:
    from refold.cluster.people import People
    from refold.cluster.sessions import PostgreSQLSessions
    from refold.cluster.tenant_secrets import TenantSecrets


def add_keys_arguments(keys: ArgumentParser) -> None:
    actions = keys.add_subparsers(dest="action", metavar="WHAT", required=True)
    for name, about in (
        ("set", "store a key, typed without echo or read from a pipe"),
        ("list", "list the names of what is stored, as JSON lines"),
        ("remove", "remove a key"),
        ("reseal", "seal everything with the first key of REFOLD_CLUSTER_KEY"),
    ):
        action = actions.add_parser(name, help=about)
        action.add_argument("tenant", metavar="TENANT", help="the tenant of the key")
        if name in ("set", "remove"):
            action.add_argument(
                "provider", metavar="PROVIDER", help="as in `refold models`"
            )
        if name == "set":
            action.add_argument("rest", nargs="*", help=SUPPRESS)
            action.add_argument("--base-url", default="", metavar="URL",
                help="the address of a gateway, for a virtual key")  # fmt: skip


async def run_keys(
    people: "People", sessions: "PostgreSQLSessions", args: Namespace
) -> None:
    await people.tenant_size(args.tenant)  # raises if there is no such tenant
    actions = {"set": _set, "list": _list, "remove": _remove, "reseal": _reseal}
    await actions[args.action](people, args)


async def _set(people: "People", args: Namespace) -> None:
    """Read a key of a provider, and store it sealed for the workers of the tenant."""
    if args.rest:
        raise BadInput(ARGUMENT_SHOWS_KEY)
    secrets = _open_secrets(people)
    key_text = await to_thread.run_sync(read_key, args.provider)
    key = TenantKey(key_text, args.base_url)
    check_tenant_key(key, "what was given")
    name = f"{NAME_PREFIX}{args.provider}"
    await to_thread.run_sync(secrets.write, name, encode_tenant_key(key))
    # the actor is not a person of the service
    await people.note(args.tenant, actor="", action="set key", detail=args.provider)
    write(
        f"workers of {args.tenant} use this key of {args.provider} in sessions that they open from now on\n"
    )


async def _list(people: "People", args: Namespace) -> None:
    from refold.cluster.tenant_secrets import list_secrets

    for row in await to_thread.run_sync(list_secrets, people.database):
        write(msgspec.json.encode(row).decode() + "\n")


async def _remove(people: "People", args: Namespace) -> None:
    from refold.cluster.tenant_secrets import remove_secret

    name = f"{NAME_PREFIX}{args.provider}"
    if not await to_thread.run_sync(remove_secret, people.database, name):
        raise BadInput(
            f"{args.tenant} has no key of {args.provider!r}: `refold tenants keys list {args.tenant}` "
            "shows what is stored"
        )
    # the actor is not a person of the service
    await people.note(args.tenant, actor="", action="remove key", detail=args.provider)
    write(f"the key of {args.provider} was removed\n")


async def _reseal(people: "People", args: Namespace) -> None:
    count = await to_thread.run_sync(_open_secrets(people).reseal)
    write(f"{count} secrets of {args.tenant} were sealed with the newest key\n")


def _open_secrets(people: "People") -> "TenantSecrets":
    """Return the sealed secrets of a tenant. Raises `BadInput` if no cluster key is set."""
    places = paths(os.environ)
    if places.cluster_key is None:
        raise BadInput(
            "REFOLD_CLUSTER_KEY names no file: a secret is sealed with a key that workers have; "
            "`openssl rand -base64 32` makes one"
        )
    return open_secrets(places, people.database)
