"""Recognizes the tags, fences and brackets that models put around calls.

Each function matches at one position. Those named `may_be_…` return whether the text may end
within a delimiter, so that more text is needed to decide.
"""

import re

from msgspec import Struct

# <tool_call> is used by Hermes and Qwen, and refold asks for it; <function=…> by Llama and
# Qwen Coder; <|python_tag|> by Llama, [TOOL_CALLS] by Mistral, <|tool_call|> by Granite.
_CALL_TAGS = (
    "tool_call", "tool_calls", "function_call", "function_calls", "tool_use", "tool_code",
)  # fmt: skip
MISTRAL_OPENER = "[TOOL_CALLS]"
_CALL_OPENERS = (
    *(f"<{tag}>" for tag in _CALL_TAGS),
    "<|tool_call|>",
    "<|python_tag|>",
    "[TOOL_CALLS]",
)
CALL_CLOSERS = tuple(f"</{tag}>" for tag in (*_CALL_TAGS, "function", "tool"))
_ALL_CLOSERS = (
    *CALL_CLOSERS,
    *("<|/tool_call|>", "<|eom_id|>", "<|eot_id|>", "<|im_end|>", "[/TOOL_CALLS]", "</s>"),
)
_FUNCTION_OPENER = "<function="
_RESULT_OPENERS = ("<tool_result", "<tool_response")
THINK_OPENER, THINK_CLOSER = "<think>", "</think>"
_CALL_FENCES = frozenset({*_CALL_TAGS, "tool", "function"})
_JSON_FENCES = frozenset({"", "json", "json5", "jsonc", "xml", "plaintext", "text"})

_UNFINISHED_PATTERN = re.compile(r"[<\[][\w|=.\"'-]{0,80}\Z")
_OPENER_PATTERN = re.compile("|".join(map(re.escape, _CALL_OPENERS)))
_NAMED_FUNCTION_PATTERN = re.compile(r"<function=[\"']?([\w.-]{1,64})[\"']?>")
_NAMED_PART = re.compile(r"<function=[\"']?[\w.-]{0,64}[\"']?\Z")
_RESULT_PATTERN = re.compile("|".join(map(re.escape, _RESULT_OPENERS)))
_CLOSER_PATTERN = re.compile("|".join(map(re.escape, _ALL_CLOSERS)))
_FENCE_PATTERN = re.compile(r"(`{3,32}|~{3,32})[ \t]{0,4}([\w+#.-]{0,32})(?=[^\w+#.`~-])")
_FENCE_PART = re.compile(r"(?:`{1,32}|~{1,32})[ \t]{0,4}[\w+#.-]{0,32}\Z")
_BARE_NAME = re.compile(r"([\w.-]{1,64})(?:\[ARGS\])?(?=\{)")
_BARE_NAME_PART = re.compile(r"[\w.-]{1,64}(?:\[(?:A(?:R(?:G(?:S\]?)?)?)?)?)?\Z")
_FENCE_END = re.compile(r"(?<=\n) {0,3}(`{3,}|~{3,})[ \t]*(?=\n)")
_FENCE_END_PART = re.compile(r"(?<=\n) {0,3}(?:`*|~*)[ \t]*\Z")
_MAX_DELIMITER_CHARS = 32  # longer than any delimiter
LOOKBACK_CHARS = 2  # the text before a delimiter that its pattern examines


class Opening(Struct, frozen=True):
    """An opening tag or fence. `name` is the name of the tool in it, or "".

    `says_call` says that the opening alone marks a call.
    """

    text: str
    closer: str = ""  # "": unknown
    name: str = ""
    fence: bool = False
    says_call: bool = True  # false for a ```json fence
    json: bool = True  # whether a call can be inside


def tag_at(text: str, offset: int) -> Opening | None:
    """Return the tag at this offset, or None if there is none."""
    if match := _OPENER_PATTERN.match(text, offset):
        tag = match[0]
        # How models close these two forms is not known.
        has_unknown_closer = tag.startswith(("<|", "[TOOL_CALLS]"))
        return Opening(tag, closer="" if has_unknown_closer else f"</{tag[1:]}")
    if match := _NAMED_FUNCTION_PATTERN.match(text, offset):
        return Opening(match[0], "</function>", name=match[1])
    return None


def may_be_tag(text: str, offset: int) -> bool:
    """Whether the text from `offset` on may be a tag whose end has not arrived yet."""
    if not _UNFINISHED_PATTERN.match(text, offset):
        return False
    openers = (*_CALL_OPENERS, _FUNCTION_OPENER, *_RESULT_OPENERS, THINK_OPENER)
    if _is_start(text[offset : offset + _MAX_DELIMITER_CHARS], openers):
        return True
    return _NAMED_PART.match(text, offset) is not None


def fence_at(text: str, offset: int) -> Opening | None:
    """Return the fence with its language at this offset, or None if there is none."""
    if match := _FENCE_PATTERN.match(text, offset):
        fence, language = match[1], match[2].lower()
        says_call = language in _CALL_FENCES
        may_have_json = says_call or language in _JSON_FENCES
        has_json = may_have_json and fence.startswith("`")
        return Opening(match[0], fence, fence=True, says_call=says_call, json=has_json)
    return None


def may_be_fence(text: str, offset: int) -> bool:
    return bool(_FENCE_PART.match(text, offset))


def bare_name_at(text: str, offset: int) -> re.Match[str] | None:
    """Match a tool's name that its arguments follow (Mistral's format), or return None."""
    return _BARE_NAME.match(text, offset)


def may_be_bare_name(text: str, offset: int) -> bool:
    return bool(_BARE_NAME_PART.match(text, offset))


def is_result_at(text: str, offset: int) -> bool:
    return bool(_RESULT_PATTERN.match(text, offset))


def closer_at(text: str, offset: int) -> re.Match[str] | None:
    return _CLOSER_PATTERN.match(text, offset)


def may_be_closer(text: str, offset: int) -> bool:
    return _is_start(text[offset : offset + _MAX_DELIMITER_CHARS], _ALL_CLOSERS)


def fence_end(text: str, offset: int, closer: str) -> int:
    """Return the offset after the line that closes a fence, or -1 if there is none yet."""
    for match in _FENCE_END.finditer(text, offset):
        if match[1].startswith(closer):
            return match.end()
    return -1


def may_be_fence_end(text: str, offset: int) -> int:
    """Return the offset of an incomplete last line that may become the end of a fence.

    If there is none, return the length of the text.
    """
    part = _FENCE_END_PART.search(text, max(offset, text.rfind("\n") + 1))
    return part.start() if part else len(text)


def find_or_begin(text: str, offset: int, mark: str) -> int:
    """Return the offset of `mark`, or of its beginning at the end of the text.

    If there is neither, return the length of the text.
    """
    position = text.find(mark, offset)
    if position >= 0:
        return position
    first_possible = max(offset, len(text) - len(mark) + 1)
    for beginning in range(first_possible, len(text)):
        if mark.startswith(text[beginning:]):
            return beginning
    return len(text)


def _is_start(text: str, marks: tuple[str, ...]) -> bool:
    return any(mark.startswith(text) for mark in marks)
