"""A request line may hold a whole URI, which names a host beside the Host header."""

from pathlib import Path

import pytest

from tests.server.serving import open_server

pytestmark = pytest.mark.anyio
PATH = "/api/conversations"


async def test_an_absolute_uri_with_another_host_is_refused_like_a_wrong_host_header(
    tmp_path: Path, home: Path
) -> None:
    async with open_server(tmp_path) as client:
        data = {**client.token, "Host": client.netloc}
        others = [
            f"http://evil.example{PATH}",
            f"http://evil.example@{client.netloc}{PATH}",
            f"HTTP://evil.example:80{PATH}?a=http://{client.netloc}",
        ]

        answers = [await client.ask("GET", other, headers=data) for other in others]
        own = await client.ask("GET", f"http://{client.netloc}{PATH}", headers=data)
        path = await client.ask("GET", f"{PATH}?a=http://evil.example/", headers=data)

    assert [answer.status for answer in answers] == [421] * len(others)
    assert (own.status, path.status) == (200, 200)
