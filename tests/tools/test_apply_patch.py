"""Patches: whole or not at all, only where they fit, every other byte unchanged."""

import os
import shutil
import subprocess
from hashlib import sha256
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.errors import ToolFailed
from refold.testing.places import ToolDirectory, temporary_place
from refold.tools.apply_patch import apply_patch
from refold.tools.contract import Reply
from refold.tools.file_versions import compare_texts
from refold.tools.read import read_file
from refold.values.display import Diff


def write_files(place: ToolDirectory, **contents: bytes | str) -> None:
    """Write files, and record that the session has read them."""
    for name, content in contents.items():
        data = content.encode() if isinstance(content, str) else content
        (place.directory / name).write_bytes(data)
        place.known[str(place.directory / name)] = sha256(data).hexdigest()


def patch(place: ToolDirectory, text: str) -> Reply:
    return anyio.run(place.use, apply_patch, {"patch": text})


def make_patch(*lines: str) -> str:
    return "\n".join(("*** Begin Patch", *lines, "*** End Patch"))


def update(*lines: str, path: str = "a") -> str:
    return make_patch(f"*** Update File: {path}", *lines)


def tree(place: ToolDirectory) -> dict[str, str]:
    return {
        str(path.relative_to(place.directory)): path.read_bytes().decode("latin-1")
        for path in sorted(place.directory.rglob("*"))
        if path.is_file()
    }


def digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def refusal_of(place: ToolDirectory, text: str) -> str:
    """The patch is refused, and no file is another than before."""
    before = tree(place)
    with pytest.raises(ToolFailed) as failure:
        patch(place, text)
    assert tree(place) == before
    return str(failure.value)


def test_one_patch_changes_creates_moves_and_deletes_files(
    place: ToolDirectory,
) -> None:
    write_files(place, a="one\ntwo\n", b="x\ny\n", c="gone\n")

    reply = patch(
        place,
        make_patch(
            "*** Update File: a", "@@", " one", "-two", "+2",
            "*** Add File: d/new", "+first", "+", "+third",
            "*** Update File: b", "*** Move to: e/b2", "@@", "-x", "+X", " y",
            "*** Delete File: c",
        ),
    )  # fmt: skip

    directory = str(place.directory)
    new = "first\n\nthird\n"
    assert tree(place) == {"a": "one\n2\n", "d/new": new, "e/b2": "X\ny\n"}
    assert reply == Reply(
        "Changed a (+1 -1).\nCreated d/new (+3 -0).\nMoved b to e/b2 (+1 -1).\nDeleted c.",
        (
            Diff(f"{directory}/a", "changed", "@@ -1,2 +1,2 @@\n one\n-two\n+2", digest("one\ntwo\n"), digest("one\n2\n")),
            Diff(f"{directory}/d/new", "created", "@@ -0,0 +1,3 @@\n+first\n+\n+third", "", digest(new)),
            Diff(f"{directory}/b", "deleted", "@@ moved to e/b2 @@", digest("x\ny\n")),
            Diff(f"{directory}/e/b2", "created", "@@ moved from b @@\n@@ -1,2 +1,2 @@\n-x\n+X\n y", "", digest("X\ny\n")),
            Diff(f"{directory}/c", "deleted", "@@ -1,1 +0,0 @@\n-gone", digest("gone\n")),
        ),
    )  # fmt: skip


def test_the_call_names_every_file_that_a_patch_touches() -> None:
    text = make_patch(
        "*** Update File: a", "*** Move to: ../../moved", "@@", "-a", "+b",
        "*** Add File: ../evil.txt", "+x",
        "*** Delete File: /etc/hosts",
    )  # fmt: skip

    texts = ("a", "../../moved", "../evil.txt", "/etc/hosts")
    assert apply_patch.names_files({"patch": text}) == texts
    assert apply_patch.label({"patch": text}) == f"apply_patch {', '.join(texts)}"
    diff = "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n--- /dev/null\n+++ b/../y\n@@ -0,0 +1 @@\n+a\n"
    assert apply_patch.names_files({"patch": diff}) == ("x", "../y")


