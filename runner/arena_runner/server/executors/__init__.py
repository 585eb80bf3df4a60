"""Where workers are started. Today: subprocesses of this machine."""
