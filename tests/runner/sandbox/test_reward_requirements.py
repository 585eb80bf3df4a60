"""A reward's own packages: built once, visible inside, wheels only."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from arena_runner.sandbox import RewardError, Score, ScoreRow

ROW = ScoreRow("q", "a", "c")


@pytest.fixture
def wheel(tmp_path: Path) -> str:
    """A package of one line, as pip takes it without any index."""
    path = tmp_path / "arenaprobe-1.0-py3-none-any.whl"
    about = "arenaprobe-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("arenaprobe.py", "VALUE = 0.75\n")
        archive.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: arenaprobe\nVersion: 1.0\n")
        archive.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{about}/RECORD", "")
    return str(path)


def test_a_requirement_is_installed_once_and_used(pool_of, wheel, tmp_path, monkeypatch):
    monkeypatch.setenv("ARENA_HOME", str(tmp_path / "home"))
    source = "import arenaprobe\ndef reward(q, a, c): return arenaprobe.VALUE"
    for _ in range(2):
        with pool_of(source, requirements=(wheel,)) as pool:
            assert pool.score([ROW]) == [Score(0.75)]
    built = [path for path in (tmp_path / "home/venvs").iterdir() if path.is_dir()]
    assert len(built) == 1
    Path(wheel).unlink()  # the second use and all later ones need no installer
    with pool_of(source, requirements=(wheel,)) as pool:
        assert pool.score([ROW]) == [Score(0.75)]


def test_without_requirements_only_the_standard_library_is_there(pool_of):
    with pytest.raises(RewardError, match="name its package in the reward's `requirements`"):
        pool_of("import numpy\ndef reward(q, a, c): return 1").__enter__()


def test_a_requirement_that_cannot_be_installed_is_an_error_with_its_name(pool_of, tmp_path, monkeypatch):
    monkeypatch.setenv("ARENA_HOME", str(tmp_path / "home"))
    missing = str(tmp_path / "nothing-1.0-py3-none-any.whl")
    with pytest.raises(RewardError) as caught:
        pool_of("def reward(q, a, c): return 1", requirements=(missing,)).__enter__()
    assert caught.value.file == "rewards/mine.py"
    assert f"requirements ({missing}) could not be installed" in caught.value.message
