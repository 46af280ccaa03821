"""`refold permissions`: what may run here, why, and what other rules would decide."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from refold import Agent
from refold.cli.main import main
from refold.config.paths import paths
from refold.config.project import read_project
from refold.config.trusted_folders import TrustedFolders
from refold.testing.providers import ScriptedProvider


class RefoldRunner:
    def __init__(self, capfd: pytest.CaptureFixture[str]) -> None:
        self._capfd = capfd

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        code = main(("permissions", *arguments))
        out, err = self._capfd.readouterr()
        return code, out, err

    def explain(self, tool: str, input_: object, *flags: str) -> dict[str, Any]:
        call_flags = ("--tool", tool, "--input", json.dumps(input_), "--json")
        code, out, err = self("explain", *call_flags, *flags)
        assert (code, err) == (0, "")
        assert out.count("\n") == 1
        return json.loads(out)

    def verdict(self, command: str, *flags: str) -> str:
        return self.explain("bash", {"command": command}, *flags)["decision"]


@pytest.fixture
def refold(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> RefoldRunner:
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return RefoldRunner(capfd)


def settings(text: str) -> Path:
    file = paths(os.environ).settings
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)
    return file


# Explaining one call. -----------------------------------------------------------------


def test_permissions_explain_names_the_deciding_rule_and_its_file(
    refold: RefoldRunner,
) -> None:
    file = settings('[permissions]\ndeny = ["bash(rm *)"]\n')

    explanation = refold.explain("bash", {"command": "ls; rm x"}, "--allow", "bash(rm *)")

    assert explanation["reason"]
    assert {key: explanation[key] for key in ("decision", "rule", "source", "once")} == {
        "decision": "deny",
        "rule": "bash(rm *)",
        "source": f"user {file}",
        "once": False,
    }
    assert set(explanation) - {"reason"} == {
        "decision", "rule", "source", "once", "sandbox", "network", "hosts", "after_outside_text",
    }  # fmt: skip


def test_permissions_explain_gives_a_reason_for_a_call_without_a_rule(
    refold: RefoldRunner,
) -> None:
    explanation = refold.explain("bash", {"command": "make test"})

    assert (explanation["decision"], explanation["rule"], explanation["source"]) == (
        "ask",
        None,
        None,
    )
    assert explanation["reason"]


def test_permissions_explain_also_gives_the_decision_after_outside_text_was_read(
    refold: RefoldRunner,
) -> None:
    settings("ask_after_outside_text = true\n")

    explanation = refold.explain(
        "bash", {"command": "make test"}, "--allow", "bash(make *)"
    )
    _, out, _ = refold("explain", "bash(make test)", "--allow", "bash(make *)")
    _, looking, _ = refold("explain", "bash(ls)")

    assert (explanation["decision"], explanation["after_outside_text"]) == ("allow", "ask")
    assert (
        "  after text from outside: ask, since the model has read text from outside since "
        "your last message\n"
    ) in out
    assert "after text" not in looking


def test_permissions_explain_applies_mode_and_rule_flags(refold: RefoldRunner) -> None:
    assert refold.verdict("make test") == "ask"
    assert refold.verdict("make test", "--allow", "bash(make *)") == "allow"
    assert refold.verdict("make test", "--mode", "bypass") == "allow"
    assert refold.verdict("make test", "--mode", "bypassPermissions") == "allow"
    assert refold.verdict("make test", "--mode", "bypass", "--ask", "bash(make *)") == "ask"
    assert (
        refold.verdict("make test", "--mode", "plan", "--allow", "bash(make *)") == "deny"
    )
    assert refold.verdict("ls", "--mode", "rulesOnly") == "ask"
    for name in ("acceptEdits", "accept-edits"):
        explanation = refold.explain(
            "write_file", {"path": "a", "content": "x"}, "--mode", name
        )
        assert (
            explanation["decision"],
            explanation["sandbox"],
            explanation["network"],
        ) == ("allow", None, None)


def test_permissions_explain_accepts_a_call_in_rule_notation(refold: RefoldRunner) -> None:
    code, out, err = refold("explain", "bash(make test)", "--allow", "bash(make *)")

    assert (code, err) == (0, "")
    assert out.startswith("allow: bash make test\n")
    assert "  rule: bash(make *), command line\n" in out
    assert "  sandbox: " in out
    assert refold("explain", "edit_file(src/a.py)")[1].startswith("ask: edit_file src/a.py")


def test_permissions_explain_applies_cwd_and_add_dir_flags(
    refold: RefoldRunner, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    file = {"path": str(tmp_path / "other/a.txt")}

    assert refold.explain("read_file", file)["decision"] == "ask"
    for more in ("--cwd", "--add-dir"):
        assert (
            refold.explain("read_file", file, more, str(tmp_path / "other"))["decision"]
            == "allow"
        )


def test_permissions_explain_with_no_config_ignores_files_and_variables(
    refold: RefoldRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings("[permissions]\nallow = ['bash(make *)']\n")
    monkeypatch.setenv("REFOLD_PERMISSION_MODE", "bypass")

    assert refold.verdict("make test") == "allow"
    assert refold.verdict("make test", "--no-config") == "ask"
    settings("no TOML")
    monkeypatch.setenv("REFOLD_NONSENSE", "1")
    assert refold.verdict("make test", "--no-config", "--allow", "bash(make *)") == "allow"


def test_permissions_explain_applies_project_rules_only_if_trusted(
    refold: RefoldRunner, tmp_path: Path
) -> None:
    folder = tmp_path / "work"
    (folder / ".refold").mkdir()
    (folder / ".refold/config.toml").write_text("[permissions]\nallow = ['bash(make *)']\n")
    call = ("explain", "bash(make test)", "--json")

    code, before, text = refold(*call)
    places = paths(os.environ)
    TrustedFolders(places.folders).trust(read_project(folder, places.settings))
    _, after, silent = refold(*call)

    assert (code, json.loads(before)["decision"]) == (0, "ask")
    assert ".refold/config.toml" in text
    assert json.loads(after)["source"] == "project .refold/config.toml"
    assert silent == ""


def test_permissions_explain_denies_an_invalid_path_with_the_reason(
    refold: RefoldRunner,
) -> None:
    explanation = refold.explain("read_file", {"path": "a\0b"})

    assert (explanation["decision"], explanation["rule"]) == ("deny", None)
    assert "cannot be a path" in explanation["reason"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--tool", "bsh", "--input", "{}"), "there is no tool 'bsh'; did you mean bash?"),
        (
            ("--tool", "bash", "--input", "{"),
            "bash cannot be called with '{': The arguments",
        ),
        (("--tool", "bash"), "bash cannot be called with '{}': 'command' is missing"),
        (("--tool", "bash", "--input", '{"command": 3}'), "'command': Expected `str`"),
        (("--tool", "bash", "--input", '{"order": "x"}'), "no argument 'order'"),
        (("--tool", "bash", "--input", "[]"), "bash cannot be called with '[]'"),
        ((), "name one call: 'bash(git status)', or --tool NAME --input JSON"),
        (("bash(ls)", "--tool", "bash"), "name one call"),
        (("bash(ls)", "--input", "{}"), "--input goes with --tool NAME"),
        (("bash",), "'bash' does not say its command: write bash(…)"),
        (("ls -l",), "'ls -l' is not a call: write it as bash(git status)"),
        (("bash(ls)", "--mode", "yolo"), "--mode: invalid choice: 'yolo'"),
        (
            ("bash(ls)", "--allow", "bash("),
            "'bash(' is not a permission rule",
        ),
        (("bash(ls)", "--cwd", "nowhere"), "--cwd 'nowhere': there is no such directory"),
        (("bash(ls)", "--add-dir", "nowhere"), "--add-dir 'nowhere': there is no such"),
    ],
)
@pytest.mark.parametrize("config", [(), ("--no-config",)])
def test_permissions_explain_reports_bad_input_in_one_sentence(
    refold: RefoldRunner, arguments: tuple[str, ...], message: str, config: tuple[str, ...]
) -> None:
    code, out, err = refold("explain", "--json", *arguments, *config)

    assert (code, out) == (1, "")
    assert message in err
    assert err.startswith("refold: ")
    assert err.count("\n") == 1


# The rules in force. ------------------------------------------------------------------


def test_permissions_list_shows_every_active_rule_with_its_source(
    refold: RefoldRunner, tmp_path: Path
) -> None:
    file = settings("permission_mode = 'plan'\n[permissions]\ndeny = ['bash(rm *)']\n")
    TrustedFolders(paths(os.environ).folders).store_allow_rules(
        tmp_path / "work", "bash(make \x1b[2J)"
    )

    code, out, _ = refold("list", "--ask", "bash(git push *)")

    assert (code, out) == (
        0,
        f"deny   bash(rm *)  # user {file}\n"
        "ask    bash(git push *)  # command line\n"
        "allow  bash(make \\x1b[2J)  # always, in this folder\n"
        "mode plan, 3 rules\n",
    )
    rows = [json.loads(line) for line in refold("list", "--json")[1].splitlines()]
    assert [row["verdict"] for row in rows] == ["deny", "allow"]


# A file of cases. ---------------------------------------------------------------------

YAML = """
defaults:
  mode: rulesOnly
  deny: ["bash(rm *)"]