@pytest.mark.parametrize(
    "text", ["", "nothing", "*** Begin Patch\n*** End Patch", "*** Begin"]
)
def test_a_patch_that_names_no_file_is_refused(place: ToolDirectory, text: str) -> None:
    with pytest.raises(ToolFailed, match="names no file"):
        apply_patch.names_files({"patch": text})
    assert apply_patch.label({"patch": text}) == "apply_patch"
    assert "names no file" in refusal_of(place, text)


@pytest.mark.parametrize("bad", [
    ("*** Add File: ../evil.txt", "+x"),
    ("*** Update File: b", "*** Move to: ../../moved", "@@", "-b", "+c"),
])  # fmt: skip
def test_a_patch_with_one_file_that_is_not_allowed_changes_nothing(
    place: ToolDirectory, bad: tuple[str, ...]
) -> None:
    write_files(place, a="a\n", b="b\n")
    place.files = place.files.only([str(place.directory / name) for name in "ab"])

    text = refusal_of(place, make_patch("*** Update File: a", "@@", "-a", "+b", *bad))

    assert "not what was allowed" in text


@pytest.mark.parametrize(
    ("section", "message"),
    [
        (("*** Update File: b", "@@", "-zzz", "+b"), "Hunk 1 (line 7 of the patch) was not found in b"),
        (("*** Add File: b", "+x"), "b already exists: change it with *** Update File"),
        (("*** Update File: b", "*** Move to: c", "@@", "-b", "+c"), "c already exists"),
        (("*** Update File: b", "*** Move to: folder", "@@", "-b", "+c"), "folder already exists"),
        (("*** Update File: b", "*** Move to: new", "@@", "-b", "+c", "*** Add File: new", "+x"), "The patch names new twice"),
        (("*** Delete File: folder",), "folder is a directory"),
        (("*** Delete File: nothing",), "There is no file nothing"),
        (("*** Update File: nothing", "@@", "-a", "+b"), "There is no file nothing"),
        (("*** Delete File: unread",), "unread was not read in this session"),
        (("*** Update File: unread", "@@", "-a", "+b"), "unread was not read in this session"),
        (("*** Update File: stale", "@@", "-a", "+b"), "stale has changed since you last read it"),
        (("*** Update File: a", "@@", "-a", "+c"), "The patch names a twice"),
        (("*** Update File: ./b", "@@", "-b", "+c", "*** Update File: b", "@@", "-b", "+d"), "The patch names b twice"),
        (("*** Update File: link", "@@", "-b", "+c", "*** Delete File: b"), "The patch names b twice"),
        (("*** Update File: pipe", "@@", "-b", "+c"), "pipe is a device, pipe or socket"),
        (("*** Update File: binary", "@@", "-b", "+c"), "binary is not text"),
        (("*** Update File: b", "@@", "-b", "+b"), "The patch leaves b as it is"),
        (("*** Update File: b", "@@", " b"), "The patch leaves b as it is"),
        (("*** Update File: b",), "is followed by no change"),
        (("*** Update File: b", "@@ b"), "has no lines"),
        (("*** Update File: b", "b"), "Line 7 of the patch, 'b', must begin with a space, + or -."),
        (("*** Add File: new", "x"), "must begin with +"),
        (("*** Add File:", "+x"), "names no file"),
        (("*** Delete File: b", "-b"), "stands after a deleted file"),
        (("*** Rename File: b",), "is neither *** Update File: nor"),
        (("*** Add File: a/b", "+x"), "a part of the path is"),
        (("*** Add File: b/", "+x"), "b already exists"),
    ],
)  # fmt: skip
def test_one_part_that_cannot_be_applied_cancels_the_whole_patch(
    place: ToolDirectory, section: tuple[str, ...], message: str
) -> None:
    write_files(place, a="a\n", b="b\n", c="c\n", stale="a\n", binary=b"\0")
    (place.directory / "stale").write_text("a\nby somebody else\n")
    (place.directory / "unread").write_text("a\n")
    (place.directory / "folder").mkdir()
    (place.directory / "link").symlink_to("b")
    os.mkfifo(place.directory / "pipe")

    text = refusal_of(place, make_patch("*** Update File: a", "@@", "-a", "+b", *section))

    assert message in text
    assert not list(place.directory.glob(".refold*"))


