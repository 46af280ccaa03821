"""The layers of settings: where values come from, which wins, and errors."""

import os
import stat
import tomllib
from pathlib import Path

import pytest

from refold.cli.main import main
from refold.config import credentials
from refold.config.layers import rules_of
from refold.config.load import RENAMED_SETTINGS, Loaded, flatten, is_table, load
from refold.config.paths import Paths, paths
from refold.config.set_setting import remember
from refold.config.settings import Provider, Settings
from refold.errors import BadInput


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "settings" / "config.toml"


def write_settings(file: Path, text: str) -> Path:
    file.parent.mkdir(exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file


def read_refusal(
    file: Path,
    environ: dict[str, str] | None = None,
    flags: dict[str, object] | None = None,
) -> str:
    with pytest.raises(BadInput) as caught:
        load(file, environ or {}, flags or {})
    return str(caught.value)


def test_without_a_settings_file_all_values_are_defaults(file: Path) -> None:
    assert load(file, {"HOME": "/h", "PATH": "/bin"}, {}).origins == {}


@pytest.mark.parametrize("whose", ["user", "managed"])
def test_an_empty_settings_file_is_refused(file: Path, tmp_path: Path, whose: str) -> None:
    write_settings(file, "")

    with pytest.raises(BadInput) as caught:
        load(*((file,) if whose == "user" else (tmp_path / "none",)), {}, {}, managed=file)

    assert str(caught.value) == (
        f"{file} is empty, so refold cannot know which rules you set: restore the file, or "
        "delete it to start without settings"
    )


def test_flags_override_the_environment_and_the_environment_overrides_the_file(
    file: Path,
) -> None:
    write_settings(file, "[limits]\nsteps = 1\nwrap_up_steps = 1\nrepeated_calls = 1\n")
    environ = {"REFOLD_LIMITS__WRAP_UP_STEPS": "2", "REFOLD_LIMITS__REPEATED_CALLS": "2"}

    loaded_settings = load(
        file, environ, {"limits.repeated_calls": 4, "model": None, "permissions.ask": ()}
    )

    limits = loaded_settings.settings.limits
    assert (limits.steps, limits.wrap_up_steps, limits.repeated_calls) == (1, 2, 4)
    assert {key: value.origin for key, value in loaded_settings.origins.items()} == {
        "limits.steps": f"user {file}",
        "limits.wrap_up_steps": "environment variable REFOLD_LIMITS__WRAP_UP_STEPS",
        "limits.repeated_calls": "command line",
    }


def test_permission_rules_of_file_environment_and_flags_are_combined(file: Path) -> None:
    write_settings(file, '[permissions]\nallow = ["ls"]\ndeny = ["bash(rm *)"]\n')
    environ = {"REFOLD_PERMISSIONS__ALLOW": "glob,grep", "REFOLD_PERMISSIONS__DENY": "x"}

    loaded_settings = load(file, environ, {"permissions.allow": ("think",)})

    variable = "environment variable REFOLD_PERMISSIONS__"
    assert [
        (r.verdict, str(r), r.source)
        for r in rules_of(loaded_settings.settings.permissions)
    ] == [
        ("deny", "bash(rm *)", f"user {file}"),
        ("deny", "x", f"{variable}DENY"),
        ("allow", "ls", f"user {file}"),
        ("allow", "glob", f"{variable}ALLOW"),
        ("allow", "grep", f"{variable}ALLOW"),
        ("allow", "think", "command line"),
    ]
    assert loaded_settings.origins["permissions.allow"].origin == (
        f"user {file}, {variable}ALLOW, command line"
    )


def test_a_comma_within_the_pattern_of_a_rule_does_not_separate_rules(file: Path) -> None:
    environ = {"REFOLD_PERMISSIONS__ALLOW": "bash(echo a,b),glob,bash(cut -d, -f1)"}

    rules = rules_of(load(file, environ, {}).settings.permissions)

    assert [str(rule) for rule in rules] == ["bash(echo a,b)", "glob", "bash(cut -d, -f1)"]


@pytest.mark.parametrize(("old", "new"), RENAMED_SETTINGS.items())
def test_a_renamed_setting_is_an_error_in_a_file_and_a_warning_in_a_variable(
    file: Path, old: str, new: str
) -> None:
    write_settings(file, f"{old} = 1\n")
    variable = f"REFOLD_{old.upper().replace('.', '__')}"

    with pytest.raises(BadInput) as in_file:
        load(file, {}, {})
    in_variable = load(file.parent / "none", {variable: "1"}, {})

    assert str(in_file.value) == f"{file}:1: the setting {old!r} was renamed to {new!r}"
    assert in_variable.unknown == (
        f"environment variable {variable}: the setting {old!r} was renamed to "
        f"'REFOLD_{new.upper().replace('.', '__')}'",
    )


def test_every_new_name_of_a_renamed_setting_exists() -> None:
    known = flatten(Settings())

    assert [
        n for n in RENAMED_SETTINGS.values() if n not in known and not is_table(n)
    ] == []
    assert [n for n in RENAMED_SETTINGS if n in known] == []


def test_empty_environment_variables_and_those_of_directories_and_the_image_set_no_setting(
    file: Path,
) -> None:
    environ = {
        "REFOLD_MODEL": "", "REFOLD_HOME": "/h", "REFOLD_MODELS": "/m", "REFOLD_IMAGE": "refold",
    }  # fmt: skip

    assert load(file, environ, {}) == Loaded(load(file, {}, {}).settings, {})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model_name = 'x'", "there is no setting 'model_name'; did you mean 'model'?"),
        ("[limit]\nsteps = 3", "there is no setting 'limit.steps'; did you mean 'limits.steps'?"),
        ("[limits]\nsteps_ = 3", "there is no setting 'limits.steps_'; did you mean 'limits.steps'?"),
        ("qqqq = 1", "there is no setting 'qqqq'; refold config show lists all"),
        ("[providers.mine]\nbase_urls = 'x'",
         "there is no setting 'providers.mine.base_urls'; did you mean 'base_url'?"),
        ("[limits]\nsteps = 'many'", "the setting limits.steps cannot be 'many': Expected `int`"),
        ("[limits]\nsteps = -1", "the setting limits.steps cannot be -1: Expected `int` >= 0"),
        *((f"[limits]\n{name} = 51", f"the setting limits.{name} cannot be 51: Expected `int` <= 50")
          for name in ("repeated_calls", "alternating_calls", "repeated_errors", "repeated_searches")),
        ("[limits]\nresult_chars = 0", "the setting limits.result_chars cannot be 0: Expected `int` >= 1000"),
        ("[http]\nidle_seconds = -1.0", "the setting http.idle_seconds cannot be -1.0: Expected `float` > 0"),
        ("[http]\nidle_seconds = nan", "the setting http.idle_seconds cannot be nan: Expected `float` > 0"),
        ("[http]\nretries = -1", "the setting http.retries cannot be -1: Expected `int` >= 0"),
        ("permission_mode = 'yolo'", "the setting permission_mode cannot be 'yolo': it can be 'accept-edits', "),
        ("durability = 1", "the setting durability cannot be 1:"),
        ("sandbox = 'off'", "there is no setting 'sandbox'"),
        ("[sandbox]\nprofile = 'none'", "the setting sandbox.profile cannot be 'none'"),
        ("[sandbox]\nwritable = ['']", "the setting sandbox.writable cannot be ['']"),
        ("checkpoints = 'maybe'", "the setting checkpoints cannot be 'maybe'"),
        ("[limits]\nquestion_seconds = -1", "the setting limits.question_seconds cannot be -1: Expected"),
        ("[limits]\ncommand_processes = 0", "the setting limits.command_processes cannot be 0: Expected"),
        ("[limits]\ncommand_memory_mib = -1", "the setting limits.command_memory_mib cannot be -1: Expected"),
        ("'' = 1", "there is no setting '\"\"'; refold config show lists all"),
        (f"model = '{'x' * 9}'\neffort = '{'y' * 999_999}'", "the setting effort cannot be"),
        ("[permissions]\nallow = ['bash(']", "'bash(' is not a permission rule"),
        ("[permissions]\nallow = ['']", "the setting permissions.allow cannot be ['']"),
        ("[permissions]\ndeny = [{rule = 'bash(rm *)', matches = ['rm x']}]",
         "the setting permissions.deny cannot be [{'rule': 'bash(rm *)', 'matches'"),
        ("[permissions]\ndeny = [{rule = 'bash(rm *)', source = 'me'}]",
         "must not have a source"),
        ("[permissions]\nallow = 'ls'", "the setting permissions.allow cannot be 'ls': Expected"),
        ("[permissions]\nallow = [1]", "the setting permissions.allow cannot be [1]: Expected"),
        ("[providers.mine]\nwire = 'http'", "the setting providers.mine.wire cannot be 'http'"),
        ("model = [", ":1:10: this is not valid TOML: Invalid value"),
        ("a = 1\na = 2", ":2:6: this is not valid TOML: Cannot overwrite a value"),
    ],
)  # fmt: skip
def test_an_invalid_value_in_the_file_is_reported_with_its_location(
    file: Path, text: str, message: str
) -> None:
    result = read_refusal(write_settings(file, text))

    assert result.startswith(str(file))
    assert message in result
    assert "\n" not in result
    assert len(result) < 2000


