"""Prolog facts: terms are read as Prolog reads them, and agents are imported and exported."""

import random
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from refold.cli.declared_start import tool_names
from refold.cli.main import main
from refold.cli.spec import document
from refold.config.toml_text import as_toml
from refold.declared.agent_files import parse_agent_file
from refold.declared.facts import as_facts
from refold.declared.overlay import overlay_of, profile_of
from refold.declared.terms import (
    Atom,
    Compound,
    Number,
    QuotedText,
    Term,
    list_of,
    read_terms,
    term_text,
)
from refold.declared.variant import AgentFile, Declared, Variant
from refold.errors import BadInput

LOOP = Path(__file__).with_name("data") / "agent_loop.pl"


def parse_agent(text: str | bytes, name: str = "a.pl") -> AgentFile:
    content = text.encode() if isinstance(text, str) else text
    return parse_agent_file(content, name, f"/here/{name}", {})


def first_term_text(text: str) -> str:
    return term_text(read_terms(text.encode(), "a.pl")[0].term)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a :- b, c.", "':-'(a, ','(b, c))"),
        ("X = a + b * c - d.", "'='(X, '-'('+'(a, '*'(b, c)), d))"),
        ("a:b:c.", "':'(a, ':'(b, c))"),
        ("f(:-, [-], - , (a:-b)).", "f(':-', ['-'], '-', ':-'(a, b))"),
        ("f(-1, - a, 1 - 1, 2-1).", "f(-1, '-'(a), '-'(1, 1), '-'(2, 1))"),
        ("\\+a = b.", "'\\\\+'('='(a, b))"),
        ("[a, b|T].", "[a, b|T]"),
        ("{a, b}.", "{}(','(a, b))"),
        ("'it''s \\x41\\\\n\\\n here'(\"a\"\"b\").", "'it\\'sA\\xa\\ here'(\"a\\\"b\")".replace("sA", "s A")),
        ("f(0'a, 0x1F, 1.5e3, 1_000).", "f(97, 31, 1500.0, 1000)"),
        ("/* a */ f(% b\n a).", "f(a)"),
        (":- op(700, xfx, ===>). ", "':-'(op(700, xfx, '===>'))"),
    ],
)  # fmt: skip
def test_prolog_terms_parse_with_operators_quotes_and_comments(
    text: str, expected: str
) -> None:
    assert first_term_text(text) == expected


def test_an_operator_declared_in_the_file_applies_to_later_clauses() -> None:
    clauses = read_terms(b":- op(700, xfx, is_a).\nx is_a y.\n", "a.pl")

    assert term_text(clauses[1].term) == "is_a(x, y)"
    assert [clause.line for clause in clauses] == [1, 2]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (
            b"f('" + b"a" * 1_000_000 + b"').",
            "a.pl:1: an atom, text or number has more than",
        ),
        (b"\nf(" + b"[" * 100_000, "a.pl:2: terms are nested more than 200 levels deep"),
        (b"- " * 100_000, "a.pl:1: terms are nested more than"),
        (b"f('abc).\n", "a.pl:1: this ' has no end on its line"),
        (b"f(a).\ng(\0).", "a.pl:2: it has a NUL character"),
        (b"f(a).\ng(\xff).", "a.pl:2: it is not UTF-8"),
        (b"/* abc", "a.pl:1: this comment has no end"),
        (b"f(a)", "a.pl:1: expected . at the end of a clause"),
        (b"f(" + b"9" * 100_000 + b").", "a.pl:1: an atom, text or number has more than"),
        (b"f(a", "a.pl:1: expected ), found the end of the file"),
        (b"a" * 5_000_000, "a.pl has more than"),
        (b":- :- :- ." * 10_000, "a.pl:1: expected . at the end of a clause"),
        (b"f(:-, " + b"a = " * 20_000 + b").", "a.pl:1: expected )"),
        (b"{" * 100_000, "a.pl:1: terms are nested more than"),
        (b"'" * 100_001, "a.pl:1: this ' has no end on its line"),
    ],
)
def test_a_hostile_prolog_file_fails_with_one_short_error(
    content: bytes, expected: str
) -> None:
    with pytest.raises(BadInput) as raised:
        read_terms(content, "a.pl")

    assert str(raised.value).startswith(expected)
    assert len(str(raised.value)) < 300


