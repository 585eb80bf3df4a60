"""A reward that misbehaves is one clear error before anything is stored, whatever it does."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.slow

HEAD = "def reward(question, answer, completion):\n"
BAD = {
    "raises": (HEAD + "    return 1 / 0\n", 2, "ZeroDivisionError"),
    "returns nothing": (HEAD + "    len(completion)\n", 1, "None"),
    "returns not a number": (HEAD + "    return float('nan')\n", 1, "nan"),
    "hangs": (HEAD + "    while True:\n        pass\n", None, "took longer than"),
    "prints 100 MB": (
        HEAD + "    print('x' * 100_000_000)\n    raise ValueError('after printing')\n",
        3,
        "after",
    ),
    "ends the process": ("import os\n\n\n" + HEAD + "    os._exit(3)\n", None, "ended the process"),
    "does not import": (
        "import no_such_module_anywhere\n\n\n" + HEAD + "    return 1.0\n",
        1,
        "no_such_module",
    ),
}


@pytest.fixture(scope="module")
def repository(example):
    return example("infra-repo")


@pytest.fixture(scope="module", params=BAD)
def refused(request, site, repository, commit_all):
    """The command that had to fail, with what it must say."""
    text, line, word = BAD[request.param]
    (repository / "rewards" / "word_problems.py").write_text(text)
    (repository / "rewards" / "word-problems.yaml").unlink(missing_ok=True)
    (repository / "rewards" / "word-problems.yaml").write_text(
        "kind: Reward\nname: word-problems\nowner: rl-team\nfile: word_problems.py\n"
    )
    commit_all(repository)
    return site.run(repository, "apply", "--target", "local", "--yes", expect=10), line, word


def test_the_error_names_the_rewards_own_place_and_what_went_wrong(refused):
    done, line, word = refused

    assert f"rewards/word_problems.py{f':{line}' if line else ''}" in done.stderr
    assert word in done.stderr


def test_nothing_is_left_half_done(refused, site, repository):
    assert site.state(repository) == {}


def test_the_message_stays_readable(refused):
    done, _, _ = refused

    assert len(done.stderr) < 20_000
