"""Everything a policy's run needs before its first iteration: environments, networks, replay, and where it stands.

The counterpart of `opening` for algorithms that act. Small networks are trained in fp32 on one thread of the CPU,
where a launch costs more than its arithmetic.
"""

from __future__ import annotations

import importlib
import math
import platform
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

import torch
from safetensors.torch import load_file
from torch import Tensor

from arena_gitops.spec.job import JobSpec, Started
from arena_gitops.spec.knobs import Knobs
from arena_gitops.spec.manifest import Manifest
from arena_gitops.spec.manifest.environment import GymEnvironment
from arena_gitops.spec.manifest.sections import ClassicTraining, ReplayBuffer, TextNetwork
from arena_gitops.spec.population import ClassicMutation
from arena_runner import checkpoint
from arena_runner.budgets import Budgets
from arena_runner.checkpoint import Standing, Tensors
from arena_runner.parts import Held, JobError, Parts, rules_of
from arena_runner.policies.crew import Crew
from arena_runner.policies.design import plan
from arena_runner.policies.port import Algorithm
from arena_runner.policies.products import quick_products
from arena_runner.policies.spaces import Crowd
from arena_runner.population.member import Member
from arena_runner.ports import Materials, TrainPorts
from arena_runner.rollouts import film
from arena_runner.rollouts.boxes import LONGEST_JUDGED, Boxed, opened
from arena_runner.rollouts.collected import Collected
from arena_runner.rollouts.film import Camera
from arena_runner.rollouts.played import OpenWorld, Playing, Slice
from arena_runner.rollouts.prioritised import Prioritised
from arena_runner.rollouts.replayed import Replayed
from arena_runner.rollouts.together import open_parallel
from arena_runner.rollouts.worlds import World, open_registered
from arena_runner.schedule import Schedule, plan_schedule
from arena_runner.seeds import key

LONGEST_SLICE = 2048
"""environment steps of a member after which a run may be stopped, whatever its intervals are"""


@contextmanager
def open_classic(
    job: JobSpec, manifest: Manifest, materials: Materials, ports: TrainPorts
) -> Iterator[Parts]:
    """Open environments and networks and announce the start; closing it ends the environments."""
    training, knobs = manifest.classic, manifest.algorithm
    assert training is not None
    assert isinstance(knobs, Knobs)
    resumed = checkpoint.load_state(materials.resume) if materials.resume else None
    limits = resumed[0].budgets if resumed else _budgets()
    torch.set_num_threads(limits.threads)
    algorithm = maths(knobs)
    with _without_denormals(), _worlds(job, manifest, materials) as worlds:
        open_world = worlds.open
        crew = _crew(job, manifest, algorithm, open_world)
        cut = slice_of(manifest)
        with (
            quick_products(crew.largest),
            closing(_task(crew, open_world, cut, manifest, job.seed)) as task,
        ):
            origin = crew.export(0)
            standing, best, pages = _stand(resumed, limits, crew, task)
            schedule = plan_schedule(manifest, job.limits, rows=0, per_iteration=cut.steps)
            _announce(job, standing, schedule, ports)
            held = _held(training, job.seed)
            yield Parts(
                job=job,
                schedule=schedule,
                rules=rules_of(job, manifest),
                trained=crew,
                task=task,
                held=held,
                origin=origin,
                best=best,
                standing=standing,
                lived=task,
                pages=pages,
                film=_film(task, worlds, held.eval[0], training.eval_steps),
            )


@contextmanager
def _without_denormals() -> Iterator[None]:
    """Moments fade to denormal numbers, which cost many times as much. It is a switch of the whole process."""
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


def maths(knobs: Knobs) -> Algorithm:
    """The algorithm's file (`policies.port` says what is in it)."""
    name = knobs.MATHS or knobs.ALGORITHM.lower().replace(" ", "_")
    return cast("Algorithm", importlib.import_module(f"arena_runner.algorithms.{name}"))


def slice_of(manifest: Manifest) -> Slice:
    """An iteration: as long as the shortest interval, or an equal part of it."""
    training = manifest.training
    each = _environment(manifest).num_envs
    wanted = [training.evo_steps, training.evaluation_interval, training.checkpoint_steps]
    shortest = min(steps for steps in wanted if steps is not None)
    parts = math.ceil(shortest / LONGEST_SLICE)
    return Slice(ticks=max(1, round(shortest / parts / each)), each=each)


def _environment(manifest: Manifest) -> GymEnvironment:
    assert isinstance(manifest.environment, GymEnvironment)
    return manifest.environment


def _budgets() -> Budgets:
    return Budgets(device="cpu", dtype="float32", threads=1, rows_in_flight=0, tokens_per_backward=0)


@dataclass(frozen=True, slots=True)
class _Worlds:
    """How environments of a job are made."""

    open: OpenWorld
    camera: Callable[[], Camera | None]
    """one that draws, where there are such"""


