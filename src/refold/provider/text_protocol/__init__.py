"""Tool calls as plain text, for models and servers without native tool calls.

`render` writes a request as text, and `parse` reads a response while it streams. `parse` uses
`candidate` (one call), `delimiters` and `quoting` (the text around it) and `call_formats`
(which JSON is a call). All of these are pure. `protocol` makes a provider from them.
`selection` decides which models need this: by the settings, by name, or after a refusal or a
response that shows the need.
"""
