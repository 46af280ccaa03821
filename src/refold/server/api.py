"""Adds REST routes to a FastAPI application, and describes them in its OpenAPI document.

FastAPI finds the route of a request, and checks paths and queries. msgspec decodes and
encodes bodies, and makes their schemas from the same types. The body of every error
response is a `Problem`. The routes themselves are in `app`, `rest`, `files` and other
modules.
"""

import errno
from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from http import HTTPStatus
from typing import Any, ParamSpec, TypeVar, cast

import msgspec
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from msgspec import Struct
from starlette.convertors import StringConvertor, register_url_convertor
from starlette.exceptions import HTTPException

from refold.errors import SYSTEM_ERROR_ADVICE, BadInput, RefoldError, reason_of
from refold.server.guard import Rejected
from refold.values.json_check import find_repeated_key

T = TypeVar("T")
P = ParamSpec("P")
Route = TypeVar("Route", bound=Callable[..., Awaitable[Response]])
_SCHEMA_REFERENCE = "#/components/schemas/{name}"
_JSON_TYPE = "application/json"
_REFUSAL_STATUSES = (400, 401, 403, 404, 405, 409, 412, 413, 415, 421, 422, 428, 429, 503)
_STATUS_OF_ERROR = {
    "NotThere": 404, "Protected": 403, "Held": 409, "BadInput": 400, "NoModel": 400,
    "FileExists": 428, "OtherContent": 412,
}  # fmt: skip
# Errors of the system that pass by themselves, or that its owner can fix.
_SHORTAGES = {errno.EMFILE, errno.ENOSPC, errno.EDQUOT}


class Problem(Struct, frozen=True):
    """The body of an error response: the kind of error, and the reason in one sentence."""

    kind: str
    reason: str


class MediaTypes(Struct, frozen=True):
    """The media types of a response whose body is bytes."""

    names: tuple[str, ...]


class NotThere(BadInput):
    """Raised if the resource that a path names does not exist."""


class _SessionId(StringConvertor):
    """Recognizes the id of a session or of a subagent in a path.

    The id of a subagent is ID/child-1; the slash may be written as %2F.
    """

    regex = r"[^/]+(?:/child-[0-9]+)*"


class Api:
    """Adds routes to an application, and describes them in its OpenAPI document.

    In a path, `{id_:session}` stands for the id of a conversation or of a subagent.
    """

    def __init__(self, app: FastAPI) -> None:
        register_url_convertor("session", _SessionId())
        self._app = app
        self._kinds: list[Any] = [Problem]
        for kind in (RefoldError, OSError, Rejected, HTTPException, RequestValidationError):
            app.add_exception_handler(kind, to_error_response)
        # FastAPI calls `app.openapi` for the document. Our method replaces it, and calls it.
        self._openapi_of_fastapi = app.openapi
        vars(app)["openapi"] = self.openapi

    def route(
        self, method: str, path: str, kind: Any, *, status: int = 200, body: Any = None
    ) -> Callable[[Route], Route]:
        """Return a decorator that adds a route. `status` is the status of a success.

        `kind` is the type of the response's body: a type, a union, `MediaTypes`, or None
        for no body. `body` is the type or the media type of the request's body.
        """

        def add(endpoint: Route) -> Route:
            extra: dict[str, Any] = {}
            if body is not None:
                extra["requestBody"] = {"required": True, "content": self._content(body)}
            responses: dict[int | str, dict[str, Any]] = {
                code: {
                    "description": HTTPStatus(code).phrase,
                    "content": self._content(Problem),
                }
                for code in _REFUSAL_STATUSES
            }
            responses[status] = {"description": HTTPStatus(status).phrase}
            if kind is not None:
                responses[status]["content"] = self._content(kind)
            self._app.add_api_route(
                path, endpoint, methods=[method], status_code=status, openapi_extra=extra,
                response_class=Response, responses=responses,
            )  # fmt: skip
            return endpoint

        return add

    def openapi(self) -> dict[str, Any]:
        """Return the OpenAPI document of all routes."""
        if self._app.openapi_schema is None:
            document = self._openapi_of_fastapi()
            _, schemas = msgspec.json.schema_components(
                self._kinds, schema_hook=_any_schema, ref_template=_SCHEMA_REFERENCE
            )
            parts = document.setdefault("components", {})
            parts["schemas"] = schemas
            parts["securitySchemes"] = {"bearer": {"type": "http", "scheme": "bearer"}}
            document["security"] = [{"bearer": []}]
            self._app.openapi_schema = document
        return self._app.openapi_schema

    def _content(self, kind: Any) -> dict[str, Any]:
        """Return the `content` of a body in OpenAPI.

        `kind` is a type, a tuple of types, a media type, or `MediaTypes`.
        """
        if isinstance(kind, str | MediaTypes):
            media = (kind,) if isinstance(kind, str) else kind.names
            schema = {"schema": {"type": "string", "format": "binary"}}
            return dict.fromkeys(media, schema)
        if isinstance(kind, tuple):
            parts = [
                self._content(member)[_JSON_TYPE]["schema"]
                for member in cast("tuple[Any]", kind)
            ]
            return {_JSON_TYPE: {"schema": {"anyOf": parts}}}
        if kind not in self._kinds:
            self._kinds.append(kind)
        return {_JSON_TYPE: {"schema": _schema(kind)}}