def test_an_invalid_value_of_a_variable_or_flag_is_reported_with_its_source(
    file: Path,
) -> None:
    unknown = load(file, {"REFOLD_MODEL_NAME": "x", "REFOLD_LIMITS__STEPS": "3"}, {})
    wrong = read_refusal(file, {"REFOLD_LIMITS__STEPS": "many"})
    flag = read_refusal(file, {}, {"limits.steps": -3})

    assert unknown.unknown == (
        "environment variable REFOLD_MODEL_NAME: there is no setting 'model_name'; "
        "did you mean 'REFOLD_MODEL'?",
    )
    assert unknown.settings.limits.steps == 3
    assert wrong.startswith(
        "environment variable REFOLD_LIMITS__STEPS: the setting limits.steps cannot be 'many'"
    )
    assert flag.startswith("the setting limits.steps cannot be -3")


def test_an_unreadable_settings_file_is_an_error(file: Path) -> None:
    file.mkdir(parents=True)
    folder = read_refusal(file)
    file.rmdir()
    file.write_bytes(b"model = '\xff'")

    assert f"the settings in {file} cannot be read: " in folder
    assert f"the settings in {file} cannot be read: " in read_refusal(file)


def test_the_example_of_the_settings_page_loads_as_described(file: Path) -> None:
    page = Path(__file__).parents[2] / "docs/reference/settings.md"
    example = page.read_text(encoding="utf-8").partition("```toml\n")[2].partition("```")[0]

    settings = load(write_settings(file, example), {}, {}).settings

    assert (settings.models.main, settings.limits.steps) == (
        "anthropic/claude-sonnet-5-5",
        80,
    )
    assert [str(rule) for rule in rules_of(settings.permissions)] == [
        "read_file(**/.env)", "bash(git status *)", "bash(make test)",
    ]  # fmt: skip


