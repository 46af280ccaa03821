"""Tools in JSON files: their arguments are never code, and they are judged as bash is."""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import Raw

from refold.agents.profile import Profile, tools_of
from refold.app.app import App
from refold.cli.flags import session_parser
from refold.cli.launch import app_of
from refold.cli.main import main
from refold.declared.command_tools import command_tools
from refold.declared.variant import Declared, Variant
from refold.engine.authorize import describe_access, fingerprint
from refold.errors import BadInput, ToolFailed
from refold.permissions.decide import decide
from refold.permissions.facts import Decision
from refold.permissions.rule_offers import narrowest_rule
from refold.permissions.rules import parse
from refold.tools.contract import Tool
from refold.values.messages import ToolCall

COUNT: Mapping[str, Any] = {
    "name": "count_lines",
    "description": "Count the lines of a file.",
    "command": ["wc", "-l", "--", "{path}"],
    "parameters": {"path": {"description": "the file"}},
}
TAG: Mapping[str, Any] = {
    "name": "tag",
    "description": "Make a file.",
    "command": ["touch", "tag-{name}.txt", "{more}"],
    "parameters": {
        "type": "object",
        "properties": {"name": {"type": "string"}, "more": {"type": "integer"}},
        "required": ["name"],
    },
}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("REFOLD_HOME", str(tmp_path / "home"))
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return tmp_path / "home"


def write_tool_file(path: str, **fields: Any) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(json.dumps(fields))


def make_tool(**fields: Any) -> Tool:
    """Return the tool of a file that says this."""
    write_tool_file("t/one.json", **fields)
    variant = Variant(name="one", tools=("t/one.json",))
    (tool,) = command_tools(Declared(variant, "a.toml", 3, os.getcwd()))
    return tool


def line(tool: Tool, **arguments: object) -> str:
    assert tool.command is not None
    return tool.command(tool.parse(json.dumps(arguments).encode())).text


def start_app(text: str, *words: str) -> App:
    Path("a.toml").write_text(f'[agents.one]\nbackend = "ollama"\nmodel = "m"\n{text}')
    arguments = ("--agents", "a.toml", "--agent", "one", *words)
    return app_of(session_parser().parse_args(arguments), attended=False)


def judge_call(
    app: App, name: str, arguments: Mapping[str, object], *denied: str
) -> Decision:
    tool = next(item for item in app.tools if item.name == name)
    rules = (*app.rules, *(parse(text, "deny") for text in denied))
    access = describe_access(tool, arguments, app.facts())
    return decide(access, app.mode, rules, app.facts())


WORDS = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"))


@pytest.mark.slow
@given(st.lists(WORDS, min_size=1, max_size=8))
@example(
    ["$(touch x)", "`id`", "'; rm -rf /; '", '"', "a\nb", "\\", "*", "~", "", "!!", "é"]
)
def test_bash_passes_each_argument_unchanged_as_one_word(values: list[str]) -> None:
    tool = make_tool(
        name="show",
        description="Show.",
        command=["printf", "%s\\0", "a{word}b"],
        parameters={"word": {}},
    )
    script = "\n".join(line(tool, word=value) for value in values)
    done = subprocess.run(["bash", "-c", script], capture_output=True, check=True)

    assert done.stdout.decode() == "".join(f"a{value}b\0" for value in values)
    assert done.stderr == b""


def test_a_missing_optional_argument_omits_its_word_from_the_command() -> None:
    tool = make_tool(**TAG)

    assert line(tool, name="a b", more=3) == "touch 'tag-a b.txt' 3"
    assert line(tool, name="x") == "touch tag-x.txt"


def test_an_argument_cannot_become_an_option() -> None:
    without_mark = {**COUNT, "command": ["wc", "{path}"]}

    assert line(make_tool(**COUNT), path="--help") == "wc -l -- --help"
    with pytest.raises(
        ToolFailed, match="'path' must not begin with '-': wc would take it"
    ):
        line(make_tool(**without_mark), path="--files0-from=/etc/shadow")


