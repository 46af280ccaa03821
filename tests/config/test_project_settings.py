"""What the settings of a folder may set, and when they apply."""

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from refold.config.folder_settings import FolderSettings, load_folder_settings
from refold.config.layers import rules_of
from refold.config.paths import Paths
from refold.config.project import Project, content_lines, read_project
from refold.config.trusted_folders import ALWAYS_CHOICE, TrustedFolders
from refold.errors import BadInput

RULES = '[permissions]\nallow = ["bash(make test)"]\ndeny = ["bash(rm *)"]\n'


@pytest.fixture
def places(tmp_path: Path) -> Paths:
    return Paths(tmp_path / "own", tmp_path / "own", tmp_path / "own")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "work"
    (path / ".refold").mkdir(parents=True)
    return path


def write_config(folder: Path, text: str, name: str = "config.toml") -> None:
    (folder / ".refold" / name).write_text(text, encoding="utf-8")


def directory(
    folder: Path, places: Paths, *, trust: bool = False, **flags: object
) -> FolderSettings:
    dotted = {key.replace("__", "."): value for key, value in flags.items()}
    return load_folder_settings(
        folder, places, {}, dotted, trust=trust, managed=places.config / "managed.toml"
    )


def trust_directory(folder: Path, places: Paths, **flags: object) -> FolderSettings:
    """Return `directory`, which the user has trusted as it is now."""
    TrustedFolders(places.folders).trust(load_project(folder, places))
    return directory(folder, places, **flags)


def load_project(folder: Path, places: Paths) -> Project:
    return read_project(folder, places.settings)


def rules(at: FolderSettings) -> list[tuple[str, str, str]]:
    return [(r.verdict, str(r), r.source) for r in rules_of(at.settings.permissions)]


# Which layer wins. --------------------------------------------------------------------


def test_each_settings_layer_overrides_the_layers_before_it(
    folder: Path, places: Paths
) -> None:
    keys = (
        "steps",
        "wrap_up_steps",
        "corrections",
        "refused_responses",
        "output_tokens",
        "result_chars",
    )
    places.config.mkdir()
    for at, (name, file) in enumerate(
        {
            "user": places.settings,
            "project": folder / ".refold/config.toml",
            "project-local": folder / ".refold/config.local.toml",
        }.items()
    ):
        lines = (f"{key} = {1000 * (at + 1)}\n" for key in keys[at:])
        file.write_text(f"# {name}\n[limits]\n" + "".join(lines))
    (places.config / "managed.toml").write_text("[limits]\nresult_chars = 6000\n")
    TrustedFolders(places.folders).trust(load_project(folder, places))

    at = load_folder_settings(
        folder,
        places,
        {
            "REFOLD_LIMITS__REFUSED_RESPONSES": "4000",
            "REFOLD_LIMITS__OUTPUT_TOKENS": "4000",
        },
        {"limits.output_tokens": 5000, "limits.result_chars": 5000},
        managed=places.config / "managed.toml",
    )

    data = {k: (getattr(at.settings.limits, k), at.loaded.origins[f"limits.{k}"].origin) for k in keys}  # fmt: skip
    assert data == {
        "steps": (1000, f"user {places.settings}"),
        "wrap_up_steps": (2000, "project .refold/config.toml"),
        "corrections": (3000, "project-local .refold/config.local.toml"),
        "refused_responses": (
            4000,
            "environment variable REFOLD_LIMITS__REFUSED_RESPONSES",
        ),
        "output_tokens": (5000, "command line"),
        "result_chars": (6000, f"managed {places.config / 'managed.toml'}"),
    }


