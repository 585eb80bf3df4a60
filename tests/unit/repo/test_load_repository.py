"""Which documents are read, and what a complete repository becomes."""

from __future__ import annotations

import pytest

from arena_gitops.errors import RepoError
from arena_gitops.repo.git import find_root
from arena_gitops.repo.load import load_head
from arena_gitops.spec.digest import sha256_bytes
from arena_gitops.spec.resource import Address
from arena_gitops.spec.wire import DeploymentSpec, ExperimentSpec

EXPERIMENT = Address("experiment", "sums-grpo")


def test_a_complete_repository_becomes_desired_state(repo):
    state = repo.load()
    assert [str(address) for address in state.resources] == [
        "dataset/sums",
        "deployment/sums",
        "experiment/sums-grpo",
        "project/maths",
        "reward/exact",
    ]
    assert (state.owner.stack, state.owner.namespace, state.default_target) == ("team", "main", "local")
    assert state.targets["local"].platform == "local"


def test_an_experiment_is_stored_in_the_shape_of_the_wire(repo):
    state = repo.load()
    spec = ExperimentSpec.model_validate(state.resources[EXPERIMENT].spec)
    assert spec.manifest["training"]["max_steps"] == 1000
    assert spec.model.id == "tiny"
    assert spec.project == "maths"
    assert spec.inputs.reward.entry == "rewards/exact.py"
    assert spec.inputs.dataset.format == "csv"
    deployment = state.resources[Address("deployment", "sums")]
    assert DeploymentSpec.model_validate(deployment.spec).experiment == "sums-grpo"
    assert deployment.depends_on == (EXPERIMENT,)


def test_every_digest_of_an_experiment_has_its_blob(repo):
    experiment = repo.load().resources[EXPERIMENT]
    inputs = experiment.spec["inputs"]
    named = {inputs["dataset"]["digest"], *inputs["reward"]["files"].values()}
    assert {blob.digest for blob in experiment.blobs} == named
    for blob in experiment.blobs:
        assert sha256_bytes(blob.path.read_bytes()) == blob.digest


def test_an_experiment_depends_on_all_that_it_uses(repo):
    depends = [str(address) for address in repo.load().resources[EXPERIMENT].depends_on]
    assert depends == ["dataset/sums", "project/maths", "reward/exact"]


def test_fields_of_the_stored_spec_know_where_they_were_written(repo):
    spans = repo.load().resources[EXPERIMENT].spans
    assert str(spans["manifest.algorithm.lr"]) == "manifests/grpo.yaml:4:7"
    assert str(spans["inputs.dataset"]) == "experiments/sums-grpo.yaml:4:10"


def test_loading_twice_gives_equal_fingerprints(repo):
    first, second = repo.load(), repo.load()
    assert [r.fingerprint for r in first.resources.values()] == [
        r.fingerprint for r in second.resources.values()
    ]


def test_resources_may_share_a_file(repo):
    both = repo.root / "experiments/sums-grpo.yaml"
    repo.write("experiments/all.yaml", both.read_text() + "---\nkind: Project\nname: other\n")
    both.unlink()
    assert Address("project", "other") in repo.load().resources


def test_resources_may_stand_in_arena_yaml(repo):
    repo.remove("experiments/project.yaml")
    repo.write("arena.yaml", "name: team\nproject: maths\n---\nkind: Project\nname: maths\n")
    assert Address("project", "maths") in repo.load().resources


def test_nothing_outside_the_roots_is_read(repo):
    repo.write("notes/broken.yaml", "a: [")
    repo.write(".github/workflows/x.yaml", "on: push")
    assert len(repo.load().resources) == 5


def test_other_roots_replace_the_default_folders(repo):
    repo.write("arena.yaml", "name: team\nroots: [everything]\n")
    repo.write("everything/p.yaml", "kind: Project\nname: p\n")
    assert list(repo.load().resources) == [Address("project", "p")]


