"""A scripted loopback server for every test of this room."""

from loopback import scripted

__all__ = ["scripted"]
