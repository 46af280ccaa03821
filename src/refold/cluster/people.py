"""People in the database: their tenants, logins and tokens, and the audit.

Only the hash of a secret is stored. A secret contains the name of its tenant. So it can be
looked up, although row-level security shows only the rows of one tenant. `client.people`
logs people in, and `server.people` checks their requests.
"""

import base64
import hashlib
import secrets
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Any, Literal, TypeAlias, TypeVar

from msgspec import Struct

from refold.cluster.database import Connection, Database
from refold.errors import BadInput

ResultT = TypeVar("ResultT")
Role: TypeAlias = Literal["member", "admin", "auditor"]
LoginKind: TypeAlias = Literal["page", "token"]
MAX_TENANT_CHARS = 100
_ID_BYTES, _SECRET_BYTES = 9, 32
_IDENTITY_SQL = """
select p.subject, p.name, p.role, l.id as login from refold.login l
join refold.person p on p.tenant = l.tenant and p.subject = l.subject
where l.tenant = refold.tenant() and l.id = $1 and l.hash = $2 and l.kind = $3
  and l.expires > now() and not p.locked
"""
_LOG_IN_SQL = """
insert into refold.person(subject, name, email, last_login) values($1, $2, $3, now())
on conflict (tenant, subject) do update set name = $2, email = $3, last_login = now()
returning locked
"""
_PEOPLE_SQL = """
select subject, name, email, role, locked, created, last_login from refold.person
where tenant = refold.tenant() order by subject
"""
_TENANTS_SQL = """
select (select count(*) from refold.person where tenant = refold.tenant()) as people,
  (select count(*) from refold.journal where tenant = refold.tenant()
    and session = root and lines > 0) as sessions,
  max_running from refold.tenant_settings where tenant = refold.tenant()
"""
_TENANT_TABLES = (
    "secret", "login", "person", "placed_order", "card", "words", "line", "blob", "journal", "audit",
    "schedule_event", "tenant_settings",
)  # fmt: skip


class Identity(Struct, frozen=True):
    """A person who is logged in. `login` is the id of the login or token that was sent."""

    tenant: str
    subject: str
    role: Role
    name: str = ""
    login: str = ""

    @property
    def may_act(self) -> bool:
        """Return whether the person may give orders; an auditor may only read."""
        return self.role != "auditor"


class Person(Struct, frozen=True):
    subject: str
    name: str
    email: str
    role: Role
    locked: bool
    created: datetime
    last_login: datetime | None


class ApiToken(Struct, frozen=True):
    """A token for programs, without its secret."""

    id: str
    subject: str
    label: str
    created: datetime
    expires: datetime


class AuditEntry(Struct, frozen=True):
    """A line of the audit: who did what.

    `actor` is the subject of a person, or "" for an operator, who used a command.
    """

    number: int
    happened: datetime
    actor: str
    action: str
    session: str
    detail: str


class TenantSize(Struct, frozen=True):
    people: int
    sessions: int
    max_running: int | None


