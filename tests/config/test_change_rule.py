"""A permission rule of the user's own settings is added, replaced and removed; the rest stays."""

import os
from pathlib import Path

import pytest

from refold.config.paths import Paths, paths
from refold.config.set_setting import change_rule
from refold.errors import BadInput


@pytest.fixture
def places(tmp_path: Path) -> Paths:
    places = paths({**os.environ, "REFOLD_HOME": str(tmp_path)})
    places.settings.parent.mkdir(parents=True, exist_ok=True)
    return places


def test_a_rule_is_added_to_settings_without_rules(places: Paths) -> None:
    places.settings.write_text('model = "a/b"  # mine\n')

    change_rule(places, "deny", "", "bash(rm *)")

    assert places.settings.read_text() == (
        'model = "a/b"  # mine\n\n[permissions]\ndeny = ["bash(rm *)"]\n'
    )


def test_replacing_or_removing_a_rule_keeps_or_removes_its_examples(places: Paths) -> None:
    places.settings.write_text(
        '[permissions]\nallow = ["bash(a)", {rule = " bash(b *)", match = ["b 1"]}]  # these\n'
    )

    change_rule(places, "allow", "bash(b *)", "bash(b 1)")
    replaced = places.settings.read_text()
    with pytest.raises(BadInput, match="b 1"):  # an example contradicts it
        change_rule(places, "allow", "bash(b 1)", "bash(c)")
    change_rule(places, "allow", "bash(b 1)", "")

    assert replaced == (
        '[permissions]\nallow = ["bash(a)", {rule = "bash(b 1)", match = ["b 1"]}]  # these\n'
    )
    assert places.settings.read_text() == '[permissions]\nallow = ["bash(a)"]  # these\n'


def test_changing_a_rule_preserves_comments_among_the_rules(places: Paths) -> None:
    text = '[permissions]\nask = [\n  "bash(a)",  # why\n]\n'
    places.settings.write_text(text)

    with pytest.raises(BadInput, match="refold config edit"):
        change_rule(places, "ask", "", "bash(b)")

    assert places.settings.read_text() == text


def test_a_rule_with_a_number_sign_can_be_removed(places: Paths) -> None:
    change_rule(places, "deny", "", "read(./#draft#)")

    change_rule(places, "deny", "read(./#draft#)", "")

    assert "draft" not in places.settings.read_text()
