"""Writes and reads tool calls as text, for a program that does not know our tools."""

import json
import re

from refold.declared.parts.messages import Call, CallResult, Message, system_prompt
from refold.declared.parts.tools import TOOLS, schema

# An answer can be cut off before the end of its call.
CALL = re.compile(r"<tool_call>\s*(.*?)\s*(?:</tool_call>|\Z)", re.DOTALL)
NEXT = "If the task is done answer in words, without a call, else call the next tool."


def instructions() -> str:
    """Return the system prompt, with the tools and how to call them."""
    tools = "\n".join(signature(name) for name in TOOLS)
    return f"""{system_prompt()}

# Tools

{tools}

To use a tool, reply with a call and nothing else, like this, with the name of a tool \
and its arguments:
<tool_call>
{{"name": "read_file", "arguments": {{"path": "notes.txt"}}}}
</tool_call>
Its result comes in the next message. There are no other tools. When the task is done, \
answer in words, without a call."""


def signature(name: str) -> str:
    """Return one line about a tool, with its parameters and its purpose."""
    about = schema(name)
    parameter_text = ", ".join(
        f"{key}{'' if key in about['required'] else '?'}: {kind['type']}"
        for key, kind in about["properties"].items()
    )
    return f"- {name}({parameter_text}): {TOOLS[name].__doc__}"


def parse_calls(text: str) -> list[Call]:
    """Return the calls in a response. An invalid call has a `mistake` for the model."""
    calls: list[Call] = []
    for number, match in enumerate(CALL.findall(text)):
        try:
            fields = json.loads(match)
            call = Call(f"call-{number}", fields["name"], fields.get("arguments") or {})
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            mistake = f"This call is not valid JSON as shown above: {error!r}."
            call = Call(f"call-{number}", "", {}, mistake)
        calls.append(call)
    return calls


def speaker_for_program(message: Message) -> str:
    """Return the role of a message; "user" if the message has results."""
    return "user" if message.role == "tool" else message.role


def message_text_for_program(message: Message) -> str:
    """Return the text of a message with its calls, or its results as one text."""
    if message.role != "tool":
        return message.text
    return "\n\n".join([*map(result_text, message.results), NEXT])


def result_text(result: CallResult) -> str:
    """Return a result between tags, which the result itself cannot close."""
    text = result.text.replace("</tool_result", "<\\/tool_result").strip("\n")
    if result.call.name == "read_file":
        # Small models read "1", a tab and "42" as 142.
        text = re.sub(r"^(\d+)\t", r"\1: ", text, flags=re.MULTILINE)
    name = f' name="{result.call.name}"' if result.call.name else ""
    failed = "It failed:\n" if result.failed else ""
    return f"<tool_result{name}>\n{failed}{text}\n</tool_result>"