def test_the_agent_loop_facts_file_is_imported_unchanged() -> None:
    file = parse_agent(LOOP.read_bytes())
    models = {item.variant.name: overlay_of(item).model for item in file.agents}

    assert models == {
        "coro": "claude-code", "claude_code": "claude-code/sonnet",
        "gemini": "gemini-cli/gemini-2.5-flash",
        "claude_api": "anthropic/claude-sonnet-4-20250514",
        "openai": "openai-chat/gpt-4o", "ollama": "ollama/llama3",
    }  # fmt: skip
    for agent in file.agents:
        profile = profile_of(agent, tool_names())
        assert profile.tools == (
            "read_file",
            "write_file",
            "edit_file",
            "multi_edit",
            "bash",
        )
        assert profile.ask == ("write_file", "edit_file", "multi_edit", "bash")
        assert agent.variant.max_context_tokens == 100_000
        assert agent.variant.show_tokens is True


DESCRIBED = (
    "read: Show what a file contains (path: the file)",
    "write: Put a text into a file (path: the file) (content: the whole text)",
    "edit: Replace a text in a file (path: the file) (old: what is there now) (new: what comes in its place)",
)
# For each fact of the file: another value of it, and the agent, key and value that it changes,
# or the error that says that refold does nothing else.
CHANGES: dict[str, tuple[str, str, tuple[str, str, object] | str]] = {
    "type": ("type(cli), command(\"gemini\")", "type(x), command(\"gemini\")", "type(cli) or type(api) is missing"),
    "command": ("command(\"gemini\")", "command(\"codex\")", ("gemini", "backend", "codex-cli")),
    "args": ("args([\"--verbose\"])", "args([\"--yes\"])", "the argument '--yes' is unknown"),
    "models": ("models([\"sonnet\", ", "models([", "model 'sonnet' is none of models"),
    "default_model": ("gemini-2.5-flash", "other", ("gemini", "model", "other")),
    "model": ("model(\"gpt-4o\")", "model(\"gpt-5\")", ("openai", "model", "gpt-5")),
    "output_parser": ("coro_parser", "mine", "output_parser('mine') is not supported here"),
    "endpoint": ("localhost:11434", "far:1", ("ollama", "base_url", "http://far:1")),
    "the end of endpoint": ("localhost:11434/api/chat", "far/v1/messages", "takes its key by"),
    "auth_header": ("auth_header(\"x-api-key\")", "auth_header(\"x-key\")", "anthropic takes its key by x-api-key"),
    "auth_required": ("auth_required(false)", "auth_required(true)", "auth_required(True) is not supported here"),
    "supports_tools": ("supports_tools(true)", "supports_tools(false)", "supports_tools(False) is not supported"),
    "supports_streaming": ("supports_streaming(true)", "supports_streaming(false)", "supports_streaming(False)"),
    "context_format": ("context_format(messages_array)", "context_format(text)", "context_format('text')"),
    "confirmation_required": ("confirmation_required(true)", "confirmation_required(false)", ("coro", "confirm", ("edit", "bash"))),
    "parameters": ("param(command, string", "param(line, string", "bash has the parameters command"),
    "description": ('description("Run a line in a shell")', 'description("Run it")', ("coro", "describe", (*DESCRIBED, "bash: Run it (command: the line)"))),
    "the words of a param": ('required, "the line"', 'required, "it"', ("coro", "describe", (*DESCRIBED, "bash: Run a line in a shell (command: it)"))),
    "param": ("param(command, string, required", "param(command, int, required", "is not a param(Name, string, required"),
    "max_context_tokens": ("max_context_tokens(100000)", "max_context_tokens(5)", ("coro", "max_context_tokens", 5)),
    "display_tokens": ("display_tokens(true)", "display_tokens(false)", ("coro", "show_tokens", False)),
    "display_tool_calls": ("display_tool_calls(true)", "display_tool_calls(false)", "display_tool_calls(False)"),
    "trim_strategy": ("oldest_first", "newest_first", "trim_strategy('newest_first') is not supported"),
    "confirm_destructive_tools": ("destructive_tools(true)", "destructive_tools(false)", ("coro", "auto_tools", True)),
    "tool_spec": ("tool_spec(bash,", "tool_spec(edit_,", "the tool 'edit_' is none of bash"),
}  # fmt: skip


