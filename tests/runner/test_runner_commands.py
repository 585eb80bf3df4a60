"""`arena-runner`: what every command has."""

import pytest
from click.testing import CliRunner

from arena_runner.cli import main


@pytest.mark.parametrize("command", [(), ("server",), ("token",), ("token", "create"), ("backup",)])
@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_is_asked_for_either_way(command, flag):
    done = CliRunner().invoke(main, [*command, flag])
    assert (done.exit_code, done.output.startswith("Usage: ")) == (0, True)
