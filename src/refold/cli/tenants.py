"""`refold tenants` and `refold people`: manages the tenants and people of a service.

The commands connect to the database of REFOLD_SESSIONS as the owner of its tables.
`server.people` serves the people themselves.
"""

import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Awaitable, Callable
from contextlib import closing, nullcontext
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import msgspec
from anyio import to_thread

from refold.app.session_index import tenant_sessions
from refold.cli.subcommands import SubcommandEntry
from refold.cli.tenant_keys import add_keys_arguments, run_keys
from refold.config.paths import DEFAULT_TENANT, paths
from refold.errors import BadInput
from refold.headless.streams import print_error, write
from refold.values.usage import Spent

if TYPE_CHECKING:
    from refold.cluster.people import People
    from refold.cluster.sessions import PostgreSQLSessions

_NOT_CONFIRMED_TEXT = (
    "nothing was deleted, because this cannot be undone: give --yes to delete {what}"
)
_NO_LIMIT = "none"


def add_tenants_arguments(parser: ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="what", metavar="WHAT", required=True)
    actions.add_parser("list", help="list the tenants and what they spent, as JSON lines")
    add_keys_arguments(
        actions.add_parser("keys", help="store keys for the workers of a tenant")
    )
    for name, about in (
        ("add", "add a tenant, so that its people can log in"),
        ("show", "show how many people and sessions a tenant has, and what it spent"),
        ("limit", "limit how many sessions of a tenant run at once"),
        ("audit", "write the audit of a tenant as JSON lines"),
        ("export", "write all that is stored of a tenant to a tar"),
        ("delete", "delete all that is stored of a tenant"),
    ):
        action = actions.add_parser(name, help=about)
        action.add_argument(
            "tenant",
            metavar="TENANT",
            help="name of the tenant, as in the claim of its people",
        )
        if name == "limit":
            action.add_argument(
                "max", metavar="N", help=f"sessions at once; {_NO_LIMIT}: no limit"
            )
        _add_yes_and_output(action, name)


def add_people_arguments(parser: ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="what", metavar="WHAT", required=True)
    for name, about in (
        ("list", "list the people who have logged in, as JSON lines"),
        ("role", "make a person a member, an admin or an auditor"),
        ("lock", "lock a person out, which ends all logins and tokens"),
        ("unlock", "let a person in again"),
        ("export", "write all that is stored of a person to a tar"),
        ("delete", "delete a person's name, address, logins and tokens"),
    ):
        action = actions.add_parser(name, help=about)
        action.add_argument("tenant", metavar="TENANT", help="the tenant of the person")
        if name != "list":
            action.add_argument(
                "subject",
                metavar="SUB",
                help="id of the person, as refold people list prints it",
            )
        if name == "role":
            action.add_argument("role", choices=("member", "admin", "auditor"))
        if name == "delete":
            action.add_argument("--sessions", action="store_true",
                help="delete the sessions that this person began, too")  # fmt: skip
        _add_yes_and_output(action, name)


def _add_yes_and_output(action: ArgumentParser, name: str) -> None:
    if name == "delete":
        action.add_argument("--yes", action="store_true", help="delete without asking")
    if name == "export":
        action.add_argument(
            "-o",
            "--output",
            type=Path,
            metavar="FILE",
            help="the output file (default: stdout)",
        )


def run_tenants(args: Namespace) -> int:
    actions = {
        "add": _add, "list": _list, "keys": run_keys, "show": _show, "limit": _limit, "audit": _audit, "export": _export,
        "delete": _delete,
    }  # fmt: skip
    return _run(args, actions[args.what])


def run_people(args: Namespace) -> int:
    actions = {
        "list": _list_people, "role": _change_person, "lock": _change_person, "unlock": _change_person,
        "export": _export, "delete": _delete_person,
    }  # fmt: skip
    return _run(args, actions[args.what])


Action = Callable[["People", "PostgreSQLSessions", Namespace], Awaitable[None]]


def _run(args: Namespace, action: Action) -> int:
    """Run `action` in the database with the rights of the named tenant. Return exit code 0."""
    from refold.cluster.database import Database
    from refold.cluster.people import People

    places = paths(os.environ)
    if not places.sessions:
        raise BadInput(
            "REFOLD_SESSIONS names no database: set it, as in postgresql://owner@host/database"
        )
    tenant = getattr(args, "tenant", DEFAULT_TENANT)
    with closing(Database(places.sessions, tenant)) as database:
        database.check()
        sessions = tenant_sessions(places, database)
        anyio.run(action, People(database), sessions, args)
    return 0


async def _add(people: "People", sessions: "PostgreSQLSessions", args: Namespace) -> None:
    await people.add_tenant(args.tenant)
    write(f"people of {args.tenant} can log in\n")