def test_a_truncated_patch_is_refused(place: ToolDirectory) -> None:
    write_files(place, a="a\n")

    assert "has no *** End Patch: it was cut off" in refusal_of(
        place, "*** Begin Patch\n*** Update File: a\n@@\n-a\n+b"
    )


CLASSES = "class A:\n    def run(self):\n        return 1\n\nclass B:\n    def run(self):\n        return 1\n"


def test_a_patch_with_an_ambiguous_hunk_is_refused_with_the_matching_lines(
    place: ToolDirectory,
) -> None:
    write_files(place, a=CLASSES)

    text = refusal_of(place, update("@@", "-        return 1", "+        return 2"))

    assert "Hunk 1 (line 3 of the patch) fits 2 places in a, at lines 3, 7." in text
    assert "fits 2 places" in refusal_of(
        place, update("@@ def run(self):", "-        return 1", "+        return 2")
    )


@pytest.mark.parametrize(
    "headers",
    [
        ("@@ class B:",),
        ("@@ class B:", "@@     def run(self):"),
        ("@@ class B:", "@@ def run(self):"),
    ],
)
def test_a_header_line_selects_the_place_of_an_ambiguous_hunk(
    place: ToolDirectory, headers: tuple[str, ...]
) -> None:
    write_files(place, a=CLASSES)

    patch(place, update(*headers, "-        return 1", "+        return 2"))

    assert tree(place)["a"] == CLASSES[:-2] + "2\n"


def test_the_second_hunk_matches_only_after_the_first(place: ToolDirectory) -> None:
    write_files(place, a=CLASSES)

    patch(place, update(
        "@@", " class A:", "     def run(self):", "-        return 1", "+        return 2",
        "@@", "-        return 1", "+        return 3",
    ))  # fmt: skip

    assert tree(place)["a"] == CLASSES.replace("1", "2", 1).replace("1", "3")


def test_hunks_in_the_wrong_order_are_refused(place: ToolDirectory) -> None:
    write_files(place, a="one\ntwo\nthree\n")

    text = refusal_of(place, update("@@", "-three", "+3", "@@", "-one", "+1"))

    assert "Hunk 2 (line 6 of the patch) stands in a only at line 1" in text


def test_a_hunk_header_that_is_not_in_the_file_is_refused(place: ToolDirectory) -> None:
    write_files(place, a="one\n")

    assert "there is no line 'class C:' in a" in refusal_of(
        place, update("@@ class C:", "-one", "+1")
    )


@pytest.mark.parametrize(
    ("before", "hunk", "after"),
    [
        ("one\ntwo\n", ("@@", "+three"), "one\ntwo\nthree\n"),
        ("one\ntwo\n", ("@@ one", "+1.5"), "one\n1.5\ntwo\n"),
        ("", ("@@", "+one"), "one\n"),
        ("one\n", ("@@", "-one"), ""),
        ("a\na\n", ("@@", "-a", "+b", "*** End of File"), "a\nb\n"),
        ("one\ntwo", ("@@", "-two", "+2"), "one\n2"),
        ("one", ("@@", "+two"), "one\ntwo"),
        ("one\ntwo", ("@@", "-two"), "one"),
        ("one\ntwo\n", (" one", "-two", "+2"), "one\n2\n"),
        ("one\n\ntwo\n", ("@@", " one", "", "-two", "+2"), "one\n\n2\n"),
        ("one\n", ("@@", "-one", "+1", ""), "1\n"),
        ("a\n*** x\n", ("@@", "-*** x", "+*** End Patch"), "a\n*** End Patch\n"),
        ("a\n", ("@@ -1,1 +1,1 @@", "-a", "+b"), "b\n"),
        ("1\n2\n3\n4\n5\n", ("@@", " 1", "-2", "+two", "+zwei", " 3", "-4", "+four", " 5"), "1\ntwo\nzwei\n3\nfour\n5\n"),
    ],
)  # fmt: skip
def test_lines_are_added_and_removed_where_the_hunk_states(
    place: ToolDirectory, before: str, hunk: tuple[str, ...], after: str
) -> None:
    write_files(place, a=before)

    patch(place, update(*hunk))

    assert tree(place)["a"] == after


