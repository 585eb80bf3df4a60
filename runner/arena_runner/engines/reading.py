"""The digest half of the proof: what lies in an engine, read where it computes, against what should lie there.

Both sides are brought to one form, A and B x alpha/rank in the engine's own precision, so that rank, alpha, precision
and the map from a name to its place are part of what is compared. One step at a learning rate of 5e-6 moves
logprobs by less than any tolerance; here it is another digest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from arena_gitops.errors import ArenaError
from arena_runner.adapters import OFF, Population
from arena_runner.engines.plain import Adapter
from arena_runner.lora import AdaptedLinear, Rows
from arena_runner.models import BaseModel

NOTHING = ""
"""the digest of a module whose A and B are all zeros, or whose B is"""


class PolicyMismatchError(ArenaError):
    """The engine holds or samples from another policy than the one it should."""


def expected(adapter: Adapter, dtype: torch.dtype) -> dict[str, str]:
    """Digest of every module of an adapter as it must lie in an engine of that precision."""
    return {name: digest(a, b) for name, a, b in _as_computed(adapter, dtype)}


def _as_computed(adapter: Adapter, dtype: torch.dtype) -> Iterator[tuple[str, Tensor, Tensor]]:
    for module in adapter.modules:
        a, b = adapter.of(module)
        yield module, a.to(dtype), b.to(dtype) * adapter.scale


def digest(a: Tensor, b: Tensor) -> str:
    """sha256 of the bytes of A (r, in) and of B x alpha/rank (out, r); `NOTHING` where the product is zero.

    `vllm_inside` computes the same in another process.
    """
    if not bool(b.any()):
        return NOTHING
    total = hashlib.sha256(f"{a.dtype} {tuple(a.shape)} {tuple(b.shape)}".encode())
    for tensor in (a, b):
        total.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return total.hexdigest()


def lying(base: BaseModel, population: Population, member: int) -> dict[str, str]:
    """Digest of every adapted module as a batch's rows of one member would compute with it now.

    Asked by the member's index, as every batch asks: whatever is wrong with the map from members to places is in it.
    """
    ask = [torch.tensor(members, device=base.device) for members in ([member], [member, OFF])]
    return lying_in(base, *(population.rows(members) for members in ask))


def lying_in(base: BaseModel, alone: Rows | None, beside: Rows | None) -> dict[str, str]:
    """The same for what layers are handed: for a row alone, and for it beside a row without an adapter."""
    if alone is None or beside is None or not _agree(alone, beside):
        return {}
    return {
        name: digest(module.a.rounded[alone.span], module.b.rounded[alone.span].T * float(alone.gate))
        for name, module in base.model.named_modules()
        if isinstance(module, AdaptedLinear)
    }


def _agree(alone: Rows, beside: Rows) -> bool:
    """Whether a row is given the same part of the stacks, as strongly, when rows without an adapter are with it."""
    if not isinstance(alone.gate, float) or not isinstance(beside.gate, Tensor):
        return False
    own, off = beside.gate
    right = torch.full_like(own, alone.gate)
    return alone.span == beside.span and bool(own.equal(right)) and not bool(off.any())


def demand(
    name: str, found: Mapping[str, str], wanted: Mapping[str, str], others: Mapping[str, Mapping[str, str]]
) -> None:
    """Raise PolicyMismatchError unless an engine holds what it should under `name`.

    Args:
        name: under which the engine has it, for the message.
        found: digests by module, as read in the engine.
        wanted: digests by module, as the trainer has it.
        others: what else it might be: digests of other members, of earlier steps.
    """
    modules = sorted(found.keys() | wanted.keys())
    wrong = [m for m in modules if found.get(m, NOTHING) != wanted.get(m, NOTHING)]
    if not wrong:
        return
    known = {"the bare base model": dict.fromkeys(modules, NOTHING), **others}
    same = [
        who
        for who, theirs in known.items()
        if all(theirs.get(m, NOTHING) == found.get(m, NOTHING) for m in modules)
    ]
    guess = f"; they are those of {same[0]}" if same else ""
    raise PolicyMismatchError(
        f"what the engine holds under {name} are not the weights it should serve: {len(wrong)} of {len(modules)} modules "
        f"differ, the first is {wrong[0]}{guess}. Nothing was sampled from it."
    )


def demand_lying(base: BaseModel, population: Population, member: int) -> None:
    """Raise PolicyMismatchError unless the layers of this process compute a member's rows with its newest weights."""
    wanted = expected(held(population, member), base.dtype)
    found = lying(base, population, member)
    if found != wanted:
        rest = [m for m in range(population.members) if m != member]
        others = {f"m{m}": expected(held(population, m), base.dtype) for m in rest}
        demand(f"m{member}", found, wanted, others)


def held(population: Population, member: int) -> Adapter:
    """A member as its masters say it is."""
    return Adapter(population.export(member), population.config(member))
