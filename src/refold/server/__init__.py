"""The local server: serves conversations over HTTP and WebSocket, for pages and programs.

It adds transport, authentication and files to the sessions of `client`. It has no messages
of its own: a WebSocket transports the orders of `client.protocol` and the documents of
`views.stream_json`. Only subcommands that serve over HTTP import it.
"""
