"""The HTML of a session: only our elements, attributes and addresses, whatever is in it."""

import re
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as some

from refold.journal.events.kinds import (
    Ended,
    Entry,
    Event,
    Said,
    Started,
    TurnEnded,
    TurnStarted,
)
from refold.journal.state.fold import fold
from refold.journal.state.session_tree import Node
from refold.values.display import Diff, Output, Shown
from refold.views.export.html import (
    CONTENT_POLICY,
    create_prose_renderer,
    page,
    style_sheet,
)
from refold.views.export.html_parts import create_highlighter
from tests.views.hostile_story import export_options, hostile_node
from tests.views.page_parser import Seen, parse_page
from tests.views.planted import answer, family, start_events

NASTY = [
    "<script>alert(1)</script>", "</style><script>alert(1)</script>", '" onload="alert(1)',
    "' autofocus onfocus='alert(1)", "</title></head><body onload=alert(1)>", "<img src=x onerror=a()>",
    "[x](javascript:alert(1))", "[x](JaVaScRiPt:alert(1))", "[x](&#106;avascript:alert(1))",
    "[x](data:text/html;base64,PHNjcmlwdD4=)", "![p](http://evil.example/p.png)", "![p](data:image/svg+xml,x)",
    "<http://e.example/\"onclick=x>", "<javascript:alert(1)>", "[x](//evil.example)", "[x](file:///etc/passwd)",
    "[x](vbscript:x)", "[x][r]\n\n[r]: javascript:alert(1) 'a\" onclick=b'", "[x](http://a.example \"t' onclick=1\")",
    "```html\" onload=\"x\n</code></pre><script>\n```", "~~~py</code>\n<b>\n~~~", "    <indented>",
    "&lt;script&gt;", "&#0;&#x3c;", "\x00", "\x1b[2J", "\u202egnp.exe", "\u2066", "<!--", "-->", "]]>",
    "<![CDATA[", "</details>", "</pre>", "<svg/onload=a()>", "<math><mi//xlink:href='x'>", "<a href=//x>",
    "<style>*{background:url(http://evil.example)}</style>", "<base href=//x>", "<meta http-equiv=refresh>",
    "<iframe srcdoc=x>", "| a | b |\n|:-:|--|\n| <b> | x |", "`` ` ``", "https://ok.example/?a=<b>&c=\"d\"",
    "[ok](https://ok.example)", "[m](mailto:a@b.example)", "# <h1>", "> <q>", "\ud800", "é" * 3, "x" * 300, "",
]  # fmt: skip
TEXTS = some.lists(some.sampled_from(NASTY) | some.text(max_size=12), max_size=5)


def check_page(text: str) -> Seen:
    html = "".join(page(hostile_node(text), export_options()))
    result = parse_page(html)

    assert (result.foreign, result.open) == ([], [])
    assert result.styles.strip() == style_sheet().strip()
    # A page needs no control characters and no marks that reverse the writing.
    assert (
        re.search(
            "[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", html
        )
        is None
    )
    return result


@pytest.mark.parametrize("text", NASTY)
def test_text_of_a_session_never_becomes_markup_or_a_link(text: str) -> None:
    check_page(text)


@pytest.mark.slow
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(TEXTS)
def test_joined_texts_of_a_session_never_become_markup_or_a_link(texts: list[str]) -> None:
    check_page("".join(texts))
    check_page("\n\n".join(texts))


@example(["\\", "next"], "\n")
@given(
    some.lists(some.sampled_from(NASTY) | some.text(max_size=12), max_size=8),
    some.sampled_from(["", "\n", "\n\n", " "]),
)
def test_a_response_rendered_as_markdown_never_becomes_foreign_markup(
    texts: list[str], between: str
) -> None:
    result = parse_page(
        f"<main>{create_prose_renderer(create_highlighter())(between.join(texts))}</main>"
    )

    assert (result.foreign, result.open) == ([], [])


def test_all_texts_of_a_session_are_readable_in_the_page(tmp_path: Any) -> None:
    words = check_page("Grüße, <b>Welt</b> & mehr").words

    assert words.count("Grüße, <b>Welt</b> & mehr") > 40


def test_the_content_security_policy_forbids_scripts_and_remote_sources() -> None:
    html = "".join(page(hostile_node("x"), export_options()))

    assert CONTENT_POLICY == "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    assert f'<meta http-equiv="Content-Security-Policy" content="{CONTENT_POLICY}">' in html
    assert html.index("Content-Security-Policy") < html.index("<style>")
    assert "url(" not in html
    assert "@import" not in html


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        (b"\x89PNG\r\n\x1a\n1", "data:image/png;base64,"),
        (b"\xff\xd8\xff1", "data:image/jpeg;base64,"),
        (b"GIF89a1", "data:image/gif;base64,"),
        (b"RIFF....WEBP", "data:image/webp;base64,"),
        (b"<svg onload=a()>", ": not an image]"),
        (b"<html>", ": not an image]"),
        (None, ": gone]"),
        (b"\x89PNG\r\n\x1a\n" + b"1" * 9_000_000, ": too large]"),
    ],
)
def test_only_image_data_becomes_an_image_element(
    content: bytes | None, shown: str
) -> None:
    html = "".join(page(hostile_node("x", 0), export_options(content)))

    assert shown in html
    assert parse_page(html).foreign == []


