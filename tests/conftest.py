"""Applies to every test: a home of its own, no network, and no leaked key.

Each test gets empty HOME, REFOLD_HOME and XDG directories and none of the variables that
would name a real provider, proxy or setting. The environment has a fake key instead; at the
end of the run, no file under any of those homes, and none beside a journal, may contain it.
"""

import gc
import os
import re
import secrets
from collections.abc import Generator, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest
from hypothesis import settings

# A value that looks like a real one, so that masks must catch it by either way:
# by being in the environment as a key, or by its looks.
CANARY = "sk-ant-api03-" + secrets.token_hex(24)

FOREIGN = (
    "ANTHROPIC_", "OPENAI_", "OLLAMA_", "OPENROUTER_", "GROQ_", "GEMINI_", "GOOGLE_",
    "MISTRAL_", "DEEPSEEK_", "REFOLD_", "XDG_", "GIT_", "OTEL_", "HF_",
)  # fmt: skip
FOREIGN_NAMES = {
    "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy",
    "EDITOR", "VISUAL", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES",
}  # fmt: skip
# Variables for the test run itself are hidden from the tested program.
OURS = {"REFOLD_REQUIRE_PEERS", "REFOLD_PEERS"}


# No test asserts a time. What CI says must be about the change and not about luck;
# everywhere else, luck helps.
settings.register_profile("unhurried", deadline=None)
settings.register_profile("ci", derandomize=True, deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "unhurried")
# A property without a number of examples of its own is tried with few by `make test`, and with
# hypothesis's own number by `make test-peers`, which runs all properties once more.
FEW, QUICK = 25, "not peer and not slow"


def pytest_configure(config: pytest.Config) -> None:
    if config.option.markexpr == QUICK:
        settings.register_profile("quick", settings.default, max_examples=FEW)
        settings.load_profile("quick")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collected tests are not garbage: the collector need not scan them again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


# A module that is slow as a whole. Importing those for `make test`, only to deselect their tests,
# took half of the time before the first test.
SLOW_MODULE = re.compile(
    r"^pytestmark = (\[[^\]]*|[^\n]*)pytest\.mark\.(slow|peer)\b", re.MULTILINE
)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    is_slow = (
        config.option.markexpr == QUICK
        and collection_path.suffix == ".py"
        and SLOW_MODULE.search(collection_path.read_text(encoding="utf-8"))
    )
    return True if is_slow else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
            item.add_marker("property")


# The directories of tests are numbered here: pytest would look through all of them for the
# highest number, once for each test, which took a quarter of the time of all tests.
_numbers = count()


def directory(tmp_path_factory: pytest.TempPathFactory, name: str) -> Path:
    path = tmp_path_factory.getbasetemp() / f"{name}-{next(_numbers)}"
    path.mkdir(mode=0o700)
    return path


# Most tests leave theirs empty. It is removed at once: twenty thousand of them, removed when
# the third run after this one ends, take a quarter of a minute.
def remove_if_empty(path: Path) -> None:
    with suppress(OSError):
        path.rmdir()


@pytest.fixture
def tmp_path(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """An empty directory of this test, named for it."""
    path = directory(tmp_path_factory, re.sub(r"\W", "_", request.node.name)[:30])
    yield path
    remove_if_empty(path)


@pytest.fixture(autouse=True)
def no_workspaces(monkeypatch: pytest.MonkeyPatch) -> None:
    """No directory of another test counts as a workspace that programs are not run from."""
    monkeypatch.setattr("refold.programs.Programs._of_all", {})


@pytest.fixture(autouse=True)
def home(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Path]:
    """An empty home for this test; `home / "refold"` is its REFOLD_HOME."""
    # Models are large: the tests that need a real one share the directory they are in.
    keep = OURS | ({"REFOLD_MODELS"} if request.node.get_closest_marker("peer") else set())
    for name in list(os.environ):
        if (name.startswith(FOREIGN) or name in FOREIGN_NAMES) and name not in keep:
            monkeypatch.delenv(name)
    path = directory(tmp_path_factory, "home")
    monkeypatch.setenv("HOME", str(path))
    monkeypatch.setenv("REFOLD_HOME", str(path / "refold"))
    for name in ("CONFIG", "DATA", "STATE", "CACHE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(path / f".{name.lower()}"))
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.null.Keyring")
    monkeypatch.setenv("CANARY_API_KEY", CANARY)
    monkeypatch.setenv("REFOLD_NO_BACKGROUND", "1")  # nothing outlives a test
    yield path
    remove_if_empty(path)


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate of hosts on the loopback that is not trusted, and its key."""
    from tests.loopback_network import new_certificate

    path = tmp_path_factory.mktemp("tls") / "both.pem"
    path.write_bytes(new_certificate())
    return path


@pytest.fixture(scope="session")
def canary() -> str:
    """The key that must not be found again. Give it to a program as its key."""
    return CANARY


@pytest.fixture(scope="session", autouse=True)
def no_key_was_kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    yield
    leaks = [
        str(path) for path in files_to_scan(tmp_path_factory.getbasetemp()) if has_key(path)
    ]
    assert not leaks, f"the canary key was written to {leaks}"


def files_to_scan(base: Path) -> Iterator[Path]:
    """Files in the homes of tests, and whatever lies in a directory with a journal."""
    for top in os.scandir(base):
        for directory, _, names in os.walk(top):
            if names and (
                top.name.startswith("home")
                or any(name.endswith((".jsonl", ".log")) for name in names)
            ):
                yield from (Path(directory, name) for name in names)


def has_key(path: Path) -> bool:
    try:
        return path.is_file() and CANARY.encode() in path.read_bytes()
    except OSError:
        return False  # a socket, or what a test made unreadable on purpose


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Iterator[None]:
    """With REFOLD_REQUIRE_PEERS, a peer that is missing is a failure, not a skip."""
    report = yield
    if (
        os.environ.get("REFOLD_REQUIRE_PEERS")
        and item.get_closest_marker("peer")
        and report.skipped
        and not hasattr(report, "wasxfail")
        and "optional" not in str(report.longrepr)
    ):
        report.outcome = "failed"
        report.longrepr = f"a peer is required here: {report.longrepr}"
    return report
