"""A call that was made through another tool is sent back as the model made it.

The tool itself is in no list that the provider has seen, and data that came with the call
(a signature) belongs to the original call.
"""

import json
from collections.abc import Callable
from typing import Any

import pytest
from msgspec import Raw

from refold.provider.text_protocol.render import RequestRenderer
from refold.testing.wire_answers import WireName
from refold.tools.notebook_edit import notebook_edit
from refold.tools.tool_search import search_tools
from refold.values.messages import ToolCall, ToolResult
from tests.provider.strict_servers import rejection_reason
from tests.provider.wires import SIGNED, WIRES, message, request, request_body

TOOLS = tuple(tool.spec for tool in search_tools((notebook_edit,)))
ARGUMENTS = {"path": "n.ipynb", "cell": 1}
MADE = {"name": "notebook_edit", "arguments": ARGUMENTS}
CALL = ToolCall(
    "call-1",
    "notebook_edit",
    Raw(json.dumps(ARGUMENTS).encode()),
    "g-1",
    "gemini",
    Raw(SIGNED),
    via="tool_call",
)
TALK = (
    message("user", "Mend the notebook."),
    message("assistant", CALL),
    message("tool", ToolResult("call-1", "Changed.")),
)
WHERE: dict[WireName, Callable[[dict[str, Any]], tuple[str, Any]]] = {
    "anthropic": lambda body: read_call(body["messages"][1]["content"][0], "input"),
    "openai-responses": lambda body: read_call(body["input"][1], "arguments"),
    "openai-chat": lambda body: read_call(
        body["messages"][1]["tool_calls"][0]["function"], "arguments"
    ),
    "gemini": lambda body: read_call(
        body["contents"][1]["parts"][0]["functionCall"], "args"
    ),
    "ollama": lambda body: read_call(
        body["messages"][1]["tool_calls"][0]["function"], "arguments"
    ),
}


def read_call(call: dict[str, Any], arguments: str) -> tuple[str, Any]:
    result = call[arguments]
    return call["name"], json.loads(result) if isinstance(result, str) else result


@pytest.mark.parametrize("wire", WIRES)
def test_each_wire_sends_an_indirect_call_as_the_model_made_it(wire: WireName) -> None:
    body = request_body(wire, request(*TALK, tools=TOOLS))

    assert WHERE[wire](body) == ("tool_call", MADE)
    assert rejection_reason(wire, body) == ""


@pytest.mark.parametrize("wire", WIRES)
def test_direct_call_of_a_tool_that_is_not_listed_is_sent_validly(wire: WireName) -> None:
    """A model may call a tool directly that it has only read about."""
    direct = ToolCall("call-1", "notebook_edit", CALL.arguments)

    body = request_body(
        wire, request(TALK[0], message("assistant", direct), TALK[2], tools=TOOLS)
    )

    assert WHERE[wire](body) == ("notebook_edit", ARGUMENTS)
    assert rejection_reason(wire, body) == ""


def test_indirect_call_keeps_its_signature() -> None:
    body = request_body("gemini", request(*TALK, tools=TOOLS))

    assert body["contents"][1]["parts"][0]["thoughtSignature"] == "Y2FsbA=="


def test_results_carry_the_tool_name_that_the_model_called() -> None:
    model_request = request(*TALK, tools=TOOLS)

    response = request_body("gemini", model_request)["contents"][2]["parts"][0][
        "functionResponse"
    ]
    assert response["name"] == "tool_call"
    assert request_body("ollama", model_request)["messages"][2]["tool_name"] == "tool_call"


def test_text_protocol_sends_an_indirect_call_as_the_model_made_it() -> None:
    plain = RequestRenderer().plain(request(*TALK, tools=TOOLS))

    assert plain.messages[1].message.text == (
        '<tool_call>\n{"name": "tool_call", "arguments": '
        '{"name":"notebook_edit","arguments":{"path": "n.ipynb", "cell": 1}}}\n</tool_call>'
    )
