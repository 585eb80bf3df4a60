"""The whole population of policies: who is in which group, what is copied, what is saved.

Implements the loop's port for what is trained (`learner.Trained`). Members of equal designs are stacked; after
every copy or change of shape the stacks are built anew from the members' own rows, moments and step counts included.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from pydantic import TypeAdapter
from safetensors.torch import save_file
from torch import Tensor

from arena_gitops.spec.knobs import Knobs
from arena_gitops.spec.manifest.sections import ClassicTraining
from arena_gitops.spec.population import ClassicMutation
from arena_runner.policies.change import mutated
from arena_runner.policies.design import Design
from arena_runner.policies.group import Group, columns
from arena_runner.policies.person import Net, Person
from arena_runner.policies.port import Algorithm
from arena_runner.policies.spaces import Crowd, Spaces
from arena_runner.policies.stack import Stack, views
from arena_runner.population.member import Hyperparameters, Member
from arena_runner.seeds import key

POLICY, SPEC = "policy.safetensors", "policy.json"
FORMAT = 1
DESIGNS = "designs"
"""name of the tensor that holds a member's designs as JSON text"""
_DESIGNS: TypeAdapter[dict[str, Design]] = TypeAdapter(dict[str, Design])


class Crew:
    """N members of one algorithm."""

    def __init__(
        self,
        algorithm: Algorithm,
        designs: Mapping[str, Design],
        knobs: Knobs,
        training: ClassicTraining,
        spaces: Spaces | Crowd,
        *,
        members: int,
        seed: int,
        mutation: ClassicMutation | None = None,
    ) -> None:
        self.algorithm, self.knobs, self.training, self.spaces = algorithm, knobs, training, spaces
        self.twins = twins_of(algorithm, spaces)
        self._mutation, self._seed = mutation or ClassicMutation(), seed
        self._own: list[Hyperparameters] = [knobs.hyperparameters()] * members
        self.groups: list[Group] = []
        self._build([self._fresh(designs, seed, place) for place in range(members)])

    def __len__(self) -> int:
        return sum(len(group) for group in self.groups)

    @property
    def largest(self) -> int:
        """Weights of a member's largest network."""
        return max(stack.flat.shape[1] for group in self.groups for stack in group.nets.values())

    def tell(self, members: Sequence[Member]) -> None:
        """The members' hyperparameters, which the loop owns."""
        own = [member.hyperparameters for member in members]
        if own != self._own:
            self._own = own
            for group in self.groups:
                group.own = columns([own[place] for place in group.places])

    def designs(self, place: int) -> dict[str, Design]:
        """The trained networks of a member."""
        group, _ = self._where(place)
        return {role: net.design for role, net in group.nets.items() if role not in self.twins}

    def copy(self, parent: int, place: int) -> None:
        """Overwrite a place's networks, moments and step counts with another's."""
        self.put(place, self.person(parent))

    def mutate(self, place: int, kind: str, generation: int) -> str:
        """Change a place's networks; says how."""
        seed = key(self._seed, "mutation of a network", generation, place)
        person, said = mutated(self.person(place), self.twins, kind, self._mutation, seed)
        self.put(place, person)
        return said

    def put(self, place: int, person: Person) -> None:
        """Overwrite a place."""
        people = [person if one == place else self.person(one) for one in range(len(self))]
        self._build(people)

    def person(self, place: int) -> Person:
        """A copy of everything a place has learned."""
        group, row = self._where(place)
        return {role: _net(stack, row) for role, stack in group.nets.items()}

    def export(self, place: int) -> dict[str, Tensor]:
        """One member's trained networks: `role/name` → tensor, and their designs."""
        group, row = self._where(place)
        found = {DESIGNS: as_text(self.designs(place))}
        for role, stack in group.nets.items():
            if role not in self.twins:
                values = views(stack.slots, stack.flat[row : row + 1])
                found |= {f"{role}/{name}": value[0].clone() for name, value in values.items()}
        return found

    def load(self, place: int, weights: Mapping[str, Tensor]) -> None:
        """Put an export in a place, with fresh moments; twins start as copies."""
        self.put(place, self._grown(weights))

    def save(self, place: int, folder: Path) -> dict[str, Any]:
        """Write one member's policy, safetensors and a spec, never a pickle."""
        weights = self.export(place)
        designs = json.loads(_read_text(weights.pop(DESIGNS)))
        save_file({name: value.contiguous() for name, value in weights.items()}, folder / POLICY)
        spec = {
            "format": FORMAT,
            "algorithm": self.knobs.name,
            "knobs": self.knobs.model_dump(mode="json"),
            "spaces": self.spaces.model_dump(mode="json"),
            "designs": designs,
        }
        # unsorted: the order of parts and of agents is that of the weights
        (folder / SPEC).write_text(json.dumps(spec, indent=2) + "\n")
        return {"policy": SPEC}

    def state(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Weights and moments of all: everything a resume needs."""
        weights: dict[str, Tensor] = {}
        moments: dict[str, Tensor] = {}
        for place in range(len(self)):
            weights[f"m{place}/{DESIGNS}"] = as_text(self.designs(place))
            for role, net in self.person(place).items():
                weights[f"m{place}/{role}"] = net.flat
                if net.mean is not None and net.square is not None and net.steps is not None:
                    moments |= {
                        f"m{place}/{role}/mean": net.mean,
                        f"m{place}/{role}/square": net.square,
                        f"m{place}/{role}/steps": net.steps,
                    }
        return weights, moments

    def restore(self, weights: Mapping[str, Tensor], moments: Mapping[str, Tensor]) -> None:
        """Continue from `state()`, bit for bit."""
        people: list[Person] = []
        for place in range(len(self)):
            designs = _DESIGNS.validate_json(_read_text(weights[f"m{place}/{DESIGNS}"]))
            at = f"m{place}/"
            person = {
                role: Net(
                    design,
                    weights[at + role],
                    *(moments[f"{at}{role}/{name}"] for name in ("mean", "square", "steps")),
                )
                for role, design in designs.items()
            }
            for twin, role in self.twins.items():
                person[twin] = Net(designs[role], weights[at + twin])
            people.append(person)
        self._build(people)

    def _fresh(self, designs: Mapping[str, Design], seed: int, place: int) -> Person:
        person = {
            role: _net(Stack.fresh(design, [key(seed, "weights", place, role)]), 0)
            for role, design in designs.items()
        }
        return self._with_twins(person)

    def _grown(self, weights: Mapping[str, Tensor]) -> Person:
        designs = _DESIGNS.validate_json(_read_text(weights[DESIGNS]))
        person: Person = {}
        for role, design in designs.items():
            stack = Stack.fresh(design, [0])
            with torch.no_grad():
                for name, view in stack.params.items():
                    view[0].copy_(weights[f"{role}/{name}"])
            person[role] = _net(stack, 0)
        return self._with_twins(person)

    def _with_twins(self, person: Person) -> Person:
        for twin, role in self.twins.items():
            person[twin] = Net(person[role].design, person[role].flat.clone())
        return person

    def _where(self, place: int) -> tuple[Group, int]:
        for group in self.groups:
            if place in group.places:
                return group, group.places.index(place)
        raise KeyError(place)

    def _build(self, people: Sequence[Person]) -> None:
        """Stack the members of equal designs; groups and rows in order of places."""
        by_design: dict[tuple[str, ...], list[int]] = {}
        for place, person in enumerate(people):
            by_design.setdefault(tuple(net.design.key for net in person.values()), []).append(place)
        self.groups = [
            Group(
                places=tuple(places),
                nets={role: _stack([people[place][role] for place in places]) for role in people[places[0]]},
                knobs=self.knobs,
                training=self.training,
                space=self.spaces,
                own=columns([self._own[place] for place in places]),
            )
            for places in by_design.values()
        ]


def twins_of(algorithm: Algorithm, spaces: Spaces | Crowd) -> dict[str, str]:
    """Networks that follow others; of several agents each has its own."""
    if isinstance(spaces, Spaces):
        return dict(algorithm.TWINS)
    return {f"{a}/{twin}": f"{a}/{role}" for a in spaces.agents for twin, role in algorithm.TWINS.items()}


def _net(stack: Stack, row: int) -> Net:
    flat = stack.flat.detach()[row].clone()
    if stack.mean is None or stack.square is None:
        return Net(stack.design, flat)
    return Net(
        stack.design, flat, stack.mean[row].clone(), stack.square[row].clone(), stack.steps[row].clone()
    )


def _stack(nets: Sequence[Net]) -> Stack:
    trained = nets[0].mean is not None
    made = Stack(nets[0].design, torch.stack([net.flat for net in nets]), trained=trained)
    if trained:
        made.mean, made.square, made.steps = (
            torch.stack([getattr(net, name) for net in nets]) for name in ("mean", "square", "steps")
        )
    return made


def as_text(designs: Mapping[str, Design]) -> Tensor:
    """A member's designs as `export` has them."""
    return _text(_DESIGNS.dump_json(dict(designs)))


def _text(raw: bytes) -> Tensor:
    return torch.tensor(list(raw), dtype=torch.uint8)


def _read_text(raw: Tensor) -> bytes:
    return bytes(raw.tolist())
