"""One file per algorithm: its maths and its update step. The file's name is the manifest's name, lower case."""
