"""`refold update` names the command that fits how refold was installed."""

from pathlib import Path

import pytest

from refold import __version__
from refold.cli.main import main
from refold.cli.update import IMAGE_VARIABLE, installation


@pytest.mark.parametrize(
    ("marker", "source", "environ", "command"),
    [
        ("uv-receipt.toml", "", {}, "uv tool upgrade refold"),
        ("pipx_metadata.json", "", {}, "pipx upgrade refold"),
        ("", "", {}, "{prefix}/bin/python -m pip install --upgrade refold"),
        ("", "/my code/refold", {}, "cd '/my code/refold' && git pull && make run"),
        ("", "", {IMAGE_VARIABLE: "refold"},
         "git pull && docker build --pull -f packaging/Dockerfile -t refold ."),
    ],
)  # fmt: skip
def test_update_prints_the_command_of_each_installer(
    tmp_path: Path, marker: str, source: str, environ: dict[str, str], command: str
) -> None:
    prefix = tmp_path / "refold"
    prefix.mkdir()
    if marker:
        (prefix / marker).touch()

    result = installation(prefix, source, environ)

    assert result.command == command.format(prefix=prefix)


def test_update_recognizes_homebrew_by_its_directory() -> None:
    prefix = Path("/opt/homebrew/Cellar/refold/0.2.0/libexec")

    assert installation(prefix, "", {}).command == "brew upgrade refold"


def test_update_prints_the_version_and_how_it_was_installed(
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert main(["update"]) == 0

    ran = capfd.readouterr().out

    root = Path(__file__).parents[2]
    assert f"refold {__version__}, from the sources in {root}. To update it:" in ran
    assert f"  cd {root} && git pull && make run\n" in ran
