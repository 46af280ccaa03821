"""The routes of login and logout; a login leads to the identity provider and back.

A cookie holds the state of a login attempt, so any web node can finish a login that another
one began. After the login, the provider sends the browser to a small page, which opens
refold. A redirect would not work: a browser does not send our SameSite=Strict cookie if
another site began the navigation.
"""

import base64
from html import escape
from importlib.resources import files

import msgspec
from fastapi import FastAPI, Request, Response

from refold.client.people.oidc import LoginAttempt, OidcClient
from refold.errors import RefoldError
from refold.server.page_files import PAGE_FILES, PageFiles
from refold.server.people.access import (
    CALLBACK_PATH,
    LOGIN_PATH,
    LOGIN_SECONDS,
    PeopleAccess,
    identity_of,
)

SCRIPT_PATH = "/auth/people.js"
LOGOUT_PATH = "/auth/logout"
PUBLIC_PATHS = (LOGIN_PATH, CALLBACK_PATH, SCRIPT_PATH)
_ATTEMPT_COOKIE = "refold-attempt"
_ATTEMPT_SECONDS = 600
_HTML_TYPE = "text/html; charset=utf-8"
_DONE_HTML = '<p id="done" role="status">Opening…</p>'
_FAILURE_HTML = '<p id="said" role="alert">You are not logged in: {reason}.</p>'


def add_login(app: FastAPI, access: PeopleAccess, client: OidcClient) -> None:
    """Add the routes of login and logout, and the pages that need a login."""
    login = _LoginRoutes(access, client)
    for path in PAGE_FILES:
        app.add_api_route(path, login.page, include_in_schema=False)
    app.add_api_route(LOGIN_PATH, login.begin, include_in_schema=False)
    app.add_api_route(CALLBACK_PATH, login.finish, include_in_schema=False)
    app.add_api_route(SCRIPT_PATH, login.script, include_in_schema=False)
    app.add_api_route(LOGOUT_PATH, login.leave, methods=["POST"], include_in_schema=False)
    login.page_files.add_routes(app)


class _LoginRoutes:
    """The routes of a login, and of the pages that need a login.

    `page` returns a page of refold. A browser without a login gets the login page instead.
    """

    def __init__(self, access: PeopleAccess, client: OidcClient) -> None:
        self._access, self._client = access, client
        self.page_files = PageFiles(people=True)
        package_files = files("refold.server.people")
        self._welcome = (package_files / "login.html").read_text()
        self._script = (package_files / "people.js").read_bytes()

    async def page(self, request: Request) -> Response:
        cookie = request.cookies.get(self._access.cookie_name, "")
        if await self._access.identify_page(cookie) is None:
            return self._respond(text="", status=401)
        return self.page_files.page(request.url.path)

    async def begin(self) -> Response:
        try:
            address, attempt = await self._client.begin()
        except RefoldError as error:
            return self._fail(error, 503)
        response = Response(status_code=303, headers={"location": address})
        value = base64.urlsafe_b64encode(msgspec.json.encode(attempt)).decode()
        response.set_cookie(
            _ATTEMPT_COOKIE, value, max_age=_ATTEMPT_SECONDS, httponly=True,
            samesite="lax", secure=self._access.is_secure, path="/auth",
        )  # fmt: skip
        return response

    async def finish(self, request: Request) -> Response:
        people = self._access.people
        try:
            attempt = _read_attempt(request.cookies.get(_ATTEMPT_COOKIE, ""))
            person = await self._client.finish(attempt, request.query_params)
            await people.log_in(person.tenant, person.subject, person.name, person.email)
            secret = await people.new_secret(
                person.tenant, person.subject, kind="page", seconds=LOGIN_SECONDS
            )
        except RefoldError as error:
            return self._fail(error, 403)
        response = self._respond(_DONE_HTML, 200)
        response.delete_cookie(_ATTEMPT_COOKIE, path="/auth")
        response.set_cookie(
            self._access.cookie_name, secret, max_age=int(LOGIN_SECONDS), httponly=True,
            samesite="strict", secure=self._access.is_secure, path="/",
        )  # fmt: skip
        return response

    async def leave(self, request: Request) -> Response:
        who = identity_of(request.scope)
        await self._access.people.revoke(
            who.tenant, actor=who.subject, id_=who.login, owner=who.subject
        )
        response = Response(status_code=204)
        response.delete_cookie(
            self._access.cookie_name, path="/", secure=self._access.is_secure,
            httponly=True, samesite="strict",
        )  # fmt: skip
        return response

    async def script(self) -> Response:
        return Response(self._script, media_type="text/javascript; charset=utf-8")

    def _fail(self, error: RefoldError, status: int) -> Response:
        return self._respond(_FAILURE_HTML.format(reason=escape(str(error))), status)

    def _respond(self, text: str, status: int) -> Response:
        """Return the login page with `text`, as HTML, on it."""
        return Response(
            self._welcome.replace("{said}", text), status, media_type=_HTML_TYPE
        )


def _read_attempt(cookie: str) -> LoginAttempt:
    """Return the login attempt in a cookie; for an invalid cookie, an attempt that cannot
    succeed.
    """
    try:
        data = base64.urlsafe_b64decode(cookie)
        return msgspec.json.decode(data, type=LoginAttempt)
    except ValueError:
        return LoginAttempt("", "", "")
