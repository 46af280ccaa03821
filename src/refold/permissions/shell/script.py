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
    """Return all commands that `text` may run, in bash or in a shell that reads it later."""
    script = _read(text)
    if "\\\n" not in text:
        return script
    # Continued lines are joined, unless the grammar and bash both see a comment.
    joined = _read(_LINE_CONTINUATION.sub(r"\1", text))
    return Script(
        script.commands + joined.commands,
        script.redirects + joined.redirects,
        script.texts + joined.texts,
        script.settings + joined.settings,
        script.broken or joined.broken,
        script.bomb or joined.bomb,
    )


def _read(text: str) -> Script:
    """Return the commands in `text`, as the grammar parses them; `broken` if it cannot."""
    source = _CONTROL_CHARACTERS.sub(" ", text).encode(errors="replace")
    strange = bool(_CONTROL_CHARACTERS.search(text))
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
                        Redirect(writes, word, len(commands))
                        for word in expand_words(target, known)
                    )
            case "string" | "raw_string" | "ansi_c_string" | "heredoc_body":
                texts.append(word_text(node, known))
            case "variable_assignment":
                settings += _program_in_setting(node, known)
            case _:
                pass
    return Script(
        tuple(commands),
        tuple(redirects),
        tuple(t for t in texts if t),
        tuple(settings),
        strange or root.has_error,
        any(_calls_itself_twice(n) for n in nodes if n.type == "function_definition"),
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
    for child in node.children:
        if child.type in _ARGUMENT_KINDS:
            inner = (
                child.named_children[0]
                if child.type == "command_name" and child.named_child_count == 1
                else child
            )
            yield from expand_words(inner, known)
        elif node.type != "command" and child.type == "variable_assignment":
            yield Word((child.text or b"").decode(errors="replace"))
        elif node.type != "command" and not child.is_named:
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
            name, value = (
                node.child_by_field_name("name"),
                node.child_by_field_name("value"),
            )
            values = [word_text(value, {})] if value else [""]
        elif node.type == "for_statement":
            name = node.child_by_field_name("variable")
            values = [word_text(v, {}) for v in node.children_by_field_name("value")]
        else:
            continue
        if name is not None:
            assignments.setdefault(
                (name.text or b"").decode(errors="replace"), set()
            ).update(values)
    return {
        name: text
        for name, texts in assignments.items()
        if len(texts) == 1 and not OPEN_PATTERN.search(text := next(iter(texts)))
    }


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
    steps = 0

    def piece(index: int, _point: object) -> bytes:
        return source[index : index + _QUICK_BYTES]

    def too_long(_index: int, _error: bool) -> bool:
        nonlocal steps
        steps += 1
        return steps > _MAX_EFFORT

    try:
        return parser.parse(piece, progress_callback=too_long)
    except ValueError:
        parser.reset()
        return None


@cache
def _parser() -> "Parser":
    # Imported late, because it takes about 30 ms.
    import tree_sitter_bash
    from tree_sitter import Language, Parser

    return Parser(Language(tree_sitter_bash.language()))
