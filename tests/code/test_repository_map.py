"""The repository map: what it knows of files and symbols, and what it never reads or believes."""

import hashlib
import os
import resource
import sqlite3
import textwrap
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from refold.code.repomap.build import build, building, is_building
from refold.code.repomap.facts import is_test, read_facts
from refold.code.repomap.map_file import map_path
from refold.code.repomap.modules import Modules
from refold.code.repomap.outline import CHARS_PER_TOKEN, outline
from refold.code.repomap.refresh import Coverage
from refold.code.repomap.repository_map import RepositoryMap
from refold.errors import ToolFailed
from refold.place.files import DiskFiles
from refold.place.port import MAX_FILE_BYTES, Files, Real

SHOP = {
    "shop/__init__.py": "",
    "shop/prices.py": """\
        class Price:
            def in_cents(self):
                return 1


        def total(prices):
            return sum(price.in_cents() for price in prices)
        """,
    "shop/till.py": """\
        from shop.prices import Price, total


        class Till:
            def pay(self):
                # total is only named in this comment
                return total([Price()])
        """,
    "games/score.py": """\
        def total(points):
            return points


        def finish():
            return total(3)
        """,
    "tests/test_till.py": """\
        from shop.till import Till


        def test_paying_returns_the_total():
            assert Till().pay() == 1
        """,
}
Open = Callable[..., RepositoryMap]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_files(tmp_path / "repository", SHOP)


@pytest.fixture
def open_map(root: Path, tmp_path: Path) -> Iterator[Open]:
    opened = list[RepositoryMap]()

    def open_one(
        files: Files | None = None, notes: list[str] | None = None
    ) -> RepositoryMap:
        notes = [] if notes is None else notes
        repository = RepositoryMap(
            str(root), files or DiskFiles(root), tmp_path / "maps", notes.append
        )
        opened.append(repository)
        return repository

    yield open_one
    for repository in opened:
        repository.close()


