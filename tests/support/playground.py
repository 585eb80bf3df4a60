"""Tiny populations of policies: jobs that train in a second, and the parts they are made of."""

from __future__ import annotations

import numpy as np
import torch
from labs import Recorder

from arena_gitops.spec.job import EnvironmentInput, JobInputs, JobSpec, ResumeState
from arena_gitops.spec.manifest import parse_manifest
from arena_runner import checkpoint
from arena_runner.opening_classic import maths
from arena_runner.policies.crew import Crew
from arena_runner.policies.design import plan
from arena_runner.policies.spaces import Choice, Continuous, Crowd, Spaces, Vector
from arena_runner.ports import Materials
from arena_runner.train import train

NETWORK = {
    "latent_dim": 16,
    "encoder_config": {"hidden_size": [16]},
    "head_config": {"hidden_size": [16]},
}
KNOBS = {
    "DQN": {"batch_size": 16, "learn_step": 4, "lr": 1e-3, "tau": 0.01},
    "Rainbow DQN": {"batch_size": 16, "learn_step": 4, "lr": 1e-3, "tau": 0.01, "num_atoms": 11, "v_min": 0},
    "PPO": {"batch_size": 32, "learn_step": 64, "lr": 1e-3, "update_epochs": 2},
    "IPPO": {"batch_size": 32, "learn_step": 64, "lr": 1e-3, "update_epochs": 2},
    "MADDPG": {"batch_size": 16, "learn_step": 16},
    "Recurrent PPO": {"batch_size": 32, "learn_step": 64, "lr": 1e-3, "update_epochs": 2},
}
GAMES = dict.fromkeys(("IPPO", "MADDPG"), "mpe2.simple_speaker_listener_v4")
TRAINING = {
    "max_steps": 320,
    "evo_steps": 80,
    "pop_size": 3,
    "hpo": True,
    "eval_episodes": 2,
    "test_episodes": 3,
}


def manifest_of(which, /, **sections):
    """The parsed manifest of a tiny run; sections are merged into the defaults."""
    raw = {
        "algorithm": {"name": which, **KNOBS.get(which, {})},
        "environment": {"name": GAMES.get(which, "CartPole-v1"), "num_envs": 4},
        "network": NETWORK,
        "training": TRAINING,
    }
    for name, values in sections.items():
        raw[name] = {**raw.get(name, {}), **values} if isinstance(raw.get(name), dict) else values
    return parse_manifest(raw).manifest


def job_of(which, /, *, seed=1, **sections):
    """The job of a tiny run on a registered environment."""
    manifest = manifest_of(which, **sections)
    return JobSpec(
        run_id="r1",
        segment=0,
        experiment="tiny",
        fingerprint="f",
        manifest=manifest.normal(),
        inputs=JobInputs(environment=EnvironmentInput(gym_id=manifest.environment.name)),
        model=None,
        seed=seed,
        tier="local",
    )


def play(job, folder, ports=None, *, resume=False, environment=None):
    """Run one segment; the ports, with what `train` said at its end. `environment`: folder of a custom one."""
    ports = ports or Recorder()
    state = checkpoint.state_folders(folder / "states")[-1] if resume else None
    if state is not None:
        job = job.model_copy(update={"resume": ResumeState(iteration=int(state.name), files={})})
    folder.mkdir(exist_ok=True)
    ports.finished = train(job, Materials(workdir=folder, resume=state, environment=environment), ports)
    return ports


def crew_of(which, members, /, *, sees=4, does=None, seed=0, **sections):
    """A population of policies without any environment."""
    manifest = manifest_of(which, **sections)
    spaces = Spaces(
        sees={"obs": Vector(size=sees)} if isinstance(sees, int) else sees,
        does=does or Choice(sizes=(3,), starts=(0,), single=True),
    )
    rules = maths(manifest.algorithm)
    body = plan(manifest.network, spaces.sees, recurrent=getattr(rules, "RECURRENT", False))
    designs = rules.networks(body, spaces.does, manifest.algorithm)
    return Crew(rules, designs, manifest.algorithm, manifest.classic, spaces, members=members, seed=seed)


def crowd_of(which, members, agents, /, *, seed=0, **sections):
    """A population of several agents; `agents` names what each sees (a size, or parts) and does."""
    manifest = manifest_of(which, **sections)
    crowd = Crowd(
        agents={
            name: Spaces(sees={"obs": Vector(size=sees)} if isinstance(sees, int) else sees, does=does)
            for name, (sees, does) in agents.items()
        }
    )
    rules = maths(manifest.algorithm)
    bodies = {name: plan(manifest.network, own.sees) for name, own in crowd.agents.items()}
    designs = rules.networks(bodies, crowd, manifest.algorithm)
    return Crew(rules, designs, manifest.algorithm, manifest.classic, crowd, members=members, seed=seed)


def choices(count):
    """A space of one choice."""
    return Choice(sizes=(count,), starts=(0,), single=True)


def floats(width, low=-1.0, high=1.0):
    """A space of continuous actions."""
    return Continuous(low=(low,) * width, high=(high,) * width, shape=(width,))


def drawn(*shape, seed=0):
    """Standard normal numbers that are the same every time."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def met(world, steps, start=0):
    """Everything that a fixed sequence of actions led to in a world of meetings."""
    told = []
    for step in range(start, start + steps):
        rng = np.random.default_rng(step)
        numbers = np.hstack([rng.integers(0, 3, (world.rows, 1)), rng.normal(size=(world.rows, 1))])
        told.append(world.step(numbers.astype(np.float32)))
    return told
