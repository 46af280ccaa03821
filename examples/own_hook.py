"""Defines a hook as a function. A hook can refuse a tool call, but cannot permit one."""

from collections.abc import Mapping

from refold import Agent


def no_push(event: Mapping[str, object]) -> dict[str, object] | None:
    if "git push" in str(event["tool_input"]):
        return {"decision": "block", "reason": "Pushing is done by hand here."}
    return None


agent = Agent(mode="sandbox", hooks={"PreToolUse": no_push})
print(agent.run("Push the branch with git push.").text)