@pytest.mark.parametrize("fact", CHANGES)
def test_each_agent_loop_fact_changes_a_setting_or_is_refused(fact: str) -> None:
    old, new, expected = CHANGES[fact]
    text = LOOP.read_text()
    assert old in text
    if fact == "confirm_destructive_tools":  # else each tool asks for itself
        text = text.replace("confirmation_required(true)", "confirmation_required(false)")
    if fact == "confirmation_required":  # else this one makes all of them ask
        text = text.replace("destructive_tools(true)", "destructive_tools(false)")
    if fact == "the end of endpoint":
        text = text.replace("auth_required(false)", 'auth_header("none")')
    changed = text.replace(old, new, 1)
    if isinstance(expected, str):
        with pytest.raises(BadInput) as raised:
            parse_agent(changed)
        assert expected in str(raised.value)
    else:
        name, key, value = expected
        after = {e.variant.name: e.variant for e in parse_agent(changed).agents}
        before = {e.variant.name: e.variant for e in parse_agent(text).agents}
        assert getattr(after[name], key) == value
        assert getattr(before[name], key) != value


def test_every_agent_loop_fact_has_a_test_case() -> None:
    def names(term: Term) -> set[str]:
        if not isinstance(term, Compound):
            return set()
        inside = set[str]().union(*map(names, term.arguments))
        return inside if term.name in ("[|]", "/") else {term.name, *inside}

    clauses = [item.term for item in read_terms(LOOP.read_bytes(), "a.pl")][1:]
    there = set[str]().union(*map(names, clauses)) - {"agent_backend", "loop_config"}

    assert there == CHANGES.keys() - {"the end of endpoint", "the words of a param"}


def test_default_agent_fact_selects_the_default_agent() -> None:
    text = "agent(a, []). agent(b, []). default_agent({})."

    assert [parse_agent(text.format(name)).default for name in "ab"] == ["a", "b"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("hello(world).", "a.pl:1: hello(world) is not a fact about an agent"),
        ("\nagent_backend(x, [type(cli), command(\"claude\"), args([\"--yes\"])]).", "a.pl:2: the argument '--yes' is unknown"),
        ("agent_backend(x, [type(cli), command(\"vim\")]).", "a.pl:1: command('vim') is none of claude"),
        ("agent_backend(x, [type(cli), command(\"claude\"), colour(red)]).", "a.pl:1: colour/1 of cli backends is unknown"),
        ("agent_backend(x, [type(api), endpoint(\"http://x/api/chat\"), supports_tools(false)]).", "a.pl:1: supports_tools(False) is not supported here"),
        ("tool_spec(fly, []).", "a.pl:1: the tool 'fly' is none of bash"),
        ("loop_config([trim_strategy(newest)]).", "a.pl:1: trim_strategy('newest') is not supported here"),
        ("agent(x, [modle(\"a\")]).", "a.pl:1: agents.x.modle: there is no such key; did you mean model?"),
        ("agent(x, []). agent(x, []).", "a.pl:1: there is an agent 'x' already"),
        ("agent(x, [port(1), port(2)]).", "a.pl:1: port is there twice"),
    ],
)  # fmt: skip
def test_unsupported_fact_is_an_error_with_its_line(text: str, expected: str) -> None:
    with pytest.raises(BadInput) as raised:
        parse_agent(text)
    assert str(raised.value).startswith(expected)


