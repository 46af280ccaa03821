"""Checks the claims of an answer against the journal and the files, without a model.

A claim is `supported` only by a positive finding, such as content that was read (recognized by
its hash), or a call and how it ended. If a check fails, or the agent that tries to refute a
claim, the claim is `unknown`: otherwise an unreadable answer would count as one without claims,
and pass. The verdict of that agent is checked against its own journal in the same way, and can
improve a claim only if the first check found nothing. A model is not asked first, because what
it reads could influence it.
"""
