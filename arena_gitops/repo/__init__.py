"""READ: a git working tree becomes a `DesiredState`, or a `RepoError` with every problem at its place.

`load.load` is the door. Nothing here imports, executes, unpickles or expands anything a repository holds:
Python files are read as text and parsed with `ast`, YAML with a scanner that knows no tags.
"""
