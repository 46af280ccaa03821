"""All prose is written in the words of the field: one list of phrases, for every kind of text.

Each phrase below was used once and not understood: it is a word of our own, or of another
language, for something that has a name. Read are the documents, the generated tables of
settings, the help of every command, the manual page, the texts that the source shows to
users and models, and the docstrings and comments of all Python files. Not read are code,
output of programs, tables generated from other sources, and the strings of tests.
"""

import ast
import inspect
import io
import re
import tokenize
from collections.abc import Collection, Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

from refold import errors
from refold.cli.command_tree import command_tree, walk_commands
from tests.documents import DOCS
from tests.source_tree import nodes

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    [ROOT / "README.md", ROOT / "SECURITY.md", ROOT / "CONTRIBUTING.md",
     ROOT / "AGENTS.md", ROOT / "ARCHITECTURE.md", ROOT / "CHANGELOG.md",
     *ROOT.glob("docs/*.md"), *ROOT.glob("docs/[a-z]*/*.md"),
     *ROOT.glob("changelog.d/*.md"),
     *ROOT.glob("src/refold/learn/course/*.md")]
)  # fmt: skip
FOLDERS = ("src/refold", "tests", "bench", "scripts", "examples")

# A pattern of banned text, and the replacement.
BANNED = {
    r"(the|a|its|this|whole|longer|shorter) talks?": "conversation",
    r"(tell|tells|told|made) (\w+ )*shorter": "compact",
    r"so (full|many|much|far) (is|are|that|before|of)|so many": "a number with its unit",
    r"what fills (the|a) (model's )?window": "context usage",
    r"only looks?|looks? only|what looks(?! like)|more than a look(ing)?": "read-only",
    r"unasked": "without asking",
    r"who works": "agent",
    r"go(es)? on|went on|gone on|going on": "continue, resume, happen",
    r"tak(e|es|en) up": "resume",
    r"tak(e|es|en) down": "checkpoint, snapshot, record",
    r"br(ing|ings|ought) (\w+ )?back|taken? back": "restore, undo, erase",
    r"kept back|kept in": "sandboxed, stored in",
    r"beside the (talk|conversation|keys)": "in the background, outside of",
    r"(some|no|any)(body|one)( else)?": "the role: the user, another program, only you",
    r"whoever": "the role: the caller, the process that",
    r"heed(s|ed)?": "follow, apply",
    r"mend(s|ed)?": "fix, repair",
    r"and (its|their) (kin|like)": "similar, and the like",
    r"pens?|purses?|ledgers?": "lock, grant, journal writer",
    r"walls?|doors?|halls?|cellar|outfit": "sandbox, client, and so on",
    r"business": "who does it, as a verb",
    r"letters that (nobody|cannot)": "invisible characters",
    r"pictures?": "image",
    r"(?<!there\s)is no(?! longer| more| one)": "is not a",
    r"(do|does so|counts?|is|are) no more": "no longer",
    r"as they go over the wire|as it came": "as sent, unchanged",
    r"as it (stands|should be)": "valid, correct, current",
    r"(is|are|was|were|be|been) said|what was said": "reported, sent, named; messages",
    r"told": "informed, passed, reported; reads, receives",
    r"hears?|heard|unheard": "receives, is notified, listens",
    r"makes? no sense": "is invalid",
    r"(is|are|was|were|be|been) whole": "is intact, is complete",
    r"anew": "again",
    r"(is|are|was|were) to be": "must be, should be, will be",
    r"such as (is|are|was|were|can|cannot|has|have)": "one that",
    r"as far as is": "if known",
    r"(process|program|server|worker)(s|es)? (that )?(has |have |had )?ended": "exited",
    r"(is|are|was|were|be|been) ended": "is stopped, is killed",
    r"c[ao]mes? of (it|them|this|that|what)": "the result",
}
# Texts for users call a subagent by this word only; the source says `child`.
BANNED_FOR_USERS = BANNED | {r"child(ren)?": "subagent"}
FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
INDENTED = re.compile(r"^    .*$", re.MULTILINE)
PASSAGE_WORDS = 14
GENERATED = re.compile(r"<!-- generated: (?!settings).*?<!-- end -->", re.DOTALL)


def prose(page: str) -> str:
    """Return a page without code and the targets of its links; all else is on its line."""
    for left_out in (FENCED, GENERATED, INDENTED):
        page = left_out.sub(lambda match: "\n" * match[0].count("\n"), page)
    return page


@cache
def as_expression(pattern: str) -> re.Pattern[str]:
    return re.compile(rf"\b(?:{pattern})(?!\w)".replace(" ", r"\s+"), re.IGNORECASE)


