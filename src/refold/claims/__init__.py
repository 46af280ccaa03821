"""Checks the claims of an answer without a model, against the journal and the files.

`supported` needs a positive finding, such as content that was read, by its hash, or a call
and how it ended. Every failure, of the check or of the agent that tries to refute a claim,
gives `unknown`: if an unreadable answer counted as "no claims", it would pass unchecked. A second verdict is checked against its own journal in the same way,
and cannot improve the first unless the first check found nothing. A model is not asked
first, because what it reads could influence it.
"""
