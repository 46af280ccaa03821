"""Checks lesson 27: the program is an MCP server."""

import json

from refold.learn.model_server import Json, ModelReply
from refold.learn.workshop import Demo, NotYet, ProgramRun, Workshop, call, expect, quote


def _price(fruit: str) -> ModelReply:
    return call("mcp__shop__price", fruit=fruit)


LESSON_DEMO = Demo(
    (
        call("tool_search", query="price"),
        _price("kiwi"),
        _price("pear"),
        ModelReply("There are no kiwis. A pear costs 4 cents."),
    ),
    words=("What", "do", "a", "kiwi", "and", "a", "pear", "cost?"),
)
_CLIENT_REQUESTS: tuple[Json, ...] = (
    {"id": 7, "method": "tools/list"},
    {"method": "notifications/initialized"},
    {"id": "b", "method": "tools/call", "params": {"name": "price", "arguments": {"fruit": "apple"}}},
    {"id": 9, "method": "tools/call", "params": {"name": "price", "arguments": {"fruit": "kiwi"}}},
    {"id": 10, "method": "resources/list"},
)  # fmt: skip


def check(workshop: Workshop) -> None:
    """Check the server alone with lines of JSON, and then together with an agent."""
    typed = [json.dumps({"jsonrpc": "2.0", **request}) for request in _CLIENT_REQUESTS]
    responses = _read_responses(workshop.run(words=["serve"], typed=typed))
    ids = [response.get("id") for response in responses]
    expect(
        ids == [7, "b", 9, 10],
        f"The requests 7, 'b', 9 and 10 should be answered, but the ids were {ids}.",
        "serve prints a response for each request, and none for a notification, which has no id.",
        "Send back the same id: a number or a text.",
        'if "id" not in request:\n    continue\nresponse = {"jsonrpc": "2.0", "id": request["id"]}',
    )
    answers: list[Json] = [response.get("result") or {} for response in responses[1:]]
    price, missing, unknown = answers
    expect(
        _text(price) == "3 cents" and not price.get("isError"),
        f"The price of an apple should be the text '3 cents', but the result was {quote(json.dumps(price))}.",
        "`tools/call` has the arguments in params; call_price gets them.",
        "The result has a list, `content`, of parts with a type.",
        '{"content": [{"type": "text", "text": f"{PRICES[fruit]} cents"}]}',
    )
    expect(
        missing.get("isError") is True and "pear" in _text(missing),
        f"For a kiwi the model should read that the call failed, and which fruits there are. The result was {quote(json.dumps(missing))}.",
        "The request was right, so it gets a result and no error of the protocol.",
        "A result with isError is a call that failed; its text is for the model.",
        '{"content": [{"type": "text", "text": …}], "isError": True}',
    )
    expect(
        not unknown and responses[3].get("error", {}).get("code") == -32601,
        f"A method that the server does not have is an error with the code -32601. It was answered with {quote(json.dumps(responses[3]))}.",
        "A client asks for more than your server has, to learn what it can.",
        "An error stands where the result would be.",
        'return {"error": {"code": -32601, "message": f"there is no method {method}"}}',
    )
    replies = call("tool_search", query="price"), _price("pear"), ModelReply("4 cents.")
    run = workshop.run(*replies, words=["What", "does", "a", "pear", "cost?"])
    results = [str(message.get("content")) for message in run.messages(-1) if message.get("role") == "tool"]  # fmt: skip
    expect(
        len(results) == 2 and "4 cents" in results[1],
        f"The agent should get '4 cents' from your server, but the model read {quote(str(results))}.",
        "The agent starts your server by its name in mcp_servers.",
        "A tool of the server `shop` may run without a question if a rule names the server.",
        'settings={"permissions.allow": ["mcp__shop"]}',
    )


def _read_responses(run: ProgramRun) -> list[Json]:
    """Return each line of the output as JSON. Raises `NotYet` if one is not JSON."""
    try:
        return [json.loads(row) for row in run.output.splitlines()]
    except ValueError as error:
        raise NotYet(
            f"A line of the server is not JSON: {error}.",
            "What the server prints is for the client, so nothing else may be printed.",
            "Print to sys.stderr what is for you.",
            "print(json.dumps(response), flush=True)",
        ) from error


def _text(result: Json) -> str:
    return "".join(str(part.get("text")) for part in result.get("content", ()))
