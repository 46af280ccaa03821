"""Tool calls as plain text, for models and servers without native tool calls.

`render` writes a request, `parse` reads a response as it streams (`candidate`: one call,
`delimiters` and `quoting`: what is around it, `call_formats`: which JSON is a call); all of
them are pure. `protocol` makes a provider of them. `selection` decides which models need
it: by the settings, by name, or when a refusal or a response shows it.
"""
