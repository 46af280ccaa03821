"""Security profiles: what each sets, what wins over it, and that all of it is shown."""

from pathlib import Path

import pytest

from refold.cli.flags import PROFILE_NAMES as FLAG_VALUES
from refold.cli.flags import parse
from refold.cli.launch import settings_from_flags
from refold.config.folder_settings import limits_from_flags
from refold.config.layers import rules_of
from refold.config.load import Loaded, choices, load
from refold.config.paths import paths
from refold.config.project import read_project
from refold.config.security_profiles import SECURITY_PROFILES
from refold.config.settings import Settings
from refold.config.settings_report import origins_report

MODES = {
    "open": ("bypass", "workspace", True),
    "cautious": ("sandbox", "workspace", False),
    "guarded": ("default", "workspace", False),
    "paranoid": ("rules-only", "read-only", False),
}


RULES = {
    "open": [0, 0, 0],
    "cautious": [0, 1, 0],
    "guarded": [0, 4, 5],
    "paranoid": [0, 0, 8],
}


def rules_by_verdict(settings: Settings) -> tuple[tuple[object, ...], ...]:
    permissions = settings.permissions
    return permissions.allow, permissions.ask, permissions.deny


def load_profile(
    tmp_path: Path, user: str = "", managed: str = "", *, environ: str = "", flag: str = ""
) -> Loaded:
    files = tmp_path / "user.toml", tmp_path / "managed.toml"
    for file, text in zip(files, (user, managed), strict=True):
        file.write_text(text or "\n")
    variables = {"REFOLD_SECURITY_PROFILE": environ} if environ else {}
    flags = settings_from_flags(parse(["--security-profile", flag] if flag else []))
    return load(files[0], variables, flags, managed=files[1])


def profile_values(settings: Settings) -> tuple[str, str, bool]:
    sandbox = settings.sandbox
    return settings.permission_mode, sandbox.profile, sandbox.network


def rules(settings: Settings) -> set[tuple[str, str]]:
    return {(rule.verdict, str(rule)) for rule in rules_of(settings.permissions)}


@pytest.mark.parametrize("name", MODES)
def test_a_profile_sets_mode_sandbox_and_rules(name: str, tmp_path: Path) -> None:
    settings = load_profile(tmp_path, f'security_profile = "{name}"\n').settings

    assert profile_values(settings) == MODES[name]
    assert [len(group) for group in rules_by_verdict(settings)] == RULES[name]


def test_guarded_and_paranoid_refuse_to_read_a_file_of_keys(tmp_path: Path) -> None:
    for name in ("guarded", "paranoid"):
        settings = load_profile(tmp_path, f'security_profile = "{name}"\n').settings

        assert ("deny", "read_file(**/.env)") in rules(settings)


def test_a_setting_in_the_same_file_wins_over_the_profile(tmp_path: Path) -> None:
    text = 'permission_mode = "plan"\nsecurity_profile = "open"\n'

    assert profile_values(load_profile(tmp_path, text).settings) == (
        "plan",
        "workspace",
        True,
    )


def test_a_profile_of_the_flag_wins_over_the_mode_in_the_users_file(tmp_path: Path) -> None:
    loaded_settings = load_profile(
        tmp_path, 'permission_mode = "bypass"\n', flag="paranoid"
    )

    assert profile_values(loaded_settings.settings) == MODES["paranoid"]


def test_a_managed_setting_wins_over_a_profile_of_any_layer(tmp_path: Path) -> None:
    loaded_settings = load_profile(
        tmp_path,
        managed='permission_mode = "default"\n[sandbox]\nnetwork = false\n',
        flag="open",
    )

    assert profile_values(loaded_settings.settings) == ("default", "workspace", False)


def test_a_managed_profile_wins_over_the_flag(tmp_path: Path) -> None:
    loaded_settings = load_profile(
        tmp_path, managed='security_profile = "paranoid"\n', flag="open"
    )

    assert profile_values(loaded_settings.settings) == MODES["paranoid"]


def test_only_the_profile_chosen_last_adds_rules(tmp_path: Path) -> None:
    loaded_settings = load_profile(
        tmp_path, 'security_profile = "paranoid"\n', environ="cautious"
    )

    assert rules(loaded_settings.settings) == {("ask", "bash(git push *)")}


def test_rules_of_the_user_are_added_to_those_of_a_profile(tmp_path: Path) -> None:
    text = 'security_profile = "cautious"\n[permissions]\nallow = ["bash(make *)"]\n'

    settings = load_profile(tmp_path, text).settings

    assert rules(settings) == {("ask", "bash(git push *)"), ("allow", "bash(make *)")}


def test_settings_of_a_profile_flag_are_recorded_as_flags(
    tmp_path: Path,
) -> None:
    limits = limits_from_flags(load_profile(tmp_path, flag="cautious"))

    assert (limits.mode, limits.ask) == ("sandbox", ("bash(git push *)",))


def test_a_profile_of_a_file_is_not_recorded_as_given_by_flags(tmp_path: Path) -> None:
    limits = limits_from_flags(load_profile(tmp_path, 'security_profile = "cautious"\n'))

    assert (limits.mode, limits.ask) == (None, ())


def test_a_project_cannot_choose_a_profile(tmp_path: Path) -> None:
    (tmp_path / ".refold").mkdir()
    (tmp_path / ".refold" / "config.toml").write_text('security_profile = "open"\n')

    result = read_project(tmp_path, tmp_path / "own.toml")

    assert "a project must not set security_profile" in result.problem


def test_settings_report_names_the_profile_as_source_and_where_it_was_chosen(
    tmp_path: Path,
) -> None:
    places = paths({"REFOLD_HOME": str(tmp_path / "home")})
    places.settings.parent.mkdir()
    places.settings.write_text('security_profile = "guarded"\n')

    report = origins_report(tmp_path, places, {}, managed=tmp_path / "managed")

    origins = [origin.where for origin in report.chain["permission_mode"]]
    assert origins == [f"security_profile guarded (user {places.settings}:1)"]
    assert [origin.where for origin in report.chain["permissions.deny"]] == origins


def test_flag_and_setting_accept_the_same_profiles() -> None:
    assert (
        set(FLAG_VALUES)
        == set(SECURITY_PROFILES)
        == set(choices(Settings, ["security_profile"]))
    )
