"""What models put around calls: tags, fences, brackets.

Each is matched at a position. The functions named `may_be_…` say whether the text ends
within a delimiter, so that more text is needed to decide.
"""

import re

from msgspec import Struct

# <tool_call> is Hermes' and Qwen's and what we ask for; <function=…> Llama's and
# Qwen Coder's; <|python_tag|> Llama's, [TOOL_CALLS] Mistral's, <|tool_call|> Granite's.
_TAGS = (
    "tool_call", "tool_calls", "function_call", "function_calls", "tool_use", "tool_code",
)  # fmt: skip
MISTRAL = "[TOOL_CALLS]"
_OPENERS = (
    *(f"<{tag}>" for tag in _TAGS),
    "<|tool_call|>",
    "<|python_tag|>",
    "[TOOL_CALLS]",
)
CALL_CLOSERS = tuple(f"</{tag}>" for tag in (*_TAGS, "function", "tool"))
_CLOSERS = (
    *CALL_CLOSERS,
    *("<|/tool_call|>", "<|eom_id|>", "<|eot_id|>", "<|im_end|>", "[/TOOL_CALLS]", "</s>"),
)
_FUNCTION = "<function="
_RESULTS = ("<tool_result", "<tool_response")
THINKS, THOUGHT = "<think>", "</think>"
_CALL_FENCES = frozenset({*_TAGS, "tool", "function"})
_JSON_FENCES = frozenset({"", "json", "json5", "jsonc", "xml", "plaintext", "text"})

_UNFINISHED = re.compile(r"[<\[][\w|=.\"'-]{0,80}\Z")
_OPENER = re.compile("|".join(map(re.escape, _OPENERS)))
_NAMED = re.compile(r"<function=[\"']?([\w.-]{1,64})[\"']?>")
_NAMED_PART = re.compile(r"<function=[\"']?[\w.-]{0,64}[\"']?\Z")
_RESULT = re.compile("|".join(map(re.escape, _RESULTS)))
_CLOSER = re.compile("|".join(map(re.escape, _CLOSERS)))
_FENCE = re.compile(r"(`{3,32}|~{3,32})[ \t]{0,4}([\w+#.-]{0,32})(?=[^\w+#.`~-])")
_FENCE_PART = re.compile(r"(?:`{1,32}|~{1,32})[ \t]{0,4}[\w+#.-]{0,32}\Z")
_BARE_NAME = re.compile(r"([\w.-]{1,64})(?:\[ARGS\])?(?=\{)")
_BARE_NAME_PART = re.compile(r"[\w.-]{1,64}(?:\[(?:A(?:R(?:G(?:S\]?)?)?)?)?)?\Z")
_FENCE_END = re.compile(r"(?<=\n) {0,3}(`{3,}|~{3,})[ \t]*(?=\n)")
_FENCE_END_PART = re.compile(r"(?<=\n) {0,3}(?:`*|~*)[ \t]*\Z")
_LONGEST = 32  # characters; longer than any delimiter
LOOKBACK = 2  # characters before a delimiter that its pattern looks at


class Opening(Struct, frozen=True):
    """An opening delimiter and how it is closed. `name`: of the tool, if it has one."""

    text: str
    closer: str = ""  # "": unknown
    name: str = ""
    fence: bool = False
    says_call: bool = True  # false for a ```json fence
    json: bool = True  # whether a call can be inside


def tag_at(text: str, at: int) -> Opening | None:
    """The tag at this position, if there is one."""
    if found := _OPENER.match(text, at):
        tag = found[0]
        return Opening(tag, f"</{tag[1:]}" if tag[1] not in "|T" else "")
    if found := _NAMED.match(text, at):
        return Opening(found[0], "</function>", name=found[1])
    return None


def may_be_tag(text: str, at: int) -> bool:
    if not _UNFINISHED.match(text, at):
        return False
    starts = (*_OPENERS, _FUNCTION, *_RESULTS, THINKS)
    return _is_start(text[at : at + _LONGEST], starts) or bool(_NAMED_PART.match(text, at))


def fence_at(text: str, at: int) -> Opening | None:
    """The fence with its language at this position."""
    if found := _FENCE.match(text, at):
        language = found[2].lower()
        says_call = language in _CALL_FENCES
        holds = (says_call or language in _JSON_FENCES) and text[at] == "`"
        return Opening(found[0], found[1], fence=True, says_call=says_call, json=holds)
    return None


def may_be_fence(text: str, at: int) -> bool:
    return bool(_FENCE_PART.match(text, at))


def bare_name_at(text: str, at: int) -> re.Match[str] | None:
    """Mistral: a name directly followed by its arguments."""
    return _BARE_NAME.match(text, at)


def may_be_bare_name(text: str, at: int) -> bool:
    return bool(_BARE_NAME_PART.match(text, at))


def result_at(text: str, at: int) -> bool:
    return bool(_RESULT.match(text, at))


def closer_at(text: str, at: int) -> re.Match[str] | None:
    return _CLOSER.match(text, at)


def may_be_closer(text: str, at: int) -> bool:
    return _is_start(text[at : at + _LONGEST], _CLOSERS)


def fence_end(text: str, at: int, closer: str) -> int:
    """The end of the line that closes a fence; -1 if there is none yet."""
    for found in _FENCE_END.finditer(text, at):
        if found[1].startswith(closer):
            return found.end()
    return -1


def may_be_fence_end(text: str, at: int) -> int:
    """The start of an unfinished last line that may close a fence, else the end."""
    part = _FENCE_END_PART.search(text, max(at, text.rfind("\n") + 1))
    return part.start() if part else len(text)


def find_or_begin(text: str, at: int, mark: str) -> int:
    """The position of `mark` from `at` on, or of its possible start at the very end."""
    where = text.find(mark, at)
    if where >= 0:
        return where
    for where in range(max(at, len(text) - len(mark) + 1), len(text)):
        if mark.startswith(text[where:]):
            return where
    return len(text)


def _is_start(text: str, of: tuple[str, ...]) -> bool:
    return any(mark.startswith(text) for mark in of)
