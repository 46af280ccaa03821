"""Serves people over REST: one's identity and tokens; people for administrators; the
audit for auditors.
"""

from typing import Annotated

from fastapi import Query, Request, Response
from msgspec import Meta, Struct

from refold.client.people.data_export import encode_audit
from refold.cluster.people import ApiToken, Identity, People, Person, Role
from refold.server.api import Api, NotThere, json_response, read_body
from refold.server.guard import Rejected
from refold.server.people.access import TOKEN_PREFIX, identity_of

PEOPLE_PATHS = ("/api/me", "/api/tokens", "/api/people", "/api/audit")
MAX_TOKEN_DAYS = 366
_DAY_SECONDS = 24 * 3600.0
_MAX_LABEL_CHARS = 100
_ADMIN_ONLY = "only an administrator of your tenant may do this"
_AUDIT_ONLY = "only an auditor or an administrator of your tenant may read this"


class Me(Struct, frozen=True):
    tenant: str
    subject: str
    name: str
    role: Role


class WantedToken(Struct, frozen=True, forbid_unknown_fields=True):
    label: Annotated[str, Meta(min_length=1, max_length=_MAX_LABEL_CHARS)]
    days: Annotated[int, Meta(ge=1, le=MAX_TOKEN_DAYS)] = 90


class NewToken(Struct, frozen=True):
    """A new token of a program, which sends it as a bearer token.

    The token is shown only once.
    """

    token: str


class PersonChanges(Struct, frozen=True, forbid_unknown_fields=True):
    """The changes of a person.

    Fields that are left out stay unchanged. A person who is locked out is logged out, too.
    """

    role: Role | None = None
    locked: bool | None = None


# pyright: reportUnusedFunction=false
# FastAPI calls each function below as a route.
def add_people(api: Api, people: People) -> None:
    @api.route("GET", "/api/me", Me)
    async def me(request: Request) -> Response:
        """Return the person who is logged in."""
        who = identity_of(request.scope)
        return json_response(Me(who.tenant, who.subject, who.name, who.role))

    @api.route("GET", "/api/tokens", list[ApiToken])
    async def tokens(request: Request, everyone: bool = False) -> Response:
        """List one's own tokens; for an administrator with `everyone`, all tokens of the
        tenant.
        """
        who = identity_of(request.scope)
        if everyone:
            _require(who, ("admin",), _ADMIN_ONLY)
        subject = "" if everyone else who.subject  # "": all people of the tenant
        return json_response(await people.tokens(who.tenant, subject))

    @api.route("POST", "/api/tokens", NewToken, status=201, body=WantedToken)
    async def new_token(request: Request) -> Response:
        """Make a token for a program, which acts as the person who made it."""
        who = identity_of(request.scope)
        wanted = await read_body(request, WantedToken)
        seconds = wanted.days * _DAY_SECONDS
        secret = await people.new_secret(
            who.tenant, who.subject, kind="token", seconds=seconds, label=wanted.label
        )
        return json_response(NewToken(TOKEN_PREFIX + secret), 201)

    @api.route("DELETE", "/api/tokens/{token}", None, status=204)
    async def revoke(request: Request, token: str) -> Response:
        """Revoke a token of one's own; an administrator can revoke any token of the tenant."""
        who = identity_of(request.scope)
        owner = "" if who.role == "admin" else who.subject  # "": all people of the tenant
        is_revoked = await people.revoke(
            who.tenant, actor=who.subject, id_=token, owner=owner
        )
        if not is_revoked:
            raise NotThere(f"there is no token {token!r}")
        return Response(status_code=204)

    @api.route("GET", "/api/people", list[Person])
    async def list_people(request: Request) -> Response:
        """List the people of the tenant who have logged in."""
        who = identity_of(request.scope)
        _require(who, ("admin", "auditor"), _AUDIT_ONLY)
        return json_response(await people.people(who.tenant))

    @api.route("PATCH", "/api/people/{subject}", None, status=204, body=PersonChanges)
    async def change(request: Request, subject: str) -> Response:
        """Change a role, or lock a person out."""
        who = identity_of(request.scope)
        wanted = await read_body(request, PersonChanges)
        _require(who, ("admin",), _ADMIN_ONLY)
        await people.change_person(
            who.tenant,
            actor=who.subject,
            subject=subject,
            role=wanted.role,
            locked=wanted.locked,
        )
        return Response(status_code=204)

    @api.route("GET", "/api/audit", "application/jsonl")
    async def audit(
        request: Request,
        after: Annotated[int, Query(ge=0, le=2**62)] = 0,
        limit: Annotated[int, Query(ge=1, le=10_000)] = 1000,
    ) -> Response:
        """Return the actions of people after the line `after`, as JSON lines, oldest first."""
        who = identity_of(request.scope)
        _require(who, ("admin", "auditor"), _AUDIT_ONLY)
        entries = await people.audit(who.tenant, after, limit)
        return Response(encode_audit(entries), media_type="application/jsonl")


def _require(who: Identity, roles: tuple[Role, ...], reason: str) -> None:
    """Raise `Rejected` with this reason unless the person has one of the roles."""
    if who.role not in roles:
        raise Rejected(403, reason)
