"""Applies to every test: a home of its own, no network, and no leaked key.

Each test gets empty HOME, REFOLD_HOME and XDG directories and none of the variables that
would name a real provider, proxy or setting. The environment has a fake key instead; at the
end of the run, no file under any of those homes, and none beside a journal, may contain it.
"""

import gc
import os
import re
import secrets
import time
from collections.abc import Generator, Iterator
from contextlib import suppress
from hashlib import sha256
from itertools import count
from pathlib import Path

import pytest
from hypothesis import settings

# It looks like a real key, so masks can recognize it in both ways: as the value of a variable
# for a key, and by its form.
CANARY = "sk-ant-api03-" + secrets.token_hex(24)

# Prefixes and names of variables that tests must not inherit.
FOREIGN_PREFIXES = (
    "ANTHROPIC_", "OPENAI_", "OLLAMA_", "OPENROUTER_", "GROQ_", "GEMINI_", "GOOGLE_",
    "MISTRAL_", "DEEPSEEK_", "REFOLD_", "XDG_", "GIT_", "OTEL_", "HF_",
)  # fmt: skip
FOREIGN_NAMES = {
    "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy",
    "EDITOR", "VISUAL", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES",
}  # fmt: skip
# Variables for the test run itself are hidden from the tested program.
OURS = {"REFOLD_REQUIRE_PEERS", "REFOLD_PEERS"}


# No test asserts a time. The result of CI must depend on the change and not on luck;
# everywhere else, luck helps.
settings.register_profile("unhurried", deadline=None)
settings.register_profile("ci", derandomize=True, deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "unhurried")
# `.ci/run` limits the time of the slow tests. Those that have not begun by then, in seconds
# since 1970, are skipped; to which modules that happens depends on the order. The names do not
# begin with REFOLD, because refold would report them as unknown settings.
END_TIME = float(os.environ.get("SLOW_TESTS_UNTIL") or "inf")
MODULE_ORDER = os.environ.get("SLOW_TESTS_ORDER", "")  # the order differs for each text
TIME_IS_OVER = "optional here: the time for slow tests is over"
# `make test` tries a property that names no number of examples with few of them. `make
# test-peers` runs all properties once more, with hypothesis's own number.
FEW_EXAMPLES, QUICK_MARKS = 25, "not peer and not slow"


def pytest_configure(config: pytest.Config) -> None:
    if config.option.markexpr == QUICK_MARKS:
        settings.register_profile("quick", settings.default, max_examples=FEW_EXAMPLES)
        settings.load_profile("quick")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect the tests without collecting garbage, and exempt them from it later.

    They stay until the end, so to scan them again and again takes time for nothing.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


# Matches a module whose tests are all slow. `make test` deselects them, and to import such
# modules for that took half of the time before the first test.
SLOW_MODULE = re.compile(
    r"^pytestmark = (\[[^\]]*|[^\n]*)pytest\.mark\.(slow|peer)\b", re.MULTILINE
)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    is_slow = (
        config.option.markexpr == QUICK_MARKS
        and collection_path.suffix == ".py"
        and SLOW_MODULE.search(collection_path.read_text(encoding="utf-8"))
    )
    return True if is_slow else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
            item.add_marker("property")
    if MODULE_ORDER:
        items.sort(key=lambda item: _place_in_order(item.nodeid.partition("::")[0]))


def _place_in_order(module: str) -> bytes:
    return sha256(f"{MODULE_ORDER} {module}".encode()).digest()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    if time.time() > END_TIME:
        pytest.skip(TIME_IS_OVER)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    skipped = terminalreporter.stats.get("skipped", [])
    count = sum(TIME_IS_OVER in str(report.longrepr) for report in skipped)
    if count:
        terminalreporter.write_line(f"{count} tests were not begun: their time was over")


# Numbers for the directories of tests. pytest would look through all directories for the
# highest number, once for each test, which took a quarter of the time of all tests.
_numbers = count()


def directory(tmp_path_factory: pytest.TempPathFactory, name: str) -> Path:
    path = tmp_path_factory.getbasetemp() / f"{name}-{next(_numbers)}"
    path.mkdir(mode=0o700)
    return path


def remove_if_empty(path: Path) -> None:
    # Most directories are empty after their test. pytest would remove twenty thousand of them
    # at the end of the third run after this one, which takes a quarter of a minute.
    with suppress(OSError):
        path.rmdir()


@pytest.fixture
def tmp_path(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """Yield an empty directory of this test, named for it."""
    path = directory(tmp_path_factory, re.sub(r"\W", "_", request.node.name)[:30])
    yield path
    remove_if_empty(path)


@pytest.fixture(autouse=True)
def no_workspaces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count no directory of another test as a workspace, from which programs are not run."""
    monkeypatch.setattr("refold.programs.Programs._every_writable", {})


@pytest.fixture(autouse=True)
def home(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Path]:
    """Yield an empty home for this test; `home / "refold"` is its REFOLD_HOME."""
    # Models are large, so the tests that need a real model share the directory of models.
    keep = OURS | ({"REFOLD_MODELS"} if request.node.get_closest_marker("peer") else set())
    for name in list(os.environ):
        if (
            name.startswith(FOREIGN_PREFIXES) or name in FOREIGN_NAMES
        ) and name not in keep:
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
    """Return a certificate of hosts on the loopback that is not trusted, and its key."""
    from tests.loopback_network import new_certificate

    path = tmp_path_factory.mktemp("tls") / "both.pem"
    path.write_bytes(new_certificate())
    return path


@pytest.fixture(scope="session")
def canary() -> str:
    """Return the fake key, which no file may contain. A test gives it to a program as its key."""
    return CANARY


@pytest.fixture(scope="session", autouse=True)
def no_key_was_kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    yield
    leaks = [
        str(path) for path in files_to_scan(tmp_path_factory.getbasetemp()) if has_key(path)
    ]
    assert not leaks, f"the canary key was written to {leaks}"


def files_to_scan(base: Path) -> Iterator[Path]:
    """Yield the files in the homes of tests, and those beside a journal or a log."""
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
        return False  # a socket, or a file that a test made unreadable


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