def test_whitespace_differences_at_line_ends_are_accepted_and_reported(
    place: ToolDirectory,
) -> None:
    write_files(place, a="one  \ntwo\t\nthree\n")

    reply = patch(place, update("@@", " one", "-two", "+2"))

    assert tree(place)["a"] == "one  \n2\nthree\n"
    assert reply.text.endswith("In a hunk 1 differed in white space at line ends.")


def test_whitespace_differences_before_the_text_of_a_line_are_refused(
    place: ToolDirectory,
) -> None:
    write_files(place, a="    one\n")

    text = refusal_of(place, update("@@", "-  one", "+2"))

    assert "The nearest text is at line 1. It differs only in white space." in text


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"one\r\ntwo\r\n", b"one\r\n2\r\nzwei\r\n"),
        (b"\xef\xbb\xbfone\ntwo\n", b"\xef\xbb\xbfone\n2\nzwei\n"),
        (b"\xef\xbb\xbfone\r\ntwo", b"\xef\xbb\xbfone\r\n2\r\nzwei"),
        (
            "\ufeffone\r\ntwo".encode("utf-16-le"),
            "\ufeffone\r\n2\r\nzwei".encode("utf-16-le"),
        ),
        (b"one\ntwo\n\xfc", b"one\n2\nzwei\n\xfc"),
        (b"one\ntwo\n\xfc\xc3\xa4", b"one\n2\nzwei\n\xfc\xc3\xa4"),
        (b"one\r\ntwo\nthree\n", b"one\r\n2\nzwei\nthree\n"),
        (b"one\ntwo\r\nthree\r\n", b"one\n2\r\nzwei\r\nthree\r\n"),
    ],
)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_patch_keeps_every_other_byte_of_the_file(
    place: ToolDirectory, before: bytes, after: bytes, end: str
) -> None:
    """File and patch may differ in encoding and line ends."""
    write_files(place, a=before)

    patch(place, update("@@", " one", "-two", "+2", "+zwei").replace("\n", end))

    assert (place.directory / "a").read_bytes() == after


def test_patch_that_the_old_encoding_cannot_represent_is_refused(
    place: ToolDirectory,
) -> None:
    write_files(place, a=b"one\n\xfc\n")

    assert "a is Latin-1, which cannot hold '☂'" in refusal_of(
        place, update("@@", "-one", "+☂")
    )


def test_a_moved_file_keeps_its_mode(place: ToolDirectory) -> None:
    write_files(place, a="one\n")
    (place.directory / "a").chmod(0o750)

    patch(place, update("*** Move to: b", "@@", "-one", "+1"))

    assert (place.directory / "b").stat().st_mode & 0o777 == 0o750


def test_binary_data_can_be_moved_and_deleted(place: ToolDirectory) -> None:
    write_files(place, a=b"\0\1", b=b"\0\2")

    patch(place, make_patch("*** Update File: a", "*** Move to: c", "*** Delete File: b"))

    assert tree(place) == {"c": "\0\1"}


