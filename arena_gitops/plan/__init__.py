"""Pure planning: two immutable states in, one plan document out. No I/O, no clock, no randomness."""
