"""Entry points: those of packages are found without an import, used, refused and named; ours all load."""

import json
import os
import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import anyio
import pytest

import refold
from refold.app.app import App
from refold.app.launch_options import LaunchOptions
from refold.cli.main import main
from refold.client.launch import Launch
from refold.client.session import Session
from refold.commands.table import commands
from refold.config.folder_settings import load_folder_settings
from refold.config.paths import paths
from refold.plugins import GROUPS, Plugin, find_plugins, own_plugins
from refold.provider.catalog import providers
from refold.testing.providers import Line, ScriptedProvider
from refold.tools.builtin import builtin, load_tools
from refold.values.messages import Text, ToolResult
from tests.terminal.at_home import TerminalDriver

GOOD = '''
from refold import Effect, tool
from refold.engine.decide import Note


@tool(Effect.LOOK)
async def count_words(text: str) -> str:
    """Count the words of a text."""
    return f"{len(text.split())} words"


TOOLS = [count_words]


def metric(view):
    return None if view.turn.steps else Note("Use metric units.")


def breaks(view):
    raise ValueError("oh no")


async def words(session, rest):
    return f"{rest}: \\x1b[31m{len(session.view.conversation.user_messages)}"


def fails(session, rest):
    raise ValueError("oh no")


@tool(Effect.LOOK)
async def bash(text: str) -> str:
    """Pretend."""
    return "mine"
'''

Install = Callable[..., Path]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Puts a package on Python's path, with these entry points."""
    monkeypatch.delitem(sys.modules, "plugged_example", raising=False)

    def make_package(points: str, *, name: str = "example", code: str = GOOD) -> Path:
        site = tmp_path / f"site-{name}"
        info = site / f"{name}-1.0.dist-info"
        info.mkdir(parents=True)
        (site / "plugged_example.py").write_text(code)
        (info / "entry_points.txt").write_text(points)
        monkeypatch.syspath_prepend(str(site))
        return site

    return make_package


