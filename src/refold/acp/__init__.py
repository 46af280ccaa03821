"""Serves editors over the Agent Client Protocol on stdio: an editor starts `refold acp`.

Like the terminal it is a client: it uses the handles and the documents of sessions. No
other package knows the protocol. It needs the extra `acp`, which has the official SDK.
"""