def test_an_argument_may_be_an_option_of_its_enum_but_not_a_negative_number() -> None:
    fields = {**COUNT, "command": ["wc", "{how}", "{more}", "--", "{path}"]}
    how = {"enum": ["-l", "-w"]}
    more = {"type": "integer", "optional": True}
    tool = make_tool(**{**fields, "parameters": {"how": how, "more": more, "path": {}}})

    assert line(tool, how="-w", path="a") == "wc -w -- a"
    with pytest.raises(ToolFailed, match="'more' must not begin with '-'"):
        line(tool, how="-w", path="a", more=-1)


def test_an_argument_is_a_positional_parameter_of_a_script_in_the_file() -> None:
    command = ["bash", "-c", 'wc -l < "$1"', "bash", "{path}"]

    assert line(make_tool(**{**COUNT, "command": command}), path="a; id") == (
        "bash -c 'wc -l < \"$1\"' bash 'a; id'"
    )


@pytest.mark.parametrize(
    "command",
    [
        ["python", "-u", "tool.py", "-c", "{path}"],
        ["python", "-m", "pytest", "-c", "{path}"],
        ["node", "tool", "-e", "{path}"],
        ["python", "-c", "import sys; print(sys.argv)", "{path}"],
        ["env", "A=b", "git", "log", "-S", "{path}"],
        ["sed", "-n", "1p", "{path}"],
        ["sed", "-e", "1p", "{path}"],
        ["awk", "-v", "a={path}", "{print a}", "f"],
        ["awk", "-f", "own.awk", "{path}"],
        ["grep", "-e", "{path}", "f"],
    ],
)
def test_an_argument_next_to_code_in_the_command_is_passed_as_one_word(
    command: list[str],
) -> None:
    tool = make_tool(**{**COUNT, "command": command})

    assert line(tool, path="x y") == shlex.join(w.replace("{path}", "x y") for w in command)


@pytest.mark.parametrize(
    "command", [["env", "--", "wc", "{path}"], ["npm", "test", "--", "{path}"]]
)
def test_a_double_dash_before_the_program_does_not_end_its_options(
    command: list[str],
) -> None:
    tool = make_tool(**{**COUNT, "command": command})

    with pytest.raises(ToolFailed, match="'path' must not begin with '-'"):
        line(tool, path="-x")


def test_an_argument_that_completes_a_double_dash_does_not_end_the_options() -> None:
    parameters = {"path": {}, "how": {}}
    tool = make_tool(
        **{**COUNT, "command": ["wc", "-{how}", "{path}"], "parameters": parameters}
    )

    with pytest.raises(ToolFailed, match="'path' must not begin with '-'"):
        line(tool, path="-x", how="-")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"command": ["sh", "-c", "wc -l {path}"]}, "'wc -l {path}' is a script, and an argument"),
        ({"command": ["env", "bash", "-ec", "wc {path}"]}, "is a script, and an argument"),
        ({"command": ["bash", "-c", "--", "{path}"]}, "is a script, and an argument"),
        ({"command": ["bash", "-c", "-o", "pipefail", "{path}"]}, "is a script, and an argument"),
        ({"command": ["su", "-c", "{path}"]}, "is a script, and an argument"),
        ({"command": ["ssh", "far", "cat", "{path}"]}, "is a script, and an argument"),
        ({"command": ["bash", "-Bc", "wc {path}"]}, "is a script, and an argument"),
        ({"command": ["python3.12", "-Ic", "print('{path}')"]}, "is code to python, and so"),
        ({"command": ["timeout", "9", "perl", "-I", "lib", "-ne", "/{path}/"]}, "is code to perl"),
        ({"command": ["node", "--eval={path}"]}, "is code to node"),
        ({"command": ["node", "-p", "{path}"]}, "is code to node"),
        ({"command": ["ruby", "-e{path}"]}, "is code to ruby"),
        ({"command": ["deno", "eval", "{path}"]}, "is a script, and an argument"),
        ({"command": ["env", "-S", "wc {path}"]}, "is code to env"),
        ({"command": ["sed", "-n", "s/a/{path}/", "f"]}, "is code to sed"),
        ({"command": ["sed", "-i", "-e", "s/a/{path}/", "f"]}, "is code to sed"),
        ({"command": ["awk", "-F", ":", "/{path}/", "f"]}, "is code to awk"),
        ({"name": "mcp__x"}, "the name 'mcp__x' must have letters a to z"),
        ({"parameters": {"files": {}}, "command": ["wc", "{files}"]}, "needs another name"),
        ({"command": ["{path}"]}, "the first word of command must be the program itself"),
        ({"command": "wc -l {path}"}, "Expected `array`, got `str`"),
        ({"command": ["wc", "{file}"]}, "command names {file}, which is not a parameter"),
        ({"command": ["wc"]}, "the parameter 'path' does not occur in command"),
        ({"name": "mcp__x y"}, "the name 'mcp__x y' must have letters a to z"),
        ({"colour": "red"}, "unknown field `colour`"),
        ({"timeout": 0}, "Expected `int` >= 1"),
        ({"parameters": {"path": {"type": "array"}}}, "the parameter 'path' has the type 'array': choose string, integer, number, boolean"),
        ({"parameters": {"path": {"type": ["string"]}}}, "the parameter 'path' has the type ['string']"),
        ({"parameters": 5}, "Expected `object`, got `int`"),
    ],
)  # fmt: skip
def test_an_unsafe_command_tool_file_is_an_error_with_the_reason(
    change: Mapping[str, Any], expected: str
) -> None:
    with pytest.raises(BadInput) as raised:
        make_tool(**{**COUNT, **change})

    assert str(raised.value).startswith("a.toml:3: one.tools: ")
    assert "one.json" in str(raised.value)
    assert expected in str(raised.value)


