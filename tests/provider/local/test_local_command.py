"""`refold local`: its output while a model is installed and removed."""

from argparse import ArgumentParser
from pathlib import Path

import pytest

from refold.cli import local
from refold.errors import BadInput, Unreachable
from refold.provider.local.models import ModelDirectory
from tests.provider.local.made_up import BYTES, MODEL


def run(*arguments: str) -> int:
    parser = ArgumentParser()
    local.add_arguments(parser)
    return local.run(parser.parse_args(arguments))


def test_install_prints_the_size_the_source_and_how_to_use_the_model(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.gguf").write_bytes(BYTES)
    model_files = ModelDirectory(tmp_path / "models")

    code = local.install(MODEL, model_files, str(tmp_path / "mine.gguf"))

    output = capfd.readouterr().out
    assert code == 0
    assert "100 %" in output
    assert f"checked: sha256 {MODEL.sha256}\nfrom {tmp_path / 'mine.gguf'}\n" in output
    assert "refold -m local/tiny" in output
    assert "\r" not in output
    assert local.install(MODEL, model_files) == 0
    assert "is already installed" in capfd.readouterr().out


def test_failed_model_install_is_refused_with_advice(tmp_path: Path) -> None:
    with pytest.raises(Unreachable, match=r"could not be fetched.*--from FILE"):
        local.install(MODEL, ModelDirectory(tmp_path), "http://127.0.0.1:9/x")


def test_status_lists_installed_missing_and_partly_downloaded_models(
    capfd: pytest.CaptureFixture[str], home: Path
) -> None:
    models = home / "refold" / "models"
    models.mkdir(parents=True)
    (models / "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf.partial").write_bytes(
        b"x" * 2_000_000
    )

    assert run("status") == 0

    output = capfd.readouterr().out
    assert f"models are stored in {models}\n" in output
    assert "local/qwen2.5-coder-1.5b  not installed, 1.12 GB download" in output
    assert "local/qwen2.5-coder-0.5b  partly downloaded, 2 MB of 491 MB" in output
    assert "llama.cpp" in output


def test_missing_model_cannot_be_removed(capfd: pytest.CaptureFixture[str]) -> None:
    assert run("remove", "--model", "qwen2.5-coder-0.5b") == 0

    assert "is not installed" in capfd.readouterr().out


def test_unknown_model_is_named_in_the_error() -> None:
    with pytest.raises(BadInput, match="'gpt'"):
        run("install", "--model", "gpt")
