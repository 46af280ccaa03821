"""The local server: conversations over HTTP and WebSocket, for pages and programs.

It adds transport, authentication and files to the client session, and no vocabulary: what
goes over a WebSocket are the orders and documents of `client.protocol` and
`views.stream_json`. Only `refold serve` and `refold web` import it.
"""