def test_a_provider_table_may_set_only_some_of_its_keys(file: Path) -> None:
    write_settings(
        file, '[providers.openai-chat]\nkey_env = "MINE"\n[providers.p]\nwire = "ollama"'
    )

    assert load(file, {}, {}).settings.providers == {
        "openai-chat": Provider(key_env="MINE"),
        "p": Provider(wire="ollama"),
    }


# Where it all is. ---------------------------------------------------------------------


def test_refold_home_moves_config_data_and_state(tmp_path: Path) -> None:
    assert paths(
        {"REFOLD_HOME": str(tmp_path), "HOME": "/h", "XDG_DATA_HOME": "/x"}
    ) == Paths(tmp_path, tmp_path, tmp_path)


def test_without_refold_home_the_paths_follow_the_xdg_specification() -> None:
    plain = paths({"HOME": "/h"})
    own = paths({"HOME": "/h", "XDG_CONFIG_HOME": "/c", "XDG_DATA_HOME": "relative"})

    assert plain == Paths(
        Path("/h/.config/refold"),
        Path("/h/.local/share/refold"),
        Path("/h/.local/state/refold"),
    )
    assert (own.settings, own.data) == (
        Path("/c/refold/config.toml"), Path("/h/.local/share/refold"),
    )  # fmt: skip


@pytest.mark.parametrize("environ", [{}, {"HOME": ""}, {"HOME": "relative"}])
def test_paths_without_any_home_is_an_error_that_names_refold_home(
    environ: dict[str, str],
) -> None:
    with pytest.raises(BadInput, match=r"set REFOLD_HOME to a directory of yours$"):
        paths(environ)


def test_refold_home_of_an_unknown_user_is_refused() -> None:
    with pytest.raises(BadInput, match="REFOLD_HOME is '~nobody-here/x': "):
        paths({"REFOLD_HOME": "~nobody-here/x"})


def test_the_command_line_reports_a_missing_home_in_one_sentence(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HOME", "REFOLD_HOME", *(n for n in os.environ if n.startswith("XDG_"))):
        monkeypatch.delenv(name, raising=False)

    code = main(["sessions", "list"])

    out, err = capfd.readouterr()
    assert (code, out) == (1, "")
    assert err.startswith("refold: neither HOME nor REFOLD_HOME is set")
    assert err.count("\n") == 1


# Writing one of them. -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", 'model = "a/b"\n'),
        ("# mine\nmodel = 'old'  \n# end\n", '# mine\nmodel = "a/b"  \n# end\n'),
        ("[limits]\nsteps = 3\n", 'model = "a/b"\n[limits]\nsteps = 3\n'),
        ("[x]\nmodel = 'not this'\n", "model = \"a/b\"\n[x]\nmodel = 'not this'\n"),
        ("model = 'old'\n[x]\nmodel = 1\n", 'model = "a/b"\n[x]\nmodel = 1\n'),
        ("model = 'old'", 'model = "a/b"'),
        (
            "[models]\nmain = 'old' # x\nsmall = 's'\n",
            "[models]\nmain = \"a/b\" # x\nsmall = 's'\n",
        ),
        ("[models]\nsmall = 's'\n\nmain='old'", "[models]\nsmall = 's'\n\nmain=\"a/b\""),
        ("[models]\nsmall = 's'\n", "model = \"a/b\"\n[models]\nsmall = 's'\n"),
        ("[models]\n[x]\nmain = 1\n", 'model = "a/b"\n[models]\n[x]\nmain = 1\n'),
    ],
)
def test_remember_writes_one_setting_and_preserves_the_rest_of_the_file(
    file: Path, before: str, after: str
) -> None:
    if before:
        write_settings(file, before)

    remember(Paths(*(file.parent,) * 3), "model", "a/b")

    assert file.read_text() == after
    assert {path.name for path in file.parent.iterdir()} == {
        file.name,
        f".{file.name}.lock",
    }


