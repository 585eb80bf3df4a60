"""Experiments as code for reinforcement learning: the light side (no torch, starts in milliseconds)."""

__version__ = "0.1.0"
