"""What the model reads of a server whose browser could make no namespaces."""

import pytest
from mcp import types

from refold.errors import ToolFailed
from refold.mcp.results import reply
from refold.values.namespaces import NAMESPACES_REFUSED


@pytest.mark.parametrize("confined", [False, True])
def test_a_sandboxed_browser_failure_names_the_setting_for_namespaces(
    *, confined: bool
) -> None:
    text = f"Browser logs:\nChromium sandboxing failed!\n{'--disable-x ' * 400}"
    result = types.CallToolResult(
        content=[types.TextContent(type="text", text=text)], is_error=True
    )

    with pytest.raises(ToolFailed) as caught:
        reply("browser", result, no_namespaces=confined)

    assert (NAMESPACES_REFUSED in str(caught.value)) == confined
