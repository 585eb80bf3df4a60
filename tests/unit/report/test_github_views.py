"""A plan on GitHub: the comment, its marker, the summary, annotations; all of it within limits and unbreakable."""

import json
import re
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from markdown_it import MarkdownIt
from shown import HOSTILE, OUR_HTML, PLACE, PLAN_ID, change, field, many, plan_of

from arena_gitops.errors import Diagnostic, Span
from arena_gitops.plan.code import FileDiff
from arena_gitops.plan.drift import Drift, DriftEntry
from arena_gitops.plan.model import (
    Action,
    Base,
    CheckOutcome,
    CheckStatus,
    Cost,
    PlanDiagnostic,
)
from arena_gitops.report import github, notices
from arena_gitops.report.marker import Marker, signatures


def structure(body):
    """Every HTML tag, link and heading a reader's browser would get, and the number of cells of each row."""
    tokens = MarkdownIt("commonmark", {"html": True}).enable("table").parse(body)
    html, links, kinds, visible = [], [], [], []
    for token in tokens:
        kinds.append(token.type)
        if token.type == "html_block":
            html.append(token.content)
        for child in token.children or ():
            if child.type == "html_inline":
                html.append(child.content)
            elif child.type in {"link_open", "image"}:
                links.append(child.attrs.get("href") or child.attrs.get("src"))
            elif child.type == "text":
                visible.append(child.content)
    return html, links, kinds, " ".join(visible)


def test_the_comment_shows_what_changes_why_and_what_it_costs():
    body = github.comment(
        plan_of(
            change(
                action=Action.NEW_VERSION,
                message="algorithm.lr is semantic",
                fields=(field(),),
                cost=Cost(max=28.9, rate=4.82, basis="max_runtime 6h"),
            )
        ),
        PLACE,
    )
    assert "| `±` | experiment/words | new version | algorithm.lr is semantic | up to 28.9 credits" in body
    assert "  algorithm.lr  1e-05 → 2e-05  semantic  manifests/words.yaml:3" in body
    assert f"plan `{PLAN_ID}`" in body
    assert "**1 new version. Cost: up to 118.3 credits.**" in body


def test_what_waits_for_a_person_is_a_reminder_of_its_own():
    body = github.comment(plan_of(change("deployment/w", Action.PENDING, message="no alias yet")), PLACE)
    assert (
        "> **Waiting for somebody's choice**, which no merge makes:\n> - deployment/w: no alias yet" in body
    )
    assert "| resource |" not in body


def test_the_marker_is_found_again_with_everything_in_it():
    body = github.comment(plan_of(change()), PLACE)
    marker = Marker.find(body.replace("\n", "\r\n"))
    assert marker is not None
    assert (marker.target, marker.root, marker.plan_id) == ("prod", "infra", PLAN_ID)
    assert (marker.head, marker.base, marker.truncated) == (PLACE.head, PLACE.base, False)
    assert marker.changes == signatures(plan_of(change()))


@pytest.mark.parametrize(
    "body",
    [
        "",
        "hello",
        "quoted:\n<!-- arena:plan v1 {} -->",
        "<!-- arena:plan v1 {} -->",
        "<!-- arena:plan v1 {nonsense} -->",
        "<!-- arena:plan v2 {} -->",
    ],
)
def test_what_is_no_marker_is_not_taken_for_one(body):
    assert Marker.find(body) is None


@given(HOSTILE, HOSTILE)
@example("--> <b>", "-->\n<!--")
def test_nothing_in_a_marker_can_end_it(target, root):
    marker = Marker(target=target, root=root, plan_id=None, head="", base="")
    line = marker.render()
    assert line.count("-->") == 1
    assert line.count("<!--") == 1
    assert "\n" not in line
    assert Marker.find(line + "\nrest") == marker


@settings(max_examples=60, deadline=None)
@given(HOSTILE, HOSTILE, HOSTILE, HOSTILE)
@example("a`b``` --> <script>", "@all #1 [x](http://evil) ![i](x)", "|||\n| a", "</details>\n\n# Heading")
@example("```\n```", "www.evil.example GH-12 https://evil.example", "````text", "<!-- arena:plan v1 {} -->")
def test_text_of_strangers_never_breaks_out(address, message, value, note):
    body = github.comment(
        plan_of(
            change(
                "experiment/words", message=message, fields=(field("a", value, note),), notes=(note, value)
            ),
            change("deployment/words", Action.PENDING, message=note),
            change("dataset/words", Action.NOOP, message=message),
            change("reward/words", Action.BLOCKED, message=value),
            checks=(
                CheckOutcome(name=address, status=CheckStatus.FAIL, message=message),
                CheckOutcome(name=note, status=CheckStatus.WARN, message=value),
            ),
            diagnostics=(PlanDiagnostic(severity="warning", code="c", message=note, hint=message),),
        ),
        PLACE,
    )
    html, links, kinds, visible = structure(body)
    assert OUR_HTML.sub("", "".join(html)).strip() == ""
    assert set(links) == {PLACE.run_url}
    assert kinds.count("heading_open") == 1
    assert kinds.count("fence") == 2
    assert kinds.count("tr_open") == 1 + 2
    assert kinds.count("td_open") == 5 * 2
    assert not re.search(r"(?<!\w)@\w|#\d|https?://|www\.|GH-\d", visible, re.IGNORECASE)
    assert not re.search("[\u202a-\u202e\u2066-\u2069]", body)