def test_a_tool_with_the_name_of_another_is_refused() -> None:
    write_tool_file("t/one.json", **{**COUNT, "name": "read_file"})
    with pytest.raises(BadInput, match="there is a tool 'read_file' already"):
        start_app('tools = ["t/one.json"]\n')

    write_tool_file("t/one.json", **COUNT)
    write_tool_file("t/two.json", **{**COUNT, "description": "Another."})
    with pytest.raises(BadInput, match="has the name 'count_lines', and so has"):
        start_app('tools = ["./t"]\n')


@pytest.mark.parametrize("name", ["write", "edit", "read", "shell"])
def test_a_command_tool_cannot_have_an_alias_of_a_built_in_tool_as_name(name: str) -> None:
    """Otherwise the rule that `auto_tools` writes for the one would allow the other."""
    with pytest.raises(BadInput, match=f"the name '{name}' means another tool in rules"):
        make_tool(**{**COUNT, "name": name})


def test_a_command_tool_is_judged_by_the_rules_for_bash() -> None:
    write_tool_file("t/count.json", **COUNT)
    write_tool_file("t/tag.json", **TAG)
    asks = start_app('tools = ["./t"]\n')
    runs = start_app('tools = ["./t"]\nauto_tools = true\n')

    inside = judge_call(asks, "count_lines", {"path": "a.txt"})
    assert inside == Decision(
        "allow", reason="every part of it is read-only, inside the workspace"
    )
    assert judge_call(asks, "count_lines", {"path": "/etc/shadow"}).verdict == "ask"
    assert (
        judge_call(asks, "count_lines", {"path": ".env"}, "read_file(.env)").verdict
        == "deny"
    )
    assert judge_call(asks, "tag", {"name": "x"}).verdict == "ask"
    assert judge_call(runs, "tag", {"name": "x"}).rule == "tag"
    assert judge_call(runs, "tag", {"name": "x"}, "bash(touch *)").rule == "bash(touch *)"
    assert judge_call(runs, "tag", {"name": "x"}, "tag").verdict == "deny"


def test_an_allowed_tool_still_asks_before_a_catastrophe_or_a_protected_file() -> None:
    fields = {**COUNT, "name": "drop", "command": ["rm", "-rf", "--", "{path}"]}
    write_tool_file("t/drop.json", **fields)
    app = start_app('tools = ["t/drop.json"]\nauto_tools = true\n')

    assert judge_call(app, "drop", {"path": "build"}).verdict == "allow"
    assert [judge_call(app, "drop", {"path": p}).once for p in ("/", ".git/hooks")] == [
        True,
        True,
    ]


def test_the_rule_offered_for_a_command_tool_allows_its_command() -> None:
    write_tool_file("t/tag.json", **TAG)
    app = start_app('tools = ["t/tag.json"]\n')
    tool = next(item for item in app.tools if item.name == "tag")
    access = describe_access(tool, {"name": "x"}, app.facts())

    offered = narrowest_rule(access, app.facts())
    assert offered == "bash(touch tag-x.txt)"
    allowed = decide(access, "default", [parse(offered, "allow")], app.facts())
    assert allowed.rule == offered


