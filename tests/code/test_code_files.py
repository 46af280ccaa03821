"""The files that code tools look at, and what they say of those that they left out."""

from pathlib import Path

import pytest

from refold.code.code_files import CodeFiles
from refold.place.files import DiskFiles

LIMIT = 20_000


@pytest.mark.slow  # many files are made
def test_list_of_code_files_names_the_limit_when_it_is_cut(tmp_path: Path) -> None:
    for number in range(LIMIT):
        (tmp_path / f"{number}.py").touch()
    code = CodeFiles([str(tmp_path)], DiskFiles(tmp_path))

    whole, left_out = code.list_files()
    (tmp_path / "one.more.py").touch()
    cut, reason = code.list_files()

    assert (len(whole), left_out) == (LIMIT, "")
    assert (len(cut), reason) == (LIMIT, "only 20,000 files were looked at")
