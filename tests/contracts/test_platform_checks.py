"""Checks run where the platform is, and record nothing, on every platform (see `platforms.base`)."""

from puts import EXPERIMENT, usual

from arena_gitops.spec.job import JobInputs
from arena_gitops.spec.wire import CheckRequest


def checked(platform, stack):
    for resource in stack.resources.values():
        for blob in resource.blobs:
            platform.upload(blob)
    spec = stack.resources[EXPERIMENT].spec
    inputs = JobInputs.model_validate(spec["inputs"])
    request = CheckRequest(address=str(EXPERIMENT), manifest=spec["manifest"], inputs=inputs)
    return list(platform.check(request))


def test_a_sound_experiment_passes_its_checks(platform, stack, unique):
    results = checked(platform, usual(stack, unique))
    assert results
    assert [result for result in results if result.status == "fail"] == []


def test_a_column_that_is_not_there_fails(platform, stack, unique):
    stack.dataset(column_mapping={"question": "question", "answer": "solution"}).reward()
    failed = [r for r in checked(platform, stack.experiment(set=unique)) if r.status == "fail"]
    assert failed
    assert failed[0].address == "dataset/words"
    assert "solution" in failed[0].message


def test_a_broken_reward_fails_at_its_line(platform, stack, unique):
    stack.dataset().reward(source="def reward(question, answer, completion):\n    return )\n")
    failed = [r for r in checked(platform, stack.experiment(set=unique)) if r.status == "fail"]
    assert (failed[0].address, failed[0].file, failed[0].line) == ("reward/exact", "rewards/exact.py", 2)


def test_checks_record_nothing(platform, stack, unique):
    checked(platform, usual(stack, unique))
    assert platform.observe(stack.owner).resources == {}
