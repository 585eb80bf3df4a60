"""The engine a run was started with: in this process, or a process beside it that ends with the run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from shutil import rmtree

from arena_runner.budgets import Budgets
from arena_runner.engines import torch_proof
from arena_runner.engines.base import Engine
from arena_runner.engines.torch import TorchEngine
from arena_runner.engines.vllm import VllmEngine
from arena_runner.engines.vllm_process import PYTHON, EngineError, VllmProcess, VllmSpec, find_python
from arena_runner.learner import Learner
from arena_runner.models import resolve
from arena_runner.ports import Materials


@contextmanager
def open_engine(limits: Budgets, learner: Learner, *, longest: int, materials: Materials) -> Iterator[Engine]:
    """Yield the engine `limits` name; raises EngineError where it is not installed or does not start."""
    if limits.engine == "torch":
        engine = TorchEngine(learner.base, learner.population, rows_in_flight=limits.rows_in_flight)
        torch_proof.prove(learner.base, learner.population, engine)
        yield engine
        return
    python = find_python()
    if python is None:
        raise EngineError(
            f"this run samples with vLLM, which is not installed here: name an interpreter that has it in {PYTHON}"
        )
    population = learner.population
    spec = VllmSpec(
        model=resolve(learner.base.ref, models_dir=materials.models_dir, revision=learner.base.revision),
        dtype=limits.dtype,
        members=len(population.ranks),
        max_rank=max(population.ranks),
        longest=longest,
        rows_in_flight=limits.rows_in_flight,
    )
    folder = materials.workdir / "vllm"
    adapters = folder / "adapters"
    rmtree(adapters, ignore_errors=True)  # of an earlier segment
    with VllmProcess(spec, python, folder) as process:
        yield VllmEngine(learner.base, population, process, adapters)
