"""A hook. It runs where a hooks.json names it: {"type": "python", "entry_point": "example-no-push"}."""


def no_push(event: dict) -> dict | None:
    if "git push" in event["tool_input"].get("command", ""):
        return {"decision": "block", "reason": "Pushing is done by hand here."}
    return None