def test_three_hundred_changes_fit_and_the_important_ones_are_still_there():
    body = github.comment(many(300), PLACE)
    assert len(body.encode()) <= github.COMMENT_BYTES < 65_536
    assert f"plan `{PLAN_ID}`" in body
    assert "**undeploys** deployment/old" in body
    assert "**stops a running run** of experiment/busy" in body
    assert "up to 118.3 credits" in body
    assert Marker.find(body).truncated
    assert body.count("<details>") == body.count("</details>")
    assert len(re.findall(r"^`{3,}", body, re.MULTILINE)) % 2 == 0


def test_what_is_lost_first_is_what_matters_least():
    """Unchanged resources, then fields, then rows: a larger budget shows them in the other order."""
    plan = many(60)
    sizes = range(8_000, 200_000, 4_000)
    shown = [
        tuple(
            part in github.comment(plan, PLACE, budget=size) for part in ("long-name", "set.key_0", "step 5")
        )
        for size in sizes
    ]
    assert shown == sorted(shown)
    assert shown[0][1:] == (False, False)
    assert shown[-1] == (True, True, True)


def test_the_summary_of_a_huge_plan_stays_below_a_mebibyte():
    text = github.summary(many(3_000), PLACE)
    assert len(text.encode()) <= github.SUMMARY_BYTES
    assert len(text.encode()) > github.COMMENT_BYTES
    assert PLAN_ID in text


def test_thousands_of_undeploys_name_as_many_as_fit_and_count_the_rest():
    plan = plan_of(*(change(f"deployment/{'n' * 50}{n}", Action.DESTROY) for n in range(3_000)))
    body = github.comment(plan, PLACE)
    assert len(body.encode()) <= github.COMMENT_BYTES
    assert re.search(r"and \d+ more of these", body)


def test_a_broken_repository_takes_the_place_of_its_plan():
    body = github.refused(
        [Diagnostic("unknown key `lrr`", "unknown-key", Span("m.yaml", 3, 5))] * 2000, PLACE
    )
    assert len(body.encode()) <= github.COMMENT_BYTES
    assert "m.yaml:3:5: error: unknown key" in body
    assert Marker.find(body).plan_id is None


def test_a_strangers_document_approves_nothing_and_links_nowhere():
    place = replace(PLACE, run_url="https://evil.example) [x](https://evil.example")
    body = github.comment(plan_of(change()), place, approves=False)
    assert Marker.find(body).plan_id is None
    assert Marker.find(body).changes is None
    assert "approves nothing" in body
    assert "evil" not in body


def test_an_applied_plan_says_so_once():
    body = github.comment(plan_of(change()), PLACE)
    done = notices.applied(body, PLACE.run_url)
    assert Marker.find(done).state == "applied"
    assert done.count("**Applied.**") == 1
    assert notices.applied(done, PLACE.run_url) == done
    assert notices.applied("hello", PLACE.run_url) == "hello"


def test_a_mismatch_says_what_is_not_as_it_was_approved():
    approved = plan_of(change("experiment/a"), change("experiment/b"), change("experiment/c"))
    now = plan_of(change("experiment/b"), change("experiment/c", Action.NEW_VERSION), change("experiment/d"))
    marker = Marker.find(github.comment(approved, PLACE))
    body = notices.mismatch(marker, now, PLACE)
    assert "+ experiment/d: create was not approved" in body
    assert "- experiment/a: approved, and no longer planned" in body
    assert "~ experiment/c: new version is not what was approved" in body
    assert "experiment/b" not in body


def test_what_differs_from_an_approval_is_told_also_where_it_was_accepted():
    approved = plan_of(change("experiment/a"))
    now = plan_of(change("experiment/a"), change("project/p", Action.UPDATE))
    marker = Marker.find(github.comment(approved, PLACE))
    assert [c.address for c in notices.unapproved(marker, now)] == ["project/p"]
    body = notices.accepted(marker, now, PLACE, "no-cost")
    assert body.startswith(notices.mismatch_key(PLACE))
    assert "`--accept-plan-change no-cost`" in body
    assert "+ project/p: update was not approved" in body


