"""Writes the prompts for the model that summarizes a conversation."""

from pathlib import Path

_SUMMARY_REQUEST = """The conversation so far:
<talk>
{talk}
</talk>

Write it down in at most {words} words.{focus}"""
_FOCUS_SENTENCE = " Above all, do not lose: {focus}"
_CHARS_PER_WORD = 7  # with the blank after it
_MIN_WORDS = 40  # that a summary may have, however small its maximum is


def summary_prompt() -> str:
    """Return the system prompt for summaries."""
    return Path(__file__).with_name("summary.md").read_text(encoding="utf-8").strip()


def summary_request(conversation: str, focus: str, max_chars: int) -> str:
    """Return the user message, which asks for a summary of about `max_chars` characters.

    `focus` says what the summary must preserve; "" for nothing in particular.
    """
    material = conversation.replace("</talk>", "<\\/talk>")
    wish = _FOCUS_SENTENCE.format(focus=focus) if focus.strip() else ""
    max_words = max(_MIN_WORDS, max_chars // _CHARS_PER_WORD)
    return _SUMMARY_REQUEST.format(talk=material, words=max_words, focus=wish)