cases:
  - {name: seen through quotes, command: '"rm" -rf build', expect: deny}
  - {tool: read_file, input: {path: README.md}, mode: default, expect: allow}
  - command: make test
    allow: [{rule: "bash(make *)", match: [make test]}]
    expect: allow
  - {command: rm x, deny: [], expect: [ask, deny]}
"""


def test_permissions_test_passes_cases_with_the_expected_verdict(
    refold: RefoldRunner, tmp_path: Path
) -> None:
    (tmp_path / "cases.yaml").write_text(YAML)
    (tmp_path / "cases.json").write_text(json.dumps([{"command": "make", "expect": "ask"}]))
    (tmp_path / "cases.toml").write_text('[[cases]]\ncommand = "make"\nexpect = "ask"\n')

    assert refold("test", str(tmp_path / "cases.yaml")) == (0, "4 cases, 0 failed\n", "")
    assert refold("test", str(tmp_path / "cases.json")) == (0, "1 cases, 0 failed\n", "")
    assert refold("test", str(tmp_path / "cases.toml")) == (0, "1 cases, 0 failed\n", "")


def test_permissions_test_reports_each_failed_case_on_one_line(
    refold: RefoldRunner, tmp_path: Path
) -> None:
    settings("[permissions]\nallow = ['bash(make *)']\n")
    (tmp_path / "cases.yaml").write_text(YAML + "  - {command: make, expect: ask}\n")

    code, out, _ = refold("test", str(tmp_path / "cases.yaml"))

    assert code == 1
    assert out.splitlines()[0].startswith("case 5: bash make: expected ask, got allow: ")
    assert out.splitlines()[1:] == ["5 cases, 1 failed"]
    assert refold("test", str(tmp_path / "cases.yaml"), "--no-config")[0] == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no cases"),
        ("cases: []", "there are no cases in"),
        ("- [", "the cases in"),
        ("- !!python/object/apply:os.system [ls]", "the cases in"),
        ("- {command: ls}", "case 1: Object missing required field `expect`"),
        ("- {command: ls, expect: maybe}", "case 1: Invalid enum value 'maybe'"),
        ("- {command: ls, expects: allow, expect: allow}", "unknown field `expects`"),
        ("- {expect: allow}", "case 1: the call is missing: give command, or tool and input"),
        ("- {command: ls, tool: grep, expect: allow}", "give either command, or tool and input"),
        ("- {tool: nope, expect: allow}", "case 1: there is no tool 'nope'"),
        ("- {command: ls, mode: yolo, expect: allow}", "case 1: there is no mode 'yolo'"),
        ("- {command: ls, allow: ['bash('], expect: allow}", "case 1: 'bash(' is not a permission"),
        ("- {command: ls, deny: [{rule: bash(rm *), match: [ls]}], expect: allow}",
         "the rule bash(rm *) in"),
        ("rules: []", "unknown field `rules`"),
    ],
)  # fmt: skip
def test_permissions_test_reports_an_invalid_case_file_in_one_sentence(
    refold: RefoldRunner, tmp_path: Path, text: str, message: str
) -> None:
    file = tmp_path / "cases.yaml"
    file.write_text(text)

    code, out, err = refold("test", str(file))

    assert (code, out) == (1, "")
    assert str(file) in err
    assert message in err
    assert err.count("\n") == 1


# Rules from elsewhere. ----------------------------------------------------------------

THEIRS = {
    "permissions": {
        "allow": [
            "Bash(npm run lint)",
            "Bash(npm run test:*)",
            "Read(//etc/hosts)",
            "Nope",
        ],
        "deny": ["Read(./.env)"],
        "defaultMode": "acceptEdits",
        "additionalDirectories": ["../docs"],
    },
    "env": {"A": "b"},
}


def write_claude_settings(folder: Path, value: object, name: str = "settings.json") -> Path:
    (folder / ".claude").mkdir(exist_ok=True)
    file = folder / ".claude" / name
    file.write_text(json.dumps(value))
    return file


def test_permissions_import_lists_and_applies_the_rules_of_claude_code(
    refold: RefoldRunner, tmp_path: Path
) -> None:
    write_claude_settings(tmp_path / "work", THEIRS)
    write_claude_settings(
        tmp_path / "work",
        {"permissions": {"ask": ["Bash(git push:*)"]}},
        "settings.local.json",
    )

    code, result, left = refold("import", "--print")
    before = refold("list")[1]
    refold("import", "--yes")
    _, text, _ = refold("list")

    assert code == 0
    assert "allow  bash(npm run lint)\n" in result
    assert "ask    bash(git push:*)\n" in result
    assert "'Nope' was left out: there is no such tool here" in left
    assert "--permission-mode accept-edits" in left
    assert "'../docs' was not imported" in left
    assert before == (
        "deny   read(./.env)  # .claude/settings.json\nmode default, 1 rules\n"
    )
    assert text.count("  # always, in this folder\n") == 5
    assert refold.verdict("npm run test unit") == "allow"
    assert refold.explain("read_file", {"path": ".env"})["decision"] == "deny"
    assert not (tmp_path / "work/.refold").exists()


def test_permissions_import_reads_a_file_given_by_path(
    refold: RefoldRunner, tmp_path: Path
) -> None:
    file = write_claude_settings(tmp_path, THEIRS)

    assert "allow  bash(npm run lint)\n" in refold("import", str(file), "--print")[1]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "there is no .claude/settings.json in"),
        ("[]", "settings.json holds no JSON object"),
        ('{"permissions": 3}', "settings.json: permissions is not an object"),
        ("{}", "there is no rule to import"),
        (" " * 100_000, "it is larger than 64 KiB"),
    ],
)
def test_permissions_import_reports_unusable_settings_in_one_sentence(
    refold: RefoldRunner, tmp_path: Path, content: str | None, message: str
) -> None:
    if content is not None:
        write_claude_settings(tmp_path / "work", {}).write_text(content)

    code, out, err = refold("import")

    assert (code, out) == (1, "")
    assert message in err
    assert not paths(os.environ).folders.exists()


# Old sessions under new rules. --------------------------------------------------------


def record_session(
    tmp_path: Path, *commands: str, mode: Any = None, **settings_: Any
) -> str:
    """Return a session in which these commands were wanted; return its id."""
    calls = [[("bash", json.dumps({"command": command}))] for command in commands]
    agent = Agent(
        provider=ScriptedProvider(*calls, "Done."),
        directory=tmp_path / "work",
        mode=mode,
        settings={"limits.refused_responses": 99, **settings_},
    )
    return agent.run("Go.").session_id


def test_permissions_replay_lists_the_calls_with_a_different_verdict(
    refold: RefoldRunner, tmp_path: Path
) -> None:
    id_ = record_session(tmp_path, "true", "echo a", "touch b", "rm b", mode="bypass")
    rules = tmp_path / "rules.toml"
    rules.write_text(
        'permission_mode = "bypass"\n[permissions]\ndeny = ["bash(rm *)"]\nask = ["bash(touch *)"]\n'
    )
    journal = paths(os.environ).data / "sessions" / id_
    before = {path: path.read_bytes() for path in journal.rglob("*") if path.is_file()}

    code, out, err = refold("replay", id_, "--rules", str(rules))
    last = refold("replay", "last", "--rules", str(rules))
    rows = [
        json.loads(x)
        for x in refold("replay", id_, "--rules", str(rules), "--json")[1].splitlines()
    ]

    assert (code, err) == (0, "")
    assert out.splitlines()[-1] == "4 calls, 2 would get another verdict"
    assert last == (code, out, err)
    assert [
        (r["call"], r["then"]["decision"], r["now"]["decision"], r["now"]["rule"])
        for r in rows
    ] == [
        ("bash touch b", "allow", "ask", "bash(touch *)"),
        ("bash rm b", "allow", "deny", "bash(rm *)"),
    ]
    assert {
        path: path.read_bytes() for path in journal.rglob("*") if path.is_file()
    } == before


def test_permissions_replay_under_the_same_rules_reports_no_difference(
    refold: RefoldRunner, tmp_path: Path
) -> None:
    rule = '[permissions]\nallow = ["bash(touch *)"]\ndeny = ["bash(rm *)"]\n'
    settings(rule)
    id_ = record_session(tmp_path, "ls", "touch b", "rm b", "make")
    (tmp_path / "rules.toml").write_text(rule)

    result = refold("replay", id_, "--rules", str(tmp_path / "rules.toml"))

    assert result == (0, "4 calls, 0 would get another verdict\n", "")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "there is no file"),
        ("[permissions]\nallow = ['bash(']", "is not a permission rule"),
        ("x = ", "is not valid TOML"),
        ("[permission]\nallow = []", "there is no setting"),
    ],
)
def test_permissions_replay_reports_an_unreadable_rules_file(
    refold: RefoldRunner, tmp_path: Path, text: str | None, message: str
) -> None:
    id_ = record_session(tmp_path, "ls")
    file = tmp_path / "rules.toml"
    if text is not None:
        file.write_text(text)

    code, out, err = refold("replay", id_, "--rules", str(file))

    assert (code, out) == (1, "")
    assert str(file) in err
    assert message in err
    assert refold("replay", "nothing", "--rules", str(file))[0] == 1


def test_permissions_replay_includes_directories_added_to_the_workspace(
    refold: RefoldRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    write = {"tool": "write_file", "arguments": {"path": f"{other}/a", "content": "a"}}
    script = tmp_path / "script.jsonl"
    script.write_text(json.dumps({"calls": [write]}) + '\n{"text": "Done."}\n')
    (tmp_path / "rules.toml").write_text('permission_mode = "accept-edits"\n')
    mode = ("--permission-mode", "accept-edits")

    with Path(os.devnull).open() as nothing:
        monkeypatch.setattr("sys.stdin", nothing)
        main(["-p", "Go.", "--add-dir", str(other), "--script", str(script), *mode])
    result = refold("replay", "last", "--rules", str(tmp_path / "rules.toml"))

    assert (other / "a").exists()
    assert result[1].splitlines()[-1] == "1 calls, 0 would get another verdict"
