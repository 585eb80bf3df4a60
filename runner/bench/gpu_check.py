"""Does the trainer do on a GPU what it does on a CPU? Tiny random models, nothing is downloaded.

    python runner/bench/gpu_check.py [--device cpu]

Ends with 0 when everything that was checked holds, 1 when something does not, 3 where there is no CUDA. `--device cpu`
rehearses what needs none. Sampling with vLLM is checked where `ARENA_VLLM_PYTHON` names an interpreter that has it, by
the contract suite of the tests; the trainer's side of that comparison is on the CPU.

There is no kernel of our own for rows of unequal length: packs are two calls of torch's attention a layer, and which
of torch's kernels takes which call is told.
"""

from __future__ import annotations

import argparse
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # see arena_runner.cli

import gpu_policies
import torch
from models_made import MIDDLE, TINY, made  # puts the support of the tests on the path
from populations import make_learner, relative, scored_groups
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers.utils import logging

from arena_runner import ops
from arena_runner.adapters import Population
from arena_runner.algorithms import grpo
from arena_runner.algorithms.grpo import GrpoSettings
from arena_runner.attention import Heads, causal
from arena_runner.engines import torch_proof
from arena_runner.engines.base import Completion, Request
from arena_runner.engines.torch import TorchEngine
from arena_runner.learner import Learner
from arena_runner.models import load_base
from arena_runner.optim import StackedAdamW
from arena_runner.packing import Group, pack
from arena_runner.policy_batch import ScoredGroup
from arena_runner.seeds import row_key

REPOSITORY = Path(__file__).resolve().parents[2]
NO_CUDA = 3
VLLM_S = 400
"""of the ten minutes; it takes about one"""
SETTINGS = {0: GrpoSettings(lr=1e-3, beta=0.04, temperature=0.9), 1: GrpoSettings(lr=1e-3)}
MEMBERS = 4


class WrongError(Exception):
    """Something is not as it should be."""


class UncheckedError(Exception):
    """Something cannot be checked here; says why."""


@dataclass(frozen=True, slots=True)
class Here:
    """Where it is checked, on which model."""

    device: torch.device
    folder: str

    def learner(self, dtype: torch.dtype, *, device: str | None = None, packs: bool = True) -> Learner:
        """Two members whose adapters do something; the same numbers in every precision and on every device."""
        place = device or self.device
        learner: Learner = make_learner(self.folder, ranks=(2, 5), alphas=(4, 5), dtype=dtype, device=place)
        return replace(learner, base=replace(learner.base, packs=packs))


def demand(what: str, value: float, most: float) -> str:
    """Say a difference, and raise WrongError where it is more than it may be (or no number)."""
    said = f"{what} {value:.1e} (at most {most:.0e})"
    if not value <= most:
        raise WrongError(said)
    return said


def gradients(learner: Learner) -> Tensor:
    """Of one GRPO batch of both members, on the CPU in float64."""
    learner.population.zero_grad()
    batch = grpo.prepare(learner, scored_groups(), SETTINGS)
    grpo.accumulate(learner, batch, SETTINGS, [0, 1])
    return learner.population.grads.double().cpu()


def movement(learner: Learner) -> Tensor:
    """By how much one update moves the adapters, on the CPU in float64."""
    before = learner.population.masters.clone()
    grpo.update(learner, scored_groups(), SETTINGS)
    return (learner.population.masters - before).double().cpu()


def trainer(here: Here) -> str:
    """One GRPO update of two members in fp32 is the one of the CPU in float64."""
    mine, theirs = here.learner(torch.float32), here.learner(torch.float64, device="cpu")
    return ", ".join(
        [
            demand("gradients differ by", relative(gradients(mine), gradients(theirs)), 1e-4),
            demand("the step by", relative(movement(mine), movement(theirs)), 1e-2),
        ]
    )


def packs(here: Here) -> str:
    """Rows of unequal length in one pack, without padding, learn what padded rows learn."""
    packed = here.learner(torch.float32)
    mine = gradients(packed)
    if packed.base.paths.packed_share() != 1.0:
        raise WrongError("tokens took the padded path")
    return demand(
        "gradients differ by", relative(mine, gradients(here.learner(torch.float32, packs=False))), 1e-4
    )


def bf16(here: Here) -> str:
    """The direction of the gradients survives bf16, and the update leaves numbers."""
    coarse = here.learner(torch.bfloat16)
    mine, theirs = gradients(coarse), gradients(here.learner(torch.float32))
    if not bool(movement(coarse).isfinite().all()):
        raise WrongError("weights are no numbers after an update")
    cosine = torch.nn.functional.cosine_similarity(mine.flatten(), theirs.flatten(), dim=0)
    return demand("1 - cosine of the gradients with those of fp32", 1 - float(cosine), 2e-2)


