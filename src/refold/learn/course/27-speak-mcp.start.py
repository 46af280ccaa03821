"""A tool server for any agent, and an agent that uses it."""

import json
import sys

PRICES = {"apple": 3, "pear": 4}
TOOL = {
    "name": "price",
    "description": "The price of a fruit, in cents.",
    "inputSchema": {
        "type": "object",
        "properties": {"fruit": {"type": "string"}},
        "required": ["fruit"],
    },
}


def serve():
    """Answer one request after the other: a line of JSON each."""
    for line in sys.stdin:
        request = json.loads(line)
        response = {"jsonrpc": "2.0", "id": request.get("id")}
        response |= answer(request["method"], request.get("params", {}))
        print(json.dumps(response), flush=True)


def answer(method, params):
    if method == "initialize":
        return {
            "result": {
                "protocolVersion": params["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "shop", "version": "1"},
            }
        }
    if method == "tools/list":
        return {"result": {"tools": [TOOL]}}
    return {"result": {}}


def ask(question):
    from refold import Agent  # here, as the server needs nothing of it

    agent = Agent(
        model="lesson/scripted",
        mcp_servers={"shop": {"command": sys.executable, "args": [__file__, "serve"]}},
        settings={"permissions.allow": ["mcp__shop"]},
    )
    print(agent.run(question).text)


if sys.argv[1] == "serve":
    serve()
else:
    ask(" ".join(sys.argv[1:]))
