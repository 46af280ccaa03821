"""Documents for users are written in the words of the field.

Each phrase below stood in them once and was not understood: it is a word of our own, or
another language's, for something that has a name. Prose is checked, and the generated
tables of settings, and the help of every command; not code, output of programs, or tables
generated from other sources.
"""

import re
from pathlib import Path

import pytest

from refold.cli.command_tree import described, every

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    [ROOT / "README.md", ROOT / "SECURITY.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/*.md")]
)  # fmt: skip

# A pattern of what is not to be written, and what to write.
BANNED = {
    r"(the|a|its|this|whole|longer|shorter) talks?": "conversation",
    r"(tell|tells|told|made) (\w+ )*shorter": "compact",
    r"so (full|many|much|far) (is|are|that|before|of)": "a number with its unit",
    r"what fills (the|a) (model's )?window": "context usage",
    r"only looks?|looks? only|what looks|more than a look(ing)?": "read-only",
    r"unasked": "without asking",
    r"who works": "agent",
    r"child(ren)?": "subagent",
    r"go(es)? on with|going on|goes on in": "resume, continue",
    r"tak(e|es|en) up": "resume",
    r"tak(e|es|en) down": "checkpoint, snapshot, record",
    r"br(ing|ings|ought) (\w+ )?back|taken? back": "restore, undo",
    r"kept back|kept in": "sandboxed",
    r"beside the (talk|conversation|keys)": "in the background, outside of",
    r"some(body|one)( else)?|nobody": "the role: the user, another program, only you",
    r"heed(s|ed)?": "follow, apply",
    r"mend(s|ed)?": "fix, repair",
    r"and (its|their) (kin|like)": "similar, and the like",
    r"pens?": "lock",
    r"walls?|doors?|halls?|cellar|outfit": "sandbox, client, and so on",
    r"business": "who does it, as a verb",
    r"letters that (nobody|cannot)": "invisible characters",
    r"pictures?": "image",
    r"(?<!there\s)is no(?! longer| more| one)": "is not a",
    r"(do|does so|counts?|is|are) no more": "no longer",
    r"as they go over the wire|as it came": "as sent, unchanged",
    r"as it (stands|should be)": "valid, correct",
    r"(is|are) said (in|at|on|so)": "is reported",
}
FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
INDENTED = re.compile(r"^    .*$", re.MULTILINE)
GENERATED = re.compile(r"<!-- generated: (?!settings).*?<!-- end -->", re.DOTALL)


def prose(page: str) -> str:
    """A page without code and the targets of its links; all else is on its line."""
    for left_out in (FENCED, GENERATED, INDENTED):
        page = left_out.sub(lambda found: "\n" * found[0].count("\n"), page)
    return re.sub(r"`[^`\n]*`|\]\([^)]*\)|^ +", "", page, flags=re.MULTILINE)


def banned(page: str) -> list[str]:
    """Each banned phrase of a page, with its line and what to write instead."""
    text = prose(page)
    found = [
        (text.count("\n", 0, each.start()) + 1, each[0], instead)
        for pattern, instead in BANNED.items()
        for each in re.finditer(
            rf"\b(?:{pattern})(?!\w)".replace(" ", r"\s+"), text, re.IGNORECASE
        )
    ]
    return [f"line {n}: {phrase!r}: write {said!r}" for n, phrase, said in sorted(found)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_document_uses_no_word_that_readers_did_not_understand(page: Path) -> None:
    assert banned(page.read_text(encoding="utf-8")) == []


def test_a_banned_phrase_in_prose_is_found_and_one_in_code_is_not() -> None:
    page = "# Page\n\n```\nthe talk\n```\nIt runs unasked.\n`unasked`, and the\ntalk too.\n"

    assert banned(page) == [
        "line 6: 'unasked': write 'without asking'",
        "line 7: 'the\\ntalk': write 'conversation'",
    ]


def help_texts() -> dict[str, str]:
    """The help of every flag, argument and command, by the command line that shows it."""
    found = dict[str, str]()
    for command in every(described()):
        found[command.name] = command.about
        found |= {f"{command.name} {flag.names[-1]}": flag.about for flag in command.flags}
        found |= {
            f"{command.name} {word.value.called}": word.about for word in command.words
        }
    return found


def test_help_uses_no_word_that_readers_did_not_understand() -> None:
    texts = {name: text.replace("root/child-1", "") for name, text in help_texts().items()}
    wrong = {name: banned(text) for name, text in texts.items()}

    assert {name: found for name, found in wrong.items() if found} == {}
