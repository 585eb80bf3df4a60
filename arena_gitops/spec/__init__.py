"""WHAT may be written and what travels: pure data, no I/O, no clock, no randomness."""
