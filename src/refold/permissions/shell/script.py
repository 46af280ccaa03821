"""Parses a script with the grammar of bash, and finds every simple command in it.

Deny and ask rules use the result, so it may have more commands than would run, but never fewer.
Text that is not known before the script runs is replaced by marks (see `words`). Other modules
decide what a command means.
"""

import re
from collections.abc import Iterator
from functools import cache, lru_cache
from typing import TYPE_CHECKING

from msgspec import Struct

from refold.permissions.shell.words import (
    OPEN_PATTERN,
    Known,
    Word,
    expand_words,
    word_text,
)

if TYPE_CHECKING:
    from tree_sitter import Node, Parser, Tree


_ARGUMENT_KINDS = frozenset({
    "word", "number", "string", "raw_string", "ansi_c_string", "translated_string",
    "concatenation", "simple_expansion", "expansion", "command_substitution",
    "process_substitution", "arithmetic_expansion", "brace_expression", "command_name",
    "special_variable_name", "variable_name", "regex", "extglob_pattern", "test_operator",
})  # fmt: skip
_LINE_CONTINUATION = re.compile(r"(?<!\\)((?:\\\\)*)\\\n")
# Variables such as `PAGER` and `GIT_SSH_COMMAND`.
_NAMES_PROGRAM = re.compile(
    r"(?:\w*_)?(?:PAGER|EDITOR|VISUAL|BROWSER|SHELL|COMMAND|ASKPASS|SSH|OPEN|CLOSE|ENV|RUNNER|"
    r"WRAPPER|LAUNCHER|DIFF|TRACE)|LESS\w+|PS[0-4]"
)
_CONTROL_CHARACTERS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
# The system accepts no longer argument for a shell.
MAX_SCRIPT_BYTES = 131_071


_QUICK_BYTES = 4_000  # shorter scripts are parsed quickly, whatever their content is
_MAX_EFFORT = 3_000  # in hundreds of steps: some longer texts would take minutes


class Simple(Struct, frozen=True):
    """The words of a simple command, from its program on. Redirections and assignments are left
    out.
    """

    words: tuple[Word, ...]


class Redirect(Struct, frozen=True):
    """A redirection: the file that a part of the script reads from or writes to."""

    writes: bool
    target: Word
    before: int = 0  # the number of commands that begin before it


class Script(Struct, frozen=True):
    """The commands of a script, and what else decides what it runs.

    `texts` are its literal texts, each of which may be a script for another shell. `broken`:
    the grammar could not parse the whole script. `bomb`: it has a function that starts itself
    again and again (a fork bomb).
    """

    commands: tuple[Simple, ...] = ()
    redirects: tuple[Redirect, ...] = ()
    texts: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()  # values of variables that name a program to run
    broken: bool = False
    bomb: bool = False  # a function that calls itself twice at the same time


@lru_cache(maxsize=64)
def read_script(text: str) -> Script:
    """Return all commands that `text` may run, in bash or in a shell that reads it later.

    A text with continued lines is parsed twice, as it is and with these lines joined, and the
    result has the commands of both.
    """
    script = _read(text)
    if "\\\n" not in text:
        return script
    # Continued lines are joined, unless the grammar and bash both see a comment.
    joined = _read(_LINE_CONTINUATION.sub(r"\1", text))
    return Script(
        commands=script.commands + joined.commands,
        redirects=script.redirects + joined.redirects,
        texts=script.texts + joined.texts,
        settings=script.settings + joined.settings,
        broken=script.broken or joined.broken,
        bomb=script.bomb or joined.bomb,
    )


