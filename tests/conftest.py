"""Rules for the whole suite: where shared data may be, and which tests may be skipped in CI."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

pytest_plugins = ("postgres",)

ROOT = Path(__file__).resolve().parent.parent
ALLOWED_SKIPS = Path(__file__).parent / "allowed_skips.txt"


@pytest.fixture(scope="session")
def shared() -> Path:
    """The team's shared folder with published documents and real data; the test is skipped without it."""
    folder = Path(os.environ.get("ARENA_SHARED", ROOT.parent / "shared"))
    if not folder.is_dir():
        pytest.skip("shared/ is not here (set ARENA_SHARED)")
    return folder


def _allowed() -> dict[str, str]:
    """Test id prefix → reason, one `prefix | reason` a line."""
    lines = (line for line in ALLOWED_SKIPS.read_text().splitlines() if line and not line.startswith("#"))
    pairs = (line.split("|", 1) for line in lines)
    return {prefix.strip(): reason.strip() for prefix, reason in pairs}


class _SkipPolice:
    """With REQUIRE_ALL=1 a skip that nobody has written a reason for fails the run."""

    def __init__(self) -> None:
        self.unexpected: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped and not any(report.nodeid.startswith(prefix) for prefix in _allowed()):
            self.unexpected.append(f"{report.nodeid}: {report.longrepr[2] if report.longrepr else ''}")

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.unexpected and session.exitstatus == 0:
            session.exitstatus = 1

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for line in self.unexpected:
            terminalreporter.write_line(f"unexpected skip: {line}", red=True)


def pytest_configure(config: pytest.Config) -> None:
    # Who starts us in the background (`make test &` in a script) has us ignore Ctrl-C, and our children inherit that.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if os.environ.get("REQUIRE_ALL") == "1":
        config.pluginmanager.register(_SkipPolice())
