"""The manifest in normal form: one shape whatever dialect it was written in, every default filled."""

from __future__ import annotations

from typing import Any

from pydantic import SerializeAsAny

from arena_gitops.spec.knobs import Knobs, OpaqueKnobs
from arena_gitops.spec.manifest.environment import Environment, TextEnvironment
from arena_gitops.spec.manifest.network import Network
from arena_gitops.spec.manifest.sections import Buffer, ClassicTraining, TextNetwork, Training
from arena_gitops.spec.population import Mutation, Selection
from arena_gitops.spec.resource import Frozen


class Manifest(Frozen):
    """What to train and how. Made by `parse_manifest`; `algorithm` narrows by `isinstance`."""

    algorithm: SerializeAsAny[Knobs] | OpaqueKnobs
    environment: Environment
    training: SerializeAsAny[Training]
    mutation: SerializeAsAny[Mutation]
    selection: Selection
    network: Network | None = None
    replay_buffer: Buffer | None = None

    def normal(self) -> dict[str, Any]:
        """The manifest as a JSON object; `parse_manifest` reads it back to an equal one."""
        dumped = self.model_dump(mode="json")
        return {name: section for name, section in dumped.items() if section is not None}

    @classmethod
    def from_normal(cls, normal: dict[str, Any]) -> Manifest:
        """The manifest of a stored normal form."""
        from arena_gitops.spec.manifest.parse import parse_manifest

        return parse_manifest(normal).manifest

    @property
    def seed(self) -> int:
        """The seed of the whole run."""
        return self.mutation.rand_seed

    @property
    def evolves(self) -> bool:
        """Whether generations end in selection and mutation."""
        return self.training.hpo and self.training.pop_size > 1

    @property
    def classic(self) -> ClassicTraining | None:
        """The training section of an algorithm that acts in an environment; None for text."""
        return self.training if isinstance(self.training, ClassicTraining) else None

    @property
    def text(self) -> TextEnvironment:
        """The environment of a text algorithm; raises TypeError for any other."""
        if not isinstance(self.environment, TextEnvironment):
            raise TypeError(f"{self.algorithm.name} does not train on text")
        return self.environment

    @property
    def base_model(self) -> TextNetwork:
        """The network of a text algorithm; raises TypeError for any other."""
        if not isinstance(self.network, TextNetwork):
            raise TypeError(f"{self.algorithm.name} does not train a language model")
        return self.network