def _read(text: str) -> Script:
    """Return the commands in `text`, as the grammar parses them.

    The result is `broken` if the grammar cannot parse the whole text, or if the text has control
    characters, which are replaced by blanks.
    """
    source = _CONTROL_CHARACTERS.sub(" ", text).encode(errors="replace")
    has_control_characters = bool(_CONTROL_CHARACTERS.search(text))
    if len(source) > MAX_SCRIPT_BYTES:
        return Script(broken=True)
    tree = parse(source)
    if tree is None:
        return Script(broken=True)
    root = tree.root_node
    nodes = list(_walk(root))
    known = _known_variables(nodes)
    commands, redirects, texts = list[Simple](), list[Redirect](), list[str]()
    settings = list[str]()
    for node in nodes:
        match node.type:
            case "command" | "declaration_command" | "unset_command" | "test_command":
                commands.append(Simple(tuple(_words_of(node, known))))
            case "file_redirect":
                if target := node.child_by_field_name("destination"):
                    writes = any(">" in child.type for child in node.children)
                    redirects += (
                        Redirect(writes, word, before=len(commands))
                        for word in expand_words(target, known)
                    )
            case "string" | "raw_string" | "ansi_c_string" | "heredoc_body":
                if literal := word_text(node, known):
                    texts.append(literal)
            case "variable_assignment":
                settings += _program_in_setting(node, known)
            case _:
                pass
    functions = (node for node in nodes if node.type == "function_definition")
    return Script(
        commands=tuple(commands),
        redirects=tuple(redirects),
        texts=tuple(texts),
        settings=tuple(settings),
        broken=has_control_characters or root.has_error,
        bomb=any(_calls_itself_twice(function) for function in functions),
    )


def _walk(root: "Node") -> Iterator["Node"]:
    """Yield a node and all named nodes below it, in the order of the script."""
    todo = [root]
    while todo:
        node = todo.pop()
        yield node
        todo.extend(reversed(node.named_children))


def _words_of(node: "Node", known: Known) -> Iterator[Word]:
    """Yield the words of a command node, with its program first."""
    if node.type == "test_command":
        raw = (node.text or b"").decode(errors="replace")
        yield from (Word(w) for w in raw.split())
        return
    # Nodes of `declare`, `export` and `unset` name their program as a keyword.
    is_declaration = node.type != "command"
    for child in node.children:
        if child.type in _ARGUMENT_KINDS:
            word_node = child
            if child.type == "command_name" and child.named_child_count == 1:
                word_node = child.named_children[0]
            yield from expand_words(word_node, known)
        elif is_declaration and child.type == "variable_assignment":
            yield Word((child.text or b"").decode(errors="replace"))
        elif is_declaration and not child.is_named:
            yield Word(child.type)


def _program_in_setting(node: "Node", known: Known) -> Iterator[str]:
    """Yield the value of an assignment if its variable names a program to run."""
    name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
    if name is None or value is None:
        return
    if _NAMES_PROGRAM.fullmatch((name.text or b"").decode(errors="replace")):
        yield word_text(value, known).lstrip("|!- ")


def _known_variables(nodes: list["Node"]) -> Known:
    """Return the value of each variable that has only one, literal value in the script."""
    assignments = dict[str, set[str]]()
    for node in nodes:
        if node.type == "variable_assignment":
            name_node = node.child_by_field_name("name")
            value = node.child_by_field_name("value")
            values = [word_text(value, {})] if value else [""]
        elif node.type == "for_statement":
            name_node = node.child_by_field_name("variable")
            values = [word_text(v, {}) for v in node.children_by_field_name("value")]
        else:
            continue
        if name_node is not None:
            name = (name_node.text or b"").decode(errors="replace")
            assignments.setdefault(name, set()).update(values)
    known = dict[str, str]()
    for name, texts in assignments.items():
        if len(texts) != 1:
            continue
        (text,) = texts
        if not OPEN_PATTERN.search(text):
            known[name] = text
    return known


def _calls_itself_twice(node: "Node") -> bool:
    """Return whether a function calls itself more than once, as a fork bomb does."""
    name = node.child_by_field_name("name")
    if name is None:
        return False
    inside = [n.text for n in _walk(node) if n.type == "command_name"]
    return inside.count(name.text) > 1


def parse(source: bytes) -> "Tree | None":
    """Return the syntax tree of a script; None if parsing takes too long."""
    parser = _parser()
    if len(source) <= _QUICK_BYTES:
        return parser.parse(source)
    # tree-sitter calls both functions again and again while it parses.
    progress_calls = 0

    def read_piece(index: int, _point: object) -> bytes:
        return source[index : index + _QUICK_BYTES]

    def takes_too_long(_index: int, _error: bool) -> bool:
        nonlocal progress_calls
        progress_calls += 1
        return progress_calls > _MAX_EFFORT

    try:
        return parser.parse(read_piece, progress_callback=takes_too_long)
    except ValueError:
        parser.reset()
        return None


@cache
def _parser() -> "Parser":
    # Imported late, because it takes about 30 ms.
    import tree_sitter_bash
    from tree_sitter import Language, Parser

    return Parser(Language(tree_sitter_bash.language()))