def find_banned(
    text: str, phrases: dict[str, str] = BANNED_FOR_USERS, first: int = 1
) -> list[str]:
    """Return each banned phrase of a text, with its line and what to write instead.

    Text in code marks, targets of links and indentation do not count. `first` is the
    number of the first line.
    """
    if not as_expression("|".join(phrases)).search(text):
        return []  # of nearly all texts, known at one look
    text = re.sub(r"^ +", "", text, flags=re.MULTILINE)
    text = re.sub(r"``?[^`]+``?|\]\([^)]*\)", lambda m: "`" + "\n" * m[0].count("\n"), text)
    rows = [
        (text.count("\n", 0, match.start()) + first, match[0], instead)
        for pattern, instead in phrases.items()
        for match in as_expression(pattern).finditer(text)
    ]
    return [f"line {n}: {phrase!r}: write {said!r}" for n, phrase, said in sorted(rows)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_document_has_no_banned_phrase(page: Path) -> None:
    assert find_banned(prose(page.read_text(encoding="utf-8"))) == []


def test_a_banned_phrase_in_prose_is_found_and_one_in_code_is_not() -> None:
    page = "# Page\n\n```\nthe talk\n```\nIt runs unasked.\n`unasked`, and the\ntalk too.\n"

    assert find_banned(prose(page)) == [
        "line 6: 'unasked': write 'without asking'",
        "line 7: 'the\\ntalk': write 'conversation'",
    ]


def help_texts() -> dict[str, str]:
    """Return the help of every flag, argument and command, by the command line that shows
    it.
    """
    texts_by_command = dict[str, str]()
    for command in walk_commands(command_tree()):
        texts_by_command[command.name] = command.about
        texts_by_command |= {
            f"{command.name} {flag.names[-1]}": flag.about for flag in command.flags
        }
        texts_by_command |= {
            f"{command.name} {word.value.called}": word.about for word in command.words
        }
    return texts_by_command


def test_help_has_no_banned_phrase() -> None:
    texts = {name: text.replace("root/child-1", "") for name, text in help_texts().items()}
    wrong = {name: find_banned(text) for name, text in texts.items()}

    assert {name: phrases for name, phrases in wrong.items() if phrases} == {}


def test_the_manual_page_has_no_banned_phrase() -> None:
    page = (ROOT / "docs/refold.1").read_text(encoding="utf-8").replace("\\-", "-")

    assert find_banned(prose(re.sub(r"--[a-z-]+|child-1", "", page))) == []


def modules(folder: str) -> list[Path]:
    """Python files, without scripts of skills, which have words of their own."""
    files = sorted((ROOT / folder).rglob("*.py"))
    return [path for path in files if "shipped" not in path.parts]


def docstrings(tree: Iterable[ast.AST]) -> Iterator[tuple[int, str]]:
    """Yield each docstring of a module without its code, with the line where it begins."""
    for node in tree:
        match node:
            case ast.Expr(ast.Constant(value=str(text))):
                yield node.lineno, INDENTED.sub("", inspect.cleandoc(text))
            case _:
                pass


def comments(source: str) -> Iterator[tuple[int, str]]:
    """Yield each comment with its line; lines of comments that follow each other are one."""
    lines, block = source.splitlines(), list[str]()
    first = last = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        line, column = token.start
        alone = not lines[line - 1][:column].strip()
        if block and not (alone and line == last + 1):
            yield first, "\n".join(block)
            block.clear()
        if not block:
            first = line
        block.append(token.string.lstrip("#: "))
        last = line if alone else 0
    if block:
        yield first, "\n".join(block)


def comments_to_check(source: str) -> Iterator[tuple[int, str]]:
    """Yield the comments, or none if nothing behind a `#` is banned: to find comments takes
    long.
    """
    parts = (line.partition("#")[2].lstrip("#: ") for line in source.splitlines())
    if as_expression("|".join(BANNED)).search("\n".join(filter(None, parts))):
        yield from comments(source)


@pytest.mark.parametrize("folder", FOLDERS)
def test_docstrings_and_comments_have_no_banned_phrase(folder: str) -> None:
    wrong = [
        f"{path.relative_to(ROOT)}: {item}"
        for path in modules(folder)
        for texts in (
            docstrings(nodes(path)),
            comments_to_check(path.read_text(encoding="utf-8")),
        )
        for first, text in texts
        for item in find_banned(text, BANNED, first)
    ]

    assert wrong == []


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_docstring_begins_with_a_question(folder: str) -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in modules(folder)
        for line, text in docstrings(nodes(path))
        if re.split(r"(?<=[.?!])\s", text.strip(), maxsplit=1)[0].endswith("?")
    ]

    assert wrong == []


