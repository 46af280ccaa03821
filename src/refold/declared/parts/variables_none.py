"""The environment of a test with a fake API that takes no key."""


def variables() -> dict[str, str]:
    """No proxy may stand between us and the fake."""
    return {"no_proxy": "*"}
