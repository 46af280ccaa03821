"""The Agent Client Protocol on stdio: what an editor starts as `refold acp`.

It is a client, as the terminal is: it uses the session handle and its documents, and no
other module knows the protocol. It needs the extra `acp`, with the official SDK.
"""
