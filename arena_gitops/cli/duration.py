"""`30`, `90s`, `15m`, `2h30m`: durations as people type them."""

from __future__ import annotations

import re

import click

UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


class Duration(click.ParamType[float]):
    """A click type; the value is in seconds."""

    name = "duration"

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read the text, or fail with what was expected."""
        if isinstance(value, (int, float)):
            return float(value)
        if re.fullmatch(r"\d+(\.\d+)?", value):
            return float(value)
        if not re.fullmatch(r"(\d+(\.\d+)?[smhd])+", value):
            self.fail(f"{value!r} is no duration; expected seconds, or 90s, 15m, 2h30m", param, ctx)
        return sum(float(number) * UNITS_S[unit] for number, unit in re.findall(r"([\d.]+)([smhd])", value))