def test_an_approval_is_void_once_the_tool_file_changes_the_command() -> None:
    call = ToolCall("1", "count_lines", Raw(b'{"path": "a"}'))

    def hash_of(tool: Tool) -> str:
        return fingerprint(call, describe_access(tool, {"path": "a"}, app.facts()))

    app = start_app("")
    before = hash_of(make_tool(**COUNT))
    assert hash_of(make_tool(**COUNT)) == before
    assert hash_of(make_tool(**{**COUNT, "command": ["rm", "--", "{path}"]})) != before


def test_only_an_agent_that_lists_a_command_tool_has_it() -> None:
    every = (make_tool(**COUNT),)

    def names(**fields: Any) -> list[str]:
        profile = Profile(name="x", description="x", **fields)
        return [tool.name for tool in tools_of(profile, every).active]

    assert names() == []
    assert names(tools=("count_lines",)) == ["count_lines"]
    assert names(tools=("count_lines",), without=("bash",)) == []


def test_changing_a_project_tool_ends_the_trust_that_showed_it(
    capfd: pytest.CaptureFixture[str],
) -> None:
    def tools() -> list[str]:
        app = app_of(session_parser().parse_args([]), attended=False)
        return [tool.name for tool in app.tools if tool.command]

    write_tool_file(".refold/tools/count.json", **COUNT)
    Path("agents.toml").write_text('[agents.one]\ntools = [".refold/tools/count.json"]\n')
    assert tools() == []
    main(["trust", "add", "--yes"])
    assert '"command": ["wc", "-l", "--", "{path}"]' in capfd.readouterr().out
    assert tools() == ["count_lines"]

    write_tool_file(".refold/tools/count.json", **{**COUNT, "command": ["rm", "{path}"]})
    assert tools() == []


def test_trust_escapes_control_characters_in_the_file_name_of_a_tool(
    capfd: pytest.CaptureFixture[str],
) -> None:
    write_tool_file(".refold/tools/\x1b[2J\n  harmless.json", **COUNT)
    Path("agents.toml").write_text('[agents.one]\ntools = [".refold/tools"]\n')
    main(["trust", "add", "--yes"])

    output = capfd.readouterr().out
    assert ".refold/tools/\\x1b[2J\\n  harmless.json:\n" in output
    assert "\x1b" not in output


def test_a_project_agent_may_use_tools_only_from_refold_tools() -> None:
    write_tool_file("t/count.json", **COUNT)
    Path("agents.toml").write_text('[agents.one]\ntools = ["t/count.json"]\n')

    with pytest.raises(BadInput, match=r"put it into \.refold/tools"):
        app_of(session_parser().parse_args(["--trust"]), attended=False)


@pytest.mark.slow
def test_a_command_tool_call_runs_without_shell_expansion_of_its_argument() -> None:
    write_tool_file("t/count.json", **COUNT)
    Path("my file.txt").write_text("a\nb\n")
    calls = [
        {"tool": "count_lines", "arguments": {"path": path}}
        for path in ("my file.txt", "$(touch made)")
    ]
    Path("s.jsonl").write_text(json.dumps({"calls": calls}) + '\n{"text": "Done."}\n')
    Path("a.toml").write_text('[agents.one]\ntools = ["./t"]\n')

    arguments = ["-p", "x", "--agents", "a.toml", "--agent", "one", "--script", "s.jsonl"]
    done = subprocess.run(
        [sys.executable, "-m", "refold", *arguments, "--output-format", "stream-json"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=True,
        timeout=60,
    )
    rows = [json.loads(row) for row in done.stdout.splitlines()]
    results = {r["call_id"]: r["text"] for r in rows if r["type"] == "tool_result"}

    assert results["call-0"] == "2 my file.txt"
    assert "'$(touch made)': No such file" in results["call-1"]
    assert not Path("made").exists()


def test_a_tool_file_with_invalid_json_is_an_error() -> None:
    Path("one.json").write_text('{"name": "one"')
    variant = Variant(name="one", tools=("./one.json",))

    with pytest.raises(BadInput, match="it is not valid JSON"):
        command_tools(Declared(variant, "a.toml", 3, os.getcwd()))
