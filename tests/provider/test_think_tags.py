"""Thinking between tags at the beginning of a text, wherever the pieces are cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.provider.port import CallDelta, Delta, Done, TextDelta, ThinkingDelta
from refold.provider.think_tags import ThinkTags

TEXTS = [
    ("<think>\nplan\n</think>\n\nYes.", "\nplan\n", "Yes."),
    ("  <thinking>plan</thinking>Yes.", "plan", "Yes."),
    ("<mm:think>plan</mm:think>Yes.", "plan", "Yes."),
    ("[THINK]plan[/THINK]Yes <think>no</think>", "plan", "Yes <think>no</think>"),
    ("<think>one</think><think>two</think>Yes.", "onetwo", "Yes."),
    ("</think>\n\nYes.", "", "Yes."),
    ("Use <think>draft</think> here.", "", "Use <think>draft</think> here."),
    ("<thin ice>", "", "<thin ice>"),
    ("< 3", "", "< 3"),
    ("Yes.", "", "Yes."),
    ("<think></think>Yes.", "", "Yes."),
]


def split(*deltas: Delta) -> tuple[str, str]:
    tags = ThinkTags()
    pieces = [piece for delta in deltas for piece in tags.split([delta])]
    thoughts = "".join(d.text for d in pieces if isinstance(d, ThinkingDelta))
    return thoughts, "".join(d.text for d in pieces if isinstance(d, TextDelta))


@pytest.mark.parametrize(("text", "thought", "message"), TEXTS)
@given(data=st.data())
def test_think_tags_are_found_wherever_the_text_is_cut(
    text: str, thought: str, message: str, data: st.DataObject
) -> None:
    cuts = sorted(data.draw(st.sets(st.integers(1, max(1, len(text) - 1)))))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]

    assert split(*map(TextDelta, pieces), Done()) == (thought, message)


def test_think_tag_that_is_never_closed_gives_its_text_as_the_answer() -> None:
    assert split(TextDelta("<think>It is 4."), Done()) == ("It is 4.", "It is 4.")


def test_think_tag_that_the_output_limit_cuts_off_is_thinking_only() -> None:
    assert split(TextDelta("<think>It is"), Done(stop="length")) == ("It is", "")


def test_think_tag_is_ended_by_a_call() -> None:
    call = CallDelta(0, "{}", "1", "look")

    assert split(TextDelta("<think>I look"), call, Done(stop="calls")) == ("I look", "")