def test_runs_and_models_are_linked_where_the_platform_says_where_and_never_for_a_stranger():
    page = "https://arena.example.org/mlflow/#/experiments/3/runs/ab12"
    plan = plan_of(
        change(mlflow_url=page),
        change("deployment/w", Action.PENDING, message="no alias yet", mlflow_url=page),
        change("experiment/evil", mlflow_url="javascript:alert(1)"),
    )
    body = github.comment(plan, PLACE)
    assert f"| [experiment/words]({page}) | create" in body
    assert f"> - [deployment/w]({page}): no alias yet" in body
    assert "javascript" not in body
    assert "mlflow" not in github.comment(plan, PLACE, approves=False)


def test_a_preview_says_what_it_is_and_how_it_is_reached():
    plan = plan_of(change(message="no such experiment yet"), change("deployment/w"))
    plan = plan.model_copy(update={"namespace": "pr-7"})
    body = notices.previewed(plan, PLACE)
    assert "namespace `pr-7`" in body
    assert "deployment/w: answers as `pr-7--w`" in body
    assert github.comment(plan, PLACE).splitlines()[1].endswith("(preview) pr-7")
    staging = plan.model_copy(update={"namespace": "staging"})
    assert github.comment(staging, PLACE).splitlines()[1].endswith(", namespace staging")
    gone = plan_of(change("deployment/w", Action.DESTROY), change("experiment/words", Action.RETIRE))
    assert "2 resources of namespace" in notices.collected(gone, PLACE)
    assert notices.collected(gone, PLACE).startswith(notices.preview_key(PLACE))


def test_many_of_which_the_same_is_to_be_said_share_a_row_and_none_is_left_out():
    names = [f"experiment/sweep-{n:03}" for n in range(150)]
    alike = [change(name, Action.NEW_VERSION, message="lr", cost=Cost(max=2.0, basis="1h")) for name in names]
    gone = [change(f"experiment/old-{n}", Action.RETIRE) for n in range(8)]
    body = github.comment(plan_of(*alike, *gone, change("deployment/w", Action.DESTROY)), PLACE)
    sight, _, folded = body.partition("<details><summary>159 resources</summary>")
    rows = [line for line in folded.splitlines() if line.startswith("| `") and "lr" in line]
    assert [row.split("|")[2].split(" experiments:**")[0] for row in rows] == [" **60", " **60", " **30"]
    assert all("up to 2 credits (1h) each" in row for row in rows)
    assert [name for name in names if name.partition("/")[2] not in "".join(rows)] == []
    assert (
        "| `±` | **150 experiments:** sweep-000, sweep-001, sweep-002 and 147 more | new version | lr | up to 300 credits |"
        in sight
    )
    assert "> - **retires** 8 experiments: old-0, old-1," in body
    assert "> - **undeploys** deployment/w\n" in body


def test_what_is_told_of_several_alike_is_told_once():
    alike = [change(f"experiment/e{n}", message="lr", notes=("trains for hours",)) for n in range(5)]
    body = github.comment(plan_of(*alike, change("experiment/other", notes=("trains for days",))), PLACE)
    heading = "experiment/e0, experiment/e1, experiment/e2, experiment/e3,\nexperiment/e4\n  trains for hours"
    assert heading in body
    assert "\nexperiment/other\n  trains for days" in body
    assert body.count("trains for hours") == 1


def test_a_long_table_is_folded_and_code_is_a_diff():
    mixed = [change(f"experiment/e{n}", message=f"reason {n}") for n in range(40)]
    code = (FileDiff(path="rewards/r.py", added=1, removed=1, lines=("@@ -1 +1 @@", "-a", "+b")),)
    body = github.comment(plan_of(*mixed, change("reward/r", Action.NEW_VERSION, code=code)), PLACE)
    assert "<details><summary>41 resources</summary>" in body
    assert "```diff\n# reward/r\n# rewards/r.py  +1 -1 lines\n@@ -1 +1 @@\n-a\n+b\n```" in body


def test_the_marker_is_json_for_others_too():
    line = github.comment(plan_of(), PLACE).split("\n")[0]
    assert json.loads(line.removeprefix("<!-- arena:plan v1 ").removesuffix(" -->"))["state"] == "open"


@settings(max_examples=30, deadline=None)
@given(HOSTILE)
def test_the_issue_about_drift_has_one_line_per_resource_whatever_is_in_it(message):
    entries = tuple(DriftEntry(address=f"dataset/d{n}", code="differs", message=message) for n in range(3))
    found = Drift(target="prod", stack="team", namespace="main", base=Base(), entries=entries)
    body = notices.drifted(found, PLACE)
    assert body.startswith(notices.drift_key(PLACE) + "\n")
    _, links, kinds, _ = structure(body)
    assert (links, kinds.count("list_item_open"), kinds.count("heading_open")) == ([], 3, 1)


def test_a_drift_of_thousands_fits_into_an_issue():
    entries = tuple(DriftEntry(address=f"dataset/d{n}", code="c", message="m" * 300) for n in range(3_000))
    body = notices.drifted(
        Drift(target="t", stack="s", namespace="main", base=Base(), entries=entries), PLACE
    )
    assert len(body.encode()) <= github.COMMENT_BYTES
    assert "3000 resources not as stack s says" in body
