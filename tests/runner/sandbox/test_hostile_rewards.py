"""Rewards that hang, crash, flood, fork, write, listen and look around: one clear error, nobody harmed."""

from __future__ import annotations

import os
import time
from pathlib import Path

import psutil
import pytest

from arena_runner.sandbox import Limits, RewardError, Score, ScoreRow

ROW = ScoreRow("q", "a", "c")


def score(pool_of, source: str, **options) -> list[Score]:
    with pool_of(source, **options) as pool:
        return pool.score([ROW])


def fault(pool_of, source: str, **options) -> RewardError:
    with pytest.raises(RewardError) as caught:
        score(pool_of, source, **options)
    return caught.value


def wall(pool_of, name: str) -> bool:
    with pool_of("def reward(q, a, c): return 0") as pool:
        return {wall.name: wall.raised for wall in pool.walls}[name]


def test_a_reward_that_hangs_is_killed_and_the_pool_goes_on(pool_of):
    source = "def reward(q, a, c):\n    while c == 'hang': pass\n    return 1.0"
    with pool_of(source, call_timeout_s=0.5) as pool:
        bad, good = pool.score_each([ScoreRow("q", "a", "hang"), ROW])
    assert isinstance(bad, RewardError)
    assert str(bad) == "rewards/mine.py:1: the reward took longer than 0.5 s"
    assert good == Score(1.0)


def test_a_reward_that_always_hangs_costs_one_time_limit_and_not_one_per_row(pool_of):
    with pool_of("def reward(q, a, c):\n    while True: pass", call_timeout_s=0.5) as pool:
        started = time.monotonic()
        with pytest.raises(RewardError, match="took longer"):
            pool.score([ROW] * 200)
        assert [type(one) for one in pool.score_each([ROW] * 200, hangs=2)] == [RewardError] * 200
    assert time.monotonic() - started < 10


def test_a_fault_ends_scoring_at_once_and_the_pool_goes_on(pool_of):
    source = "import time\ndef reward(q, a, c):\n    time.sleep(0.05)\n    return 1 / (c != 'bad')"
    with pool_of(source) as pool:
        started = time.monotonic()
        with pytest.raises(RewardError, match="ZeroDivisionError"):
            pool.score([ScoreRow("q", "a", "bad"), *[ROW] * 60])
        assert pool.score([ROW]) == [Score(1.0)]
    assert time.monotonic() - started < 2.5


def test_a_reward_that_sleeps_in_c_code_and_ignores_signals_is_killed(pool_of):
    source = """
    import signal, time
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM): signal.signal(number, signal.SIG_IGN)
    def reward(q, a, c): time.sleep(100)
    """
    assert "took longer than 0.5 s" in fault(pool_of, source, call_timeout_s=0.5).message


@pytest.mark.parametrize(
    ("body", "how"),
    [
        ("os._exit(3)", "exit code 3"),
        ("ctypes.string_at(0)", "signal SIGSEGV"),
        ("os.abort()", "signal SIGABRT"),
        ("os.kill(os.getpid(), 9)", "signal SIGKILL"),
    ],
)
def test_a_reward_that_ends_the_process_is_told_how(pool_of, body, how):
    message = fault(pool_of, f"import ctypes, os\ndef reward(q, a, c): {body}").message
    assert message == f"the reward failed: it ended the process ({how})"


def test_a_hundred_megabytes_of_prints_are_dropped_and_the_score_stands(pool_of):
    source = "def reward(q, a, c):\n    for _ in range(100): print('x' * 1_000_000)\n    return 1.0"
    before = psutil.Process().memory_info().rss
    assert score(pool_of, source, call_timeout_s=30) == [Score(1.0)]
    assert psutil.Process().memory_info().rss - before < 20_000_000


def test_what_was_printed_before_a_fault_is_kept_up_to_a_bound(pool_of):
    error = fault(
        pool_of, "def reward(q, a, c):\n    print('seen', 'x' * 200_000)\n    raise ValueError('no')"
    )
    assert error.output.startswith("seen xxx")
    assert error.output.endswith("more bytes were dropped)")
    assert len(error.output) < 70_000


def test_prints_cannot_forge_an_answer(pool_of):
    source = """
    import os
    def reward(q, a, c):
        os.write(1, b'\\x00\\x00\\x00\\x0e{"score": 99.0}')
        return 0.5
    """
    assert score(pool_of, source) == [Score(0.5)]


@pytest.mark.parametrize(
    "junk", ["b'\\xff' * 8", "b'\\x00\\x00\\x00\\x02[]'", 'b\'\\x00\\x00\\x00\\x10{"score": "NaN"}\'']
)
def test_junk_in_the_sandboxs_own_channel_is_an_error(pool_of, junk):
    source = f"""
    import os, sys
    def reward(q, a, c):
        os.write(int(sys.argv[2]), {junk})
        return 0.5
    """
    assert "own channel" in fault(pool_of, source).message


def test_a_process_that_closes_its_channel_is_an_error(pool_of):
    error = fault(pool_of, "import os\ndef reward(q, a, c):\n    os.closerange(0, 100)\n    return 1.0")
    assert error.message.startswith("the reward failed: it ended the process")


def test_a_fork_bomb_is_stopped_and_nothing_is_left_behind(pool_of):
    source = """
    import os, time
    def reward(q, a, c):
        for _ in range(1000):
            if os.fork() == 0:
                os.setsid()
                time.sleep(1000)
    """
    if not wall(pool_of, "processes"):
        pytest.skip("the process limit cannot be set here")
    with pool_of(source) as pool:
        box = str(pool._box.root)
        with pytest.raises(RewardError, match="BlockingIOError"):
            pool.score([ROW])
    assert [p for p in psutil.process_iter(["cmdline"]) if box in str(p.info["cmdline"])] == []