def test_a_remembered_value_is_read_back_with_any_characters(file: Path) -> None:
    value = 'a/"quoted" \\ back\nline é 😀 \x7f'

    remember(Paths(*(file.parent,) * 3), "model", value)

    assert load(file, {}, {}).settings.models.main == value


def test_remember_keeps_a_symlinked_settings_file_a_symlink(
    file: Path, tmp_path: Path
) -> None:
    real = tmp_path / "dotfile.toml"
    real.write_text("# mine\n")
    file.parent.mkdir()
    file.symlink_to(real)

    remember(Paths(*(file.parent,) * 3), "model", "a/b")

    assert file.is_symlink()
    assert real.read_text() == '# mine\nmodel = "a/b"\n'


def test_unwritable_settings_are_an_error_that_names_the_file(file: Path) -> None:
    file.mkdir(parents=True)

    with pytest.raises(BadInput, match=r"model = 'a/b' cannot be saved: .*config.toml"):
        remember(Paths(*(file.parent,) * 3), "model", "a/b")


# Keys. --------------------------------------------------------------------------------


def test_keys_are_stored_in_a_file_that_only_the_owner_can_read(file: Path) -> None:
    credentials.store(file, "anthropic", 'k-"1"')
    credentials.store(file, "openai-chat", "k-2\\😀")
    credentials.store(file, "anthropic", "k-3")

    assert credentials.read(file) == {"anthropic": "k-3", "openai-chat": "k-2\\😀"}
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert tomllib.loads(file.read_text())["anthropic"] == "k-3"


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o620])
def test_a_key_file_that_others_can_read_is_refused_with_the_chmod_command(
    file: Path, mode: int
) -> None:
    credentials.store(file, "anthropic", "k-1")
    file.chmod(mode)

    for use in (lambda: credentials.read(file), lambda: credentials.store(file, "x", "y")):
        with pytest.raises(BadInput, match=f"others can read it: chmod 600 {file}"):
            use()


def test_replacing_a_key_is_atomic(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    credentials.store(file, "anthropic", "k-1")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(BadInput, match="No space left"):
            credentials.store(file, "anthropic", "k-2")

    assert credentials.read(file) == {"anthropic": "k-1"}
    credentials.store(file, "anthropic", "k-3")  # an old file does no harm
    assert credentials.read(file) == {"anthropic": "k-3"}


def test_a_leftover_temporary_file_does_not_change_the_mode_of_the_key_file(
    file: Path,
) -> None:
    file.parent.mkdir()
    left = file.with_suffix(".new")
    left.touch(0o644)
    left.chmod(0o644)

    credentials.store(file, "anthropic", "k-1")

    assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.parametrize("content", [b"anthropic = ", b"a = '\xff'"])
def test_an_invalid_key_file_is_an_error_that_does_not_show_keys(
    file: Path, content: bytes
) -> None:
    file.parent.mkdir()
    file.touch(0o600)
    file.write_bytes(content)

    with pytest.raises(BadInput, match=f"the keys in {file} cannot be read: "):
        credentials.read(file)


def test_a_missing_key_file_is_read_as_empty(file: Path) -> None:
    assert credentials.read(file) == {}


def test_agent_model_variable_sets_the_model_unless_refold_model_is_set(
    tmp_path: Path,
) -> None:
    file = tmp_path / "config.toml"
    shared = {"AGENT_MODEL": "ollama/a"}

    alone = load(file, shared, {})
    both = load(file, {**shared, "REFOLD_MODEL": "ollama/b"}, {})
    flagged = load(file, shared, {"models.main": "ollama/c"})

    assert alone.settings.models.main == "ollama/a"
    assert alone.origins["models.main"].origin == "environment variable AGENT_MODEL"
    assert both.settings.models.main == "ollama/b"
    assert flagged.settings.models.main == "ollama/c"