def write_files(folder: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    return folder.resolve()


def test_a_symbol_is_shown_with_its_definition_and_its_callers(open_map: Open) -> None:
    repository = open_map()
    repository.refresh()

    report = repository.describe_symbol("Till")

    [place] = report.definitions
    assert (place.path, place.definition.line, place.text) == (
        "shop/till.py",
        4,
        "class Till:",
    )
    assert [(use.path, use.kind, use.caller) for use in report.tests] == [
        ("tests/test_till.py", "import", ""),
        ("tests/test_till.py", "call", "test_paying_returns_the_total"),
    ]


def test_the_map_lists_every_definition_of_a_name_and_the_uses_of_one_member(
    open_map: Open,
) -> None:
    repository = open_map()
    repository.refresh()

    report = repository.describe_symbol("total")

    assert {place.path for place in report.definitions} == {
        "shop/prices.py", "games/score.py",
    }  # fmt: skip
    member = repository.describe_symbol("Price.in_cents")
    assert [(use.path, use.line, use.caller) for use in member.uses] == [
        ("shop/prices.py", 7, "total")
    ]


def test_a_name_in_a_docstring_is_not_a_use_and_one_in_an_import_string_is(
    open_map: Open, root: Path
) -> None:
    (root / "shop/notes.py").write_text(
        '"""Till is a word here."""\nname = "shop.till:Till"\n'
    )
    repository = open_map()
    repository.refresh()

    report = repository.describe_symbol("Till")

    assert [(use.path, use.line, use.kind) for use in report.uses] == [
        ("shop/notes.py", 2, "string")
    ]


def test_a_file_is_shown_with_its_imports_importers_and_tests(open_map: Open) -> None:
    repository = open_map()
    repository.refresh()

    report = repository.describe_file(repository.find_file("till.py"))

    assert report.imports == ("shop/prices.py",)
    assert report.imported_by == ("tests/test_till.py",)
    assert report.tests == ("tests/test_till.py",)
    assert [item.full_name for item in report.definitions] == ["Till", "Till.pay"]
    assert not report.is_test


def test_the_map_lists_much_mentioned_files_first_and_files_of_the_focus_before_them(
    open_map: Open,
) -> None:
    repository = open_map()
    repository.refresh()

    whole = [file.path for file in repository.best_files([], 10)]
    focused = [file.path for file in repository.best_files(["finish"], 10)]

    assert whole.index("shop/prices.py") < whole.index("games/score.py")
    assert focused[0] == "games/score.py"


@given(tokens=st.integers(1, 400))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_repository_map_never_exceeds_its_token_limit(
    open_map: Open, tokens: int
) -> None:
    repository = open_map()
    repository.refresh()

    text = outline(repository, [], tokens)

    assert len(text) <= max(tokens * CHARS_PER_TOKEN, len("There is no source file …" * 2))


def test_the_map_reads_only_changed_files_again(open_map: Open, root: Path) -> None:
    repository = open_map()
    first = repository.refresh()
    while repository.refresh().read:  # a file that was just written is read once more
        pass
    (root / "shop/till.py").write_text("def give_change(): ...\n")
    (root / "games/score.py").unlink()

    second = repository.refresh()

    assert (first.read, second.read, second.listed) == (5, 1, 4)
    assert repository.describe_symbol("give_change").definitions
    assert not repository.describe_symbol("finish").definitions


def test_a_file_with_new_times_and_the_same_content_keeps_its_rank(
    open_map: Open, root: Path
) -> None:
    repository = open_map()
    repository.refresh()
    place = repository.describe_file("shop/till.py").place

    os.utime(root / "shop/till.py")

    assert repository.refresh().read >= 1
    assert repository.refresh().is_ranked
    assert repository.describe_file("shop/till.py").place == place


@given(
    edits=st.lists(
        st.tuples(
            st.sampled_from(sorted(SHOP)),
            st.sampled_from(
                ["", "def alpha(): ...\n", "class Beta:\n    x = 1\n", "alpha()\n"]
            ),
        ),
        max_size=6,
    )
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_repository_map_updated_after_edits_equals_a_new_one(
    tmp_path_factory: pytest.TempPathFactory, edits: list[tuple[str, str]]
) -> None:
    place = tmp_path_factory.mktemp("edits")
    root = write_files(place / "repository", SHOP)
    follower = RepositoryMap(str(root), DiskFiles(root), place / "maps", print)
    follower.refresh()
    for name, text in edits:
        (root / name).write_text(text)
        follower.refresh()
    fresh = RepositoryMap(str(root), DiskFiles(root), place / "other", print)
    fresh.refresh()

    for name in ("alpha", "Beta", "total", "Till"):
        assert answer(follower, name) == answer(fresh, name)
    follower.close()
    fresh.close()


def test_a_partial_repository_map_says_how_many_files_were_read(open_map: Open) -> None:
    repository = open_map()

    coverage = repository.refresh(0.0)

    assert not coverage.is_whole
    assert "partial: 0 of 5 files are read" in outline(repository, [], 500)
    assert repository.refresh(None).is_whole


def test_the_map_never_reads_ignored_or_denied_files(open_map: Open, root: Path) -> None:
    (root / ".gitignore").write_text("build/\n")
    write_files(
        root,
        {"build/made.py": "def made(): ...\n", "keys/secret.py": "def secret(): ...\n"},
    )
    (root / ".git").mkdir()
    reads = list[str]()

    class WatchedFiles(DiskFiles):
        def read(self, real: Real, at_most: int = MAX_FILE_BYTES) -> bytes:
            reads.append(os.path.relpath(real, root))
            return super().read(real, at_most)

    files = WatchedFiles(
        root, why_unreadable=lambda real: "it is denied" if "keys/" in real else ""
    )
    repository = open_map(files)
    repository.refresh()

    assert not repository.describe_symbol("made").definitions
    assert not repository.describe_symbol("secret").definitions
    assert not [path for path in reads if path.startswith(("build", "keys"))]
    assert "keys" not in outline(repository, [], 500)


def test_the_map_does_not_show_a_file_that_is_denied_after_it_was_read(
    open_map: Open, root: Path
) -> None:
    open_map().refresh()
    denied = DiskFiles(root, why_unreadable=lambda real: "no" if "games" in real else "")

    repository = open_map(denied)
    repository.refresh()

    assert not repository.describe_symbol("finish").definitions
    assert "games" not in outline(repository, ["finish"], 500)
    with pytest.raises(ToolFailed, match="not in the map"):
        repository.describe_file("games/score.py")


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("large.py", b"x = 1\n" * 200_000, "larger than"),
        ("binary.py", b"def f():\0 ...\n", "binary"),
        ("generated.js", b"var a;" * 10_000 + b"\n" + b"x;\n" * 10_000, "line of more"),
    ],
)
def test_the_map_leaves_out_large_binary_and_generated_files_with_the_reason(
    open_map: Open, root: Path, name: str, content: bytes, reason: str
) -> None:
    (root / name).write_bytes(content)
    repository = open_map()
    coverage = repository.refresh()

    assert coverage.left_out == 1
    assert reason in repository.describe_file(name).problem


def test_the_map_reads_a_repository_with_hostile_names_links_and_nesting_completely(
    open_map: Open, root: Path
) -> None:
    (root / "loop").symlink_to(root)
    (root / "new\nline\x1b[31m.py").write_text("def red(): ...\n")
    (root / "deep.py").write_text(
        "x = " + "(" * 9_000 + ")" * 9_000 + "\ndef after(): ...\n"
    )
    (root / os.fsdecode(b"latin-\xe9.py")).write_text("def latin(): ...\n")
    repository = open_map()
    coverage = repository.refresh()

    assert coverage.is_whole
    text = outline(repository, ["red"], 2_000)
    assert "\x1b" not in text
    assert "new\\nline" in text


