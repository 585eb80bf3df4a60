"""A home and its database as one file, and back: `arena-runner backup` and `arena-runner restore`."""
