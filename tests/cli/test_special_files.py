"""A device, a pipe or a directory as a script or cassette gives one sentence."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from refold.cli.main import main

ODD = "cannot be read: it is a pipe, a device or a socket, not a file"


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    with open(os.devnull, encoding="utf-8") as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)
        yield tmp_path


@pytest.fixture
def pipe(workspace: Path) -> str:
    os.mkfifo(workspace / "pipe")
    return "pipe"


@pytest.mark.parametrize("flag", ["--script", "--replay"])
def test_a_script_or_cassette_that_is_a_pipe_is_refused_without_waiting(
    pipe: str, flag: str, capfd: pytest.CaptureFixture[str]
) -> None:
    code = main(["-p", "Hi", flag, pipe])

    out, err = capfd.readouterr()
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert ODD in err


@pytest.mark.parametrize("flag", ["--script", "--replay"])
def test_a_script_or_cassette_that_is_a_device_is_refused(
    workspace: Path, flag: str, capfd: pytest.CaptureFixture[str]
) -> None:
    code = main(["-p", "Hi", flag, "/dev/zero"])

    out, err = capfd.readouterr()
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert ODD in err


@pytest.mark.parametrize("flag", ["--script", "--replay"])
def test_a_script_or_cassette_above_256_mib_is_refused(
    workspace: Path, flag: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with (workspace / "large").open("wb") as file:
        file.truncate(100 * 2**30)  # it takes no room

    code = main(["-p", "Hi", flag, "large"])

    out, err = capfd.readouterr()
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert "cannot be read: it has more than 256 MiB" in err


@pytest.mark.parametrize("flag", ["--script", "--replay"])
def test_a_script_or_cassette_that_is_a_directory_is_refused(
    workspace: Path, flag: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["-p", "Hi", flag, "."]) == 1

    assert "cannot be read: Is a directory" in capfd.readouterr().err