@contextmanager
def _worlds(job: JobSpec, manifest: Manifest, materials: Materials) -> Iterator[_Worlds]:
    """Registered ids in this process, custom code in sandboxed ones."""
    given, training, knobs = job.inputs.environment, manifest.classic, manifest.algorithm
    assert training is not None
    assert isinstance(knobs, Knobs)
    gym_id = given.gym_id if given is not None else _environment(manifest).name
    written = _environment(manifest).env_config
    options: dict[str, Any] = dict(written) if isinstance(written, dict) else {}
    options |= given.env_config if given is not None else {}
    longest = training.eval_steps
    many = bool(getattr(maths(knobs), "MANY", False))
    if gym_id is not None:
        name, made = gym_id, cast("Callable[..., World]", open_parallel if many else open_registered)
        yield _Worlds(
            lambda rows, judging: made(name, rows, options, longest if judging else None, once=judging),
            lambda: film.of_game(name, options) if many else film.of_registered(name, options),
        )
        return
    if given is None or materials.environment is None:
        raise JobError("the job names neither a registered Gymnasium id nor the files of an environment")
    if given.multi_agent != many:
        trains, has = ("several agents", "one") if many else ("one agent", "several")
        raise JobError(f"{knobs.name} trains {trains}, and {given.address or 'the environment'} has {has}")
    with opened(given.model_copy(update={"env_config": options}), materials) as source:
        yield _Worlds(
            lambda rows, judging: Boxed(
                source, rows, (longest or LONGEST_JUDGED) if judging else None, once=judging
            ),
            lambda: _of_box(Boxed(source, 1)),
        )


def _of_box(world: Boxed) -> Camera | None:
    if world.films:
        return film.Custom(world)
    world.close()
    return None


def _film(
    task: Playing, worlds: _Worlds, seed: int, longest: int | None
) -> Callable[[Path], film.Film | None]:
    """The first episode of evaluation, played by place 0."""

    def make(path: Path) -> film.Film | None:
        camera = worlds.camera()
        if camera is None:
            return None
        made = film.film(camera, task.player(0), seed, longest)
        film.save(made, path)
        return made

    return make


def _crew(job: JobSpec, manifest: Manifest, algorithm: Algorithm, open_world: OpenWorld) -> Crew:
    with closing(open_world(1, True)) as world:
        spaces = world.spaces
    network = manifest.network
    assert not isinstance(network, TextNetwork)
    knobs, training = manifest.algorithm, manifest.classic
    assert isinstance(knobs, Knobs)
    assert training is not None
    mutation = manifest.mutation
    assert isinstance(mutation, ClassicMutation)
    recurrent = bool(getattr(algorithm, "RECURRENT", False))
    if isinstance(spaces, Crowd):
        bodies = {agent: plan(network, own.sees) for agent, own in spaces.agents.items()}
        designs = cast("Any", algorithm).networks(bodies, spaces, knobs)
    else:
        designs = algorithm.networks(plan(network, spaces.sees, recurrent=recurrent), spaces.does, knobs)
    return Crew(
        algorithm,
        designs,
        knobs,
        training,
        spaces,
        members=training.pop_size,
        seed=job.seed,
        mutation=mutation,
    )


def _task(
    crew: Crew, open_world: OpenWorld, cut: Slice, manifest: Manifest, seed: int
) -> Replayed | Collected:
    if crew.algorithm.LEARNS == "rollout":
        return Collected(crew, open_world, cut, seed)
    buffer = manifest.replay_buffer
    if not isinstance(buffer, ReplayBuffer):
        buffer = ReplayBuffer()
    kind = Prioritised if getattr(crew.algorithm, "PRIORITISED", False) else Replayed
    return kind(crew, open_world, cut, seed, training=crew.training, buffer=buffer)


def _held(training: ClassicTraining, seed: int) -> Held:
    """Seeds of the episodes that decide fitness, and of those nobody sees before the end."""

    def drawn(what: str, count: int) -> list[int]:
        return [key(seed, what, n) & 0x7FFFFFFF for n in range(count)]

    return Held(
        eval=drawn("evaluation", training.eval_episodes * training.eval_loop),
        test=drawn("test", training.test_episodes),
    )


def _stand(
    resumed: tuple[Standing, Tensors] | None,
    limits: Budgets,
    crew: Crew,
    task: Replayed | Collected,
) -> tuple[Standing, Mapping[str, Tensor], Mapping[str, Any]]:
    """Where the run stands: at its beginning, or where its last segment ended."""
    if resumed is None:
        own = crew.knobs.hyperparameters()
        places = tuple(Member(place, dict(own)) for place in range(len(crew)))
        return Standing(members=places, budgets=limits), {}, {}
    standing, tensors = resumed
    crew.tell(standing.members)
    crew.restore(tensors.adapters, tensors.moments)
    task.restore(tensors.lived)
    if tensors.pages:
        newest = max(checkpoint.span(name)[1] for name in tensors.pages)
        task.refill([load_file(path) for path, _ in tensors.pages.values()], newest)
    return standing, tensors.best, tensors.pages


def _announce(job: JobSpec, standing: Standing, schedule: Schedule, ports: TrainPorts) -> None:
    limits = standing.budgets
    ports.emit(
        Started(
            device=limits.device,
            dtype=limits.dtype,
            threads=limits.threads,
            rows_in_flight=limits.rows_in_flight,
            tokens_per_backward=limits.tokens_per_backward,
            versions={"python": platform.python_version()}
            | {name: version(name) for name in ("arena-runner", "torch", "gymnasium")},
            model=None,
            members=len(standing.members),
            max_steps=schedule.max_steps,
            resumed_at_iteration=standing.iteration if job.resume else None,
            request_id=job.request_id,
        )
    )
