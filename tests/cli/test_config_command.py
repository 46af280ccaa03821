"""`refold config`: settings and their sources, changing one, and errors in files."""

import io
import json
import multiprocessing
import os
import tomllib
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from refold.cli.main import main
from refold.config.paths import Paths, paths
from refold.config.set_setting import file_of, set_value
from refold.config.settings_report import report_lines

Told = tuple[int, str, str]


@pytest.fixture
def refold(capfd: pytest.CaptureFixture[str]) -> Callable[..., Told]:
    def run(*arguments: str) -> Told:
        code = main(arguments)
        return (code, *capfd.readouterr())

    return run


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def file(home: Path) -> Path:
    """Return the person's own settings."""
    path = home / "refold/config.toml"
    path.parent.mkdir(mode=0o700)
    return path


def set_editor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """An editor that does what `script` says with the file `$1`."""
    program = tmp_path / "editor"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o700)
    monkeypatch.setenv("EDITOR", str(program))


def test_config_show_names_the_source_of_each_value_and_the_overridden_ones(
    refold: Callable[..., Told], folder: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text("# mine\n\n[limits]\nsteps = 9\nwrap_up_steps = 2\n")
    refold("config", "set", "--local", "limits.steps", "8")
    monkeypatch.setenv("REFOLD_LIMITS__STEPS", "7")

    whole = refold(
        "config",
        "show",
        "limits.steps",
        "limits.wrap_up_steps",
        "limits.command_memory_mib",
        "--origin",
    )

    assert whole == (
        0,
        "limits.steps = 7  # environment variable REFOLD_LIMITS__STEPS\n"
        "    instead of 8  # project-local .refold/config.local.toml:2\n"
        f"    instead of 9  # user {file}:4\n"
        "    instead of 0  # default\n"
        f"limits.wrap_up_steps = 2  # user {file}:5\n"
        "    instead of 3  # default\n"
        "limits.command_memory_mib = 0  # default\n",
        "",
    )  # fmt: skip


def test_config_show_json_has_value_and_source_of_each_layer(
    refold: Callable[..., Told], folder: Path, file: Path
) -> None:
    file.write_text("model = 'a/b'\n")

    code, out, _ = refold("config", "show", "model", "--json")

    assert (code, json.loads(out)) == (
        0,
        {
            "key": "models.main", "value": '"a/b"', "where": f"user {file}:1",
            "says": [
                {"value": '""', "where": "default"},
                {"value": '"a/b"', "where": f"user {file}:1"},
            ],
        },
    )  # fmt: skip


def test_config_show_lists_permission_rules_by_the_layer_that_sets_them(
    refold: Callable[..., Told], folder: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text(
        "[permissions]\ndeny = ['ls', {rule = 'bash(rm *)', match = ['rm x']}]\n"
    )
    monkeypatch.setenv("REFOLD_PERMISSIONS__DENY", "glob")

    _, out, _ = refold("config", "show", "permissions.deny", "--origin")

    rule = '{rule = "bash(rm *)", match = ["rm x"]}'
    variable = "environment variable REFOLD_PERMISSIONS__DENY"
    assert out == (
        f'permissions.deny = ["ls", {rule}, "glob"]  # user {file}:2, {variable}\n'
        f'    of them ["ls", {rule}]  # user {file}:2\n'
        f'    of them ["glob"]  # {variable}\n'
    )


def test_config_reports_all_invalid_settings_at_once_and_applies_the_valid_ones(
    refold: Callable[..., Told], folder: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text(
        "[limits]\nsteps = 9\nstep = 3\n[limitz]\n[terminal]\ndisplay = 'big'\n"
        "[permissions]\nallow = [\n  'bash(',\n]\n"
    )
    monkeypatch.setenv("REFOLD_LIMITS__STEPZ", "1")

    code, out, err = refold("config", "show", "limits.steps")

    assert (code, out) == (1, f"limits.steps = 9  # user {file}:2\n")
    assert err == (
        f"refold: {file}:3: there is no setting 'limits.step'; did you mean 'limits.steps'?\n"
        f"refold: {file}:4: there is no setting 'limitz'; did you mean 'limits'?\n"
        f"refold: {file}:6: the setting terminal.display cannot be 'big': it can be "
        "'auto', 'full', 'line', 'plain', 'status'\n"
        f"refold: {file}:8: 'bash(' is not a permission rule: write tool or tool(pattern), for "
        "example bash(git status *) or edit_file(src/**)\n"
        "refold: environment variable REFOLD_LIMITS__STEPZ: there is no setting "
        "'limits.stepz'; did you mean 'REFOLD_LIMITS__STEPS'?\n"
    )


def test_config_reports_line_and_column_of_invalid_toml(
    refold: Callable[..., Told], folder: Path, file: Path
) -> None:
    file.write_text("effort = 'high'\nmodel = x\n")

    code, out, err = refold("config", "get", "effort")

    assert (code, out) == (1, "\n")
    assert err == f"refold: {file}:2:9: this is not valid TOML: Invalid value\n"


def test_config_show_does_not_print_secrets(
    refold: Callable[..., Told], folder: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTHER_API_KEY", "key-of-somebody")
    file.write_text(
        "model = 'key-of-somebody/x'\n[providers.p]\nwire = 'openai-chat'\n"
        "base_url = 'http://me:word@h/v1'\n[commands.c]\nenviron = {MY_TOKEN = 'abc', A = 'b'}\n"
    )

    code, out, err = refold(
        "config", "show", "model", "providers.p.base_url", "commands.c.environ", "--origin"
    )
    _, shown_token, _ = refold("config", "get", "commands.c.environ.MY_TOKEN")

    _, set_output, _ = refold("config", "set", "providers.p.base_url", "http://me:word2@h")

    assert (code, err) == (0, "")
    assert set_output.startswith('providers.p.base_url = "http://[secret]@h" is set in ')
    assert "somebody" not in out
    assert "word" not in out
    assert "abc" not in out + shown_token
    assert 'A = "b"' in out
    assert out.startswith('models.main = "[secret]/x"  # user ')

    file.write_text("limits.steps = 'key-of-somebody'\n")

    assert "cannot be '[secret]'" in refold("config", "show", "limits")[2]


@pytest.mark.parametrize(
    ("key", "text", "written"),
    [
        ("limits.steps", "12", "[limits]\nsteps = 12\n"),
        ("model", "openai/gpt-6.1-sol", 'model = "openai/gpt-6.1-sol"\n'),
        ("log_requests", "true", "log_requests = true\n"),
        ("fallback_models", "a/b", 'fallback_models = ["a/b"]\n'),
        ("fallback_models", '["a/b", "c/d"]', 'fallback_models = ["a/b", "c/d"]\n'),
        ("permission_mode", "rulesOnly", 'permission_mode = "rules-only"\n'),
        ("budget.dollars", "2", "[budget]\ndollars = 2.0\n"),
        ("permissions.deny", "bash(a,b)", '[permissions]\ndeny = ["bash(a,b)"]\n'),
        ('prices."a/b".input', "1", '[prices."a/b"]\ninput = 1.0\n'),
        ("commands.c.environ.A", "b", '[commands.c.environ]\nA = "b"\n'),
    ],
)  # fmt: skip
def test_config_set_writes_a_value_with_its_type_and_unset_removes_it(
    refold: Callable[..., Told], folder: Path, file: Path, key: str, text: str, written: str
) -> None:
    code, out, err = refold("config", "set", key, text)

    assert (code, err) == (0, "")
    assert out.endswith(f"is set in {file}.\n")
    assert file.read_text() == written
    assert refold("config", "unset", key)[0] == 0
    assert key.rpartition(".")[2] not in file.read_text()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"# a\r\n[limits]\r\nwrap_up_steps = 2\r\n\r\n[http]\r\n",
         b"# a\r\n[limits]\r\nwrap_up_steps = 2\r\nsteps = 9\r\n\r\n[http]\r\n"),
        (b"log_requests = true\r\n", b"log_requests = true\r\n\r\n[limits]\r\nsteps = 9\r\n"),
        (b"\xef\xbb\xbf[limits]\nsteps = 3  # few", b"\xef\xbb\xbf[limits]\nsteps = 9  # few"),
    ],
    ids=["windows", "windows, a new table", "with a mark, and no last line's end"],
)  # fmt: skip
def test_config_set_leaves_all_other_bytes_of_the_file_unchanged(
    refold: Callable[..., Told], folder: Path, file: Path, before: bytes, after: bytes
) -> None:
    file.write_bytes(before)

    assert refold("config", "set", "limits.steps", "9")[::2] == (0, "")
    assert file.read_bytes() == after
    assert refold("config", "get", "limits.steps") == (0, "9\n", "")


def _set_values(home: Path, folder: Path, who: str) -> None:
    for number in range(8):
        file = file_of("user", folder, Paths(home, home, home))
        set_value(file, f"commands.c.environ.{who}{number}", "x")


def test_two_concurrent_config_set_processes_lose_no_value(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    workers = [
        context.Process(target=_set_values, args=(tmp_path, tmp_path, who)) for who in "ab"
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)

    data = tomllib.loads((tmp_path / "config.toml").read_text())

    assert set(data["commands"]["c"]["environ"]) == {
        f"{w}{n}" for w in "ab" for n in range(8)
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("set", "limits.stepz", "1"), "there is no setting 'limits.stepz'; did you mean"),
        (("set", "limits.steps", "many"), "the setting limits.steps cannot be 'many'"),
        (
            ("set", "effort", "\udcff"),
            "the setting effort cannot be '\\udcff': that is not UTF-8",
        ),
        (("set", 'prices."\udcff".input', "3"), "cannot be '3': that is not UTF-8"),
        (("set", "limits", "3"), "it is a table of settings, such as limits.steps"),
        (("set", "limits.steps", "[1"), "'[1' is not a TOML value"),
        (("set", "permissions.allow", "bash("), "'bash(' is not a permission rule"),
        (
            ("set", "--project", "http.idle_seconds", "2"),
            "a project must not set http.idle_seconds",
        ),
        (
            ("set", "--local", "sandbox.network", "true"),
            "a project may set sandbox.network",
        ),
        (("get", "limit"), "there is no setting 'limit'; did you mean 'limits'?"),
        (("get", "limits"), "limits is a table of settings: `refold config show limits`"),
        (("show", "xyzzy"), "there is no setting 'xyzzy'; refold config show lists all"),
        (("unset", "effort"), "effort is not set in"),
        (("unset", "limits.stepz"), "did you mean 'limits.steps'?"),
        (("unset", "prices.x.input"), "prices.x.input is not set in"),
        (("get", "prices.x.inptu"), "did you mean 'prices.x.input'?"),
        (
            ("edit",),
            "there is no terminal to edit it in: write refold config set KEY VALUE",
        ),
    ],
)
def test_an_invalid_config_set_prints_one_sentence_and_changes_no_file(
    refold: Callable[..., Told],
    folder: Path,
    file: Path,
    arguments: tuple[str, ...],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file.write_text("# mine\n")
    for name in ("VISUAL", "EDITOR"):
        monkeypatch.delenv(name, raising=False)

    code, out, err = refold("config", *arguments)

    assert (code, out) == (1, "")
    assert message in err
    assert err.count("\n") == 1
    assert file.read_text() == "# mine\n"
    assert not (folder / ".refold").exists()


def test_config_get_of_an_unset_provider_or_price_is_not_an_error(
    refold: Callable[..., Told], folder: Path, file: Path
) -> None:
    file.write_text("[prices.y]\noutput = 2.0\n")

    assert refold("config", "get", "providers.ollama.tools") == (0, "auto\n", "")
    assert refold("config", "get", "prices.x.input") == (0, "\n", "")
    assert refold("config", "show", "providers") == (0, "", "")
    assert refold("config", "show", "prices.x") == (
        0,
        "prices.x.window = 0  # default\n",
        "",
    )
    assert refold("config", "show", "prices") == (
        0, f"prices.y.output = 2.0  # user {file}:2\nprices.y.window = 0  # default\n", "",
    )  # fmt: skip


@pytest.mark.parametrize("way", ["a pipe", "a device", "no text"])
def test_config_reports_an_unreadable_settings_file_and_does_not_replace_it(
    refold: Callable[..., Told], folder: Path, file: Path, way: str
) -> None:
    match way:
        case "a pipe":
            os.mkfifo(file)
        case "a device":
            file.symlink_to("/dev/zero")
        case _:
            file.write_bytes(b"# \xff")
    why = "it is not UTF-8 from byte 3 on" if way == "no text" else "it is not a file"

    for arguments in (("get", "effort"), ("set", "effort", "high"), ("unset", "effort")):
        code, _, err = refold("config", *arguments)
        assert (code, err) == (1, f"refold: the settings in {file} cannot be read: {why}\n")
    assert not file.is_file() or file.read_bytes() == b"# \xff"


def test_config_unset_removes_one_invalid_setting_while_another_remains(
    refold: Callable[..., Told], folder: Path, file: Path
) -> None:
    file.write_text("[limits]\nstep = 3\n[limitz]\n")

    code, _, err = refold("config", "unset", "limits.step")

    assert (code, file.read_text()) == (0, "[limits]\n[limitz]\n")
    assert err.startswith(f"refold: {file}:2: there is no setting 'limitz'")
    assert refold("config", "unset", "limitz") == (
        0, f"limitz is not set in {file} any more.\n", "",
    )  # fmt: skip


def test_config_set_project_keeps_trust_unless_another_program_changed_the_file(
    refold: Callable[..., Told], folder: Path
) -> None:
    refold("config", "set", "--project", "effort", "high")
    trusted = refold("config", "get", "effort")
    (folder / ".refold/config.toml").write_text('effort = "low"\n')
    refold("config", "set", "--project", "limits.steps", "3")
    changed = refold("config", "get", "effort")

    assert trusted == (0, "high\n", "")
    assert changed == (0, "\n", "")  # by another program, and never shown
    assert "changed since" in refold("config", "show", "effort")[2]


def test_config_set_project_refuses_a_settings_file_that_is_a_symlink(
    refold: Callable[..., Told], folder: Path, home: Path
) -> None:
    (folder / ".refold").mkdir()
    (folder / ".refold/config.toml").symlink_to(home / "elsewhere")

    code, _, err = refold("config", "set", "--project", "effort", "high")

    assert (code, (home / "elsewhere").exists()) == (1, False)
    assert err.startswith(f"refold: {folder}/.refold/config.toml is a link, ")


def test_setting_a_value_names_the_variable_that_takes_precedence(
    refold: Callable[..., Told], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REFOLD_EFFORT", "low")

    _, _, err = refold("config", "set", "effort", "high")

    assert err == "refold: environment variable REFOLD_EFFORT takes precedence\n"


def test_config_set_warns_when_the_project_settings_take_precedence(
    refold: Callable[..., Told], folder: Path, file: Path
) -> None:
    before = "refold: project .refold/config.toml:1 takes precedence\n"

    _, _, project = refold("config", "set", "--project", "effort", "low")
    _, _, user = refold("config", "set", "effort", "high")

    assert (project, user) == ("", before)


def test_config_path_lists_the_settings_files_and_marks_missing_and_ignored_ones(
    refold: Callable[..., Told], folder: Path, file: Path
) -> None:
    (folder / ".refold").mkdir()
    (folder / ".refold/config.toml").write_text("")

    assert refold("config", "path") == (
        0,
        f"user           {file}  (does not exist)\n"
        f"project        {folder}/.refold/config.toml  (is ignored)\n"
        f"project-local  {folder}/.refold/config.local.toml  (does not exist)\n",
        "",
    )


def test_config_edit_writes_a_valid_edit(
    refold: Callable[..., Told], folder: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_editor(folder, monkeypatch, 'echo "effort = \'high\'" >> "$1"')

    assert refold("config", "edit") == (0, f"{file} is written.\n", "")
    assert file.read_text().endswith("effort = 'high'\n")
    assert not file.with_name("config.edited.toml").exists()


def test_config_edit_saves_an_invalid_edit_aside_and_keeps_the_settings_file(
    refold: Callable[..., Told], folder: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text("# mine\n")
    set_editor(folder, monkeypatch, 'echo "effort = 3" >> "$1"')

    code, out, err = refold("config", "edit")

    aside = file.with_name("config.edited.toml")
    assert (code, out) == (1, "")
    assert f"{file}:2: the setting effort cannot be 3" in err
    assert err.endswith(f"refold: nothing was changed; what you wrote is in {aside}\n")
    assert (file.read_text(), aside.read_text()) == ("# mine\n", "# mine\neffort = 3\n")
    assert refold("config", "edit") == (
        1, "", f"refold: {aside} is left from an earlier edit: copy what you need from it, "
        "and delete it\n",
    )  # fmt: skip
    assert aside.read_text() == "# mine\neffort = 3\n"


def test_config_edit_ends_when_its_question_is_answered_by_the_end_of_the_input(
    refold: Callable[..., Told], folder: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_editor(folder, monkeypatch, 'echo "effort = 3" >> "$1"')
    monkeypatch.setattr("refold.cli.config.is_interactive", lambda: True)
    monkeypatch.setattr("sys.stdin", io.StringIO(""))

    code, out, err = refold("config", "edit")

    assert (code, out) == (1, "Edit it again? [Y/n] ")
    assert "nothing was changed" in err


def test_config_edit_does_not_overwrite_a_concurrent_change(
    refold: Callable[..., Told], folder: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_editor(
        folder,
        monkeypatch,
        f'echo "effort = \'low\'" > {file}; echo "log_requests = true" > "$1"',
    )

    code, _, err = refold("config", "edit")

    aside = file.with_name("config.edited.toml")
    assert code == 1
    assert err.startswith(
        f"refold: {file} was changed by another program in the meantime\n"
    )
    assert (file.read_text(), aside.read_text()) == (
        "effort = 'low'\n",
        "log_requests = true\n",
    )


def test_config_edit_changes_no_file_when_the_editor_fails(
    refold: Callable[..., Told], folder: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text("# mine\n")
    set_editor(folder, monkeypatch, "exit 3")

    code, _, err = refold("config", "edit")

    assert (code, err) == (
        1, f"refold: {folder}/editor ended with exit code 3; nothing was changed\n",
    )  # fmt: skip
    assert os.listdir(file.parent) == ["config.toml"]


def test_settings_report_of_a_session_includes_its_command_line_flags(
    folder: Path, home: Path
) -> None:
    places = paths(os.environ)

    async def look() -> tuple[str, ...]:
        flags = {"limits.steps": 3}
        return await report_lines(
            folder, places, {"REFOLD_LIMITS__STEPZ": "1"}, flags, ("limits.steps",)
        )

    assert anyio.run(look) == (
        "limits.steps = 3  # command line",
        "    instead of 0  # default",
        "environment variable REFOLD_LIMITS__STEPZ: there is no setting 'limits.stepz'; "
        "did you mean 'REFOLD_LIMITS__STEPS'?",
    )


def test_config_set_model_refuses_an_unknown_provider_and_warns_of_an_unknown_model(
    refold: Callable[..., Told], folder: Path, file: Path
) -> None:
    nobody = refold("config", "set", "model", "foo/bar")
    near = refold("config", "set", "models.small", "anthropic/claude-haiku-5-6")
    known = refold("config", "set", "model", "anthropic/claude-haiku-5-5")

    assert nobody[0] != 0
    assert "there is no provider 'foo'" in nobody[2]
    assert near[0] == 0
    assert near[2].startswith(
        "refold: anthropic has no model 'claude-haiku-5-6' that refold knows of; "
        "did you mean anthropic/claude-haiku-5-5"
    )
    assert known[2] == ""
    assert "foo" not in file.read_text()
