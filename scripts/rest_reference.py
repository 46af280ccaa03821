"""Generates the reference of the server's REST interface from the OpenAPI of its routes."""

import json
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, cast

from fastapi import FastAPI

from refold.server import app as server
from refold.server.access import Access
from refold.server.api import Api

STREAM_LINK = "[document of the stream](../schema/stream.json)"
METHODS = ("get", "post", "put", "patch", "delete")
SCHEMA_PREFIX = "#/components/schemas/"
# Every refusal has the same body, which the page describes once.
REFUSAL_STATUS = 400


@cache
def openapi() -> Mapping[str, Any]:
    """Return the OpenAPI document of the routes that no option switches on.

    It needs no session and no socket.
    """
    app = FastAPI(title="refold", docs_url=None, redoc_url=None)
    api, host = Api(app), cast("Any", None)  # routes use the host only when they are called
    server.add_routes(api, host, cast("Access", None), tls=False, safe=False)
    return api.openapi()


def addresses() -> str:
    """Return each address with its parameters, its body and its response."""
    rows = [
        "\n\n".join(operation(f"{method.upper()} {path}", operations[method]))
        for path, operations in sorted(openapi()["paths"].items())
        for method in METHODS
        if method in operations
    ]
    return "\n\n".join(rows)


def operation(title: str, route: Mapping[str, Any]) -> Iterator[str]:
    yield f"### `{title}`"
    yield " ".join(route["description"].split())
    parameters = [
        f"| `{item['name']}` | {item['in']} | {kind(item['schema'])} | {default(item)} |"
        for item in route.get("parameters", ())
        if item["in"] != "path"
    ]
    if parameters:
        yield "\n".join(
            ["| parameter | in | type | default |", "|---|---|---|---|", *parameters]
        )
    if "requestBody" in route:
        yield f"Body: {content(route['requestBody'])}."
    for status, response in route["responses"].items():
        if int(status) < REFUSAL_STATUS:
            body = f": {content(response)}" if "content" in response else ", without a body"
            yield f"Response {status}{body}."


def default(parameter: Mapping[str, Any]) -> str:
    if parameter.get("required"):
        return "required"
    value = parameter["schema"].get("default")
    return "" if value in (None, "") else f"`{json.dumps(value)}`"


def content(message: Mapping[str, Any]) -> str:
    names = list[str]()
    for media, one in message["content"].items():
        names.append(kind(one["schema"]) if media == "application/json" else f"`{media}`")
    return " or ".join(names)


def kind(schema: Mapping[str, Any]) -> str:
    """Return a type for the reader, with a link if the page describes it."""
    if "$ref" in schema:
        name = schema["$ref"].removeprefix(SCHEMA_PREFIX)
        is_streamed = is_document(openapi()["components"]["schemas"][name])
        return STREAM_LINK if is_streamed else f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(kind(one) for one in schema["anyOf"]))
    if "enum" in schema:
        return ", ".join(
            f"`{value}`" if value != "" else '`""`' for value in schema["enum"]
        )
    if "const" in schema:
        return f"`{schema['const']}`"
    if "prefixItems" in schema:
        return f"list with {', '.join(kind(one) for one in schema['prefixItems'])}"
    if schema.get("type") == "array":
        return f"list of {kind(schema.get('items') or {})}"
    if schema.get("type") == "object" and schema.get("additionalProperties") not in (
        None,
        True,
        False,
    ):
        return f"object of {kind(schema['additionalProperties'])}"
    return str(schema.get("type", "any")).replace("null", "`null`")


def types() -> str:
    """Return the types of bodies and responses, with their fields."""
    return "\n\n".join(
        "\n\n".join(structure(name, schema))
        for name, schema in sorted(openapi()["components"]["schemas"].items())
        if not is_document(schema)
    )


def is_document(schema: Mapping[str, Any]) -> bool:
    """Return whether it is a document of the stream, which docs/schema/stream.json describes."""
    return "enum" in schema.get("properties", {}).get("type", {})


def structure(name: str, schema: Mapping[str, Any]) -> Iterator[str]:
    yield f"### {name}"
    if about := schema.get("description"):
        yield " ".join(about.split())
    needed = schema.get("required", ())
    rows = [
        f"| `{field}` | {kind(one)} | {'required' if field in needed else default({'schema': one})} |"
        for field, one in schema.get("properties", {}).items()
    ]
    if rows:
        yield "\n".join(["| field | type | default |", "|---|---|---|", *rows])
    elif "anyOf" in schema or "enum" in schema:
        yield f"One of: {kind(schema)}."
