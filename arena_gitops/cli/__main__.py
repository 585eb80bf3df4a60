"""`python -m arena_gitops.cli`: the command without its script."""

from arena_gitops.cli.main import main

main()