@pytest.mark.parametrize("damage", ["cut", "noise", "foreign", "old"])
def test_a_damaged_foreign_or_older_map_file_is_made_again(
    open_map: Open, root: Path, tmp_path: Path, damage: str
) -> None:
    first = open_map()
    first.refresh()
    first.close()
    file = map_path(tmp_path / "maps", str(root))
    if damage == "cut":
        file.write_bytes(file.read_bytes()[:3000])
    elif damage == "noise":
        file.write_bytes(os.urandom(20_000))
    else:
        with closing(sqlite3.connect(file)) as other:
            other.execute(
                "CREATE TRIGGER evil AFTER INSERT ON files BEGIN DELETE FROM names; END"
                if damage == "foreign"
                else "PRAGMA user_version = 999"
            )
            other.commit()

    repository = open_map()

    assert repository.refresh().is_whole
    assert repository.describe_symbol("Till").definitions
    with closing(sqlite3.connect(file)) as other:
        assert not [*other.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'")]


def test_forged_paths_and_values_in_a_map_file_are_not_used(
    open_map: Open, root: Path, tmp_path: Path
) -> None:
    (tmp_path / "outside.py").write_text("def outside(): ...\n")
    first = open_map()
    first.refresh()
    first.close()
    with closing(sqlite3.connect(map_path(tmp_path / "maps", str(root)))) as other:
        other.execute(
            "UPDATE files SET path = '../outside.py' WHERE path = 'games/score.py'"
        )
        other.execute("UPDATE facts SET definitions = x'ff00', imports = x'93'")
        other.execute("UPDATE ranks SET rank = 'much', links = x'00', weights = 'none'")
        other.commit()

    repository = open_map()
    repository.refresh()

    assert "outside" not in outline(repository, [], 2_000)
    assert not repository.describe_symbol("outside").definitions
    assert repository.describe_file("shop/till.py").definitions


def test_a_map_that_cannot_be_stored_is_made_in_memory_with_a_notice(
    root: Path, tmp_path: Path
) -> None:
    (tmp_path / "maps").write_text("a file in its place")
    notes = list[str]()

    repository = RepositoryMap(str(root), DiskFiles(root), tmp_path / "maps", notes.append)

    assert repository.refresh().is_whole
    assert repository.describe_symbol("Till").definitions
    assert "cannot be used" in notes[0]
    repository.close()


def test_a_full_disk_prevents_storing_the_map_but_not_reading_the_repository(
    root: Path, tmp_path: Path
) -> None:
    notes = list[str]()
    repository = RepositoryMap(str(root), DiskFiles(root), tmp_path / "maps", notes.append)
    write_files(
        root, {f"many/m{n}.py": f"def made_{n}_{'x' * 90}(): ...\n" * 20 for n in range(60)}
    )
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(
        resource.RLIMIT_FSIZE, (100_000, before[1])
    )  # a write beyond it fails
    try:
        coverage = repository.refresh()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)

    assert coverage.is_whole
    assert repository.describe_symbol("Till").definitions
    assert "cannot be written" in notes[0]
    repository.close()


def test_two_map_connections_each_read_half_of_a_repository(
    open_map: Open, root: Path
) -> None:
    one, two = open_map(), open_map()
    one.refresh(None, share=(0, 2))
    two.refresh(None, share=(1, 2))

    coverage = one.refresh()

    assert coverage.is_whole
    assert coverage.is_ranked
    assert one.describe_symbol("Till").definitions


def test_only_one_map_build_of_a_repository_runs_at_a_time(
    root: Path, tmp_path: Path
) -> None:
    maps = tmp_path / "maps"
    assert not is_building(maps, str(root))
    with building(maps, str(root)) as first, building(maps, str(root)) as second:
        assert (first, second) == (True, False)
        assert is_building(maps, str(root))


def test_a_map_build_reports_its_progress_and_ends_with_ranked_files(
    open_map: Open, root: Path
) -> None:
    write_files(root, {f"more/m{n}.py": f"def f{n}(): ...\n" for n in range(450)})
    coverages = list[Coverage]()

    coverage = build(open_map(), lambda: None, coverages.append)

    assert (coverage.is_whole, coverage.is_ranked) == (True, True)
    assert [report.known for report in coverages][:3] == [200, 400, 455]