class People:
    """The people of all tenants. Each call names the tenant whose rows it sees."""

    def __init__(self, database: Database) -> None:
        self.database = database

    async def add_tenant(self, tenant: str) -> None:
        """Add a tenant, unless it exists. Raises `BadInput` if the name is invalid."""
        if not tenant.strip() or len(tenant) > MAX_TENANT_CHARS or not tenant.isprintable():
            raise BadInput(
                f"{tenant[:MAX_TENANT_CHARS]!r} cannot be a tenant: give at most "
                f"{MAX_TENANT_CHARS} printable characters"
            )
        query = "insert into refold.tenant_settings default values on conflict do nothing"
        await self._execute(tenant, query)

    async def tenant_size(self, tenant: str) -> TenantSize:
        """Return the size of a tenant. Raises `BadInput` if there is no such tenant."""
        row: Any = await self._as_tenant(tenant, lambda db: db.fetchrow(_TENANTS_SQL))
        if row is None:
            raise unknown_tenant(tenant)
        return TenantSize(row["people"], row["sessions"], row["max_running"])

    async def tenants(self) -> Sequence[str]:
        """Return the names of all tenants.

        If the database login is not the owner of the tables, return only the current
        tenant.
        """
        query = "select tenant from refold.tenant_settings order by tenant"
        rows: Any = await self._as_tenant("", lambda db: db.fetch(query))
        return [row["tenant"] for row in rows]

    async def limit_tenant(self, tenant: str, max_running: int | None) -> None:
        """Set how many sessions of the tenant may run at once; None removes the limit."""
        query = "update refold.tenant_settings set max_running = $1 where tenant = refold.tenant()"
        await self.tenant_size(tenant)
        await self._execute(tenant, query, max_running)
        await self.note(tenant, actor="", action="limit", detail=str(max_running or "none"))

    async def delete_tenant(self, tenant: str) -> None:
        """Delete all rows of the tenant."""

        async def delete(db: Connection) -> None:
            for table in _TENANT_TABLES:
                await db.execute(
                    f"delete from refold.{table} where tenant = refold.tenant()"
                )

        await self._as_tenant(tenant, delete)

    async def log_in(self, tenant: str, subject: str, name: str, email: str) -> None:
        """Record that the identity provider has identified this person.

        Raises `BadInput` if the person is locked out, or if there is no such tenant.
        """
        query = "select true from refold.tenant_settings where tenant = refold.tenant()"
        tenant_exists = await self._value(tenant, query)
        if not tenant_exists:
            raise BadInput(f"this service is not for {tenant!r}: ask its operator")
        locked = await self._value(tenant, _LOG_IN_SQL, subject, name, email)
        if locked:
            await self.note(tenant, subject, "refused", detail="locked")
            raise BadInput("your account was locked here: ask an administrator")
        await self.note(tenant, subject, "login")

    async def new_secret(
        self, tenant: str, subject: str, kind: LoginKind, seconds: float, label: str = ""
    ) -> str:
        """Store a login of a page or a token of a program (`kind`), and return its secret.

        The secret is valid for `seconds`. Only the hash of the secret is stored.
        """
        id_, secret = secrets.token_hex(_ID_BYTES), secrets.token_urlsafe(_SECRET_BYTES)
        query = (
            "insert into refold.login(id, hash, subject, kind, label, expires) "
            "values($1, $2, $3, $4, $5, now() + make_interval(secs => $6))"
        )
        values = id_, _hash(secret), subject, kind, label, float(seconds)
        delete_expired = (
            "delete from refold.login where tenant = refold.tenant() and expires < now()"
        )
        await self._execute(tenant, delete_expired)
        await self._execute(tenant, query, *values)
        if kind == "token":
            await self.note(tenant, subject, "token", detail=f"{id_} {label}")
        return f"{_encode_tenant(tenant)}.{id_}.{secret}"

    async def identify(self, secret: str, kind: LoginKind) -> Identity | None:
        """Return the person whose secret this is; None if it is invalid, expired or
        revoked.
        """
        parts = secret.split(".")
        if len(parts) != 3:
            return None
        encoded_tenant, id_, random_part = parts
        tenant = _decode_tenant(encoded_tenant)
        if tenant is None:
            return None
        values = id_, _hash(random_part), kind
        row = await self._as_tenant(tenant, lambda db: db.fetchrow(_IDENTITY_SQL, *values))
        if row is None:
            return None
        return Identity(tenant, row["subject"], row["role"], row["name"], row["login"])

    async def revoke(self, tenant: str, actor: str, id_: str, owner: str = "") -> bool:
        """End the login or token with the id `id_`; with `owner`, only if it belongs to
        this person.

        Return False if there is no such login or token.
        """
        query = (
            "delete from refold.login where tenant = refold.tenant() and id = $1 "
            "and ($2 = '' or subject = $2) returning subject"
        )
        subject = await self._value(tenant, query, id_, owner)
        if subject is not None:
            await self.note(tenant, actor, "revoke", detail=f"{id_} of {subject}")
        return subject is not None

    async def tokens(self, tenant: str, subject: str = "") -> Sequence[ApiToken]:
        """Return the tokens of the person `subject`; of all people if `subject` is ""."""
        query = (
            "select id, subject, label, created, expires from refold.login where kind = 'token' "
            "and tenant = refold.tenant() and ($1 = '' or subject = $1) order by created, id"
        )
        rows: Any = await self._as_tenant(tenant, lambda db: db.fetch(query, subject))
        return [ApiToken(*row.values()) for row in rows]

    async def people(self, tenant: str) -> Sequence[Person]:
        rows: Any = await self._as_tenant(tenant, lambda db: db.fetch(_PEOPLE_SQL))
        return [Person(*row.values()) for row in rows]

    async def change_person(
        self,
        tenant: str,
        actor: str,
        subject: str,
        *,
        role: Role | None = None,
        locked: bool | None = None,
    ) -> None:
        """Change the role of a person, or lock the person out.

        A lock ends all logins and tokens of the person.
        """
        query = (
            "update refold.person set role = coalesce($2, role), locked = coalesce($3, locked) "
            "where tenant = refold.tenant() and subject = $1 returning true"
        )
        if await self._value(tenant, query, subject, role, locked) is None:
            raise unknown_person(tenant, subject)
        if locked:
            delete = (
                "delete from refold.login where tenant = refold.tenant() and subject = $1"
            )
            await self._execute(tenant, delete, subject)
        detail = [subject]
        if role:
            detail.append(role)
        if locked is not None:
            detail.append("locked" if locked else "unlocked")
        await self.note(tenant, actor, "person", detail=" ".join(detail))

    async def delete_person(self, tenant: str, subject: str) -> None:
        """Delete the name, address, logins and tokens of a person.

        Records of what the person did stay, with the subject.
        """
        query = (
            "delete from refold.person where tenant = refold.tenant() and subject = $1 "
            "returning true"
        )
        if await self._value(tenant, query, subject) is None:
            raise unknown_person(tenant, subject)
        await self.note(tenant, actor="", action="delete person", detail=subject)

    async def sessions_begun_by(self, tenant: str, subject: str) -> Sequence[str]:
        """Return the sessions that this person began and that still exist."""
        query = (
            "select distinct a.session from refold.audit a join refold.journal j "
            "on j.tenant = a.tenant and j.session = a.session and j.lines > 0 "
            "where a.tenant = refold.tenant() and a.actor = $1 and a.action = 'begin' order by 1"
        )
        rows = await self._as_tenant(tenant, lambda db: db.fetch(query, subject))
        return [row["session"] for row in rows]

    async def note(
        self, tenant: str, actor: str, action: str, session: str = "", detail: str = ""
    ) -> None:
        """Add a line to the audit."""
        query = "insert into refold.audit(actor, action, session, detail) values($1, $2, $3, $4)"
        await self._execute(tenant, query, actor, action, session, detail)

    async def audit(
        self, tenant: str, after: int = 0, limit: int = 1000, actor: str | None = None
    ) -> Sequence[AuditEntry]:
        """Return the lines of the audit whose number is above `after`, oldest first.

        `actor` chooses the lines of one person, or of all operators if it is "". If `actor`
        is None, all lines are returned.
        """
        query = (
            "select number, happened, actor, action, session, detail from refold.audit "
            "where tenant = refold.tenant() and number > $1 and ($3::text is null or actor = $3) "
            "order by number limit $2"
        )
        rows: Any = await self._as_tenant(
            tenant, lambda db: db.fetch(query, after, limit, actor)
        )
        return [AuditEntry(*row.values()) for row in rows]

    async def _value(self, tenant: str, query: str, *values: object) -> Any:
        return await self._as_tenant(tenant, lambda db: db.fetchval(query, *values))

    async def _execute(self, tenant: str, query: str, *values: object) -> None:
        await self._as_tenant(tenant, lambda db: db.execute(query, *values))

    async def _as_tenant(
        self, tenant: str, work: Callable[[Connection], Awaitable[ResultT]]
    ) -> ResultT:
        """Return the result of `work`, in a transaction that sees only rows of the tenant."""

        async def run(db: Connection) -> ResultT:
            async with db.transaction():
                await db.fetchval("select set_config('refold.tenant', $1, true)", tenant)
                return await work(db)

        return await self.database.run(run)


def unknown_tenant(tenant: str) -> BadInput:
    return BadInput(f"there is no tenant {tenant!r} here: `refold tenants add` adds one")


def unknown_person(tenant: str, subject: str) -> BadInput:
    return BadInput(
        f"{tenant} has no person {subject!r}: `refold people list` shows those who have logged in"
    )


def _hash(secret: str) -> bytes:
    """Return the hash of a secret. A secret is 256 random bits, so the hash needs no salt."""
    return hashlib.sha256(secret.encode(errors="replace")).digest()


def _encode_tenant(tenant: str) -> str:
    return base64.urlsafe_b64encode(tenant.encode()).decode().rstrip("=")


def _decode_tenant(text: str) -> str | None:
    """Return the tenant whose encoded name this is; None if the text is not an encoded name."""
    padding = "=" * (-len(text) % 4)
    try:
        tenant = base64.urlsafe_b64decode(text + padding).decode()
    except (ValueError, UnicodeDecodeError):
        return None
    # The decoder also accepts other texts for the same tenant.
    is_exact = _encode_tenant(tenant) == text
    return tenant if is_exact and "\0" not in tenant else None