WORDS = st.text(
    st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=12
)
PLAIN = WORDS.filter(lambda word: "${" not in word)


def lists(*text: str) -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(st.sampled_from(text), max_size=3, unique=True).map(tuple)


NUMBERS = st.none() | st.integers(1, 10**9)
VARIANTS = st.builds(
    Variant,
    name=st.from_regex(r"[a-z][a-z0-9]{0,5}(-[a-z0-9]{1,4})?", fullmatch=True),
    description=PLAIN,
    backend=PLAIN.filter(lambda word: word != "command"),
    model=PLAIN,
    host=PLAIN,
    port=st.none() | st.integers(1, 65535),
    base_url=PLAIN,
    api_key=PLAIN,
    api_key_env=PLAIN,
    system_prompt=PLAIN,
    agent_md=PLAIN,
    skills=st.lists(PLAIN, max_size=3).map(tuple),
    tools=st.none() | lists("read", "bash", "./tools", "t/a.json"),
    confirm=lists("bash", "write"),
    describe=lists("bash: Run it.", "read: Look."),
    auto_tools=st.booleans(),
    approval=st.sampled_from(["", "yolo", "plan", "accept-edits"]),
    context_mode=st.sampled_from(["", "continue", "fresh", "sliding", "summarize"]),
    context_format=st.sampled_from(["", "plain", "markdown", "json", "xml"]),
    max_context_tokens=NUMBERS,
    max_context_chars=NUMBERS,
    max_context_words=NUMBERS,
    max_messages=NUMBERS,
    max_iterations=NUMBERS,
    timeout=st.none() | st.floats(0.5, 1e6),
    show_tokens=st.none() | st.booleans(),
    display=st.sampled_from(["", "auto", "plain", "status", "line"]),
)
OWN = Variant(name="own", command=("a b", "{model}"), own_tools="none")


@pytest.mark.slow
@given(st.lists(VARIANTS, max_size=3, unique_by=lambda each: each.name))
@example([OWN])
def test_exported_agents_are_equal_after_import(variants: list[Variant]) -> None:
    agents = tuple(Declared(variant, "a.pl") for variant in variants)
    file = AgentFile(agents, variants[0].name if variants else "")

    as_prolog = parse_agent(as_facts(file))
    as_table = parse_agent(as_toml(document(file)), "a.toml")

    for back in (as_prolog, as_table):
        assert [agent.variant for agent in back.agents] == variants
        assert back.default == file.default


def test_the_export_property_test_draws_every_agent_key() -> None:
    drawn = {*Variant.__struct_fields__} - {"command", "own_tools"}

    assert {name for name in drawn if f"    {name}=" in Path(__file__).read_text()} == drawn


