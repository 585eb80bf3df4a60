"""A run that was interrupted or killed equals the run that was not, bit for bit."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from labs import files_of

from arena_gitops.spec.job import ResumeState
from arena_runner import checkpoint
from arena_runner.ports import InterruptedRunError

ITERATIONS = 7
EVOLVING = {
    "training": {
        "max_steps": 8 * ITERATIONS,
        "evo_steps": 2,
        "evaluation_interval": 3,
        "checkpoint_steps": 5,
        "pop_size": 3,
        "hpo": True,
    },
    "mutation": {
        "probabilities": {"no_mut": 0.2, "rl_hp_mut": 0.8},
        "rl_hp_selection": {
            "batch_size": {"min": 1, "max": 4},
            "group_size": {"min": 3, "max": 6},
            "lr": {"min": 0.001, "max": 0.1},
            "temperature": {"min": 0.5, "max": 1.5},
        },
    },
}
TIMED = {
    "tokens_per_second",
    "iteration_seconds",
    "memory/peak_gib",
    "memory/rss_gib",
    "memory/expected_over_peak",
}


def told(lines):
    """What events say, by what they are about; a repeat of an iteration must say the same again."""
    said = {}
    for line in lines:
        body = json.loads(line)
        for timed in ("seq", "ts", "tokens_per_second", "eta_seconds"):
            body.pop(timed, None)
        if body["type"] == "started":
            continue
        body["values"] = {k: v for k, v in body.get("values", {}).items() if k not in TIMED}
        about = tuple(
            str(body.get(key)) for key in ("type", "member", "step", "generation", "prompt", "values")
        )
        if body["type"] in {"checkpoint", "resume_state", "test_scores", "evolution"}:
            about = json.dumps(body, sort_keys=True)
        said[about] = body
    return said


def resumed(job, folder):
    state = checkpoint.state_folders(folder / "states")[-1]
    return job.model_copy(update={"resume": ResumeState(iteration=int(state.name), files={})}), state


@pytest.mark.parametrize("algorithm", ["GRPO", "SFT", "DPO"])
@pytest.mark.parametrize("after", [1, 2, 3, 4])
def test_an_interrupted_run_goes_on_as_if_nothing_had_been(lab, algorithm, after):
    ranges = {k: v for k, v in EVOLVING["mutation"]["rl_hp_selection"].items() if k in {"batch_size", "lr"}}
    sections = (
        EVOLVING
        if algorithm == "GRPO"
        else {**EVOLVING, "mutation": EVOLVING["mutation"] | {"rl_hp_selection": ranges}}
    )
    job = lab.job(algorithm, **sections)
    whole = lab.run(job, "whole")
    first = lab.ports(stop_after=after)
    with pytest.raises(InterruptedRunError):
        lab.train(job, "parts", first)
    job, state = resumed(job, lab.folder / "parts")
    second = lab.run(job, "parts", state)

    lines = [[e.model_dump_json() for e in ports.events] for ports in (whole, first, second)]
    assert told(lines[0]) == told(lines[1] + lines[2])
    assert files_of(lab.folder / "whole") == files_of(lab.folder / "parts")


def test_raising_max_steps_equals_a_run_that_had_it_from_the_start(lab):
    """The shorter run ends where a generation ends; the longer one evolves there."""

    def sections(steps):
        return {
            **EVOLVING,
            "training": EVOLVING["training"] | {"max_steps": steps, "evaluation_interval": 2},
            "mutation": {},
        }

    lab.run(lab.job("GRPO", **sections(8 * 4)), "raised")
    job, state = resumed(lab.job("GRPO", **sections(8 * 7)), lab.folder / "raised")
    lab.run(job, "raised", state)
    lab.run(lab.job("GRPO", **sections(8 * 7)), "whole")

    raised, whole = (
        checkpoint.load_state(checkpoint.state_folders(lab.folder / n / "states")[-1])
        for n in ("raised", "whole")
    )
    assert raised[0].members == whole[0].members
    assert raised[0].lineage == whole[0].lineage
    assert all(raised[1].adapters[k].equal(whole[1].adapters[k]) for k in whole[1].adapters)
    assert all(raised[1].moments[k].equal(whole[1].moments[k]) for k in whole[1].moments)


ZYGOTE = """
import json, os, random, signal, sys
from pathlib import Path

