"""A population of LoRA adapters on ONE frozen base model: the population is a tensor dimension.

All members' matrices of one layer lie above each other: `A` is (R, in) and `B` transposed is (R, out), where
R is the sum of the members' ranks and every one of the R rows belongs to one member. A batch of rows from
several members costs one base product and two thin ones, `((x A^T) * gate) B`: the gate is alpha/rank in the
columns of the row's own member and zero elsewhere, so ranks and alphas may differ and the result is exact.

Masters are fp32; `sync` rounds them once to the compute dtype, and trainer and engine read that same copy.
All masters are column slices of one (R, F) matrix, which is what lets the optimizer and evolution treat a
member as a few rows of numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor, nn

from arena_gitops.errors import ArenaError
from arena_runner import peft_format, seeds
from arena_runner.lora import AdaptedLinear, Carrier, Rows, Stack
from arena_runner.models import BaseModel

OFF = -1
"""member index of a row that uses the base model alone"""


class AdapterError(ArenaError):
    """An adapter does not fit the base model or the population."""


@dataclass(frozen=True, slots=True)
class Site:
    """One adapted linear layer: its name and where its A and B lie in the big matrix."""

    name: str
    a: slice
    b: slice


class Population:
    """N members on one base. Members are places 0 … N-1; one more frozen place may hold the reference policy."""

    def __init__(
        self, base: BaseModel, sites: Sequence[Site], ranks: Sequence[int], alphas: Sequence[float]
    ) -> None:
        self.base = base
        self.sites = tuple(sites)
        self.ranks = tuple(ranks)
        self.alphas = tuple(float(a) for a in alphas)
        self.has_reference = False
        device = base.device
        starts = [sum(ranks[:i]) for i in range(len(ranks) + 1)]
        self._spans = [slice(lo, hi) for lo, hi in pairwise(starts)]
        owner = [m for m, rank in enumerate(ranks) for _ in range(rank)]
        self.owner = torch.tensor(owner, device=device)  # (R,) the member each row belongs to
        self._scale = torch.tensor([alphas[m] / ranks[m] for m in owner], device=device)  # (R,)
        width = max(site.b.stop for site in sites)
        # float64 bases exist in tests only; anything narrower than fp32 gets an fp32 master.
        master = torch.promote_types(torch.float32, base.dtype)
        self.masters = torch.zeros(starts[-1], width, dtype=master, device=device)  # (R, F)
        self.grads = torch.zeros_like(self.masters)
        self._carriers: list[Carrier] = []
        self._modules: dict[str, AdaptedLinear] = {}

    @classmethod
    def attach(
        cls,
        base: BaseModel,
        *,
        targets: Sequence[str] | str = "all-linear",
        ranks: Sequence[int],
        alphas: Sequence[float],
        seed: int = 0,
        reference: Mapping[str, Tensor] | None = None,
    ) -> Population:
        """Put fresh adapters (B = 0) on a base model.

        Args:
            base: the frozen model; it may carry one population at a time.
            targets: names of linear layers (`q_proj`), or `all-linear`: all but the head.
            ranks: one per member.
            alphas: one per member.
            seed: of the members' A; every member draws its own.
            reference: PEFT-named tensors of a starting adapter; all members start as copies of it and it stays
                in one more frozen place as the reference policy. Its rank must be every member's.
        """
        _check_shapes(ranks, alphas)
        linears = find_targets(base, targets)
        if reference is not None:
            ranks, alphas = [*ranks, ranks[0]], [*alphas, alphas[0]]
        sites, end = [], 0
        for name, linear in linears.items():
            a, b = slice(end, end + linear.in_features), slice(end + linear.in_features, 0)
            end = a.stop + linear.out_features
            sites.append(Site(name, a, slice(b.start, end)))
        population = cls(base, sites, ranks, alphas)
        population._install(linears)
        population._fresh(seed)
        if reference is not None:
            population.has_reference = True
            for member in range(len(ranks)):
                population.load(member, reference)
        population.sync()
        population._prove_carried()
        return population

    @property
    def members(self) -> int:
        """Places that train."""
        return len(self.ranks) - self.has_reference

    @property
    def reference(self) -> int:
        """Member index of the policy the experiment started from: its frozen place, or OFF for the base itself."""
        return len(self.ranks) - 1 if self.has_reference else OFF

    def rows(self, members: Tensor, *, dropout: tuple[float, Tensor] | None = None) -> Rows | None:
        """Carry a member index per row (OFF: base alone) as what adapted layers read; None when all are off."""
        present = [int(m) for m in members.unique().tolist() if m != OFF]
        if not present:
            return None
        span = slice(self._spans[present[0]].start, self._spans[present[-1]].stop)
        if len(present) == 1 and not bool((members == OFF).any()):
            return Rows(span, self.alphas[present[0]] / self.ranks[present[0]], dropout)
        own = members.reshape(-1, 1) == self.owner[span]
        return Rows(span, (own * self._scale[span]).to(self.base.dtype), dropout)

    def sync(self) -> None:
        """Round the masters to the compute dtype once; trainer and engine read that copy."""
        for site in self.sites:
            module = self._modules[site.name]
            module.a.rounded.copy_(self.masters[:, site.a])
            module.b.rounded.copy_(self.masters[:, site.b])

    def checkpointing(self, *, on: bool) -> None:
        """Recompute every adapted layer in the backward pass: less memory, about a third more time."""
        for carrier in self._carriers:
            carrier.checkpoint = on

    def zero_grad(self) -> None:
        """Forget all gradients."""
        self.grads.zero_()

    def span(self, member: int) -> slice:
        """The member's rows of `masters`, `grads` and the optimizer's moments."""
        return self._spans[member]

    def copy(self, source: int, target: int) -> None:
        """Overwrite a place with another's weights (moments: `StackedAdamW.copy`)."""
        if self.ranks[source] != self.ranks[target] or self.alphas[source] != self.alphas[target]:
            raise AdapterError(
                f"members {source} and {target} differ in rank or alpha; a copy would change the policy"
            )
        self.masters[self._spans[target]] = self.masters[self._spans[source]]
        self.sync()

    def export(self, member: int) -> dict[str, Tensor]:
        """PEFT-named fp32 tensors of one member, on the CPU."""
        rows = self.masters[self._spans[member]].float().cpu()
        tensors = {}
        for site in self.sites:
            name_a, name_b = peft_format.tensor_names(site.name)
            tensors[name_a] = rows[:, site.a].contiguous()  # (r, in)
            tensors[name_b] = rows[:, site.b].T.contiguous()  # (out, r)
        return tensors

    def load(self, member: int, tensors: Mapping[str, Tensor]) -> None:
        """Overwrite one member's weights with PEFT-named tensors of the same rank and targets."""
        peft_format.check(tensors, {s.name: (s.a, s.b) for s in self.sites}, self.ranks[member])
        rows = self.masters[self._spans[member]]
        for site in self.sites:
            name_a, name_b = peft_format.tensor_names(site.name)
            rows[:, site.a] = tensors[name_a].to(rows)
            rows[:, site.b] = tensors[name_b].T.to(rows)
        self.sync()

    def save(self, member: int, folder: Path) -> None:
        """Write `adapter_model.safetensors` and `adapter_config.json`, loadable by peft."""
        peft_format.save(folder, self.export(member), self.config(member))

    def config(self, member: int) -> peft_format.AdapterConfig:
        """What peft must know beside the tensors."""
        names = tuple(site.name for site in self.sites)
        return peft_format.AdapterConfig(
            rank=self.ranks[member],
            alpha=self.alphas[member],
            targets=tuple(sorted({name.rpartition(".")[2] for name in names})),
            base=self.base.ref,
            base_digest=self.base.digest,
        )

    def digest(self, member: int) -> str:
        """sha256 over a member's tensors, rank, alpha and targets."""
        return peft_format.digest(self.export(member), self.config(member))

    def state(self) -> dict[str, Tensor]:
        """Everything a resume needs."""
        return {"masters": self.masters.cpu().clone()}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Continue from `state()`, bit for bit."""
        if state["masters"].shape != self.masters.shape:
            raise AdapterError("the resume state belongs to a population of other ranks or targets")
        self.masters.copy_(state["masters"])
        self.sync()

    def detach(self) -> BaseModel:
        """Take the adapters off and give the base model back as it was."""
        for name, module in self._modules.items():
            _replace(self.base.model, name, module.base)
        for carrier in self._carriers:
            carrier.remove()
        self._modules, self._carriers = {}, []
        return self.base

    def _install(self, linears: Mapping[str, nn.Linear]) -> None:
        if any(isinstance(m, AdaptedLinear) for m in self.base.model.modules()):
            raise AdapterError("the base model already carries a population; detach it first")
        by_layer: dict[str, list[AdaptedLinear]] = {}
        for salt, site in enumerate(self.sites):
            module = AdaptedLinear(linears[site.name], salt)
            module.a, module.b = self._stack(site.a), self._stack(site.b)
            _replace(self.base.model, site.name, module)
            self._modules[site.name] = module
            by_layer.setdefault(_layer_of(site.name), []).append(module)
        for layer, modules in by_layer.items():
            self._carriers.append(Carrier(self.base.model.get_submodule(layer), modules))

    def _stack(self, columns: slice) -> Stack:
        master = self.masters[:, columns]
        rounded = torch.zeros(master.shape, dtype=self.base.dtype, device=master.device)
        return Stack(master.requires_grad_(), self.grads[:, columns], rounded)

    def _fresh(self, seed: int) -> None:
        """Draw A as peft does (kaiming uniform, a=√5: ±1/√in); B stays zero."""
        for member, span in enumerate(self._spans):
            for salt, site in enumerate(self.sites):
                generator = torch.Generator().manual_seed(seeds.key(seed, "adapter", member, salt))
                fan_in = site.a.stop - site.a.start
                draw = torch.rand(self.ranks[member], fan_in, generator=generator, dtype=torch.float32)
                self.masters[span, site.a] = ((draw * 2 - 1) / math.sqrt(fan_in)).to(self.masters)

    def _prove_carried(self) -> None:
        """Run one token and see that its rows reached every adapted layer; else training would be on the base."""
        token = torch.zeros(1, 1, dtype=torch.long, device=self.base.device)
        with torch.no_grad():
            self.base.body(input_ids=token, use_cache=False, arena_rows=self.rows(token[0]))
        if not all(carrier.reached for carrier in self._carriers):
            raise AdapterError(
                f"{type(self.base.model).__name__} does not hand keyword arguments to its layers, "
                "so rows cannot carry their member; this architecture is not supported yet"
            )


def find_targets(base: BaseModel, targets: Sequence[str] | str) -> dict[str, nn.Linear]:
    """Find the linear layers to adapt by the last part of their name; raises AdapterError naming what there is."""
    inside = {n: m for n, m in base.model.named_modules() if isinstance(m, nn.Linear) and m is not base.head}
    inside = {n: m for n, m in inside.items() if any(part.isdigit() for part in n.split("."))}
    if targets in ("all-linear", ["all-linear"], ("all-linear",)):
        return inside
    wanted = [targets] if isinstance(targets, str) else list(targets)
    known = sorted({name.rpartition(".")[2] for name in inside})
    unknown = sorted(set(wanted) - set(known))
    experts = sorted(set(unknown) & _expert_parts(base))
    if experts:
        raise AdapterError(
            f"target_modules {', '.join(experts)}: expert tensors of {base.ref} carry no adapters; "
            f"take some of {', '.join(known)}, or all-linear (attention and shared layers)"
        )
    if unknown or not wanted:
        raise AdapterError(
            f"target_modules {', '.join(unknown) or '(none)'}: {base.ref} has {', '.join(known)}, or use all-linear"
        )
    return {name: module for name, module in inside.items() if name.rpartition(".")[2] in wanted}


def _expert_parts(base: BaseModel) -> set[str]:
    """Names under which people know a mixture's expert tensors: they are parameters, not linear layers."""
    paths = [n.split(".") for n, _ in base.model.named_parameters() if "experts" in n.split(".")]
    return {part for path in paths for part in path[path.index("experts") :]}


def _check_shapes(ranks: Sequence[int], alphas: Sequence[float]) -> None:
    if not ranks or len(ranks) != len(alphas):
        raise AdapterError(
            f"one rank and one alpha per member are needed, got {len(ranks)} and {len(alphas)}"
        )
    if min(ranks) < 1:
        raise AdapterError(f"a LoRA rank is at least 1, got {min(ranks)}")


def _layer_of(name: str) -> str:
    """`model.layers.3.self_attn.q_proj` → `model.layers.3`."""
    parts = name.split(".")
    last = next(i for i, part in enumerate(parts) if part.isdigit())
    return ".".join(parts[: last + 1])


def _replace(root: nn.Module, name: str, module: nn.Module) -> None:
    parent, _, leaf = name.rpartition(".")
    setattr(root.get_submodule(parent), leaf, module)
