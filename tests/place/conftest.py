"""Both ways to reach a file: one call of the kernel's, and step by step."""

import pytest

from refold.place.beneath import Opening, by_openat2, by_walking


@pytest.fixture(params=["openat2", "walking"])
def opening(request: pytest.FixtureRequest) -> Opening:
    if request.param == "walking":
        return by_walking
    found = by_openat2()
    if found is None:
        pytest.skip("this kernel has no openat2")
    return found
