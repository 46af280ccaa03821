"""Errors are one sentence."""

from pathlib import Path

import pytest

from refold.errors import reason_of


def test_an_operating_system_error_is_quoted_without_its_path() -> None:
    with pytest.raises(FileNotFoundError) as error:
        Path("/nowhere/file").read_bytes()
    with pytest.raises(UnicodeDecodeError) as odd:
        b"\xff".decode("utf-8")

    assert reason_of(error.value) == "No such file or directory"
    assert reason_of(OSError("the disk is wet")) == "the disk is wet"
    assert reason_of(odd.value) == "it is not UTF-8"
    assert reason_of(ValueError("3 is no colour")) == "3 is no colour"
