"""The comment as a browser shows it: one change, a dozen and 300 fit the page, with what matters at its top."""

from __future__ import annotations

import pytest
from chromium import chromium_page
from markdown_it import MarkdownIt

from arena_gitops.plan.model import Action, Change, Cost, Plan, PlanCost
from arena_gitops.report import github
from arena_gitops.report.github import Place

pytestmark = pytest.mark.browser

WIDTH = 900
STYLE = "body{font:14px sans-serif;width:860px}td,th{padding:6px 13px}pre{overflow:auto}"


def plan_of(count, *, alike=False):
    changes = [
        Change(
            address=f"experiment/sweep-over-learning-rates-{n:03}",
            action=Action.NEW_VERSION,
            reason="semantic_change",
            message="algorithm.lr is semantic" if alike else f"algorithm.lr 1e-05 → {n}e-05 is semantic",
            severity=7,
            interrupts=n == count - 1,
            cost=Cost(rate=4.82, max=28.9, basis="max_runtime 6h"),
        )
        for n in range(count)
    ]
    counts = dict.fromkeys([*(a.value for a in Action), "unchanged"], 0) | {"new_version": count}
    known = {"target": "prod", "platform": "http", "stack": "team", "namespace": "main", "applyable": True}
    cost = PlanCost(max_new=28.9 * count)
    return Plan(plan_id="sha256:" + "ab" * 32, **known, summary=counts, cost=cost, changes=tuple(changes))


def test_it_fits_and_begins_with_what_matters(tmp_path):
    with chromium_page(viewport={"width": WIDTH, "height": 700}) as page:
        for count, alike in ((1, False), (12, False), (12, True), (300, False), (300, True)):
            plan = plan_of(count, alike=alike)
            body = github.comment(plan, Place("prod", run_url="https://github.example/run/1"))
            html = MarkdownIt("commonmark", {"html": True}).enable("table").render(body)
            page.set_content(f"<meta charset=utf8><style>{STYLE}</style>{html}")
            page.screenshot(path=tmp_path / f"{count}-{alike}.png", full_page=True)
            assert page.evaluate("document.documentElement.scrollWidth") <= WIDTH
            assert page.evaluate("document.documentElement.scrollHeight") <= 1_000, count
            top = page.locator("blockquote").bounding_box()
            assert top["y"] < 200, "what is stopped stands above everything else"