def test_every_text_colour_has_enough_contrast_to_its_background() -> None:
    """The contrast is at least 4.5 to 1, as WCAG requires, in light and dark."""
    pairs = [
        (ink, ground)
        for ink in ("ink", "dim", "accent", "person", "good", "bad", "warn")
        for ground in ("ground", "card", "soft")
    ]
    pairs += [(text, "soft") for text in "ksmnc"]
    pairs += [
        ("added-ink", "added"),
        ("gone-ink", "gone"),
        ("added-ink", "soft"),
        ("gone-ink", "soft"),
    ]
    for theme in re.findall(r":root \{(.*?)\}", style_sheet(), re.DOTALL)[:2]:
        colours = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", theme))
        weak = {p: round(_contrast(*(colours[c] for c in p)), 2) for p in pairs}

        assert {pair: c for pair, c in weak.items() if c < 4.5} == {}


def _contrast(one: str, other: str) -> float:
    light, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    lines = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * lines[0] + 0.7152 * lines[1] + 0.0722 * lines[2]


def test_ids_are_unique_and_every_internal_link_has_a_target() -> None:
    html = "".join(page(hostile_node("x"), export_options()))
    ids = re.findall(r' id="([^"]+)"', html)

    assert len(ids) == len(set(ids))
    assert set(re.findall(r'href="#([^"]+)"', html)) <= set(ids)
    assert set(re.findall(r'aria-labelledby="([^"]+)"', html)) <= set(ids)


@pytest.mark.parametrize(
    ("words", "html"),
    [
        ("a **b** ~~c~~", "<p>a <strong>b</strong> <s>c</s></p>\n"),
        ("# One", "<h4>One</h4>\n"),
        ("[x](http://a.b)", '<p><a href="http://a.b" rel="noreferrer noopener">x</a></p>\n'),
        ("![x](http://a.b)", '<p>!<a href="http://a.b" rel="noreferrer noopener">x</a></p>\n'),
        ("[x](ftp://a.b)", "<p>[x](ftp://a.b)</p>\n"),
        ("```py\nx = 1\n```", '<pre><code>x = <span class="k-m">1</span>\n</code></pre>\n'),
        ("```nobody\n<x>\n```", "<pre><code>&lt;x&gt;\n</code></pre>\n"),
    ],
)  # fmt: skip
def test_markdown_is_rendered_as_html(words: str, html: str) -> None:
    assert create_prose_renderer(create_highlighter())(words) == html


def test_subagents_are_nested_at_the_calls_that_started_them(tmp_path: Any) -> None:
    from refold.journal.store.tree_reader import tree

    node = tree(family(tmp_path / "s"), "s")

    html = "".join(page(node, export_options()))

    assert html.count('<details class="child">') == 3
    assert html.index("child-1: find it") < html.index("Deep.")
    assert "with its subagents" in html


@pytest.mark.parametrize(
    ("code", "stage_mark"),
    [
        (0, '<span class="stage good">done</span>'),
        (2, '<span class="stage bad">exit code 2</span>'),
        (None, '<span class="stage bad">ended early</span>'),
    ],
)
def test_a_failed_command_is_marked_in_its_folded_row(
    code: int | None, stage_mark: str
) -> None:
    html = page_after(Output("make", "so", code, "" if code is not None else "out of time"))

    assert re.findall(r'<span class="stage.*?</span>', html) == [stage_mark]


def test_html_shows_diffs_open_and_outputs_folded() -> None:
    assert '<details open="">' not in page_after(Output("make", "so", 0))
    assert '<details open="">' in page_after(Diff("a.py", "changed", "@@ -1 +1 @@\n-a\n+b"))


@pytest.mark.parametrize(("turns", "folded"), [(20, False), (21, True)])
def test_a_long_table_of_turns_is_folded(turns: int, *, folded: bool) -> None:
    more = [
        event
        for n in range(1, turns)
        for event in (
            Said(f"say {n}"),
            TurnStarted(1),
            answer("So."),
            TurnEnded("answered"),
        )
    ]

    html = page_of(answer("So."), TurnEnded("answered"), *more)

    assert html.count('<a href="#turn-') == turns
    assert (f'<summary><span class="label">{turns} turns' in html) == folded


def test_a_shell_command_of_the_user_is_shown_and_does_not_count_as_a_turn() -> None:
    first = (answer("So."), TurnEnded("answered"))
    ran = Said("$ make\nall built", "shell")
    more = (Said("and now?"), TurnStarted(9), answer("Done."), TurnEnded("answered"))

    waits = page_of(*first, ran)
    result = page_of(*first, ran, *more, *more)
    runs = page_of(*first, ran, Said("and now?"))

    pages = (waits, result, runs)
    assert [re.findall(r">(Turn \d+)<", html) for html in pages] == [
        ["Turn 1"], ["Turn 1", "Turn 2", "Turn 3"], ["Turn 1", "Turn 2"],
    ]  # fmt: skip
    assert all("all built" in parse_page(html).words for html in pages)
    titles = re.findall(r'<a href="#turn-\d">(.*?)</a>', result)
    assert titles == ["do it", "and now?", "and now?"]


def page_after(shown: Shown) -> str:
    """Return a page in which a call came to this."""
    call = answer("", ("c", "bash", '{"command": "make"}'))
    return page_of(call, Started("c"), Ended("c", "done", "so", (shown,)))


def page_of(*events: Event) -> str:
    all_events = [*start_events("do it"), *events]
    entries = [
        Entry(seq, event, 100.0 + seq) for seq, event in enumerate(all_events, start=1)
    ]
    return "".join(page(Node("root", "s", entries, fold(entries)), export_options()))
