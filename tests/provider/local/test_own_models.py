"""The user's own GGUF file: read, installed by path and by address, found, removed."""

import os
import struct
from argparse import ArgumentParser
from pathlib import Path

import pytest

from refold.app.model_connections import Connections
from refold.cli import local
from refold.config.paths import paths
from refold.config.settings import Settings
from refold.errors import BadInput, Unreachable
from refold.provider.local.gguf import GgufHeader, read_header
from refold.provider.local.models import LocalModel, ModelDirectory, default_directory
from refold.provider.local.server import context_tokens
from tests.provider.local.made_up import Hub, gguf, serve_hub


def run(*arguments: str) -> int:
    parser = ArgumentParser()
    local.add_arguments(parser)
    return local.run(parser.parse_args(arguments))


def model_files() -> ModelDirectory:
    return ModelDirectory(default_directory(os.environ))


@pytest.fixture
def own_model(tmp_path: Path) -> Path:
    path = tmp_path / "My Model-Q4.gguf"
    path.write_bytes(gguf())
    return path


def test_gguf_header_gives_name_architecture_context_and_template(own_model: Path) -> None:
    assert read_header(own_model) == GgufHeader("Tiny One", "tiny", 4096, has_template=True)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"PK\3\4", "it does not begin with GGUF"),
        (gguf()[:60], "its header is cut off"),
        (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "its version is 1"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1 << 40), "it claims 1,099,511,627,776 keys"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1 << 40), "it claims a text of"),
    ],
)
def test_file_that_is_not_gguf_is_refused_with_the_reason(
    own_model: Path, content: bytes, reason: str
) -> None:
    own_model.write_bytes(content)

    with pytest.raises(BadInput, match=f"is not a GGUF file: {reason}"):
        run("install", str(own_model))

    assert model_files().list_installed() == []


def test_gguf_file_is_installed_by_path_and_used_by_name(
    own_model: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run("install", str(own_model)) == 0

    output = capfd.readouterr().out
    assert (
        "tiny, 4,096 tokens of context, its own chat template, tool calls in JSON" in output
    )
    assert "use it with: refold -m local/my-model-q4\n" in output
    (model,) = model_files().list_installed()
    assert (model.name, model.context, model.size) == ("my-model-q4", 4096, len(gguf()))
    assert model_files().path_of(model).read_bytes() == gguf()


def test_context_window_is_that_of_the_file_capped_at_what_the_server_allows(
    own_model: Path,
) -> None:
    run("install", str(own_model))
    large = own_model.with_name("large.gguf")
    large.write_bytes(gguf(131_072))
    run("install", str(large))

    connections = Connections(Settings(), paths(os.environ), os.environ, {})

    assert connections.list_installed() == ("local/large", "local/my-model-q4")
    assert connections.window_of_embedded("local/my-model-q4") == 4096
    assert connections.window_of_embedded("local/large") == 8192
    connections.check("local/my-model-q4")


def test_gguf_header_gives_weight_size_tool_support_and_memory_per_token(
    own_model: Path,
) -> None:
    template = "{%- if tools %}{{ tools | tojson }}{%- endif %}{{ messages }}"
    own_model.write_bytes(gguf(template=template, tensors=((64, 32), (10,)), layers=4))

    header = read_header(own_model)

    # 4 layers, 2 heads that are kept, 16 + 16 numbers of 2 bytes each
    assert (header.parameters, header.token_bytes) == (64 * 32 + 10, 4 * 2 * 32 * 2)
    assert header.shows_tools


@pytest.mark.parametrize(
    "template",
    [
        "{{ messages }}",
        "You may use <tools></tools>: {% for m in messages %}{{ m }}{% endfor %}",
        "{% if xml_tools %}{{ xml_tools }}{% endif %}",
        "{% if message.tools %}{% endif %}",
    ],
)
def test_template_without_a_tools_variable_does_not_count_as_tool_support(
    own_model: Path, template: str
) -> None:
    own_model.write_bytes(gguf(template=template))

    assert not read_header(own_model).shows_tools


@pytest.mark.parametrize(
    ("parameters", "template", "calls"),
    [
        ((50_000, 60_000), "{% if tools %}{% endif %}", True),
        ((50_000, 60_000), "{{ messages }}", False),
        ((40_000, 40_000), "{% if tools %}{% endif %}", False),
    ],
)
def test_larger_model_with_tools_in_its_template_calls_them_in_that_format(
    own_model: Path, parameters: tuple[int, int], template: str, calls: bool
) -> None:
    own_model.write_bytes(gguf(template=template, tensors=(parameters,)))

    run("install", str(own_model))

    assert [model.calls_tools for model in model_files().list_installed()] == [calls]


@pytest.mark.parametrize(
    ("made_for", "token_bytes", "memory", "context"),
    [
        (0, 0, 64 << 30, 8192),
        (4096, 100_000, 64 << 30, 4096),
        (131_072, 0, 64 << 30, 8192),
        (131_072, 100_000, 64 << 30, 32_768),
        (16_384, 100_000, 64 << 30, 16_384),
        (131_072, 100_000, 4 << 30, 8192),
        (131_072, 100_000, 8 << 30, 20_480),
    ],
)
def test_context_window_grows_with_memory_up_to_the_model_limit(
    made_for: int, token_bytes: int, memory: int, context: int
) -> None:
    model = LocalModel(
        "m", "m.gguf", 1_000_000_000, "", context=made_for, token_bytes=token_bytes
    )

    assert context_tokens(model, memory) == context


def test_gguf_file_is_installed_from_an_address(capfd: pytest.CaptureFixture[str]) -> None:
    with serve_hub(Hub(gguf(template=""))) as hub:
        assert run("install", hub.url) == 0

    assert "no chat template: ChatML" in capfd.readouterr().out
    assert [model.name for model in model_files().list_installed()] == ["tiny"]


def test_download_that_is_not_a_model_is_deleted() -> None:
    with (
        serve_hub(Hub(b"<html>sign in</html>")) as hub,
        pytest.raises(BadInput, match="GGUF"),
    ):
        run("install", hub.url)

    assert list(default_directory(os.environ).glob("tiny*")) == []


def test_address_that_does_not_answer_is_named_without_its_password() -> None:
    with pytest.raises(Unreachable, match=r"127\.0\.0\.1:9/x\.gguf cannot be fetched"):
        run("install", "http://me:secret@127.0.0.1:9/x.gguf?sig=1")


def test_own_model_is_listed_by_status_and_removed(
    own_model: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run("install", str(own_model))
    capfd.readouterr()

    run("status")
    assert "local/my-model-q4  installed, " in capfd.readouterr().out

    run("remove", "--model", "my-model-q4")
    assert list(default_directory(os.environ).iterdir()) == []
    with pytest.raises(BadInput, match="there is no embedded model 'my-model-q4'"):
        model_files().find("local/my-model-q4")


def test_file_named_like_a_builtin_model_is_refused(own_model: Path) -> None:
    known = own_model.with_name("qwen2.5-coder-0.5b.gguf")
    known.write_bytes(gguf())

    with pytest.raises(BadInput, match="is a model that refold knows"):
        run("install", str(known))


def test_file_and_model_name_together_are_refused(own_model: Path) -> None:
    with pytest.raises(BadInput, match=r"either FILE\|URL"):
        run("install", str(own_model), "--model", "qwen2.5-coder-0.5b")