import torch

from arena_gitops.spec.job import JobSpec, ResumeState
from arena_runner import checkpoint
from arena_runner.adapters import Population
from arena_runner.engines.torch import TorchEngine
from arena_runner.optim import StackedAdamW
from arena_runner.ports import Materials
from arena_runner.sandbox import RewardPool
from arena_runner.train import train

folder, kills = Path(sys.argv[1]), int(sys.argv[2])
job = JobSpec.model_validate_json((folder / "job.json").read_text())
work = folder / "killed"


class Appending:
    def __init__(self):
        self.file = (folder / "killed.ndjson").open("a")

    def emit(self, event, files=None):
        self.file.write(event.model_dump_json() + "\\n")
        self.file.flush()

    def stop(self):
        return None

    def cap(self):
        return None


# where to kill: (class or module, function, calls until then)
POINTS = {
    "generation": (TorchEngine, "generate", 4),
    "scoring": (RewardPool, "score", 40),
    "backward": (torch.Tensor, "backward", 4),
    "optimizer": (StackedAdamW, "step", 2),
    "evolution": (Population, "copy", 2),
    "an event": (Appending, "emit", 12),
    "the rename": (Path, "rename", 3),
    "the sync": (checkpoint, "_sync", 8),
}


def arm(name, left, late):
    owner, function, _ = POINTS[name]
    original = getattr(owner, function)

    def deadly(*args, **kwargs):
        nonlocal left
        left -= 1
        if left == 0 and not late:
            os.kill(os.getpid(), signal.SIGKILL)
        answer = original(*args, **kwargs)
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return answer

    setattr(owner, function, deadly)


def segment():
    states = checkpoint.state_folders(work / "states")
    resume = ResumeState(iteration=int(states[-1].name), files={}) if states else None
    materials = Materials(work, (folder / "rows.jsonl",), folder / "reward", resume=states[-1] if states else None)
    finished = train(job.model_copy(update={"resume": resume}), materials, Appending())
    os._exit(0 if finished.state == "completed" else 3)


dice, killed = random.Random(3), []
while True:
    name = dice.choice(list(POINTS))
    left, late = dice.randint(1, POINTS[name][2]), dice.random() < 0.5
    pid = os.fork()
    if pid == 0:
        if len(killed) < kills:
            arm(name, left, late)
        segment()
    _, status = os.waitpid(pid, 0)
    if not os.WIFSIGNALED(status):
        break
    killed.append(name)
print(json.dumps({"killed": killed, "status": os.waitstatus_to_exitcode(status)}))
"""


@pytest.mark.parametrize(("dtype", "kills"), [("float32", 20), ("bfloat16", 8)])
def test_a_run_killed_again_and_again_equals_the_uninterrupted_one(lab, dtype, kills, monkeypatch):
    """SIGKILL by turns inside generation, scoring, backward, evolution, the checkpoint's sync and rename."""
    monkeypatch.setenv("ARENA_DTYPE", dtype)
    longer = {**EVOLVING, "training": EVOLVING["training"] | {"max_steps": 8 * 12}}
    job = lab.job("GRPO", **longer)
    (lab.folder / "job.json").write_text(job.model_dump_json())
    whole = lab.run(job, "whole")
    script = lab.folder / "zygote.py"
    script.write_text(ZYGOTE)
    command = [sys.executable, str(script), str(lab.folder), str(kills)]
    done = subprocess.run(
        command, env=dict(os.environ), capture_output=True, text=True, timeout=110, check=False
    )

    assert done.returncode == 0, done.stderr[-2000:]
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["status"] == 0
    assert len(report["killed"]) == kills
    assert kills < 20 or len(set(report["killed"])) >= 7
    killed = Path(lab.folder / "killed.ndjson").read_text().splitlines()
    assert told(e.model_dump_json() for e in whole.events) == told(killed)
    assert files_of(lab.folder / "whole") == files_of(lab.folder / "killed")