def test_a_fork_that_outlives_its_parent_does_not_delay_the_error(pool_of):
    source = """
    import os, time
    def reward(q, a, c):
        if os.fork() == 0:
            os.setsid()
            time.sleep(5)
            os._exit(0)
        os._exit(7)
    """
    started = time.monotonic()
    assert "exit code 7" in fault(pool_of, source).message
    assert time.monotonic() - started < 4


def test_the_working_directory_and_the_users_files_are_read_only(pool_of, tmp_path: Path):
    source = """
    def reward(q, a, c):
        open('rewards/mine.py', 'a').write('# changed')
        return 1.0
    """
    message = fault(pool_of, source).message
    assert "PermissionError" in message or "Read-only file system" in message
    assert "changed" not in (tmp_path / "rewards/mine.py").read_text().splitlines()[-1]


def test_a_reward_may_write_to_its_temporary_folder_within_bounds(pool_of):
    source = """
    import tempfile
    def reward(q, a, c):
        with tempfile.TemporaryFile() as file:
            file.write(b'x' * 1000)
            return file.tell()
    """
    assert score(pool_of, source) == [Score(1000.0)]
    flood = "import tempfile\ndef reward(q, a, c):\n    tempfile.TemporaryFile().write(b'x' * 10_000_000)\n    return 1"
    assert "OSError" in fault(pool_of, flood, limits=Limits(file_bytes=1_000_000)).message


def test_files_of_the_machine_are_neither_read_nor_written(pool_of, tmp_path_factory: pytest.TempPathFactory):
    other = tmp_path_factory.mktemp("other") / "job.txt"
    other.write_text("secret")
    source = f"def reward(q, a, c): return len(open({str(other)!r}).read())"
    if not wall(pool_of, "files") and not wall(pool_of, "unprivileged user"):
        pytest.skip("neither a file system of its own nor another user can be had here")
    assert fault(pool_of, source).message.startswith(
        ("the reward raised FileNotFoundError", "the reward raised PermissionError")
    )
    write = f"def reward(q, a, c): open({str(other)!r}, 'w').write('x'); return 1"
    assert "Error" in fault(pool_of, write).message
    assert other.read_text() == "secret"


def test_the_environment_holds_nothing_of_ours(pool_of, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ARENA_WORKER_TOKEN", "hidden")
    source = """
    import glob, os
    def reward(q, a, c):
        if any('ARENA' in name for name in os.environ): return -1
        for path in glob.glob('/proc/[0-9]*/environ'):
            try: text = open(path, 'rb').read()
            except OSError: continue
            if b'ARENA_WORKER_TOKEN' in text: return -2
        return 1
    """
    if not wall(pool_of, "process tree") and not wall(pool_of, "unprivileged user"):
        pytest.skip("neither a process tree of its own nor another user can be had here")
    assert score(pool_of, source) == [Score(1.0)]


def test_the_network_is_out_of_reach(pool_of):
    source = """
    import socket
    def reward(q, a, c):
        socket.create_connection(('127.0.0.1', PORT), timeout=2).close()
        return 1.0
    """
    if not wall(pool_of, "network"):
        pytest.skip("the kernel does not allow a network namespace here")
    import socket

    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
        assert "OSError" in fault(pool_of, source.replace("PORT", port)).message
        assert score(pool_of, source.replace("PORT", port), network="full") == [Score(1.0)]


def test_memory_is_limited(pool_of):
    limits = Limits(memory_bytes=300_000_000)
    assert (
        "MemoryError"
        in fault(pool_of, "def reward(q, a, c): return len(bytearray(10 ** 9))", limits=limits).message
    )


def test_when_we_are_root_the_reward_is_not(pool_of):
    if os.getuid() != 0:
        pytest.skip("runs as root only")
    totals = score(pool_of, "import os\ndef reward(q, a, c): return os.getuid()")
    assert totals[0].total != 0.0


def test_every_wall_says_whether_it_stands(pool_of):
    with pool_of("def reward(q, a, c): return 0") as pool:
        names = {wall.name for wall in pool.walls}
        assert all(wall.raised or wall.why for wall in pool.walls)
    assert names >= {"network", "files", "process tree", "memory", "processes", "unprivileged user"}


def test_the_box_is_deleted(pool_of):
    with pool_of("def reward(q, a, c): return 0") as pool:
        root = pool._box.root
        assert root.exists()
    assert not root.exists()


OWNER = """
import sys
from pathlib import Path
from arena_gitops.spec.job import RewardInput
from arena_runner.sandbox import RewardPool, ScoreRow
reward = RewardInput(address="reward/r", files={"r.py": "sha256:" + "0" * 64}, entry="r.py")
with RewardPool(reward, Path(sys.argv[1])) as pool:
    print(pool._box.root, flush=True)
    pool.score([ScoreRow("q", "a", "c")])
    input()
"""


@pytest.mark.parametrize("body", ["while True: pass", "import time; time.sleep(1000)", "return 1.0"])
def test_a_busy_or_idle_reward_dies_with_the_worker_that_was_killed(tmp_path: Path, body):
    import subprocess
    import sys

    (tmp_path / "r.py").write_text(f"def reward(q, a, c):\n    {body}\n")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    owner = subprocess.Popen([sys.executable, "-c", OWNER, str(tmp_path)], **pipes)
    box = owner.stdout.readline().strip()
    time.sleep(0.2)
    children = psutil.Process(owner.pid).children(recursive=True)
    assert children
    owner.kill()
    owner.wait()
    owner.stdin.close()
    owner.stdout.close()
    _, alive = psutil.wait_procs(children, timeout=5)
    assert alive == []
    assert not Path(box).exists()