def engine(here: Here) -> str:
    """What the torch engine says it sampled is what the trainer computes, of every member and the base."""
    learner = here.learner(torch.float32)
    sampler = TorchEngine(learner.base, learner.population)
    torch_proof.prove(learner.base, learner.population, sampler)
    asked = [
        Request(member, ids, 10, row_key(1, 9 if member is None else member, 0, len(ids), 0), 0.9)
        for member in (0, 1, None)
        for ids in ((5, 6, 7), (8,), (9, 10, 11, 12, 13, 14))
    ]
    worst = max(
        off_by(learner, request, done) for request, done in zip(asked, sampler.generate(asked), strict=True)
    )
    return demand("logprobs differ by", worst, 1e-3)


@torch.no_grad()
def off_by(learner: Learner, request: Request, done: Completion) -> float:
    """The largest difference between the engine's logprobs and the trainer's."""
    device = learner.base.device
    member = -1 if request.member is None else request.member
    (piece,) = pack([Group(member, request.prompt_ids, (done.token_ids,), (0,))], 1000, device)
    heat = torch.full((len(done.token_ids),), request.temperature, device=device)
    mine = ops.logprobs(learner.base, learner.population, piece, heat)
    return float((mine.cpu() - torch.tensor(done.logprobs)).abs().max())


def flash(here: Here) -> str:
    """Torch's flash kernel takes a prompt's call and is exact; which kernels take the completions' is told."""
    if here.device.type != "cuda":
        raise UncheckedError("needs CUDA")
    drawn = torch.Generator(here.device).manual_seed(0)

    def call(queries: int, keys: int) -> Callable[[], Tensor]:
        shapes = ((8, 8, queries, 64), (8, 4, keys, 64), (8, 4, keys, 64))
        q, k, v = (torch.randn(s, generator=drawn, device=here.device, dtype=torch.bfloat16) for s in shapes)
        return lambda: causal(q, k, v, Heads(q, k, v, 0.125, None))

    prompt, completions = call(384, 384), call(128, 512)
    takers = {
        name: [
            kernel
            for kernel in ("FLASH_ATTENTION", "EFFICIENT_ATTENTION", "CUDNN_ATTENTION", "MATH")
            if takes(kernel, work)
        ]
        for name, work in (("prompts", prompt), ("completions", completions))
    }
    if "FLASH_ATTENTION" not in takers["prompts"]:
        raise WrongError(f"flash takes no prompt; it is taken by {takers['prompts']}")
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        fast = prompt()
    with sdpa_kernel(SDPBackend.MATH):
        plain = prompt()
    said = "; ".join(f"{name}: {', '.join(kernels)}" for name, kernels in takers.items())
    return demand("flash differs by", relative(fast.float(), plain.float()), 2e-2) + f"; {said}"


def takes(kernel: str, work: Callable[[], Tensor]) -> bool:
    """Whether a kernel of torch's can do it."""
    try:
        with sdpa_kernel(getattr(SDPBackend, kernel)):
            work()
    except RuntimeError:
        return False
    return True


def vllm(_: Here) -> str:
    """The contract suite of the engines, with vLLM."""
    python = os.environ.get("ARENA_VLLM_PYTHON")
    if not python:
        raise UncheckedError("ARENA_VLLM_PYTHON names no interpreter")
    finds = "import importlib.util as u, sys; sys.exit(u.find_spec('vllm') is None)"
    try:
        found = subprocess.run([python, "-c", finds], check=False, timeout=60).returncode == 0
    except OSError as error:
        raise UncheckedError(f"{python}: {error.strerror}") from error
    if not found:
        raise UncheckedError(f"{python} has no vllm")
    code, printed = contract()
    if code != 0 or "skipped" in printed[-1]:
        raise WrongError("\n".join(printed[-12:]))
    return printed[-1].strip("= ")


