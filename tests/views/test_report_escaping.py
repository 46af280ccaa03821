"""Whatever settings and findings contain, none of it controls the terminal."""

import re

from hypothesis import given
from hypothesis import strategies as st

from refold.views.check_findings import Finding, finding_lines, summary
from refold.views.settings_list import LayerValue, Setting
from refold.views.settings_list import setting_lines as setting_lines

hostile = st.text() | st.sampled_from(["\x1b[2J", "a\nb", "\u202eab", "\r", "|`", "\x9b1m"])


def is_harmless(text: str) -> bool:
    return not re.search(
        "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]", text
    )


@given(hostile, hostile, hostile)
def test_a_setting_is_shown_in_one_line_with_control_sequences_escaped(
    key: str, value: str, field: str
) -> None:
    setting = Setting(
        "limits.steps", value, (LayerValue(value, "default"), LayerValue(value, field))
    )

    rows = list(setting_lines([setting], whole=True))

    assert len(rows) == 2
    assert all(is_harmless(text) and "\n" not in text for text in rows)


@given(hostile, hostile)
def test_a_finding_is_one_line_and_its_advice_another(finding_text: str, do: str) -> None:
    texts = list(finding_lines([Finding("disk", "wrong", finding_text, do)]))

    assert len(texts) == (2 if do else 1)
    assert all(is_harmless(text) and "\n" not in text for text in texts)


def test_a_finding_is_wrapped_between_words_at_the_screen_width() -> None:
    finding = Finding("model", "wrong", "no model is configured: set a key", "refold tour")

    assert list(finding_lines([finding], 48)) == [
        "WRONG    model       no model is configured: set",
        "                     a key",
        "                     refold tour",
    ]


def test_findings_are_summarized_in_one_sentence() -> None:
    ok, warning, wrong = (Finding("x", s, "") for s in ("ok", "warning", "wrong"))  # pyright: ignore[reportArgumentType]

    assert [
        summary(findings) for findings in ([ok], [ok, warning], [wrong, wrong, warning])
    ] == [
        "No problems found.",
        "1 warning.",
        "2 things are wrong, 1 warning.",
    ]