def test_a_root_that_does_not_exist_is_an_error(repo):
    repo.write("arena.yaml", "name: team\nroots: [datasets, experimnts]\n")
    assert repo.problems() == ["arena.yaml:2:19 missing-file"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("knd: Experiment\nname: x\n", "experiments/x.yaml:1:1 no-kind"),
        ("name: x\nmanifest: m.yaml\n", "experiments/x.yaml:1:1 no-kind"),
        ("kind: Experimnt\nname: x\n", "experiments/x.yaml:1:7 unknown-kind"),
        ("kind: [Dataset]\nname: x\n", "experiments/x.yaml:1:7 unknown-kind"),
        ("- 1\n", "experiments/x.yaml:1:1 not-a-mapping"),
        ("kind: Project\nname: x\n---\nname: y\n", "experiments/x.yaml:4:1 no-kind"),
        ("kind: Project\nname: x\nllm_basd: true\n", "experiments/x.yaml:3:1 unknown-key"),
        ("kind: Project\nname: x\nllm_based: 3\n", "experiments/x.yaml:3:12 invalid-value"),
        ("kind: Project\nname: x\nname: y\n", "experiments/x.yaml:3:1 duplicate-key"),
        ("kind: Project\nname: x\n\tllm_based: true\n", "experiments/x.yaml:3:1 yaml-tab"),
        ("kind: Project\n", "experiments/x.yaml:1:1 missing-key"),
        ("kind: Project\nname: X\n", "experiments/x.yaml:2:7 invalid-value"),
        ("kind: Project\nname: 25921e05\n", "experiments/x.yaml:2:7 invalid-value"),
    ],
)
def test_a_faulty_document_is_reported_at_its_place(repo, text, expected):
    repo.write("experiments/x.yaml", text)
    assert repo.problems() == [expected]


def test_a_misspelt_kind_key_is_suggested(repo):
    repo.write("experiments/x.yaml", "knd: Experiment\nname: x\n")
    assert "Did you mean 'kind' where it says 'knd'?" in repo.messages()


def test_a_number_where_text_is_expected_says_to_quote_it(repo):
    repo.write("experiments/x.yaml", "kind: Project\nname: 25921e05\n")
    assert 'quote it: "25921e05"' in repo.messages()


def test_two_files_with_one_address_are_both_named(repo):
    repo.write("experiments/zz.yaml", "kind: Project\nname: maths\n")
    assert repo.problems() == ["experiments/zz.yaml:2:7 duplicate-name"]
    assert "first at experiments/project.yaml:2:7" in repo.messages()


def test_names_that_differ_only_by_case_are_one_name(repo):
    repo.write("experiments/zz.yaml", "kind: Project\nname: Maths\n")
    assert repo.problems() == ["experiments/zz.yaml:2:7 duplicate-name"]


def test_one_pass_reports_the_problems_of_all_files(repo):
    repo.write("experiments/a.yaml", "kind: Project\nname: a\nx: 1\ny: 2\n")
    repo.write("experiments/b.yaml", "a: [1\n")
    repo.remove("datasets/data/sums.csv")
    assert repo.problems() == [
        "datasets/sums.yaml:4:7 missing-file",
        "experiments/a.yaml:3:1 unknown-key",
        "experiments/a.yaml:4:1 unknown-key",
        "experiments/b.yaml:1:4 yaml-syntax",
    ]


def test_a_faulty_stack_does_not_hide_other_problems(repo):
    repo.write("arena.yaml", "name: team\nprojct: maths\n")
    repo.write("experiments/a.yaml", "kind: Project\nname: a\nx: 1\n")
    assert repo.problems() == ["arena.yaml:2:1 unknown-key", "experiments/a.yaml:3:1 unknown-key"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ["arena.yaml:1:1 empty-file"]),
        ("kind: Project\nname: x\n", ["arena.yaml:1:7 no-stack"]),
        ("[]\n", ["arena.yaml:1:1 not-a-mapping"]),
    ],
)
def test_arena_yaml_must_name_the_stack(empty, text, expected):
    empty.write("arena.yaml", text)
    assert empty.problems() == expected


def test_the_root_is_found_from_any_folder_inside(repo):
    assert find_root(repo.root / "experiments") == repo.root


def test_without_arena_yaml_the_error_says_what_to_write(tmp_path):
    with pytest.raises(RepoError, match=r"no arena\.yaml in .* or any folder above"):
        find_root(tmp_path)