@pytest.fixture
def project_directory(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "work"
    directory.mkdir()
    monkeypatch.chdir(directory)
    return directory


def app(workspace: Path, *lines: Line) -> App:
    places = paths(os.environ)
    settings = load_folder_settings(
        workspace, places, os.environ, {"memory": False}
    ).settings
    options = LaunchOptions(directory=workspace, provider=ScriptedProvider(*lines))
    return App(settings, places, os.environ, options)


def run_script(workspace: Path, *lines: Line) -> tuple[list[str], tuple[str, ...]]:
    """Return the texts and results that the model read, and the notices of the start."""

    async def use_session() -> tuple[list[str], tuple[str, ...]]:
        launch = Launch(app(workspace, *lines))
        try:
            start = await launch.start()
            session = Session(launch, start, None)
            await session.run("Go.")
            texts = [
                part.text
                for spoken in session.view.conversation.messages
                for part in spoken.message.parts
                if isinstance(part, Text | ToolResult)
            ]
            return texts, launch.app.notices()
        finally:
            await launch.aclose()

    return anyio.run(use_session)


def test_a_tool_and_a_policy_of_an_installed_package_are_used(
    install: Install, project_directory: Path
) -> None:
    install(
        "[refold.tools]\na = plugged_example:TOOLS\n"
        "[refold.policies]\nmetric = plugged_example:metric\n"
    )

    texts, _ = run_script(
        project_directory, [("count_words", '{"text": "one two"}')], "Done."
    )

    assert texts == ["Go.", "Use metric units.", "2 words", "Done."]


@pytest.mark.parametrize(
    ("points", "problem"),
    [
        (
            "[refold.tools]\na = plugged_example:bash",
            "the name of its tool 'bash' is taken",
        ),
        ("[refold.tools]\na = plugged_example:metric", "is not a tool: put @tool above"),
        ("[refold.tools]\na = plugged_example:nothing", "AttributeError:"),
        ("[refold.tools]\na = no_such_module:x", "ModuleNotFoundError:"),
        ("[refold.policies]\na = plugged_example:TOOLS", "it is not a function"),
    ],
)
def test_an_unusable_plug_in_is_reported_and_the_others_are_loaded(
    points: str, problem: str, install: Install, project_directory: Path
) -> None:
    install(f"{points}\n[refold.policies]\nmetric = plugged_example:metric\n")

    texts, notices = run_script(project_directory, "Done.")

    assert "Use metric units." in texts
    assert len([n for n in notices if problem in n and "of example 1.0" in n]) == 1


def test_a_plug_in_that_raises_system_exit_does_not_end_refold(
    install: Install, project_directory: Path
) -> None:
    install("[refold.tools]\na = plugged_example:TOOLS\n", code="raise SystemExit(3)")

    texts, notices = run_script(project_directory, "Done.")

    assert texts == ["Go.", "Done."]
    assert any("SystemExit: 3" in notice for notice in notices)


def test_a_policy_that_raises_an_exception_does_not_end_the_turn(
    install: Install, project_directory: Path
) -> None:
    install("[refold.policies]\nbreaks = plugged_example:breaks\n")

    assert run_script(project_directory, "Done.")[0] == ["Go.", "Done."]


def test_the_second_of_two_plug_in_tools_with_the_same_name_is_refused(
    install: Install, project_directory: Path
) -> None:
    install("[refold.tools]\na = plugged_example:TOOLS\n")
    install("[refold.tools]\nb = plugged_example:TOOLS\n", name="other")

    _, notices = run_script(project_directory, "Done.")

    assert len([n for n in notices if "'count_words' is taken" in n]) == 1


def test_a_package_in_the_current_directory_is_not_loaded_as_a_plug_in(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = install("[refold.tools]\na = plugged_example:TOOLS\n")
    before = find_plugins("refold.tools")
    monkeypatch.chdir(site)

    assert before == (Plugin("refold.tools", "a", "plugged_example:TOOLS", "example 1.0"),)
    assert find_plugins("refold.tools") == ()


def test_finding_plug_ins_does_not_import_them(install: Install) -> None:
    install("[refold.tools]\na = plugged_example:TOOLS\n", code="raise SystemExit(3)")

    assert len(find_plugins()) == 1
    assert "plugged_example" not in sys.modules


def test_a_plug_in_slash_command_runs_and_its_errors_are_shown(
    install: Install, project_directory: Path
) -> None:
    install(
        "[refold.commands]\nwords = plugged_example:words\nfails = plugged_example:fails\n"
        "help = plugged_example:fails\n"
    )

    rows = TerminalDriver(project_directory).tell("/words said", "/fails")

    assert rows == ["said: \\x1b[31m0", "/fails failed: ValueError: oh no"]


def test_plugins_list_json_shows_the_problem_of_each_plug_in(
    install: Install, project_directory: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    install(
        "[refold.tools]\ngood = plugged_example:TOOLS\nbad = plugged_example:bash\n"
        "[refold.commands]\nhelp = plugged_example:words\n"
    )

    status = main(["plugins", "list", "--json"])
    rows = [json.loads(row) for row in capfd.readouterr().out.splitlines()]

    assert status == 1
    assert [(row["name"], bool(row["problem"])) for row in rows] == [
        ("bad", True),
        ("good", False),
        ("help", True),
    ]


def test_plugins_list_without_plug_ins_prints_how_to_install_one(
    home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["plugins", "list"]) == 0
    assert capfd.readouterr().out == (
        "No installed package offers a plug-in. To install one into the environment of "
        f"refold: uv pip install --python {shlex.quote(sys.prefix)} PACKAGE, or with pipx: "
        "pipx inject refold PACKAGE\n"
    )


def test_plugins_without_a_subcommand_says_that_no_package_offers_a_plug_in(
    home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["plugins"]) == 0
    assert capfd.readouterr().out.startswith("No installed package offers a plug-in.")


@pytest.mark.slow
def test_python_m_refold_imports_no_module_from_the_current_directory(
    tmp_path: Path,
) -> None:
    (tmp_path / "anyio.py").write_text("open('ran', 'w')\n")
    (tmp_path / "msgspec.py").write_text("open('ran', 'w')\n")
    command_line = (sys.executable, "-m", "refold", "agents")
    home = {**os.environ, "REFOLD_HOME": str(tmp_path / "home")}

    done = subprocess.run(
        command_line, cwd=tmp_path, env=home, capture_output=True, text=True
    )

    assert "main" in done.stdout, done.stderr
    assert not (tmp_path / "ran").exists()


DOCS = Path(__file__).parents[2] / "docs"


def test_the_template_readme_alone_says_how_a_plug_in_is_installed() -> None:
    guide, readme = (
        (DOCS / name).read_text()
        for name in ("guides/plugins.md", "plugin-template/README.md")
    )

    assert (
        len(re.findall(r"^In the directory of refold.*?pipx inject", readme, re.M | re.S))
        == 1
    )
    assert "pipx inject" not in guide
    assert (
        "[template](../plugin-template/README.md) says how to copy and install it" in guide
    )


@pytest.mark.parametrize(
    ("message_texts", "answer"),
    [
        (["hello"], "You have written 1 word."),
        (["hello there", "you"], "You have written 3 words."),
    ],
)
def test_the_slash_command_of_the_plug_in_template_counts_words(
    message_texts: list[str], answer: str
) -> None:
    names = runpy.run_path(str(DOCS / "plugin-template/src/refold_example/commands.py"))
    messages = [SimpleNamespace(text=text) for text in message_texts]
    view = SimpleNamespace(conversation=SimpleNamespace(user_messages=messages))

    async def words() -> str:
        return await names["words"](SimpleNamespace(view=view), "")

    assert anyio.run(words) == answer


def test_each_tool_of_refold_is_registered_under_its_name() -> None:
    registered = own_plugins("refold.tools")

    assert [plugin.name for plugin in registered] == [tool.name for tool in builtin()]
    assert load_tools(registered) == (builtin(), ())


def test_each_slash_command_is_registered_once_and_loads_its_function() -> None:
    registered = own_plugins("refold.commands")

    assert [plugin.name for plugin in registered] == [
        command.name for command in commands()
    ]
    assert [plugin.function().__module__ for plugin in registered] == [
        plugin.value.partition(":")[0] for plugin in registered
    ]


def test_each_provider_is_registered_under_its_name() -> None:
    registered = own_plugins("refold.providers")

    assert [plugin.name for plugin in registered] == [spec.name for spec in providers()]
    assert [plugin.load() for plugin in registered] == list(providers())


def test_all_entry_point_groups_of_refold_are_known_groups() -> None:
    own = Path(refold.__file__).with_name("entry_points.txt").read_text()

    assert set(re.findall(r"^\[(.*)\]$", own, re.M)) <= set(GROUPS)
