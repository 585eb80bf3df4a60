"""What a merged pull request is told of its runs: one comment within its limit, whatever is in it."""

from __future__ import annotations

from shown import PLACE

from arena_gitops.cli.ci.report import of_commit
from arena_gitops.report import github
from arena_gitops.report.results import results, results_key
from arena_gitops.spec.digest import fingerprint
from arena_gitops.spec.job import RunState, RunStatus
from arena_gitops.spec.wire import DeploymentStatus, Owner, Provenance, ResourceDocument


def document(name, *, kind="experiment", commit="abc", **more):
    known = {"kind": kind, "name": name, "etag": "e", "owner": Owner(stack="team"), "spec": {}}
    known |= {"fingerprint": fingerprint({}, {}), "provenance": Provenance(commit=commit)}
    return ResourceDocument(**(known | more))


def run(state=RunState.COMPLETED, **more):
    known = {"run_id": "r_1", "experiment": "words", "fingerprint": "f", "state": state}
    return RunStatus(**known, max_steps=384, step=384, **more)


def test_it_says_how_far_they_are_and_what_serves():
    serving = DeploymentStatus(state="serving", revision=2, checkpoint="step_384/m1", run_id="r_1")
    page = "http://127.0.0.1:5000/#/experiments/1/runs/2"
    shown = results(
        [
            document("words", run=run(mlflow_url=page)),
            document("more", run=run(RunState.RUNNING)),
            document("words", kind="deployment", deployment=serving),
        ],
        PLACE,
    )
    assert shown.startswith(results_key(PLACE) + "\n### ⏳ Results on prod\n")
    assert "**1 of 2 runs ended.**" in shown
    assert f"| [experiment/words v1]({page}) | completed | 384 of 384 |" in shown
    assert "- deployment/words serving step\\_384/m1 of run r\\_1" in shown


def test_strangers_words_stay_in_their_cell_and_thousands_fit():
    broken = run(RunState.FAILED, message="a | b\n# c `` <script> @all", mlflow_url="javascript:x")
    shown = results([document(f"words-{n:04}", run=broken) for n in range(2_000)], PLACE)
    assert len(shown.encode()) <= github.COMMENT_BYTES
    assert "more in the job summary" in shown
    assert "javascript" not in shown
    assert "<script>" not in shown
    row = next(line for line in shown.splitlines() if "words-0001" in line)
    assert row.replace("\\|", "").count("|") == 6


def test_runs_belong_to_the_commit_from_which_they_were_applied():
    serving = DeploymentStatus(state="serving")
    mine = [
        document("a", run=run()),
        document("w", kind="deployment", spec={"experiment": "a"}, deployment=serving),
    ]
    others = [document("b", run=run(), commit="def"), document("d", kind="dataset")]
    assert of_commit([*mine, *others], "abc") == mine
    assert of_commit([*mine, *others], "nothing") == []