def contract() -> tuple[int, list[str]]:
    """Exit status of the suite, and what it printed; interrupted when it takes too long, so that vLLM ends with it."""
    suite = ["tests/runner/engines/test_engine_contract.py", "-k", "vllm", "-q", "-p", "no:randomly"]
    with subprocess.Popen(
        [sys.executable, "-m", "pytest", *suite],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as running:
        try:
            printed, _ = running.communicate(timeout=VLLM_S)
        except subprocess.TimeoutExpired:
            running.send_signal(signal.SIGINT)
            printed, _ = running.communicate()
            printed += f"\ninterrupted after {VLLM_S} s"
        except BaseException:
            running.send_signal(signal.SIGINT)
            raise
    return running.returncode, printed.strip().splitlines() or ["nothing was printed"]


def speed(here: Here) -> str:
    """Sampled and trained tokens per second of the wall clock, and the most memory; nothing is demanded of them."""
    cuda = here.device.type == "cuda"
    shape, prompt, new = (MIDDLE, 256, 128) if cuda else (TINY, 32, 8)
    with made(shape) as folder:
        loaded = load_base(folder, device=str(here.device), dtype=torch.bfloat16)
        base = replace(loaded, eos_ids=frozenset())  # nothing ends early
        population = Population.attach(base, ranks=[16] * MEMBERS, alphas=[32] * MEMBERS)
        learner = Learner(base, population, StackedAdamW(population), 16384 if cuda else 1024)
        asked = [
            Request(m, tuple(3 + i % 200 for i in range(prompt)), new, row_key(0, m, 0, 0, c))
            for m in range(MEMBERS)
            for c in range(8)
        ]
        sampler = TorchEngine(base, population, rows_in_flight=len(asked))
        done = sampler.generate(asked)
        groups = [
            ScoredGroup(
                m, asked[8 * m].prompt_ids, tuple(done[8 * m : 8 * m + 8]), tuple(map(float, range(8)))
            )
            for m in range(MEMBERS)
        ]
        rates = {m: GrpoSettings(lr=1e-5) for m in range(MEMBERS)}
        sampled = seconds(here, lambda: sampler.generate(asked))
        if cuda:
            torch.cuda.reset_peak_memory_stats()
        trained = seconds(here, lambda: grpo.update(learner, groups, rates))
    tokens = len(asked) * new
    size = sum(p.numel() for p in base.model.parameters()) / 1e6
    return (
        f"{size:.1f} M parameters, bf16, {MEMBERS} members of rank 16 on all-linear, {MEMBERS} x 8 rows, "
        f"P={len(asked[0].prompt_ids)} T={new}: sampled {tokens / sampled:.0f} tokens/s, "
        f"trained {tokens / trained:.0f} completion tokens/s, {peak(cuda=cuda)}"
    )


def seconds(here: Here, work: Callable[[], object]) -> float:
    """Wall seconds of the second time, with what it left running on the device."""
    for _ in range(2):
        start = time.perf_counter()
        work()
        if here.device.type == "cuda":
            torch.cuda.synchronize()
    return time.perf_counter() - start


def peak(*, cuda: bool) -> str:
    """The most memory there was in use."""
    if cuda:
        return f"at most {torch.cuda.max_memory_allocated() / 2**20:.0f} MiB of the GPU in an update"
    return f"at most {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB of memory in this process"


def policies(_: Here) -> str:
    """Populations of policies are trained on the CPU here too, to the same bits as where no GPU is seen."""
    mine, theirs = gpu_policies.elsewhere(gpu=True), gpu_policies.elsewhere(gpu=False)
    if mine != theirs:
        raise WrongError("DQN and PPO became other policies than without a GPU")
    return "DQN and PPO on the CPU, the same bits as without a GPU"


CHECKS = (trainer, packs, bf16, engine, flash, vllm, policies, speed)


def told(check: Callable[[Here], str], here: Here) -> bool:
    """Run one check and print its line; False where it failed. One that crashes does not hide the others."""
    start = time.perf_counter()
    try:
        word, said = "ok", check(here)
    except UncheckedError as why:
        word, said = "not checked", str(why)
    except WrongError as wrong:
        word, said = "WRONG", str(wrong)
    except Exception as error:  # noqa: BLE001 - whatever a device or a kernel may raise
        word, said = "WRONG", f"{type(error).__name__}: {error}"
    print(f"{word:<12}{check.__name__:<9}{said} [{time.perf_counter() - start:.1f} s]", flush=True)
    return word != "WRONG"


def main(arguments: Sequence[str] | None = None) -> int:
    """Check and print; the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    device = torch.device(parser.parse_args(arguments).device)
    if device.type == "cuda" and not torch.cuda.is_available():
        print(
            "There is no CUDA on this machine: nothing was checked. --device cpu rehearses what needs none."
        )
        return NO_CUDA
    logging.disable_progress_bar()
    name = torch.cuda.get_device_name() if device.type == "cuda" else "the CPU, a rehearsal"
    print(f"torch {torch.__version__} on {name}")
    with made({}, "llama") as folder:
        here = Here(device, folder)
        held = [told(check, here) for check in CHECKS]
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
