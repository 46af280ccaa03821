"""Command lines: parsed with a grammar, judged part by part. Nothing here executes one."""