def test_permission_rules_of_all_layers_are_combined_with_their_sources(
    folder: Path, places: Paths
) -> None:
    places.config.mkdir()
    places.settings.write_text('[permissions]\nallow = ["bash(ls)"]\n')
    (places.config / "managed.toml").write_text('[permissions]\ndeny = ["bash(sudo *)"]\n')
    write_config(folder, '[permissions]\nallow = ["bash(make test)"]\n')
    write_config(folder, '[permissions]\nask = ["bash(git push *)"]\n', "config.local.toml")
    TrustedFolders(places.folders).store_allow_rules(folder, "bash(npm test)")

    at = trust_directory(folder, places, permissions__deny=("bash(rm *)",))

    assert rules(at) == [
        ("deny", "bash(rm *)", "command line"),
        ("deny", "bash(sudo *)", f"managed {places.config / 'managed.toml'}"),
        ("ask", "bash(git push *)", "project-local .refold/config.local.toml"),
        ("allow", "bash(ls)", f"user {places.settings}"),
        ("allow", "bash(make test)", "project .refold/config.toml"),
        ("allow", "bash(npm test)", ALWAYS_CHOICE),
    ]


def test_permission_mode_accepts_the_mode_names_of_claude_code(
    folder: Path, places: Paths
) -> None:
    places.config.mkdir()
    for name, mode in {
        "acceptEdits": "accept-edits", "bypassPermissions": "bypass",
        "rulesOnly": "rules-only", "plan": "plan",
    }.items():  # fmt: skip
        places.settings.write_text(f'permission_mode = "{name}"\n')

        assert directory(folder, places).settings.permission_mode == mode


# Trust. -------------------------------------------------------------------------------


def test_project_settings_apply_only_after_the_folder_is_trusted(
    folder: Path, places: Paths
) -> None:
    write_config(folder, RULES)

    before = directory(folder, places)
    after = trust_directory(folder, places)

    assert (before.state, rules(before)) == ("new", [])
    assert before.reason_ignored.startswith(f".refold/config.toml in {folder}: not trusted")
    assert (after.state, len(rules(after)), after.reason_ignored) == ("trusted", 2, "")


def test_trust_for_one_start_applies_project_settings_and_is_not_stored(
    folder: Path, places: Paths
) -> None:
    write_config(folder, RULES)

    assert (
        directory(folder, places, trust=True).state,
        directory(folder, places).state,
    ) == (
        "trusted",
        "new",
    )


@pytest.mark.parametrize(
    "change",
    [
        lambda at: write_config(at, RULES + " "),
        lambda at: write_config(at, "", "config.local.toml"),
        lambda at: (at / ".refold/config.toml").rename(at / ".refold/config.local.toml"),
    ],
)
def test_changed_project_settings_are_ignored_until_trusted_again(
    folder: Path, places: Paths, change: Callable[[Path], object]
) -> None:
    write_config(folder, RULES)
    trust_directory(folder, places)
    change(folder)

    changed = directory(folder, places)
    again = trust_directory(folder, places)

    assert (changed.state, rules(changed)) == ("changed", [])
    assert "changed since" in changed.reason_ignored
    assert again.state == "trusted"


def test_trust_applies_to_the_real_folder_and_not_to_subfolders_or_siblings(
    folder: Path, places: Paths, tmp_path: Path
) -> None:
    write_config(folder, RULES)
    trust_directory(folder, places)
    (tmp_path / "link").symlink_to(folder)
    for other in (folder / "below", tmp_path / "work2"):
        (other / ".refold").mkdir(parents=True)
        write_config(other, RULES)

        assert directory(other, places).state == "new"
    assert directory(tmp_path / "link", places).state == "trusted"


def test_a_folder_cannot_declare_itself_trusted(folder: Path, places: Paths) -> None:
    (folder / ".refold/folders.toml").write_text(
        f'[folders."{folder}"]\ntrusted = true\nallow = ["bash"]\n'
    )
    write_config(folder, "trusted = true")

    at = directory(folder, places)

    assert (at.state, rules(at)) == ("unusable", [])


def test_user_settings_in_the_current_folder_are_not_project_settings(
    folder: Path,
) -> None:
    own = folder / ".refold"
    write_config(folder, 'permission_mode = "bypass"\n')

    at = directory(folder, Paths(own, own, own))

    assert (at.state, at.settings.permission_mode) == ("nothing", "bypass")


