"""Chooses between a flat and a recursive call for a question about some material. Pure.

It calls no model, so it costs nothing, but it recognizes only English words. A question that it
does not recognize counts as a lookup. The flags `--flat` and `--rlm` override it.
"""

import re
from typing import Literal, TypeAlias

from msgspec import Struct

Way: TypeAlias = Literal["flat", "recursive"]

WINDOW_PARTS = 3  # a flat call gets at most a third of the window
# Material up to this size can be read at once, whatever the question is.
_PAGE_TOKENS, _PAGE_FILES = 2_000, 10
_MAX_WORDS_CHARS = 60  # of the words of a question that a reason quotes

# Questions about all of the material. A model that reads it would guess, but code counts.
_OVER_ALL_PATTERN = re.compile(
    r"""
    \b how \s+ (?:many|often|frequently) \b
  | \b (?:count|tally|enumerate|rank|sort|deduplicate|aggregate|cross-?reference) \b
  | \b (?:number|percentage|percent|proportion|share|fraction|frequency|distribution
        |breakdown|histogram) \s+ of \b
  | \b (?:totals?|sum \s+ of|sums|average|mean \s+ (?:of|value)|median|maximum|minimum) \b
  | \b (?:most|least) \s+ (?:common|frequent|often|popular|active|used|mentioned|cited) \b
  | \b the \s+ (?:most|least) \s* (?:[?.,;!]|$)
  | \b the \s+ (?:long|short|larg|small|bigg|high|low|old|new|fast|slow|cheap|heavi)est \b
  | \b (?:ever|extract) \b | \b which \s+ (?:ones? \s+)? of \s+ (?:the|these|those|my) \b
  | \b (?:all|every|each|any) \s+ (?:of \s+)? (?:the \s+)? \w+
  | \b (?:both|pairs?|pairwise|duplicates?|duplicated|overlap|overlaps|in \s+ common
        |in \s+ more \s+ than \s+ one|appears? \s+ (?:twice|in \s+ both)|never|nowhere
        |not \s+ (?:mentioned|used) \s+ anywhere|missing \s+ from) \b
  | \b per \s+ (?!cent\b) \w+ | \b group(?:ed)? \s+ by \b
  | \b (?:top|first|last|largest|biggest|smallest|longest|highest|lowest)
        \s+ (?:\d+|two|three|four|five|ten) \b
  | \b (?:compare|contradict|conflict|join|match) \b .* \b (?:across|between|with) \b
    """,
    re.IGNORECASE | re.VERBOSE,
)
# Questions that only resemble questions about all of the material: they ask to read and
# summarize, or for a property of one thing, or for a number that the text itself states.
_LOOKUP_PATTERN = re.compile(
    r"""
    \b how \s+ (?:many|much) \s+ [\w\s-]{1,40}? \s+ (?:does|do|did|has|had|can) \s+
        (?:the|a|an|this|that|its?|he|she|they|we|you) \b
  | ^ \W* (?:explain|describe|translate|summari[sz]e|why) \b
  | ^ \W* how \s+ (?:does|do|did|is|are|can|could|should|would|was|were) \b
  | ^ \W* what \s+ (?:does|do|did) \b .* \b (?:say|know|think|mean|believe|claim|want) \b
  | \b (?:list|name|give|what \s+ are|which \s+ are) \s+ (?:me \s+)? (?:the \s+)?
        (?:two|three|four|five|\d) \s+ \w+
    """,
    re.IGNORECASE | re.VERBOSE,
)


class Size(Struct, frozen=True):
    """The tokens and files of the material, and the model's context window in tokens."""

    tokens: int
    files: int
    window: int


class Route(Struct, frozen=True):
    """The chosen way of calling, with the reason in lower case, for the user."""

    way: Way
    reason: str


def route(question: str, size: Size) -> Route:
    """Return the cheapest way that can answer the question about material of this size."""
    size_text = f"about {size.tokens:,} tokens"
    if size.tokens * WINDOW_PARTS > size.window:
        return Route(
            "recursive",
            f"{size_text} are more than a third of the window of {size.window:,}",
        )
    if size.tokens <= _PAGE_TOKENS and size.files <= _PAGE_FILES:
        return Route("flat", f"{size_text} are read at a glance")
    words = whole_material_words(question)
    if words:
        return Route(
            "recursive",
            f"{words!r} asks for something over all of the material ({size_text}), which code "
            "finds exactly and a reader guesses",
        )
    return Route("flat", f"{size_text} fit, and the question asks for one thing")


def whole_material_words(question: str) -> str:
    """Return the words of a question that ask about all of the material, such as "how many".

    Return "" if there are none, or if the question asks for one place.
    """
    if _LOOKUP_PATTERN.search(question):
        return ""
    match = _OVER_ALL_PATTERN.search(question)
    if match is None:
        return ""
    return " ".join(match[0].split())[:_MAX_WORDS_CHARS]
