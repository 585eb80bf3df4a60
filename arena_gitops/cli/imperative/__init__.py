"""Commands about single things by their names, as the published client has them: thin over HTTP, no repository.

To add a command: write it in its group's module with its examples and what `--json` prints (`explain.explained`).
"""
