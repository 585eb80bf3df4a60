"""What the knobs of classic algorithms share: policies that act in environments.

Field names and defaults are the published ones, as in `spec.knobs`.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, JsonValue

from arena_gitops.spec.knobs import Knobs
from arena_gitops.spec.numbers import Bool, Float, Int
from arena_gitops.spec.section import NotActedOn, Only, Understood

Acts = Literal["any", "choice", "bounded", "either"]
"""any action space, one choice of several, floats between finite bounds, or either choices or such floats"""


class ClassicKnobs(Knobs):
    """Knobs of every algorithm that acts in an environment.

    `learn_step` counts environment steps between updates (off-policy) or of one rollout (on-policy), summed over a
    member's environments.
    """

    ACTS: ClassVar[Acts] = "any"
    """action spaces it can act in"""
    SEVERAL: ClassVar[bool] = False
    """whether it is for several agents"""

    batch_size: Annotated[Int, Field(ge=1)] = 64
    learn_step: Annotated[Int, Field(ge=1)] = 5
    gamma: Annotated[Float, Field(ge=0, le=1)] = 0.99

    normalize_images: Annotated[Bool | None, Only(True, why="images are always scaled to [0, 1]")] = None
    net_config: Annotated[
        dict[str, JsonValue] | None, Only(None, why="write it in the section 'network'")
    ] = None
    num_envs: Annotated[Int | None, NotActedOn("environment.num_envs says how many")] = None


class OnPolicyKnobs(ClassicKnobs):
    """Knobs of PPO and its relatives."""

    MUTABLE: ClassVar[tuple[str, ...]] = (
        "batch_size",
        "clip_coef",
        "ent_coef",
        "gae_lambda",
        "gamma",
        "learn_step",
        "lr",
        "max_grad_norm",
        "update_epochs",
        "vf_coef",
    )

    lr: Annotated[Float, Field(ge=0)] = 1e-4
    learn_step: Annotated[Int, Field(ge=1)] = 4096
    gae_lambda: Annotated[Float, Field(ge=0, le=1)] = 0.95
    action_std_init: Annotated[Float, Field(ge=0)] = 0.6
    """initial log standard deviation of continuous actions"""
    clip_coef: Annotated[Float, Field(ge=0, le=1)] = 0.2
    ent_coef: Annotated[Float, Field(ge=0, le=1)] = 0.01
    vf_coef: Annotated[Float, Field(ge=0, le=1)] = 0.5
    max_grad_norm: Annotated[Float, Field(ge=0)] = 0.5
    target_kl: Annotated[Float, Field(ge=0)] | None = None
    """a member whose policy moved further than one and a half times this learns no more from that rollout"""
    update_epochs: Annotated[Int, Field(ge=1)] = 4
    share_encoders: Bool = True
    """one encoder for policy and value"""

    rollout_buffer_config: Understood[dict[str, JsonValue]] = None


class ContinuousKnobs(ClassicKnobs):
    """Knobs of actor and critic that learn continuous actions from replay."""

    ACTS: ClassVar[Acts] = "bounded"
    MUTABLE: ClassVar[tuple[str, ...]] = ("batch_size", "gamma", "learn_step", "lr_actor", "lr_critic", "tau")

    lr_actor: Annotated[Float, Field(ge=0)] = 1e-4
    lr_critic: Annotated[Float, Field(ge=0)] = 1e-3
    tau: Annotated[Float, Field(ge=0, le=1)] = 5e-3
    """share by which targets follow"""

    share_encoders: Annotated[Bool | None, NotActedOn("actor and critics have encoders of their own")] = None


class NoisyActorKnobs(ContinuousKnobs):
    """Knobs of a deterministic actor that explores by noise on its actions."""

    policy_freq: Annotated[Int, Field(ge=1)] = 2
    """updates of the critic for one of the actor and the targets"""
    O_U_noise: Bool = True
    """noise that remembers (Ornstein-Uhlenbeck), rather than a fresh draw each step"""
    expl_noise: Annotated[Float, Field(ge=0)] = 0.1
    """standard deviation, as a share of half an action's range"""
    mean_noise: Float = 0.0
    theta: Annotated[Float, Field(ge=0)] = 0.15
    dt: Annotated[Float, Field(ge=0)] = 0.01

    vect_noise_dim: Annotated[Int | None, NotActedOn("environment.num_envs says how many")] = None
