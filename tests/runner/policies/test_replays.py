"""The best checkpoint's episode as pictures: of registered ids and of custom code, with what it really did."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from archives import MERGE
from customs import custom_job, environment_of
from PIL import Image
from playground import job_of, play

from arena_gitops.spec.job import RunState
from arena_runner.rollouts import film

DRAWN = MERGE.replace("(self, size=4):", "(self, size=4, render_mode=None):").replace(
    "    def reset",
    """
    metadata = {"render_modes": ["rgb_array"]}

    def render(self):
        return np.full((40, 60, 3), 20 * self.left, np.uint8)

    def reset""",
)
SMALL = {
    "training": {"max_steps": 80, "evo_steps": 80, "pop_size": 2, "test_episodes": 0, "eval_episodes": 1}
}


def replay_of(ports):
    """The event, and the pictures behind the digest it names."""
    (event,) = ports.of("replay")
    files = ports.files[ports.events.index(event)]
    (digest,) = event.files.values()
    image = Image.open(io.BytesIO(files[digest].read_bytes()))
    return event, image


def test_the_best_policy_is_filmed_in_its_first_episode_of_evaluation(tmp_path):
    pytest.importorskip("pygame")
    ports = play(job_of("DQN", **SMALL), tmp_path)
    event, image = replay_of(ports)
    best = max(ports.of("evaluation"), key=lambda one: one.fitness)

    assert ports.finished.state == RunState.COMPLETED
    assert list(event.files) == ["replay.gif"]
    assert event.reward == event.steps == best.fitness  # CartPole pays one a step
    assert event.steps // 2 < image.n_frames <= event.steps + 1  # pictures that are alike are one
    assert min(image.size) <= film.SIDE
    assert event.member == best.member
    image.seek(0)
    first = np.asarray(image.convert("L"))
    image.seek(image.n_frames - 1)
    assert (first != np.asarray(image.convert("L"))).any()  # it moves


def test_custom_code_draws_in_its_sandbox(tmp_path):
    environment = environment_of(tmp_path / "source", DRAWN, "env:MergeEnv")
    ports = play(custom_job("PPO", environment, **SMALL), tmp_path / "run", environment=tmp_path / "source")
    event, image = replay_of(ports)

    assert ports.finished.state == RunState.COMPLETED, ports.finished.message
    assert (image.size, event.steps, image.n_frames) == ((60, 40), 10, 11)


CROSSING = Path(__file__).resolve().parents[3] / "examples/policies/environments/crossing/crossing.py"


@pytest.mark.parametrize("own", [False, True], ids=["a registered game", "a game of one's own"])
def test_a_game_of_several_agents_is_filmed(tmp_path, own):
    pytest.importorskip("pygame")
    home = tmp_path / "source"
    environment = environment_of(home, CROSSING.read_text(), "env:Crossing", multi_agent=True)
    sections = {**SMALL, "training": {**SMALL["training"], "eval_steps": 12}}
    job = custom_job("IPPO", environment, **sections) if own else job_of("IPPO", **sections)
    ports = play(job, tmp_path / "run", environment=home)
    event, image = replay_of(ports)
    best = max(ports.of("evaluation"), key=lambda one: one.fitness)

    assert ports.finished.state == RunState.COMPLETED, ports.finished.message
    assert event.reward == pytest.approx(best.fitness)
    assert 2 <= event.steps <= 12
    assert image.n_frames > 1


def test_a_picture_that_cannot_be_drawn_costs_a_warning(tmp_path):
    source = DRAWN.replace("return np.full", "return 1 / 0 or np.full")
    environment = environment_of(tmp_path / "source", source, "env:MergeEnv")
    ports = play(custom_job("PPO", environment, **SMALL), tmp_path / "run", environment=tmp_path / "source")
    line = next(n for n, text in enumerate(source.splitlines(), 1) if "1 / 0" in text)

    warnings = [event.message for event in ports.of("log") if event.level == "warning"]
    assert ports.finished.state == RunState.COMPLETED
    assert warnings == [f"no replay: env.py:{line}: ZeroDivisionError: division by zero"]


class Endless:
    """A camera in front of what never ends; its pictures are numbered."""

    fps = 50.0

    def begin(self, seed):
        self.at = 0
        return self.shot()

    def step(self, actions):
        self.at += 1
        return self.shot()

    def shot(self):
        return film.Shot(np.full((2, 2, 3), self.at % 256, np.uint8), {}, 0.5)

    def close(self):
        self.closed = True


def test_of_a_long_episode_every_so_many_pictures_are_kept():
    camera = Endless()
    made = film.film(camera, lambda _seen: np.zeros((1, 1)), 0, longest=1100)

    assert (made.steps, made.paid, camera.closed) == (1100, 550.0, True)
    assert film.PICTURES // 2 <= len(made.pictures) <= film.PICTURES
    assert [int(one[0, 0, 0]) for one in made.pictures[:3]] == [0, made.every, 2 * made.every]
