"""A reward's own packages: built once, visible inside, wheels only, by name only."""

from __future__ import annotations

import shutil

import pytest
from index import package_index, wheel

from arena_runner.sandbox import RewardError, Score, ScoreRow
from arena_runner.sandbox.packages import Wheels

ROW = ScoreRow("q", "a", "c")


SOURCE = "import arenaprobe\ndef reward(q, a, c): return arenaprobe.VALUE"


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("ARENA_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def index(monkeypatch):
    """This machine's package index."""
    with package_index() as made:
        made.add("arenaprobe", "1.0", "VALUE = 0.75\n")
        settings = {"INDEX_URL": made.url, "RETRIES": "0", "NO_CACHE_DIR": "1", "CONFIG_FILE": "/dev/null"}
        for name, value in settings.items():
            monkeypatch.setenv(f"PIP_{name}", value)
        yield made


def environments(home):
    return [path for path in (home / "venvs").iterdir() if path.is_dir()]


def brought(folder, value):
    """A wheel that was resolved elsewhere; its module says `value`."""
    name, data = wheel("arenaprobe", "1.0", f"VALUE = {value}\n")
    folder.mkdir()
    (folder / name).write_bytes(data)
    return Wheels(folder, f"sha256:{folder.name}")


def test_a_requirement_is_installed_once_and_used(pool_of, index, home):
    for _ in range(2):
        with pool_of(SOURCE, requirements=("arenaprobe",)) as pool:
            assert pool.score([ROW]) == [Score(0.75)]
    assert len(environments(home)) == 1
    index.status = 500  # the second use and all later ones need no index
    with pool_of(SOURCE, requirements=("arenaprobe",)) as pool:
        assert pool.score([ROW]) == [Score(0.75)]


def test_wheels_that_were_brought_are_installed_without_asking_an_index(
    pool_of, index, home, tmp_path, monkeypatch
):
    decoy = brought(tmp_path / "decoy", 0.5)
    monkeypatch.setenv("PIP_FIND_LINKS", str(decoy.folder))
    for value in (0.25, 0.125):  # other wheels are another environment
        wheels = brought(tmp_path / str(value), value)
        for _ in range(2):
            with pool_of(SOURCE, requirements=("arenaprobe",), wheels=wheels) as pool:
                assert pool.score([ROW]) == [Score(value)]
        shutil.rmtree(wheels.folder)
    assert index.asked == []
    assert len(environments(home)) == 2


def test_what_is_not_among_the_wheels_is_not_sought_elsewhere(pool_of, index, tmp_path):
    (tmp_path / "empty").mkdir()
    wheels = Wheels(tmp_path / "empty", "sha256:empty")
    with pytest.raises(RewardError, match="could not be installed"):
        pool_of(SOURCE, requirements=("arenaprobe",), wheels=wheels).__enter__()
    assert index.asked == []


@pytest.mark.parametrize(
    "form", ["{}", "evil @ file://{}", "{}/evil-1.0.tar.gz", "-r {}/list.txt", "evil-1.0.zip"]
)
def test_only_names_are_taken_because_folders_and_addresses_would_be_built(pool_of, tmp_path, form):
    folder = tmp_path / "source"
    folder.mkdir()
    ran = tmp_path / "ran"
    (folder / "setup.py").write_text(
        f"open({str(ran)!r}, 'w')\nfrom setuptools import setup\nsetup(name='evil', version='1.0')\n"
    )
    (folder / "list.txt").write_text(str(folder))
    with pytest.raises(RewardError, match="is not taken: expected packages of an index by name"):
        pool_of(SOURCE, requirements=(form.format(folder),)).__enter__()
    assert not ran.exists()


def test_a_folder_named_like_the_installer_is_not_run_in_its_place(pool_of, index, tmp_path, monkeypatch):
    """`arena-runner check` is started in the repository that a stranger has changed."""
    for name in ("pip", "venv"):
        (tmp_path / "repository" / name).mkdir(parents=True)
        for file in ("__init__.py", "__main__.py"):
            (tmp_path / "repository" / name / file).write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    monkeypatch.chdir(tmp_path / "repository")
    with pool_of(SOURCE, requirements=("arenaprobe",)) as pool:
        assert pool.score([ROW]) == [Score(0.75)]
    assert not (tmp_path / "ran").exists()


def test_without_requirements_only_the_standard_library_is_there(pool_of):
    with pytest.raises(RewardError, match="name its package in the reward's `requirements`"):
        pool_of("import numpy\ndef reward(q, a, c): return 1").__enter__()


def test_a_requirement_that_cannot_be_installed_is_an_error_with_its_name(pool_of, index):
    with pytest.raises(RewardError) as caught:
        pool_of("def reward(q, a, c): return 1", requirements=("arenanone",)).__enter__()
    assert caught.value.file == "rewards/mine.py"
    assert "requirements (arenanone) could not be installed" in caught.value.message
