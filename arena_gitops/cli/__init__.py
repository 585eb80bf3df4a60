"""The command line: thin, one file per command, imported only when it is called."""