async def _list(people: "People", sessions: "PostgreSQLSessions", args: Namespace) -> None:
    """Print a JSON line for each tenant. Each tenant is read through its own `Database`."""
    from refold.cluster.database import Database
    from refold.cluster.sessions import PostgreSQLSessions

    places = paths(os.environ)
    for tenant in await people.tenants():
        with closing(Database(places.sessions, tenant)) as database:
            await _write_tenant(tenant, people, PostgreSQLSessions(database, places.data))


async def _show(people: "People", sessions: "PostgreSQLSessions", args: Namespace) -> None:
    await _write_tenant(args.tenant, people, sessions)


async def _write_tenant(
    tenant: str, people: "People", sessions: "PostgreSQLSessions"
) -> None:
    """Print the size of a tenant's data, and the recorded cost of its sessions."""
    size = await people.tenant_size(tenant)
    # `seconds=inf`: wait for all sessions; `below` is what the subagents of a session spent
    cards = await to_thread.run_sync(lambda: sessions.catalogue().cards(seconds=inf))
    spent = sum((card.spent + card.below for card in cards), Spent())
    document = {
        "tenant": tenant, **msgspec.structs.asdict(size),
        "dollars": round(spent.dollars, 6), "responses": spent.answers, "unpriced": spent.unpriced,
    }  # fmt: skip
    write(msgspec.json.encode(document).decode() + "\n")


async def _limit(people: "People", sessions: "PostgreSQLSessions", args: Namespace) -> None:
    if args.max != _NO_LIMIT and not (args.max.isdecimal() and int(args.max) > 0):
        raise BadInput(f"{args.max!r} is not a limit: give a number from 1, or {_NO_LIMIT}")
    limit = None if args.max == _NO_LIMIT else int(args.max)
    await people.limit_tenant(args.tenant, limit)
    write(f"{args.tenant} may have {args.max} sessions at work\n")


async def _audit(people: "People", sessions: "PostgreSQLSessions", args: Namespace) -> None:
    """Print the audit of the tenant as JSON lines."""
    from refold.client.people.data_export import encode_audit, read_audit

    await people.tenant_size(args.tenant)  # raises for an unknown tenant
    write(encode_audit(await read_audit(people, args.tenant)).decode())


async def _export(
    people: "People", sessions: "PostgreSQLSessions", args: Namespace
) -> None:
    """Write all data of the person, or of the tenant if no person is named."""
    from refold.client.people.data_export import export_person, export_tenant

    with args.output.open("xb") if args.output else nullcontext(sys.stdout.buffer) as file:
        if subject := getattr(args, "subject", ""):
            session_count = await export_person(
                people, sessions, args.tenant, subject, file
            )
        else:
            session_count = await export_tenant(people, sessions, args.tenant, file)
    print_error(f"{session_count} sessions were exported")


async def _delete(
    people: "People", sessions: "PostgreSQLSessions", args: Namespace
) -> None:
    """Delete the tenant and its objects in the bucket. Raises `BadInput` without --yes."""
    size = await people.tenant_size(args.tenant)
    if not args.yes:
        deleted_text = f"{size.sessions} sessions and {size.people} people of {args.tenant}"
        raise BadInput(_NOT_CONFIRMED_TEXT.format(what=deleted_text))
    if sessions.objects is not None:
        await anyio.to_thread.run_sync(sessions.objects.delete_below)
    await people.delete_tenant(args.tenant)
    write(f"{args.tenant} was deleted: {size.sessions} sessions, {size.people} people\n")


async def _list_people(
    people: "People", sessions: "PostgreSQLSessions", args: Namespace
) -> None:
    await people.tenant_size(args.tenant)  # raises for an unknown tenant
    for person in await people.people(args.tenant):
        write(msgspec.json.encode(person).decode() + "\n")


async def _change_person(
    people: "People", sessions: "PostgreSQLSessions", args: Namespace
) -> None:
    """Change the role of a person, or lock the person out or in again."""
    is_role = args.what == "role"
    role = args.role if is_role else None  # None: unchanged
    locked = None if is_role else args.what == "lock"
    # actor "": not a person of the service
    await people.change_person(
        args.tenant, actor="", subject=args.subject, role=role, locked=locked
    )
    write(f"{args.subject}: {role or args.what}\n")


async def _delete_person(
    people: "People", sessions: "PostgreSQLSessions", args: Namespace
) -> None:
    """Delete a person, with --sessions also the sessions. Raises `BadInput` without --yes."""
    own_sessions = (
        await people.sessions_begun_by(args.tenant, args.subject) if args.sessions else ()
    )
    if not args.yes:
        more = f", and {len(own_sessions)} sessions" if own_sessions else ""
        raise BadInput(_NOT_CONFIRMED_TEXT.format(what=f"{args.subject}{more}"))
    for session in own_sessions:
        await to_thread.run_sync(sessions.delete, session)
    await people.delete_person(args.tenant, args.subject)
    write(f"{args.subject} was deleted, and {len(own_sessions)} sessions\n")


TENANTS_COMMAND = SubcommandEntry(add_tenants_arguments, run_tenants)
PEOPLE_COMMAND = SubcommandEntry(add_people_arguments, run_people)
