"""Whether an algorithm can act in an environment is known before a run is started."""

from __future__ import annotations

import pytest

from arena_gitops.spec.job import EnvironmentInput, JobInputs
from arena_gitops.spec.wire import CheckRequest
from arena_runner.checks import run_checks


def verdicts(algorithm, environment):
    request = CheckRequest(
        address="experiment/e",
        manifest={"algorithm": {"name": algorithm}},
        inputs=JobInputs(environment=environment),
    )
    return [(one.name, one.status, one.message) for one in run_checks(request, lambda _digest: None)]


@pytest.mark.parametrize(
    ("algorithm", "gym_id", "status", "said"),
    [
        ("DQN", "CartPole-v1", "pass", "DQN can see Box("),
        (
            "DQN",
            "Pendulum-v1",
            "fail",
            "this environment's are Box; for it there are: DDPG, PPO, Recurrent PPO",
        ),
        ("TD3", "CartPole-v1", "fail", "TD3 needs actions that are floats between finite bounds (Box)"),
    ],
)
def test_actions_must_be_such_as_the_algorithm_chooses(algorithm, gym_id, status, said):
    ((name, found, message),) = verdicts(algorithm, EnvironmentInput(gym_id=gym_id))

    assert (name, found) == ("spaces", status)
    assert said in message


GAME = "mpe2.simple_speaker_listener_v4"


@pytest.mark.parametrize(
    ("algorithm", "status", "said"),
    [
        ("IPPO", "pass", "IPPO can see {'speaker_0': "),
        ("MADDPG", "pass", "MADDPG can see {'speaker_0': "),
        ("PPO", "fail", f"PPO trains one agent, and {GAME} has several"),
    ],
)
def test_every_agent_of_a_game_must_have_actions_that_its_algorithm_chooses(algorithm, status, said):
    ((name, found, message),) = verdicts(algorithm, EnvironmentInput(gym_id=GAME))

    assert (name, found) == ("spaces", status)
    assert message.startswith(said)


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        (EnvironmentInput(gym_id="mpe2.nothing_v0"), "No module named 'mpe2.nothing_v0'"),
        (EnvironmentInput(gym_id="CartPole-v9"), "VersionNotFound"),
        (
            EnvironmentInput(gym_id="CartPole-v1", env_config={"wheels": 4}),
            "unexpected keyword argument 'wheels'",
        ),
    ],
)
def test_an_id_that_cannot_be_made_fails_before_it_costs_anything(environment, said):
    algorithm = "IPPO" if "mpe2" in environment.gym_id else "DQN"
    ((name, status, message),) = verdicts(algorithm, environment)

    assert (name, status) == (environment.gym_id, "fail")
    assert said in message