def test_text_around_the_patch_is_ignored(place: ToolDirectory) -> None:
    write_files(place, a="one\n")

    patch(place, f"apply_patch <<'EOF'\n{update('@@', '-one', '+1')}\nEOF\n```")

    assert tree(place)["a"] == "1\n"


DIFF = """\
Some words first.
diff --git a/a b/a
index 1234..5678 100644
--- a/a
+++ b/a
@@ -1,3 +1,3 @@ whatever
 one
-two
+2
 three
diff --git a/new b/new
new file mode 100755
--- /dev/null
+++ b/new
@@ -0,0 +1,2 @@
+#!/bin/sh
+true
\\ No newline at end of file
diff --git a/b b/b
deleted file mode 100644
--- a/b
+++ /dev/null
@@ -1 +0,0 @@
-bee
diff --git a/c b/moved/c
similarity index 100%
rename from c
rename to moved/c
diff --git a/run b/run
old mode 100644
new mode 100755
-- 
2.39
"""


def test_a_unified_diff_of_git_is_applied(place: ToolDirectory) -> None:
    write_files(place, a="one\ntwo\nthree\n", b="bee\n", c="sea\n", run="x\n")

    patch(place, DIFF)

    assert tree(place) == {
        "a": "one\n2\nthree\n", "moved/c": "sea\n", "new": "#!/bin/sh\ntrue", "run": "x\n",
    }  # fmt: skip
    assert os.access(place.directory / "new", os.X_OK)
    assert os.access(place.directory / "run", os.X_OK)


@pytest.mark.parametrize(
    "head", ["@@ -2,2 +2,2 @@", "@@ -99,7 +99,1 @@", "@@", "@@ ... @@", "@@ -2 +2 @@ f()"]
)
def test_wrong_line_numbers_in_a_hunk_header_are_accepted(
    place: ToolDirectory, head: str
) -> None:
    write_files(place, a="1\n2\n3\n4\n", b="x\n")
    diff = (
        f"--- a/a\n+++ b/a\n{head}\n 2\n-3\n+three\n--- a/b\n+++ b/b\n@@ -1 +1 @@\n-x\n+y\n"
    )

    patch(place, diff)

    assert tree(place) == {"a": "1\n2\nthree\n4\n", "b": "y\n"}


def test_the_line_number_selects_one_of_several_matching_places(
    place: ToolDirectory,
) -> None:
    write_files(place, a="x\n" * 5)

    patch(place, "--- a\n+++ a\n@@ -3 +3 @@\n-x\n+y\n")
    text = refusal_of(place, "--- a\n+++ a\n@@ -9 +9 @@\n-x\n+y\n")

    assert tree(place)["a"] == "x\nx\ny\nx\nx\n"
    assert "fits 4 places in a, at lines 1, 2, 4, 5." in text


@pytest.mark.parametrize(
    ("before", "diff", "after"),
    [
        ("a\nb", "@@ -2 +2 @@\n-b\n\\ No newline at end of file\n+c\n", "a\nc\n"),
        ("a\nb\n", "@@ -2 +2 @@\n-b\n+c\n\\ No newline at end of file", "a\nc"),
        ("a\nb", "@@ -1,2 +1,2 @@\n-a\n+A\n b\n\\ No newline at end of file", "A\nb"),
        ("-- a\nb\n", "@@ -1,2 +1,2 @@\n--- a\n+++ a\n b\n", "++ a\nb\n"),
        ("a\nb\n", "@@ -1,0 +2 @@\n+x\n", "a\nx\nb\n"),
        ("a\nb\n", "@@ -0,0 +1 @@\n+x\n", "x\na\nb\n"),
    ],
)
def test_line_end_markers_and_insertions_of_a_unified_diff_are_applied(
    place: ToolDirectory, before: str, diff: str, after: str
) -> None:
    write_files(place, a=before)

    patch(place, f"--- a\n+++ a\n{diff}")

    assert tree(place)["a"] == after


