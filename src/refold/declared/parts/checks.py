"""The tests of a generated program: a fake model calls a tool."""

import contextlib
import tempfile
import unittest
from pathlib import Path
from typing import Any

from refold.declared.parts.play import play


def play_in_folder(tool: str, arguments: dict[str, Any], user_says: str = "y") -> str:
    """Let a fake model call a tool, in a directory with one file, here.txt.

    `user_says` is the answer to questions. Return the request that follows the call.
    """
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        Path("here.txt").write_text("one\ntwo\n")
        return play(tool, arguments, user_says)


class WriteTest(unittest.TestCase):
    def test_a_file_is_written_if_the_user_says_yes(self) -> None:
        messages = play_in_folder(
            "write_file", {"path": "new.txt", "content": "Hello\n"}
        )

        self.assertIn("Created new.txt, 1 line.", messages)

    def test_nothing_is_written_if_the_user_says_no(self) -> None:
        messages = play_in_folder(
            "write_file", {"path": "new.txt", "content": "Hello\n"}, "n"
        )

        self.assertIn("The user refused this call.", messages)

    def test_a_file_that_was_not_read_is_not_overwritten(self) -> None:
        messages = play_in_folder(
            "write_file", {"path": "here.txt", "content": "Hello\n"}
        )

        self.assertIn("Read it first, then change it.", messages)


class EditTest(unittest.TestCase):
    def test_a_file_that_was_not_read_is_not_changed(self) -> None:
        messages = play_in_folder(
            "edit_file", {"path": "here.txt", "old": "one", "new": "1"}
        )

        self.assertIn("Read it first, then change it.", messages)


class ReadTest(unittest.TestCase):
    def test_the_model_gets_the_lines_of_a_file(self) -> None:
        messages = play_in_folder("read_file", {"path": "here.txt"})

        self.assertIn("(2 lines)", messages)

    def test_a_file_outside_of_the_directory_is_not_read(self) -> None:
        messages = play_in_folder("read_file", {"path": "../other.txt"})

        self.assertIn("outside of the working directory", messages)


class BashTest(unittest.TestCase):
    def test_the_model_gets_the_output_and_the_exit_code(self) -> None:
        messages = play_in_folder("bash", {"command": "echo $((6 * 7)); exit 3"})

        self.assertIn("42", messages)
        self.assertIn("(exit code 3)", messages)


if __name__ == "__main__":
    unittest.main()
