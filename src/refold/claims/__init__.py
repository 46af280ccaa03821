"""Checks the claims of an answer against the journal and the files, without a model.

A claim is `supported` only by a positive finding: content that was read (recognized by its
hash), or a call and its outcome. A claim is `unknown` if its check fails, or if the agent
that tries to refute the claim fails. Otherwise an unreadable answer of that agent would pass
like an answer without claims. The evidence of that agent is checked against its own journal,
and can improve a claim only if the first check found nothing. No model is asked before the
first check, because text that a model reads could influence its verdict.
"""
