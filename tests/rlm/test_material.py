"""Which files and folders become the material of a question."""

import os
from hashlib import sha256
from pathlib import Path

import pytest

from refold.errors import BadInput
from refold.rlm.material import Material, flat_text, read_material, recursive_text


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return Path(os.path.realpath(tmp_path))


def read(top: Path, *named: str, most: int = 10_000) -> Material:
    return read_material(named, str(top), lambda _: "", most)


def test_material_of_one_file_is_its_text(root: Path) -> None:
    (root / "a.txt").write_text("héllo\n")

    own_material = read(root, "a.txt")

    content = sha256("héllo\n".encode()).hexdigest()
    assert own_material == Material("héllo\n", 1, 7, read=((str(root / "a.txt"), content),))
    assert (own_material.tokens, own_material.description) == (2, "a text of 6 characters")


def test_material_of_a_folder_is_a_dictionary_from_path_to_text(root: Path) -> None:
    (root / "in/deep").mkdir(parents=True)
    (root / "in/b.txt").write_text("b")
    (root / "in/deep/a.md").write_text("aa")
    (root / "in/link.txt").symlink_to(root / "in/b.txt")

    own_material = read(root, "in")

    assert (own_material.value, own_material.files, own_material.size) == (
        {"in/b.txt": "b", "in/deep/a.md": "aa"}, 2, 3,
    )  # fmt: skip
    assert own_material.read == (
        (str(root / "in/b.txt"), sha256(b"b").hexdigest()),
        (str(root / "in/deep/a.md"), sha256(b"aa").hexdigest()),
    )
    assert (
        own_material.description == "a dict from path to text, 2 files, 3 characters in all"
    )


def test_a_file_name_that_is_not_utf_8_is_escaped(root: Path) -> None:
    (root / "in").mkdir()
    Path(os.fsdecode(os.fsencode(root) + b"/in/\xff.txt")).write_text("b")

    own_material = read(root, "in")

    assert own_material.value == {"in/\\xff.txt": "b"}
    assert [path for path, _ in own_material.read] == [f"{root}/in/\\xff.txt"]


def test_material_of_a_folder_with_one_file_is_a_dictionary(root: Path) -> None:
    (root / "in").mkdir()
    (root / "in/b.txt").write_text("b")

    assert read(root, "in").value == {"in/b.txt": "b"}


def test_material_of_several_paths_is_one_dictionary_without_duplicates(root: Path) -> None:
    (root / "in").mkdir()
    (root / "in/b.txt").write_text("b")
    (root / "c.txt").write_text("c")

    own_material = read(root, "c.txt", "in", "in/b.txt")

    assert own_material.value == {"c.txt": "c", "in/b.txt": "b"}


def test_material_outside_the_directory_has_absolute_paths(root: Path) -> None:
    (root / "here").mkdir()
    (root / "there").mkdir()
    (root / "there/a.txt").write_text("a")

    result = read_material([str(root / "there")], str(root / "here"), lambda _: "")

    assert result.value == {f"{root}/there/a.txt": "a"}


def test_material_omits_binary_ignored_and_secret_files(root: Path) -> None:
    folder = root / "in"
    (folder / ".git").mkdir(parents=True)
    (folder / ".git/config").write_text("not ours")
    (folder / ".gitignore").write_text("*.log\n")
    (folder / "x.log").write_text("ignored")
    (folder / ".env").write_text("KEY=1")
    (folder / "kept.txt").write_text("kept")
    (folder / "latin.txt").write_bytes(b"caf\xe9")
    (folder / "zero.bin").write_bytes(b"a\0b")
    (folder / "denied.txt").write_text("no")

    result = read_material(
        ["in"], str(root), lambda path: "a rule" if path.endswith("denied.txt") else ""
    )

    assert result.value == {"in/.gitignore": "*.log\n", "in/kept.txt": "kept"}
    assert result.left_out == (
        "left out of the material (no text): in/latin.txt, in/zero.bin",
        "left out of the material (may contain secrets): in/.env, in/denied.txt",
    )


def test_material_too_large_for_memory_is_a_list_of_paths(root: Path) -> None:
    (root / "in").mkdir()
    for name in "ab":
        (root / f"in/{name}.txt").write_text("x" * 6_000)

    own_material = read(root, "in")

    assert own_material == Material(["in/a.txt", "in/b.txt"], 2, 12_000)
    assert own_material.tokens == 3_000
    assert "list of the paths of 2 files" in own_material.description


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gone.txt", "--context 'gone.txt': there is no such file or folder"),
        ("zero.bin", "--context 'zero.bin' is not UTF-8 text"),
        ("empty", "--context names nothing that can be read as text"),
        (
            "pipe",
            "--context: pipe is a device, pipe or socket, not a file to read or write",
        ),
    ],
)
def test_named_material_that_cannot_be_read_is_an_error(
    root: Path, name: str, message: str
) -> None:
    (root / "zero.bin").write_bytes(b"a\0b")
    (root / "empty").mkdir()
    os.mkfifo(root / "pipe")

    with pytest.raises(BadInput) as error:
        read(root, name)

    assert str(error.value) == message


def test_a_file_denied_by_a_rule_is_not_read_even_if_named(root: Path) -> None:
    (root / "a.txt").write_text("a")

    with pytest.raises(BadInput, match=r"'a.txt' is not read: a rule"):
        read_material(["a.txt"], str(root), lambda _: "a rule")


def test_without_material_the_question_is_unchanged() -> None:
    assert read_material([], "/", lambda _: "") == Material()
    assert recursive_text("Who?", Material()) == "Who?"


def test_a_flat_prompt_has_the_question_after_the_material() -> None:
    own_material = Material({'a".txt': "one", "b.txt": "</material> two"}, 2, 20)

    assert flat_text("Who?", own_material) == (
        '<material path="a\'.txt">\none\n</material>\n\n'
        '<material path="b.txt">\n<\\/material> two\n</material>\n\nWho?'
    )
    assert flat_text("Who?", Material("one", 1, 3)) == (
        "<material>\none\n</material>\n\nWho?"
    )


def test_a_recursive_prompt_describes_the_material_without_its_text() -> None:
    assert recursive_text("Who?", Material("a secret", 1, 8)) == (
        "Who?\n\nThe material is in the variable `context`: a text of 8 characters."
    )


def test_a_small_model_sees_the_start_of_the_material_and_a_loop_over_it() -> None:
    def start_of_text(material: Material) -> str:
        return recursive_text("Who?", material, shown=True).rpartition("\n\n")[2]

    long = "a 'quote'\n" + "x" * 1_000

    assert start_of_text(Material({"a.txt": long, "b.txt": "two"}, 2, 8)).startswith(
        "Go through it with `for path, text in context.items():`. It begins: "
        "'a.txt': \"a 'quote'\\nxxx"
    )
    assert len(start_of_text(Material(long, 1, 8))) < 300
    assert "for path in context:" in start_of_text(Material(["a.txt"], 1, 8))
