"""Agents in agents.toml, agents.yaml and agents.json: found, checked, and what each key does."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from refold.agents.profile import tools_of
from refold.app.app import App
from refold.cli.flags import session_parser
from refold.cli.launch import app_of
from refold.cli.main import main
from refold.config.settings import Settings
from refold.errors import BadInput
from refold.permissions.decide import decide
from refold.permissions.facts import Access, Target
from refold.permissions.rules import parse
from refold.tools.builtin import builtin
from refold.tools.read import read_file
from refold.tools.shell import bash
from refold.values.tools import Effect

FIRST = '[agents.one]\nbackend = "ollama"\nmodel = "llama3"\n'


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("REFOLD_HOME", str(tmp_path / "home"))
    work = tmp_path / "work"
    work.mkdir()
    (tmp_path / "home").mkdir()
    monkeypatch.chdir(work)
    return tmp_path / "home"


def start_app(*text: str) -> App:
    return app_of(session_parser().parse_args(text), attended=False)


def start_declared(text: str, *words: str) -> App:
    Path("a.toml").write_text(text)
    return start_app("--agents", "a.toml", "--agent", "one", *words)


def fault(text: str, name: str = "a.toml") -> str:
    Path(name).write_text(text)
    with pytest.raises(BadInput) as raised:
        start_app("--agents", name, "--agent", "one")
    return str(raised.value)


Read = Callable[[App], object]


def setting(read: Callable[[Settings], object]) -> Read:
    return lambda app: read(app.settings)


def prompt(app: App) -> object:
    return app.agents.find("one").prompt


def window(app: App) -> object:
    return app.models.traits("ollama/llama3").window


EVERY: dict[str, tuple[str, Read, object]] = {
    "description": ('"Looks."', lambda app: app.agents.find("one").description, "Looks."),
    "system_prompt": ('"Be brief."', prompt, "Be brief."),
    "agent_md": ('"more.md"', prompt, "From a file."),
    "skills": ('["more.md", "skill"]', prompt, "From a file.\n\nFrom a folder."),
    "tools": ('["read"]', lambda app: app.agents.find("one").tools, ("read_file",)),
    "confirm": ('["bash"]', lambda app: app.agents.find("one").ask, ("bash",)),
    "describe": (
        '["edit: Change it."]', lambda app: app.agents.find("one").descriptions,
        (("edit_file", "Change it."), ("multi_edit", "Change it.")),
    ),
    "approval": ('"auto_edit"', setting(lambda s: s.permission_mode), "accept-edits"),
    "context_mode": ('"sliding"', setting(lambda s: s.backend.context), "sliding"),
    "context_format": ('"xml"', setting(lambda s: s.backend.format), "xml"),
    "max_messages": ("7", setting(lambda s: s.backend.window_messages), 7),
    "max_iterations": ("9", setting(lambda s: s.limits.steps), 9),
    "timeout": ("300", setting(lambda s: s.http.idle_seconds), 300.0),
    "show_tokens": ("false", setting(lambda s: s.terminal.show_tokens), False),
    "display": ('"plain"', setting(lambda s: s.terminal.display), "plain"),
    "max_context_tokens": ("5000", window, 5000),
    "max_context_chars": ("8000", window, 2000),
    "max_context_words": ("3000", window, 4000),
    "base_url": (
        '"http://far/"', setting(lambda s: s.providers["ollama"].base_url), "http://far/",
    ),
    "api_key_env": (
        '"MY_KEY"', setting(lambda s: s.providers["ollama"].key_env), "MY_KEY",
    ),
    "host": (
        '"far"', setting(lambda s: s.providers["ollama"].base_url), "http://far:11434",
    ),
    "port": (
        "99", setting(lambda s: s.providers["ollama"].base_url), "http://127.0.0.1:99",
    ),
}  # fmt: skip


@pytest.mark.parametrize("key", EVERY)
def test_each_agent_key_changes_the_setting_that_it_names(key: str) -> None:
    Path("more.md").write_text("From a file.\n")
    Path("skill").mkdir()
    Path("skill/SKILL.md").write_text("From a folder.\n")
    value, read, expected = EVERY[key]

    assert read(start_declared(f"{FIRST}{key} = {value}\n")) == expected
    if key not in ("host", "port", "base_url", "api_key_env"):
        assert read(start_declared(FIRST)) != expected


@pytest.mark.parametrize("text", ["bash", "fly: Go up.", "bash:", ": Words."])
def test_describe_without_a_tool_name_and_a_text_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="is not the name of a tool and words about it"):
        start_declared(f"{FIRST}describe = ['{text}']\n").agents.find("one")


def test_describe_text_precedes_the_built_in_description_of_a_tool() -> None:
    profile = start_declared(f"{FIRST}describe = ['bash: Run it.']\n").agents.find("one")

    tools = {tool.name: tool for tool in tools_of(profile, builtin()).active}

    assert tools["bash"].spec.description == f"Run it.\n{bash.description}"
    assert tools["read_file"] is read_file


def test_backend_and_model_keys_choose_the_model_and_flags_override_them() -> None:
    assert start_declared(FIRST).models.default() == "ollama/llama3"
    assert start_declared(FIRST, "-m", "ollama/qwen").models.default() == "ollama/qwen"
    assert (
        start_declared(
            '[agents.one]\nbackend = "ollama-api"\nmodel = "x"\n'
        ).models.default()
        == "ollama/x"
    )


def test_auto_tools_allows_listed_tools_in_the_workspace_but_deny_rules_win() -> None:
    app = start_declared(FIRST + 'tools = ["write"]\nauto_tools = true\n')
    root = os.path.realpath(".")

    def verdict(tool: str, path: str, *denied: str) -> str:
        access = Access(tool, Effect.CHANGE, files=(Target(path, path),))
        rules = (*app.rules, *(parse(text, "deny") for text in denied))
        return decide(access, app.mode, rules, app.facts()).verdict

    assert verdict("write_file", f"{root}/a.txt") == "allow"
    assert verdict("write_file", "/elsewhere/a.txt") == "ask"
    assert verdict("write_file", f"{root}/a.txt", "edit_file(a.txt)") == "deny"
    assert (
        decide(Access("bash", Effect.RUN, "make"), app.mode, app.rules, app.facts()).verdict
        == "ask"
    )


def test_auto_tools_without_a_list_allows_only_bash_edit_and_read() -> None:
    app = start_declared(FIRST + "auto_tools = true\n")

    assert sorted(str(rule) for rule in app.rules if rule.verdict == "allow") == [
        "bash", "edit_file(**)", "read_file(**)",
    ]  # fmt: skip
    assert app.agents.find("one").tools == ("*",)


def test_extends_inherits_agent_keys_and_variables_are_expanded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MODEL", "big")
    text = '[agents.base]\nbackend = "ollama"\nmodel = "${MODEL}"\ntimeout = 5\n'
    app = start_declared(text + '[agents.one]\nextends = "base"\ntimeout = 6\n')

    assert app.models.default() == "ollama/big"
    assert app.settings.http.idle_seconds == 6.0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('[agents.one]\nmodle = "x"\n', "a.toml:2: agents.one.modle: there is no such key; did you mean model?"),
        ("[agents.one]\nport = 0\n", "a.toml:2: agents.one.port: 0 is not allowed: Expected `int` >= 1"),
        ('[agents.one]\ncontext_mode = "slide"\n', "a.toml:2: agents.one.context_mode: 'slide' is not allowed: one of continue, fresh, sliding, summarize"),
        ('[agents.one]\nextends = "two"\n', "a.toml:2: agents.one.extends: there is no agent 'two' in this file"),
        ('[agents.one]\nextends = "one"\n', "a.toml:2: agents.one.extends: 'one' would extend itself"),
        ('[agents.one]\nmodel = "${NO_SUCH}"\n', "a.toml:2: agents.one.model: the environment variable 'NO_SUCH' is not set"),
        ('[agents.one]\nhost = "far"\n', "a.toml:1: one.host: say which backend it is for"),
        ('[agents.one]\ntools = ["raed"]\n', "a.toml:1: the agent one: there is no tool 'raed'"),
        ('[agents.one]\ncommand = ["cat"]\n', 'a.toml:2: agents.one.command: add own_tools = "none"'),
        ('default = "two"\n[agents.one]\n', "a.toml:1: default: there is no agent 'two'"),
        ("agents = 3\n", "a.toml:1: agents: it must be a table"),
        ("[agents.One]\n", "a.toml:1: agents.One: a name has letters a to z"),
        ("[agents.plan]\n", "a.toml:1: 'plan' is a built-in agent"),
    ],
)  # fmt: skip
def test_agent_file_errors_name_file_line_key_and_allowed_values(
    text: str, expected: str
) -> None:
    assert expected in fault(text)


def test_errors_in_yaml_and_json_agent_files_name_the_line() -> None:
    assert "a.yaml:3: agents.one.prot" in fault("agents:\n  one:\n    prot: 1\n", "a.yaml")
    text = '{"agents": {\n "one": {\n  "prot": 1}}}'
    assert "a.json:3: agents.one.prot" in fault(text, "a.json")


def test_the_nearest_of_four_agent_files_wins_and_default_selects_the_agent(
    home: Path,
) -> None:
    def write(path: Path, model: str) -> None:
        path.parent.mkdir(exist_ok=True)
        path.write_text(
            f'default = "one"\n[agents.one]\nbackend = "ollama"\nmodel = "{model}"\n'
        )

    def model(*text: str) -> str:
        return start_app("--trust", *text).models.default()

    write(home / "agents.toml", "of-the-user")
    assert model() == "ollama/of-the-user"
    write(Path("agents.toml"), "of-the-directory")
    assert model() == "ollama/of-the-directory"
    write(Path(".refold/agents.toml"), "of-dot-refold")
    assert model() == "ollama/of-dot-refold"
    write(Path("named.toml"), "named")
    assert model("--agents", "named.toml") == "ollama/named"


def test_an_untrusted_agent_file_is_ignored_with_a_notice(
    capfd: pytest.CaptureFixture[str],
) -> None:
    Path(".refold").mkdir()
    Path(".refold/agents.toml").write_text(
        'default = "one"\n[agents.one]\ncommand = ["touch", "ran"]\nown_tools = "none"\n'
        'tools = ["bash"]\nauto_tools = true\n[agents.far]\nbackend = "ollama"\nhost = "evil"\n'
    )
    app = start_app()

    assert [profile.name for profile in app.agents.profiles] == []
    assert app.settings.commands == {}
    assert app.settings.agent == "main"
    assert "agents.toml" in " ".join(app.notices())
    main(["agents"])
    assert "not trusted, so these settings are ignored" in capfd.readouterr().err


def test_an_agent_file_given_with_agents_is_used_without_an_ignored_notice(
    capfd: pytest.CaptureFixture[str],
) -> None:
    Path("agents.toml").write_text(FIRST)
    Path(".refold").mkdir()
    tools = Path(".refold/tools")
    tools.mkdir()
    (tools / "a.json").write_text("{}")

    assert "agents.toml" not in " ".join(start_app("--agents", "agents.toml").notices())
    main(["--agents", "./agents.toml", "--list-agents"])
    assert capfd.readouterr().err == ""
    Path(".refold/agents.toml").write_text(FIRST)
    main(["--agents", "agents.toml", "--list-agents"])
    ignored = capfd.readouterr().err
    assert ".refold/agents.toml and .refold/tools/a.json in" in ignored


def test_trust_ends_when_the_agent_file_changes(capfd: pytest.CaptureFixture[str]) -> None:
    Path(".refold").mkdir()
    file = Path(".refold/agents.toml")
    file.write_text(FIRST)
    main(["trust", "add", "--yes"])
    assert 'model = "llama3"' in capfd.readouterr().out
    assert [profile.name for profile in start_app().agents.profiles] == ["one"]

    file.write_text(FIRST + "timeout = 3\n")
    assert [profile.name for profile in start_app().agents.profiles] == []


def test_an_api_key_in_a_user_file_works_with_a_warning_and_in_a_project_is_refused() -> (
    None
):
    app = start_declared('[agents.one]\nbackend = "openai"\napi_key = "sk-secret-secret"\n')
    spec = next(item for item in app.models.connections.known if item.name == "openai")

    assert app.environ[spec.key_env] == "sk-secret-secret"
    assert b"sk-secret" not in app.models.connections.masks.mask(b"sk-secret-secret")
    assert "better name the variable" in " ".join(app.notices())
    Path("agents.toml").write_text('[agents.one]\nbackend = "openai"\napi_key = "sk-x"\n')
    with pytest.raises(BadInput, match="a project must not hold a key"):
        start_app("--trust")


def test_a_project_agent_file_cannot_read_text_outside_the_project(tmp_path: Path) -> None:
    (tmp_path / "secret.md").write_text("Secret.")
    Path("agents.toml").write_text('[agents.one]\nagent_md = "../secret.md"\n')

    with pytest.raises(BadInput, match="leads out of the project"):
        start_app("--trust")


def test_an_agents_yaml_of_another_program_is_ignored_without_a_notice() -> None:
    Path("agents.yaml").write_text("researcher:\n  role: Researcher\n")

    assert start_app().notices() == start_app("--trust").notices()


@pytest.mark.parametrize("kind", ["toml", "yaml", "json"])
def test_init_config_writes_a_loadable_file_and_never_overwrites_one(
    kind: str, capfd: pytest.CaptureFixture[str]
) -> None:
    name = f"first.{kind}"

    assert main(["--init-config", name]) == 0
    assert main(["--init-config", name]) == 1  # it is not written over
    assert main(["--agents", name, "--list-agents"]) == 0
    out, err = capfd.readouterr()
    assert f"({name}:" in out
    assert err == f"refold: {name!r} exists already: name another file\n"


VARIANTS = """{
  "default": "sonnet",
  "agents": {
    "sonnet": {"backend": "claude-code", "model": "sonnet"},
    "yolo": {"backend": "claude-code", "model": "haiku", "auto_tools": true,
             "system_prompt": "Act at once."},
    "remote": {"backend": "ollama-api", "model": "codellama", "host": "192.168.1.100",
               "port": 11434},
    "helper": {"backend": "claude-code", "model": "sonnet", "agent_md": "./more.md",
               "skills": ["./more.md"], "tools": ["bash", "read", "write", "edit"]}
  }
}"""


def test_agent_loop_variants_can_be_listed_selected_and_generated(
    capfd: pytest.CaptureFixture[str],
) -> None:
    Path("agents.json").write_text(VARIANTS)
    Path("more.md").write_text("Code well.")
    names = ("sonnet", "yolo", "remote", "helper")

    assert main(["spec", "check", "agents.json"]) == 0
    for name in names:
        arguments = ["spec", "generate", name, "--agents", "agents.json", "--out", name]
        assert main(arguments) == 0
    capfd.readouterr()
    main(["--agents", "agents.json", "--list-agents"])
    parts = [row.split()[0] for row in capfd.readouterr().out.splitlines()]
    assert {*names} <= {*parts}
    assert start_app("--agents", "agents.json").settings.agent == "sonnet"
    models = [start_app("--agents", "agents.json", "-a", n).models.default() for n in names]
    assert models == [
        "claude-code/sonnet", "claude-code/haiku", "ollama/codellama", "claude-code/sonnet",
    ]  # fmt: skip


def test_an_agent_with_a_command_uses_that_program_as_its_model() -> None:
    Path("says.py").write_text("import sys; sys.stdin.read(); print('It says so.')")
    program = json.dumps([sys.executable, os.path.abspath("says.py")])
    app = start_declared(f'[agents.one]\ncommand = {program}\nown_tools = "none"\n')

    assert app.models.check(app.models.default()) == "command/one"


def test_doctor_reports_missing_programs_and_tools_that_ask(
    capfd: pytest.CaptureFixture[str],
) -> None:
    Path("a.toml").write_text(
        f'[agents.one]\ncommand = ["{sys.executable}"]\nown_tools = "none"\n'
        'tools = ["read", "write", "bash"]\nauto_tools = true\nconfirm = ["bash"]\n'
        '[agents.two]\ncommand = ["no-such-program"]\nown_tools = "none"\n'
    )
    good = main(["agents", "doctor", "one", "--agents", "a.toml"])
    output = capfd.readouterr().out
    bad = main(["agents", "doctor", "two", "--agents", "a.toml"])

    assert (good, bad) == (0, 1)
    assert "model  command/one  ok" in output
    assert "runs without asking  read_file, write_file" in output
    assert "asks                 bash" in output
    assert "no-such-program" in capfd.readouterr().out


def test_doctor_reports_an_ignored_untrusted_agent_file(
    capfd: pytest.CaptureFixture[str],
) -> None:
    Path("agents.toml").write_text(FIRST)

    assert main(["agents", "doctor", "one"]) == 1
    errors = capfd.readouterr().err
    assert "agents.toml in" in errors
    assert "not trusted, so these settings are ignored" in errors


def test_doctor_uses_the_agents_file_given_before_the_subcommand(
    capfd: pytest.CaptureFixture[str],
) -> None:
    Path("a.toml").write_text(
        f'[agents.one]\ncommand = ["{sys.executable}"]\nown_tools = "none"\n'
    )

    assert main(["agents", "--agents", "a.toml", "doctor", "one"]) == 0
    assert "agent  one  (a.toml:1)" in capfd.readouterr().out
