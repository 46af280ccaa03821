"""What models have understood of a repository: statements, each with a place in a file that shows it.

Models read files in pieces and state what the code does; code checks that each quote is in the piece, and drops the
rest. Statements are found by the content that they are about, so one about content that has changed
is never taken for one about the present content. `code.repomap` knows the structure without a model; `rlm.leaves`
makes the model calls; `claims` checks what an agent says of its own session.
"""
