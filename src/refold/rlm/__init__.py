"""A Python process that keeps its variables between calls, and the models that its code
calls.
"""
