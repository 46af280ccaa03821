"""What users read is written in the words of the field: documents, help and messages.

Each phrase below was used once and not understood: it is a word of our own, or of another
language, for something that has a name. Checked are prose, the generated tables of
settings, the help of every command, the manual page, and the text of errors, findings and
notices wherever the source makes one; not code, output of programs, or tables generated
from other sources.
"""

import ast
import re
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

import pytest

from refold import errors
from refold.cli.command_tree import command_tree, with_subcommands
from tests.source_tree import nodes

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    [ROOT / "README.md", ROOT / "SECURITY.md", ROOT / "CONTRIBUTING.md",
     ROOT / "AGENTS.md", ROOT / "ARCHITECTURE.md", *ROOT.glob("docs/*.md"),
     *ROOT.glob("docs/decisions/*.md")]
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
    for command in with_subcommands(command_tree()):
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


def test_the_manual_page_uses_no_word_that_readers_did_not_understand() -> None:
    page = (ROOT / "docs/refold.1").read_text(encoding="utf-8").replace("\\-", "-")

    assert banned(re.sub(r"--[a-z-]+|child-1", "", page)) == []


# What is called with a sentence for the user: every error of ours, and these.
SAYS = {"complain", "notice", "say", "Finding", "Note"} | {
    name for name, each in vars(errors).items() if isinstance(each, type)
}


def sentences(call: ast.Call) -> Iterator[tuple[int, str]]:
    """The texts of a call, with their lines; what is filled in stands as "…"."""
    left: list[ast.AST] = [*call.args, *call.keywords]
    while left:
        match left.pop():
            case ast.Constant(value=str(text)) as found:
                yield found.lineno, text
            case ast.JoinedStr(values) as found:
                pieces = (v.value if isinstance(v, ast.Constant) else "…" for v in values)
                yield found.lineno, "".join(map(str, pieces))
                left += [v for v in values if isinstance(v, ast.FormattedValue)]
            case other:
                left += ast.iter_child_nodes(other)


def messages(tree: Iterable[ast.AST]) -> Iterator[tuple[int, str]]:
    """Each sentence for the user that a module holds, with its line."""
    for node in tree:
        match node:
            case ast.Call(ast.Name(name) | ast.Attribute(attr=name)) if name in SAYS:
                yield from sentences(node)
            case _:
                pass


def test_messages_use_no_word_that_readers_did_not_understand() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {text!r}: {found}"
        for path in sorted((ROOT / "src/refold").rglob("*.py"))
        if "shipped" not in path.parts  # scripts of skills, with words of their own
        for line, text in messages(nodes(path))
        if (found := banned(re.sub(r"child-(\d|N)", "", text)))
    ]

    assert wrong == []


NO_SENTENCES = {
    "permissions/shell/git_read_only.py",  # options of git
    "journal/catalogue/database.py",  # SQL
    "provider/images.py",  # what servers say
}


def longer_texts(tree: Collection[ast.AST]) -> Iterator[tuple[int, str]]:
    """Each text of four words or more that is not a docstring, with its line."""
    left_out = {id(node.value) for node in tree if isinstance(node, ast.Expr)}
    for node in tree:
        match node:
            case ast.Constant(value=str(text)) if id(node) not in left_out:
                if len(text.split()) > 3:
                    yield node.lineno, text
            case _:
                pass


def test_other_texts_use_no_word_that_readers_did_not_understand() -> None:
    """Rows of tables, templates, and what is told to a model."""
    wrong = [
        f"{name}:{line}: {text!r}: {found}"
        for path in sorted((ROOT / "src/refold").rglob("*.py"))
        if "shipped" not in path.parts
        if (name := str(path.relative_to(ROOT / "src/refold"))) not in NO_SENTENCES
        for line, text in longer_texts(nodes(path))
        if (found := banned(re.sub(r"child-(\d|N)|<child[^>]*>", "", text)))
    ]

    assert wrong == []


def test_a_banned_phrase_in_another_text_is_found_and_one_in_a_docstring_is_not() -> None:
    source = '"""The talk of these people."""\nROWS = {"a": ("it is", "all of the talk")}\n'

    assert [text for _, text in longer_texts([*ast.walk(ast.parse(source))])] == [
        "all of the talk"
    ]


def test_a_banned_phrase_in_a_message_is_found() -> None:
    source = 'raise errors.BadInput(f"{x} " f"is {y or \'nobody\'}: mend it" + "the talk")'

    found = [banned(text) for _, text in messages(ast.walk(ast.parse(source)))]

    assert {phrase.split("'")[1] for each in found for phrase in each} == {
        "nobody", "mend", "the talk",
    }  # fmt: skip


# Words that once stood for something else in the source, and what to write in docstrings.
IN_DOCSTRINGS = {
    r"business": "who does it, as a verb",
    r"(the|a) talks?": "conversation",
    r"(tell|tells|told|made) (\w+ )*shorter": "compact",
    r"pens?|purses?|ledgers?": "lock, grant, journal writer",
    r"some(body|one)|(no|any)body": "the role: the user, another process, the reader",
    r"unasked": "without asking",
    r"mend(s|ed)?|heed(s|ed)?": "repair, follow",
    r"who works": "the agent",
}


def docstrings(tree: Iterable[ast.AST]) -> Iterator[tuple[int, str]]:
    """Each docstring of a module, with the line where it begins."""
    for node in tree:
        if isinstance(
            node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
        ):
            match node.body[:1]:
                case [ast.Expr(ast.Constant(value=str(text)))]:
                    yield node.body[0].lineno, text
                case _:
                    pass


def riddles(tree: Iterable[ast.AST]) -> list[str]:
    """Each word of `IN_DOCSTRINGS` in a docstring, with its line; not in code marks."""
    return [
        f"{line}: {found[0]!r}: write {instead!r}"
        for line, text in docstrings(tree)
        for pattern, instead in IN_DOCSTRINGS.items()
        for found in re.finditer(
            rf"\b(?:{pattern})\b".replace(" ", r"\s+"),
            re.sub(r"`[^`\n]*`", "", text),
            re.IGNORECASE,
        )
    ]


def test_docstrings_use_no_word_that_readers_did_not_understand() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{found}"
        for path in sorted((ROOT / "src/refold").rglob("*.py"))
        if "shipped" not in path.parts
        for found in riddles(nodes(path))
    ]

    assert wrong == []


def test_a_riddle_in_a_docstring_is_found_and_one_in_code_marks_is_not() -> None:
    source = 'class A:\n    """That is nobody\'s business; `pen` is\n    a talk."""\n'

    assert {found.split("'")[1] for found in riddles(ast.walk(ast.parse(source)))} == {
        "nobody", "business", "a talk",
    }  # fmt: skip
