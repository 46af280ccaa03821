"""The context format `xml`."""

import re

# XML 1.0 has no way to write these.
NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def transcript(messages: list[tuple[str, str]]) -> str:
    """The conversation as XML. In CDATA, code and calls in tags stay as they are."""
    lines = ["<conversation>"]
    for speaker, text in messages:
        text = NOT_IN_XML.sub("\N{REPLACEMENT CHARACTER}", text)
        text = text.replace("]]>", "]]]]><![CDATA[>")
        lines.append(f'<message role="{speaker}"><![CDATA[{text}]]></message>')
    return "\n".join([*lines, "</conversation>"])