@cache  # each route has the schema of a problem fourteen times
def _schema(kind: Any) -> dict[str, Any]:
    """Return the JSON Schema of a type."""
    (result,), _ = msgspec.json.schema_components(
        (kind,), schema_hook=_any_schema, ref_template=_SCHEMA_REFERENCE
    )
    return result


def json_response(
    value: object, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    return Response(msgspec.json.encode(value), status, headers, media_type=_JSON_TYPE)


async def read_body(request: Request, kind: type[T]) -> T:
    """Decode the body of a request. Raises `BadInput` if it is not of the type `kind`."""
    data = await request.body()
    try:
        value = msgspec.json.decode(data, type=kind)
    except (ValueError, RecursionError) as error:
        raise BadInput(
            f"the body is not what is expected here: {reason_of(error)}"
        ) from error
    if (key := find_repeated_key(data)) is not None:
        raise BadInput(f"the body is not what is expected here: {key[:60]!r} stands twice")
    return value


def find_or_404(find: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return the result of `find`, which looks for the resource that a path names.

    Raises `NotThere` if `find` raises `BadInput`.
    """
    try:
        return find(*args, **kwargs)
    except BadInput as error:
        raise NotThere(str(error)) from error


async def to_error_response(request: Request, error: Exception) -> Response:
    """Return the response to an exception. FastAPI calls it as an exception handler."""
    return error_response(error)


def error_response(error: Exception) -> Response:
    """Return the response to an error of refold or FastAPI, with a `Problem` as its body.

    Any other exception is raised again.
    """
    name, reason, headers = type(error).__name__, str(error), None
    match error:
        case Rejected():
            status, reason = error.status, error.reason
        case RefoldError():
            status = _STATUS_OF_ERROR.get(name, 503)
        case OSError(errno=number) if number in _SHORTAGES:
            status, reason = 503, f"{error.strerror}; {SYSTEM_ERROR_ADVICE[number]}"
        case HTTPException():
            status, reason, headers = error.status_code, str(error.detail), error.headers
        case RequestValidationError():
            first = error.errors()[0]
            field = ".".join(map(str, first["loc"]))
            status, reason = 422, f"{field}: {first['msg']}"
        case _:
            raise error
    response = json_response(Problem(name, reason), status)
    response.headers.update(headers or {})
    return response


def _any_schema(kind: type) -> dict[str, Any]:
    """Return the schema of `object`, which msgspec does not know: any JSON.

    Raises `NotImplementedError` for another type.
    """
    if kind is object:
        return {"description": "any JSON"}
    raise NotImplementedError(kind)