def test_a_map_refresh_reads_no_file_if_more_have_changed_than_its_limit(
    open_map: Open, root: Path
) -> None:
    write_files(root, {f"more/m{n}.py": "x = 1\n" for n in range(20)})
    repository = open_map()

    few = repository.refresh(None, most=19)
    all_ = repository.refresh(None, most=100)

    assert (few.known, few.read, few.is_ranked) == (0, 0, False)
    assert (all_.is_whole, all_.read, all_.is_ranked) == (True, all_.listed, True)


def test_file_content_that_killed_the_parser_twice_is_read_without_a_grammar(
    open_map: Open, root: Path, tmp_path: Path
) -> None:
    """A note beside the map survives the process. A single death may have had another
    reason.
    """
    digest = hashlib.sha256((root / "games/score.py").read_bytes()).hexdigest()
    note = Path(f"{map_path(tmp_path / 'maps', str(root))}.attempt0")
    note.parent.mkdir()
    note.write_text(f"{digest} 2")
    repository = open_map()
    repository.refresh()

    assert "parser failed" in repository.describe_file("games/score.py").problem
    assert note.read_text() == ""


@pytest.mark.parametrize(
    ("name", "source", "expected"),
    [
        ("a.c", "#define MOST 3\nint later(void);\nint now(void)\n{\n\treturn MOST;\n}\n",
         [("MOST", "macro"), ("later", "declaration"), ("now", "function")]),
        ("a.go", "package a\n\nconst Most = 3\n\nfunc (t T) Now() {}\n",
         [("Most", "constant"), ("Now", "method")]),
        ("a.rs", "const MOST: u8 = 3;\nstruct S;\nfn now() {}\n",
         [("MOST", "constant"), ("S", "class"), ("now", "function")]),
        ("a.ts", "enum E { A }\ntype T = string;\nexport function now() {}\n",
         [("E", "enum"), ("T", "type"), ("now", "function")]),
        ("A.java", "class A {\n  A() {}\n  void now() {}\n}\n",
         [("A", "class"), ("A", "constructor"), ("now", "method")]),
        ("a.rb", "class Shop\n  def pay(x)\n  end\nend\n", [("Shop", "class"), ("pay", "def")]),
        ("a.sql", "create table users (id int);\n", [("users", "create table")]),
    ],
)  # fmt: skip
def test_the_map_finds_definitions_of_each_language(
    name: str, source: str, expected: list[tuple[str, str]]
) -> None:
    facts = read_facts(name, source.encode())

    assert [(item.name, item.kind) for item in facts.definitions] == expected


@pytest.mark.parametrize(
    ("path", "module", "expected"),
    [
        ("a/b/c.py", "a.d", ["a/d.py"]),
        ("a/b/c.py", "..d", ["a/d.py"]),
        ("a/b/c.py", ".e.Name", ["a/b/e.py"]),
        ("a/b/c.py", "os", []),
        ("web/app.ts", "./view", ["web/view.tsx"]),
        ("web/app.ts", "react", []),
        ("src/x.c", "lib/y.h", ["include/lib/y.h"]),
        ("cmd/main.go", "example.com/m/pkg/q", ["pkg/q/one.go", "pkg/q/two.go"]),
        ("src/main.rs", "crate::net::Client", ["src/net.rs"]),
        ("src/A.java", "org.shop.Till", ["src/org/shop/Till.java"]),
    ],
)
def test_the_map_resolves_imports_of_each_language_to_files(
    path: str, module: str, expected: list[str]
) -> None:
    modules = Modules(
        [
            "a/d.py", "a/b/c.py", "a/b/e.py", "web/app.ts", "web/view.tsx", "include/lib/y.h",
            "src/x.c", "pkg/q/one.go", "pkg/q/two.go", "cmd/main.go", "src/net.rs", "src/main.rs",
            "src/org/shop/Till.java", "src/A.java",
        ]
    )  # fmt: skip

    assert list(modules.resolve(path, module)) == expected


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("tests/a.py", True), ("pkg/test_a.py", True), ("a_test.go", True), ("a.spec.ts", True),
        ("src/test/java/ATest.java", True), ("src/contest.py", False), ("latest.py", False),
    ],
)  # fmt: skip
def test_the_map_recognizes_tests_by_their_paths(path: str, expected: bool) -> None:
    assert is_test(path) is expected


@given(st.binary(max_size=400))
def test_the_map_reads_any_file_content_without_an_exception(content: bytes) -> None:
    for name in ("a.py", "a.ts", "a.c", "a.rb"):
        read_facts(name, content)


def answer(repository: RepositoryMap, name: str) -> object:
    report = repository.describe_symbol(name)
    places = sorted((place.path, place.definition) for place in report.definitions)
    return places, sorted(
        (u.path, u.line, u.kind) for u in (*report.uses, *report.others, *report.tests)
    )