@pytest.mark.parametrize(
    ("diff", "message"),
    [
        ("--- a/a\n+++ b/b\n@@ -1 +1 @@\n-a\n+b\n", "two files are named, a and b"),
        ("--- a/a\n+++ b/a\n", "a is named, and no change"),
        ("--- /dev/null\n+++ b/new\n@@ -1 +1 @@\n-a\n+b\n", "new is new: it has only + lines"),
        ("--- a/a\n+++ b/a\n-a\n+b\n", "stands in no hunk"),
        ("diff --git a/a b/a\nBinary files a/a and b/a differ\n", "cannot be applied"),
        ("diff --git a/a b/a\ncopy from a\ncopy to b\n", "cannot be applied"),
        ("diff --git a/l b/l\nnew file mode 120000\n--- /dev/null\n+++ b/l\n@@ -0,0 +1 @@\n+/etc\n", "makes a symbolic link"),
        ("--- a/a\n+++ b/a\n@@ -1 +1 @@\n", "is followed by no lines"),
        ("--- a/a\n+++ b/a\n@@ -9,0 +10 @@\n+x\n", "adds at line 10, and a has 1 lines"),
    ],
)  # fmt: skip
def test_an_invalid_unified_diff_is_refused_with_the_reason(
    place: ToolDirectory, diff: str, message: str
) -> None:
    write_files(place, a="a\n")

    assert message in refusal_of(place, diff)


TEXT = st.lists(
    st.sampled_from(["a", "b", "", "-- c", "++ d", "@@ e", " f"]), max_size=25
).map(lambda lines: "".join(f"{line}\n" for line in lines))
BARE = st.tuples(TEXT, st.booleans()).map(
    lambda t: t[0].removesuffix("\n") if t[1] else t[0]
)


@given(BARE, BARE)
def test_diffs_made_by_our_tools_can_be_applied(before: str, after: str) -> None:
    """What a tool shows as changed is a patch that makes the change."""
    diff = compare_texts(before, after).text
    if not diff or not after or not before:
        return
    with temporary_place() as place:
        write_files(place, a=before)

        patch(place, f"--- a\n+++ a\n{diff}\n")

        assert tree(place)["a"] == after


@pytest.mark.peer
@given(before=TEXT, after=TEXT)
def test_diffs_made_by_git_can_be_applied(
    tmp_path_factory: pytest.TempPathFactory, before: str, after: str
) -> None:
    if not shutil.which("git"):
        pytest.skip("there is no git: optional")
    folder = tmp_path_factory.mktemp("diffed")
    (folder / "a").mkdir()
    (folder / "b").mkdir()
    (folder / "a/f").write_text(before)
    (folder / "b/f").write_text(after)
    line = ["git", "diff", "--no-index", "--no-prefix", "a/f", "b/f"]
    diff = subprocess.run(
        line, cwd=folder, capture_output=True, check=False
    ).stdout.decode()
    if not diff:
        return
    with temporary_place() as place:
        write_files(place, f=before)

        patch(place, diff)

        assert tree(place) == {"f": after}


def test_a_file_that_was_read_can_be_patched_repeatedly(place: ToolDirectory) -> None:
    Path(place.directory / "a").write_text("one\n")
    anyio.run(place.use, read_file, {"path": "a"})

    patch(place, update("@@", "-one", "+1"))
    patch(place, update("@@", "-1", "+one"))

    assert tree(place) == {"a": "one\n"}


def test_many_hunks_in_a_large_file_are_applied(place: ToolDirectory) -> None:
    lines = [f"value_{n} = compute({n})" for n in range(50_000)]
    write_files(place, a="\n".join(lines) + "\n")
    sizes = range(100, 50_000, 1000)
    hunks = [
        part for n in sizes for part in ("@@", f" {lines[n]}", f"-{lines[n + 1]}", "+x")
    ]

    patch(place, update(*hunks))

    assert tree(place)["a"].split("\n").count("x") == len(sizes)
