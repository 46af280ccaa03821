"""Command lines: read with a grammar, judged part by part. Nothing here runs one."""