# Their permitted contents. -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ('[providers.anthropic]\nbase_url = "http://evil"', "providers.anthropic.base_url"),
        ('[providers."\\u001b[2J"]\nwire = "ollama"', 'providers."\\x1b[2j".wire'),
        ("[providers.mine]\nkey_command = ['sh']", "providers.mine.key_command"),
        ('[commands.mine]\ncommand = ["sh"]', "commands.mine.command"),
        ('[backend]\ncontext = "fresh"', "backend.context"),
        ('[prices."a/b"]\ninput = 1.0', 'prices."a/b".input'),
        ("[http]\nidle_seconds = 9.0", "http.idle_seconds"),
        ("log_requests = true", "log_requests"),
        ('durability = "written"', "durability"),
        ("checkpoints = false", "checkpoints"),
        ('[sandbox]\nwritable = ["/"]', "sandbox.writable"),
        ("[sandbox]\nsign_commits = true", "sandbox.sign_commits"),
        ("[limits]\ncommand_memory_mib = 0", "limits.command_memory_mib"),
        ("[limits]\ncommand_processes = 99", "limits.command_processes"),
        ("[limits]\nquestion_seconds = 9.0", "limits.question_seconds"),
    ],
)
def test_a_forbidden_project_setting_is_refused_in_one_sentence(
    folder: Path, places: Paths, text: str, key: str
) -> None:
    write_config(folder, text)

    at = directory(folder, places)

    assert at.state == "unusable"
    line = text.count("\n") + 1
    beginning = f".refold/config.toml:{line}: a project must not set {key}: "
    assert at.reason_ignored.startswith(beginning)
    assert at.loaded == directory(folder / ".refold", places).loaded
    with pytest.raises(BadInput, match="must not set"):
        directory(folder, places, trust=True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('permission_mode = "bypass"', "permission_mode to default or accept-edits or"),
        ('permission_mode = "bypassPermissions"', "permission_mode to default or accept"),
        (
            '[sandbox]\nprofile = "off"',
            "sandbox.profile to read-only only, and not to 'off'",
        ),
        ('[sandbox]\nprofile = "workspace"', "sandbox.profile to read-only only"),
        ("[sandbox]\nnetwork = true", "sandbox.network to false only, and not to true"),
        ('[sandbox]\nnetwork = "on"', "sandbox.network cannot be 'on'"),
    ],
)
def test_project_settings_cannot_loosen_permission_mode_and_sandbox(
    folder: Path, places: Paths, text: str, message: str
) -> None:
    write_config(folder, text)

    assert message in directory(folder, places).reason_ignored


def test_a_project_may_set_models_effort_limits_mode_sandbox_and_rules(
    folder: Path, places: Paths
) -> None:
    write_config(
        folder,
        'model = "a/b"\neffort = "low"\nfallback_models = ["c/d"]\npermission_mode = "acceptEdits"\n'
        '[models]\nsmall = "e/f"\n[limits]\nsteps = 9\n'
        '[sandbox]\nprofile = "read-only"\nnetwork = false\n' + RULES,
    )

    settings = trust_directory(folder, places).settings

    assert (settings.models.main, settings.models.small, settings.effort) == (
        "a/b", "e/f", "low",
    )  # fmt: skip
    assert (settings.fallback_models, settings.limits.steps) == (("c/d",), 9)
    assert (settings.permission_mode, settings.sandbox.profile) == (
        "accept-edits", "read-only",
    )  # fmt: skip


def test_project_settings_are_shown_with_escaped_control_characters(
    folder: Path, places: Paths
) -> None:
    write_config(folder, RULES + '[limits]\nsteps = 9\n[models]\nmain = "a\\u001b[2Jb"\n')
    write_config(
        folder,
        '[permissions]\nask = [{rule = "bash(git \\u202e *)"}]\n',
        "config.local.toml",
    )

    assert content_lines(load_project(folder, places)) == (
        ".refold/config.toml:",
        "  runs without asking: bash(make test)",
        "  is refused: bash(rm *)",
        "  limits.steps = 9",
        "  models.main = 'a\\x1b[2Jb'",
        ".refold/config.local.toml:",
        "  asks each time: bash(git \\u202e *)",
    )


