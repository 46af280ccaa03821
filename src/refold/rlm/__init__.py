"""Python that keeps its variables, in a process of its own, and the models it calls."""