def test_a_banned_phrase_in_a_docstring_or_comment_is_found_with_its_line() -> None:
    source = (
        'class A:\n    """That is nobody\'s business; `pen` is\n    a talk."""\n'
        "    x = 1  # the\n    # last of\n    # the\n    # talk\n"
    )
    phrases = [
        phrase
        for texts in (docstrings(ast.walk(ast.parse(source))), comments_to_check(source))
        for first, text in texts
        for phrase in find_banned(text, BANNED, first)
    ]

    assert [line.split(": write")[0] for line in phrases] == [
        "line 2: 'business'", "line 2: 'nobody'", "line 3: 'a talk'",
        "line 6: 'the\\ntalk'",
    ]  # fmt: skip


# Functions that get a sentence for the user: every error of ours, and these.
SAYS = {"complain", "notice", "say", "Finding", "Note"} | {
    name for name, each in vars(errors).items() if isinstance(each, type)
}


def sentences(call: ast.Call) -> Iterator[tuple[int, str]]:
    """Yield the texts of a call, with their lines; what is filled in stands as "…"."""
    left: list[ast.AST] = [*call.args, *call.keywords]
    while left:
        match left.pop():
            case ast.Constant(value=str(text)) as match:
                yield match.lineno, text
            case ast.JoinedStr(values) as match:
                pieces = (v.value if isinstance(v, ast.Constant) else "…" for v in values)
                yield match.lineno, "".join(map(str, pieces))
                left += [v for v in values if isinstance(v, ast.FormattedValue)]
            case other:
                left += ast.iter_child_nodes(other)


def texts_for_readers(tree: Collection[ast.AST]) -> Iterator[tuple[int, str]]:
    """Yield what users and models may read: messages, and each text of four words or more."""
    left_out = {id(node.value) for node in tree if isinstance(node, ast.Expr)}
    for node in tree:
        match node:
            case ast.Call(ast.Name(name) | ast.Attribute(attr=name)) if name in SAYS:
                yield from sentences(node)
            case ast.Constant(value=str(text)) if id(node) not in left_out:
                if len(text.split()) > 3:
                    yield node.lineno, text
            case _:
                pass


NO_SENTENCES = {
    "permissions/shell/git_read_only.py",  # options of git
    "journal/catalogue/database.py",  # SQL
    "provider/images.py",  # messages of servers
    "memory/function_words.py",  # words of users
    "memory/distil.py",  # words of users
    "place/spawn.py",  # a script
}


def test_texts_that_are_shown_have_no_banned_phrase() -> None:
    wrong = {
        f"{name}:{line}: {text!r}: {phrases}"
        for path in modules("src/refold")
        if (name := str(path.relative_to(ROOT / "src/refold"))) not in NO_SENTENCES
        for line, text in texts_for_readers(nodes(path))
        if (phrases := find_banned(re.sub(r"child-(\d|N)|<child[^>]*>", "", text)))
    }

    assert wrong == set()


def test_a_banned_phrase_in_a_shown_text_is_found_and_one_in_a_docstring_is_not() -> None:
    source = '"""The talk of these people."""\nROWS = {"a": ("it is", "all of the talk")}\n'

    assert [text for _, text in texts_for_readers([*ast.walk(ast.parse(source))])] == [
        "all of the talk"
    ]


def test_a_banned_phrase_in_a_short_message_is_found() -> None:
    source = 'raise errors.BadInput(f"{x} " f"is {y or \'nobody\'}: mend it" + "the talk")'

    texts = [
        find_banned(text) for _, text in texts_for_readers([*ast.walk(ast.parse(source))])
    ]

    assert {phrase.split("'")[1] for item in texts for phrase in item} == {
        "nobody", "mend", "the talk",
    }  # fmt: skip


def passages(text: str) -> set[tuple[str, ...]]:
    prose = re.sub(
        r"<!-- generated.*?<!-- end -->", "", FENCED.sub("", text), flags=re.DOTALL
    )
    words = re.sub(r"\]\([^)]*\)|\|", " ", prose).lower().split()
    return set(zip(*(words[n:] for n in range(PASSAGE_WORDS)), strict=False))


def test_no_passage_stands_on_two_pages_of_the_documents() -> None:
    """The pages are guides, reference and explanations, with the README of the plug-in
    template.
    """
    pages_of = dict[tuple[str, ...], str]()
    repeated = list[str]()
    for page in DOCS.glob("[!d]*/*.md"):
        name = str(page.relative_to(DOCS))
        for passage in passages(page.read_text(encoding="utf-8")):
            other = pages_of.setdefault(passage, name)
            if other != name:
                repeated.append(f"{other}, {name}: {' '.join(passage)}")

    assert repeated == []