# Hostile files. -----------------------------------------------------------------------


def make_link(path: Path) -> None:
    (path.parent / "real.toml").write_text("")
    path.symlink_to(path.parent / "real.toml")


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as result:
        before = Path.cwd()
        os.chdir(path.parent)  # names of sockets are short
        try:
            result.bind(path.name)
        finally:
            os.chdir(before)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (make_link, "it is a link"),
        (lambda at: at.symlink_to("/dev/zero"), "it is a link"),
        (lambda at: at.symlink_to("/nowhere"), "it is a link"),
        (lambda at: at.mkdir(), "it is not a file"),
        (lambda at: os.mkfifo(at), "it is not a file"),
        (make_socket, "it is not a file"),
        (lambda at: at.write_bytes(b"#" * 10_000_000), "it is larger than 64 KiB"),
        (lambda at: at.write_bytes(b"a = '\xff'"), "it is not UTF-8: invalid start byte"),
        (
            lambda at: at.write_bytes(bytes(range(128))),
            ".refold/config.toml:1:1: this is not valid TOML: ",
        ),
        (
            lambda at: at.write_text("a = " + "[" * 50_000),
            ".refold/config.toml is not valid TOML: ",
        ),
        (
            lambda at: at.write_text(f"{'a.' * 30_000}a = 1"),
            "cannot be read: a line is mostly dots",
        ),
        (lambda at: at.write_text("[limits]\nsteps = -1"), "limits.steps cannot be -1"),
        (lambda at: at.write_text(f"'{'k' * 60_000}' = 1"), "there is no setting 'kkk"),
        (
            lambda at: at.write_text("[permissions]\nallow=['bash(']"),
            "is not a permission rule",
        ),
    ],
)
@pytest.mark.parametrize("name", ["config.toml", "config.local.toml"])
def test_invalid_project_settings_are_ignored_with_one_sentence(
    folder: Path, places: Paths, make: Callable[[Path], object], why: str, name: str
) -> None:
    make(folder / ".refold" / name)

    at = directory(folder, places)

    assert (at.state, rules(at)) == ("unusable", [])
    assert why.replace("config.toml", name) in at.reason_ignored
    assert at.reason_ignored.isprintable()
    assert len(at.reason_ignored) < 2500  # it lists all settings
    with pytest.raises(BadInput):
        TrustedFolders(places.folders).trust(at.project)


@pytest.mark.parametrize("target", ["outside", "work/real", "nowhere", "loop"])
def test_a_symlinked_project_settings_directory_is_ignored(
    tmp_path: Path, places: Paths, target: str
) -> None:
    work = tmp_path / "work"
    for real in (tmp_path / "outside", work / "real"):
        real.mkdir(parents=True)
        (real / "config.toml").write_text(RULES)
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (work / ".refold").symlink_to(tmp_path / target)

    assert directory(work, places).reason_ignored == (
        "the settings in .refold cannot be read: it is a link; the settings of this "
        "folder are ignored"
    )


@pytest.mark.parametrize("make", [lambda at: at.write_text(""), lambda at: os.mkfifo(at)])
def test_a_file_in_place_of_the_project_settings_directory_is_reported(
    tmp_path: Path, places: Paths, make: Callable[[Path], object]
) -> None:
    make(tmp_path / ".refold")

    assert (
        "in .refold cannot be read: Not a directory"
        in directory(tmp_path, places).reason_ignored
    )


def test_a_folder_that_is_missing_or_has_no_settings_yields_none(
    tmp_path: Path, places: Paths
) -> None:
    for folder in (tmp_path, tmp_path / "gone"):
        assert (
            directory(folder, places).state,
            directory(folder, places).reason_ignored,
        ) == (
            "nothing",
            "",
        )