def test_spec_check_of_one_agent_prints_the_singular(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.pl").write_text("agent(one, [model('ollama/m')]).\n")

    assert main(["spec", "check", str(tmp_path / "a.pl")]) == 0
    assert capfd.readouterr().out == "1 agent, no fault\n"


def test_import_prints_toml_that_loads_and_export_prints_facts(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    toml, facts = str(tmp_path / "a.toml"), str(tmp_path / "b.pl")

    assert main(["spec", "import", str(LOOP), "--out", toml]) == 0
    assert main(["spec", "export", toml, "--out", facts]) == 0
    capfd.readouterr()
    assert main(["spec", "check", facts]) == 0
    assert capfd.readouterr().out == "6 agents, no fault\n"
    main(["spec", "show", facts])
    output = capfd.readouterr().out

    assert "ollama  " in output
    assert "  model = 'llama3'\n" in output
    same = [agent.variant for agent in parse_agent(LOOP.read_bytes()).agents]
    assert [e.variant for e in parse_agent(Path(facts).read_bytes()).agents] == same


NAMES = ("a", "b1", "[]", "it's", "A b", "-", "+", ":-", "\\", "é", "a\nb", "*", "!", ";")
SHAPES = (
    "{0} + {1} * {2}", "- {0}", "{0} - (-1)", "[{0}, {1}|{2}]", "f({0}, {1})", "{{{0}, {1}}}",
    "({0} :- {1}, {2})", "{0} = {1}", "\\+ {0}", "a:{0}", "{0} -> {1} ; {2}", "- ( {0} )",
    "{0} ** {1}", "2 ^ {0} ^ {1}", "{0} / {1} / {2}", "1 - {0} - {1}", "f(- , {0})", "[{0}]",
)  # fmt: skip


def random_terms(many: int) -> list[str]:
    """Terms as a person could have written them, with operators."""
    chance = random.Random(21)

    def random_term(depth: int) -> str:
        if depth == 0 or chance.random() < 0.2:
            plain: list[Term] = [
                Atom(chance.choice(NAMES)),
                QuotedText('x"y\\'),
                Number(7),
                Number(2.5),
            ]
            return f"({term_text(chance.choice(plain))})"
        return (
            f"({chance.choice(SHAPES).format(*(random_term(depth - 1) for _ in range(3)))})"
        )

    return [random_term(3) for _ in range(many)]


def canonical(texts: Sequence[str], tmp_path: Path) -> list[str]:
    """Return the same terms, as SWI-Prolog reads and writes them."""
    source, program = tmp_path / "terms.pl", tmp_path / "program.pl"
    source.write_text("".join(f"{text}.\n" for text in texts), encoding="utf-8")
    program.write_text(
        ":- initialization(main, main).\n"
        "main :- current_prolog_flag(argv, A), last(A, F), open(F, read, S, [encoding(utf8)]),\n"
        "  set_stream(user_output, encoding(utf8)), go(S).\n"
        "go(S) :- read_term(S, T, []), ( T == end_of_file -> true ;\n"
        "  write_term(T, [quoted(true), ignore_ops(true), dotlists(false)]), nl, go(S) ).\n"
    )
    done = subprocess.run(
        ["swipl", "-q", str(program), "--", str(source)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout.splitlines()


@pytest.mark.peer
@pytest.mark.slow
@pytest.mark.skipif(
    not shutil.which("swipl"), reason="swipl (swi-prolog-nox) is not installed"
)
def test_swi_prolog_reads_the_same_terms(tmp_path: Path) -> None:
    texts = random_terms(200)
    ours = [term_text(read_terms(f"{text}.".encode(), "a.pl")[0].term) for text in texts]

    assert canonical(ours, tmp_path) == canonical(texts, tmp_path)
    file = LOOP.read_text()
    clauses = [term_text(term.term) for term in read_terms(file.encode(), "a.pl")]
    assert canonical(clauses, tmp_path) == canonical([file.rstrip().rstrip(".")], tmp_path)


@pytest.mark.peer
@pytest.mark.slow
@pytest.mark.skipif(
    not shutil.which("swipl"), reason="swipl (swi-prolog-nox) is not installed"
)
def test_swi_prolog_reads_exported_facts(tmp_path: Path) -> None:
    exported = as_facts(parse_agent(LOOP.read_bytes()))
    read = canonical([exported.rstrip().rstrip(".")], tmp_path)

    assert len(read) == 7
    assert [
        term_text(c.term) for c in read_terms(".\n".join([*read, ""]).encode(), "b.pl")
    ] == [term_text(c.term) for c in read_terms(exported.encode(), "a.pl")]
    assert list_of([Atom("a")]) == Compound("[|]", (Atom("a"), Atom("[]")))