def test_a_root_inside_a_larger_repository_is_enough(repo):
    repo.commit()
    outer = repo.root / "team"
    for path in ("arena.yaml", "experiments", "datasets", "rewards", "manifests", "deployments"):
        outer.mkdir(exist_ok=True)
        (repo.root / path).rename(outer / path)
    repo.commit()
    state = type(repo)(outer).load()
    assert len(state.resources) == 5
    assert state.provenance.dirty is False


def test_loading_never_runs_the_repository(repo):
    trace = repo.root / "trace"
    code = f"open({str(trace)!r}, 'w')\ndef reward(question, answer, completion):\n    return 1.0\n"
    repo.write("rewards/exact.py", code)
    repo.write("rewards/__init__.py", code)
    repo.write("conftest.py", code)
    for hook in ("post-index-change", "pre-commit", "post-checkout"):
        place = repo.root / ".git/hooks" / hook
        place.write_text(f"#!/bin/sh\ntouch {trace}\n")
        place.chmod(0o755)
    monitor = repo.root / ".git/monitor"
    monitor.write_text(f"#!/bin/sh\ntouch {trace}\n")
    monitor.chmod(0o755)
    repo.git("config", "core.fsmonitor", str(monitor))
    assert Address("reward", "exact") in repo.load().resources
    assert not trace.exists()


def test_the_way_a_document_is_written_does_not_matter(repo):
    before = repo.load()
    repo.write(
        "experiments/sums-grpo.yaml",
        "# a comment\n{reward: 'exact', name: \"sums-grpo\", dataset: sums,\n"
        " manifest: ../manifests/grpo.yaml, kind: Experiment}\n",
    )
    repo.edit("manifests/grpo.yaml", "lr: 1e-5", "lr: 0.00001   # the same")
    repo.edit("manifests/grpo.yaml", "max_steps: 1_000", "max_steps: 1e3")
    after = repo.load()
    assert {a: r.fingerprint for a, r in after.resources.items()} == {
        a: r.fingerprint for a, r in before.resources.items()
    }


def test_a_clone_with_windows_line_endings_is_the_same_desired_state(repo, tmp_path):
    repo.commit()
    before = repo.load()
    repo.git("-c", "core.autocrlf=true", "clone", "--quiet", str(repo.root), str(tmp_path / "clone"))
    clone = type(repo)(tmp_path / "clone")
    clone.git("config", "core.autocrlf", "true")
    assert b"\r\n" in (clone.root / "rewards/exact.py").read_bytes()
    after = clone.load()
    assert not after.provenance.dirty
    assert {a: (r.fingerprint, r.spec) for a, r in after.resources.items()} == {
        a: (r.fingerprint, r.spec) for a, r in before.resources.items()
    }


def test_the_head_alone_is_enough_to_look_at_a_platform(repo):
    repo.write("experiments/x.yaml", "a: [")
    repo.write(
        "arena.yaml", "name: team\ntargets: {a: {platform: local, runner: r}, b: {platform: memory}}\n"
    )
    head = load_head(repo.root, namespace="pr-1")
    assert (head.owner.stack, head.owner.namespace, head.default_target) == ("team", "pr-1", None)
    assert head.targets["a"].options == {"runner": "r"}


def test_a_faulty_head_is_an_error(repo):
    repo.write("arena.yaml", "nme: team\n")
    with pytest.raises(RepoError, match="unknown key 'nme'"):
        load_head(repo.root)


def test_moves_are_read_from_the_stack(repo):
    repo.write(
        "arena.yaml",
        "name: team\nproject: maths\nmoved:\n  - {from: experiment/old, to: experiment/sums-grpo}\n",
    )
    assert {str(to): str(old) for to, old in repo.load().moved.items()} == {
        "experiment/sums-grpo": "experiment/old"
    }


def test_a_deployment_cannot_be_moved(repo):
    repo.write(
        "arena.yaml", "name: team\nproject: maths\nmoved:\n  - {from: deployment/a, to: deployment/b}\n"
    )
    assert all(problem.startswith("arena.yaml:4") for problem in repo.problems())
