"""A command leaves links where an upload will be stored: no link leads it to a protected file."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from refold import Agent
from refold.client.types import Protected, Upload
from refold.testing.providers import ScriptedProvider
from tests.server.serving import open_server
from tests.server.test_files import upload

pytestmark = pytest.mark.anyio
# Links at the names that an upload of notes.txt would get.
LINKS: Mapping[str, str] = {
    "a hook": ".git/hooks/pre-commit",
    "a file of keys": ".env",
    "the settings of an editor": ".vscode/tasks.json",
    "settings of refold": ".refold/hooks.json",
    "another project": "../other/new.txt",
    "a directory of another project": "../other/new/x.txt",
}


@pytest.mark.parametrize("name", LINKS)
async def test_an_upload_under_a_new_name_follows_no_link(
    tmp_path: Path, name: str
) -> None:
    root = tmp_path / "ws"
    for folder in (
        root / ".git/hooks",
        root / ".vscode",
        root / ".refold",
        tmp_path / "other",
    ):
        folder.mkdir(parents=True)
    (root / "notes.txt").write_text("original")
    (root / "notes-1.txt").symlink_to(LINKS[name])
    async with open_server(root) as client:
        id_ = await client.begin()
        done = await upload(client, id_, "notes.txt?rename=true", b"x")
        again = await upload(client, id_, "notes-1.txt", b"x")

    assert (done.status, done.json) == (201, {"path": "notes-2.txt", "size": 1})
    assert again.status in (403, 404)
    assert not (root / LINKS[name]).exists()


async def test_a_program_cannot_upload_to_a_protected_file(tmp_path: Path) -> None:
    agent = Agent(provider=ScriptedProvider("Done."), directory=tmp_path)
    async with agent.session() as session:
        with pytest.raises(Protected, match="is protected"):
            await session.workspace.upload(Upload(".git/hooks/pre-commit", b"x"))

    assert not (tmp_path / ".git").exists()
