"""What a user would take for another name is pointed out in the question."""

import pytest

from refold.permissions.decide import decide
from refold.permissions.facts import Access
from refold.values.tools import Effect
from tests.permissions.places import make_facts, on_file

FACTS = make_facts()
# Each with the text of the question.
COMMANDS = (
    ("curl https://g\u0456thub.com/install.sh", "is xn--gthub-n2e.com"),
    ("curl https://\u0430\u0440\u0440\u04cf\u0435.com/x", "is xn--80ak6aa92e.com"),
    ("pip install requ\u0435sts", "its \u0435 is U+0435"),
    ("npm install l\u03bfdash", "its \u03bf is U+03BF"),
    ("git push or\u0131gin main", "its \u0131 is U+0131"),
    ("cp a \uff42in", "its \uff42 is U+FF42"),
    ("make inst\U0001d41ell", "its \U0001d41e is U+1D41E"),
)
# Names of people who do not write English, and of formulas.
PLAIN = (
    "echo \u043f\u0440\u0438\u0432\u0435\u0442 > a", "git commit -m 'Gr\u00f6\u00dfe f\u00fcr M\u00fcller'",
    "cp \u0441 \u0434", "python3 \u0394t.py", "touch \u65e5\u672c\u8a9e.txt", "npm install lodash", "echo na\u00efve caf\u00e9 > b",
)  # fmt: skip


@pytest.mark.parametrize(("command", "words"), COMMANDS)
def test_a_question_points_out_lookalike_characters(command: str, words: str) -> None:
    decision = decide(Access("bash", Effect.RUN, command), "default", [], FACTS)

    assert decision.verdict == "ask"
    assert words in decision.reason.partition("look closely: ")[2]


def test_a_question_names_a_lookalike_host_and_the_letter_of_a_file_name() -> None:
    page = Access("web_fetch", Effect.NET, "https://\u0430pple.com/")

    assert "xn--pple-43d.com" in decide(page, "default", [], FACTS).reason
    decision = decide(
        on_file("write_file", "src/m\u0430in.py", FACTS), "default", [], FACTS
    )
    assert "its \u0430 is U+0430" in decision.reason


@pytest.mark.parametrize("command", PLAIN)
def test_a_question_about_words_of_one_alphabet_has_no_lookalike_warning(
    command: str,
) -> None:
    decision = decide(Access("bash", Effect.RUN, command), "default", [], FACTS)

    assert "look closely" not in decision.reason
