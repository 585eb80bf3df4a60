"""Everything a run needs before its first iteration: rows, model, adapters, task, and where it stands.

`open_run` is the only place that knows which parts a job is made of; the loop in `train` only uses them.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from importlib.metadata import version

import torch
from torch import Tensor

from arena_gitops.spec.algorithms.dpo import DpoKnobs
from arena_gitops.spec.algorithms.sft import SftKnobs
from arena_gitops.spec.job import DatasetInput, JobSpec, Log, ModelRef, Started
from arena_gitops.spec.knobs import GroupKnobs, Knobs, TextKnobs
from arena_gitops.spec.manifest import Manifest
from arena_runner import budgets, checkpoint, micro_batches, peft_format
from arena_runner.adapters import Population
from arena_runner.budgets import Budgets
from arena_runner.checkpoint import Standing, Tensors
from arena_runner.data import DataError, LeftOut, Questions, Splits, read_rows, shortage
from arena_runner.engines.chosen import open_engine
from arena_runner.expected import expected_gib
from arena_runner.learner import Learner
from arena_runner.models import BaseModel, load_base
from arena_runner.optim import StackedAdamW
from arena_runner.parts import Held, JobError, Parts, read_manifest, rules_of
from arena_runner.population.member import Member
from arena_runner.ports import Materials, TrainPorts
from arena_runner.rollouts.hub import fetch_split
from arena_runner.rollouts.imitated import Imitated
from arena_runner.rollouts.preferred import Preferred
from arena_runner.rollouts.prompts import PROMPT_ROLE, Prompt, Renderer, fit
from arena_runner.rollouts.scored import Scored
from arena_runner.rollouts.task import Task
from arena_runner.sandbox import RewardPool, secret_values
from arena_runner.schedule import Schedule, plan_schedule
from arena_runner.spool import Row, Spool


@contextmanager
def open_parts(job: JobSpec, materials: Materials, ports: TrainPorts) -> Iterator[Parts]:
    """Load everything and announce the start; closing it ends the processes of user code."""
    manifest = read_manifest(job, ports)
    if manifest.classic is not None:
        from arena_runner.opening_classic import open_classic  # text runs need no Gymnasium

        with open_classic(job, manifest, materials, ports) as parts:
            yield parts
        return
    with _open_text(job, manifest, materials, ports) as parts:
        yield parts


@contextmanager
def _open_text(job: JobSpec, manifest: Manifest, materials: Materials, ports: TrainPorts) -> Iterator[Parts]:
    source = job.inputs.dataset
    if source is None:
        raise JobError(f"{manifest.algorithm.name} needs a dataset")
    resumed = checkpoint.load_state(materials.resume) if materials.resume else None
    limits = _budgets(resumed[0].budgets if resumed else None, ports)
    base = _load(job, manifest, materials, limits)
    with _splits(source, materials, manifest, ports) as splits:
        train, held = _prompts(splits, source, manifest, base, ports)
        learner, origin = _learner(job, manifest, materials, base, limits)
        if resumed is None and not budgets.tokens_are_set():
            learner, limits = _made_to_fit(learner, manifest, limits, ports)
        standing, best = _stand(resumed, manifest, limits, learner)
        schedule = plan_schedule(manifest, job.limits, rows=len(train))
        _announce(job, standing, schedule, base, ports)
        rules, expected = rules_of(job, manifest), expected_gib(learner, manifest)

        def process() -> dict[str, float | None]:
            return {"packed": base.paths.packed_share(), "expected_gib": expected}

        with _task(job, materials, learner, train, limits) as task:
            yield Parts(job, schedule, rules, learner, task, held, origin, best, standing, process)


def _budgets(stored: Budgets | None, ports: TrainPorts) -> Budgets:
    """What the run started with, as long as this machine has it; and make torch obey."""
    limits = stored or budgets.choose()
    if limits.device.startswith("cuda") and not torch.cuda.is_available():
        limits = budgets.choose()
        ports.emit(Log(level="warning", message=f"resumed without the GPU it began on, on {limits.device}"))
    torch.set_num_threads(limits.threads)
    return limits


def _made_to_fit(
    learner: Learner, manifest: Manifest, limits: Budgets, ports: TrainPorts
) -> tuple[Learner, Budgets]:
    """The same with micro-batches that fit into what is free now."""
    free = micro_batches.free_bytes(learner.base.device)
    tokens = micro_batches.that_fit(learner, manifest, free)
    if tokens == limits.tokens_per_backward:
        return learner, limits
    message = micro_batches.said(free, limits.tokens_per_backward, tokens)
    ports.emit(Log(level="warning", message=message))
    return replace(learner, tokens_per_backward=tokens), replace(limits, tokens_per_backward=tokens)


def _load(job: JobSpec, manifest: Manifest, materials: Materials, limits: Budgets) -> BaseModel:
    return load_base(
        job.model.id if job.model else manifest.base_model.pretrained_model_name_or_path,
        models_dir=materials.models_dir,
        revision=job.model.revision if job.model else None,
        device=limits.device,
        dtype=limits.torch_dtype,
    )


@contextmanager
def _splits(
    source: DatasetInput, materials: Materials, manifest: Manifest, ports: TrainPorts
) -> Iterator[Splits]:
    """The rows of the dataset, dealt; on disk, so that there may be any number of them."""
    files = materials.dataset
    if not files:
        if source.hf is None:
            raise JobError(f"{source.address}: neither a file nor a hub id was given")
        files = tuple(fetch_split(source.hf))
    left_out = LeftOut()
    with closing(Spool(materials.workdir, read_rows(source, files, left_out))) as rows:
        for count, why in (
            (left_out.empty, "a mapped column is empty"),
            (left_out.equal, "chosen and rejected are equal"),
        ):
            if count:
                ports.emit(Log(level="warning", message=f"{count} rows left out: {why}"))
        training = manifest.training
        wanted = {"eval_rows": training.eval_rows * training.eval_loop, "test_rows": training.test_rows}
        size = getattr(manifest.algorithm, "batch_size", 0)
        asked = Questions(rows, key=PROMPT_ROLE[source.category])
        for message in shortage(len(asked), **wanted, batch_size=size):
            ports.emit(Log(level="warning", message=message))
        yield asked.split(**wanted)


def _prompts(
    splits: Splits, source: DatasetInput, manifest: Manifest, base: BaseModel, ports: TrainPorts
) -> tuple[Sequence[Prompt], Held]:
    """Render the three splits and leave out what does not fit."""
    render = Renderer(base.tokenizer, manifest.text.prompt_template, PROMPT_ROLE[source.category])
    longest = manifest.base_model.max_context_length
    room = getattr(manifest.algorithm, "max_output_tokens", None) or 1
    form = {SftKnobs: render.example, DpoKnobs: render.pair}.get(type(manifest.algorithm), render.prompt)

    def fitted(name: str, rows: Sequence[Row]) -> Sequence[Prompt]:
        kept = fit(rows, form, longest=longest, room=room)
        if kept.dropped:
            ports.emit(
                Log(
                    level="warning",
                    message=f"{kept.dropped} of {len(rows)} {name} rows left out: longer than "
                    f"max_context_length {longest} with {room} tokens kept free for the completion",
                )
            )
        if rows and not kept.prompts:
            raise DataError(f"{source.address}: no {name} row fits max_context_length {longest}")
        return kept.prompts

    train, held = (
        fitted("train", splits.train),
        Held(fitted("eval", splits.eval), fitted("test", splits.test)),
    )
    if not train or not held.eval:
        raise DataError(f"{source.address}: too few distinct rows for a train and an eval split")
    return train, held


def _learner(
    job: JobSpec, manifest: Manifest, materials: Materials, base: BaseModel, limits: Budgets
) -> tuple[Learner, Mapping[str, Tensor]]:
    """The population on its base, fresh or from the adapter the experiment is chained to."""
    lora, count = manifest.base_model.lora_config, manifest.training.pop_size
    start, alpha = None, float(lora.lora_alpha)
    if job.inputs.base is not None:
        start, config = _start(job, materials)
        if config.rank != lora.lora_r:
            raise JobError(
                f"the adapter of {job.inputs.base.experiment} has rank {config.rank}, the manifest says lora_r: "
                f"{lora.lora_r}; a chained experiment goes on with the rank it starts from"
            )
        alpha = config.alpha
    population = Population.attach(
        base,
        targets=list(lora.target_modules)
        if not isinstance(lora.target_modules, str)
        else lora.target_modules,
        ranks=[lora.lora_r] * count,
        alphas=[alpha] * count,
        seed=job.seed,
        reference=start,
    )
    assert isinstance(manifest.algorithm, TextKnobs)
    population.checkpointing(on=bool(manifest.algorithm.gradient_checkpointing))
    return Learner(base, population, StackedAdamW(population), limits.tokens_per_backward), population.export(
        0
    )


def _start(job: JobSpec, materials: Materials) -> tuple[dict[str, Tensor], peft_format.AdapterConfig]:
    assert job.inputs.base is not None
    if job.inputs.base.merge:
        raise JobError(
            "base.merge: true has no room yet; without it the experiment goes on with the adapter it starts from"
        )
    if materials.base is None:
        raise JobError(f"the adapter of {job.inputs.base.experiment} is not here")
    return peft_format.read(materials.base)


def _stand(
    resumed: tuple[Standing, Tensors] | None, manifest: Manifest, limits: Budgets, learner: Learner
) -> tuple[Standing, Mapping[str, Tensor]]:
    """Where the run stands: at its beginning, or where its last segment ended."""
    if resumed is None:
        assert isinstance(manifest.algorithm, Knobs)
        own = manifest.algorithm.hyperparameters()
        places = tuple(Member(place, dict(own)) for place in range(manifest.training.pop_size))
        return Standing(members=places, budgets=limits), {}
    standing, tensors = resumed
    learner.restore(tensors.adapters, tensors.moments)
    return standing.model_copy(update={"budgets": limits}), tensors.best


@contextmanager
def _task(
    job: JobSpec, materials: Materials, learner: Learner, train: Sequence[Prompt], limits: Budgets
) -> Iterator[Task]:
    manifest = Manifest.from_normal(dict(job.manifest))
    match manifest.algorithm:
        case SftKnobs() as knobs:
            yield Imitated(learner, train, knobs, manifest.base_model.lora_config.lora_dropout, job.seed)
        case DpoKnobs() as knobs:
            yield Preferred(learner, train, knobs, manifest.base_model.lora_config.lora_dropout, job.seed)
        case GroupKnobs() as knobs:
            reward = job.inputs.reward
            if reward is None or materials.reward is None:
                raise JobError(f"{knobs.name} needs a reward")
            secrets = secret_values(reward.secrets, materials.secrets)
            longest = manifest.base_model.max_context_length
            with (
                RewardPool(reward, materials.reward, secrets=secrets, wheels=materials.wheels) as pool,
                open_engine(limits, learner, longest=longest, materials=materials) as engine,
            ):
                yield Scored(learner, engine, pool, train, knobs, longest, job.seed)
        case other:
            raise JobError(f"{other.name} has no room here")


def _announce(
    job: JobSpec, standing: Standing, schedule: Schedule, base: BaseModel, ports: TrainPorts
) -> None:
    limits = standing.budgets
    if not base.packs:
        slow = (
            f"{type(base.model).__name__} takes the padded path: its attention needs more than a shared-prefix pack "
            "offers, so every completion repeats its prompt and updates take longer"
        )
        ports.emit(Log(level="warning", message=slow))
    ports.emit(
        Started(
            device=limits.device,
            dtype=limits.dtype,
            threads=limits.threads,
            rows_in_flight=limits.rows_in_flight,
            tokens_per_backward=limits.tokens_per_backward,
            engine=limits.engine,
            versions={"python": platform.python_version()}
            | {name: version(name) for name in ("arena-runner", "torch", "transformers")},
            model=ModelRef(id=base.ref, revision=base.revision),
            members=len(standing.members),
            max_steps=schedule.max_steps,
            resumed_at_iteration=standing.iteration if job.resume else None,
            request_id=job.request_id,
        )
    )
