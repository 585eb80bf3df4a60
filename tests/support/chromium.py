"""A headless Chromium for tests that look at pages as people do."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


WIDE = {"width": 1500, "height": 1000}


@contextmanager
def logged_in(url: str, token: str) -> Iterator:
    """A wide page of somebody who has logged in at a server."""
    with chromium_page(viewport=WIDE) as page:
        page.goto(url + "/login")
        page.get_by_label("Token").fill(token)
        page.get_by_role("button", name="Log in").click()
        page.get_by_role("link", name="MLflow").wait_for()
        yield page


@contextmanager
def chromium_page(**options) -> Iterator:
    """A page of an installed Chromium; the test is skipped where there is none."""
    program = shutil.which("chromium") or os.environ.get("CHROMIUM")
    if program is None:
        pytest.skip("Chromium is not here: apt-get install chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=FLAGS)
        yield browser.new_page(**options)
        browser.close()
