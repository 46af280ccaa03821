"""Tool calls as plain text, for models and servers without native tool calls.

`render` writes a request, `parse` reads a response as it streams, `call_formats` says
which JSON is a call, `classify` which calls are made and which are only quoted; all four
are pure. `protocol` makes a provider of them. `selection` decides which models need it:
by the settings, by name, or when a refusal or a response shows it (`detect`).
"""
