"""Tool calls in plain words, for models that have no other way to make them.

`told` renders a request, `heard` reads an answer, `shapes` says which JSON is a
call, `sifted` which calls are made and which are only quoted; all four are pure.
`protocol` makes a provider of them, `as_needed` one that goes over to it where a
model shows the need, and `choose` says for which models that is known beforehand.
"""
