"""A tiny population that trains in seconds: jobs, rows, a reward, and ports that remember."""

import json
from dataclasses import dataclass, field

from arena_gitops.spec.job import (
    COLUMNS,
    DatasetCategory,
    DatasetInput,
    JobInputs,
    JobSpec,
    ModelRef,
    RewardInput,
)
from arena_gitops.spec.manifest import parse_manifest
from arena_runner.ports import Materials, Stop
from arena_runner.train import train

REWARD = """
def reward(question, answer, completion):
    return {"vowels": sum(c in "aeiou" for c in completion) / 12, "short": 0.0}
"""
CATEGORIES = {"SFT": DatasetCategory.SFT, "DPO": DatasetCategory.PREFERENCE}
DIGEST = "sha256:" + "0" * 64

MANIFESTS = {
    "GRPO": {
        "algorithm": {
            "name": "GRPO",
            "batch_size": 2,
            "group_size": 4,
            "lr": 0.02,
            "beta": 0.0,
            "temperature": 1.0,
            "max_grad_norm": 1.0,
            "max_output_tokens": 8,
        },
        "environment": {"env_type": "rollout"},
    },
    "SFT": {
        "algorithm": {"name": "SFT", "batch_size": 4, "lr": 0.02, "max_grad_norm": 1.0},
        "environment": {"env_type": "dataset", "objective": "sft"},
    },
    "DPO": {
        "algorithm": {"name": "DPO", "batch_size": 4, "lr": 0.02, "max_grad_norm": 1.0},
        "environment": {"env_type": "dataset", "objective": "preference"},
    },
}


@dataclass
class Recorder:
    """Ports that remember everything, and stop after so many iterations."""

    stop_after: int | None = None
    why: Stop = Stop.INTERRUPTED
    cap_at: int | None = None
    cap_after: int | None = None
    """iterations after which no more than `cap_at` steps are asked for"""
    events: list = field(default_factory=list)
    files: list = field(default_factory=list)
    finished: object = None

    def emit(self, event, files=None):
        self.events.append(event)
        self.files.append(dict(files or {}))

    def stop(self):
        saved = sum(event.type == "resume_state" for event in self.events)
        return self.why if saved == self.stop_after else None

    def cap(self):
        saved = sum(event.type == "resume_state" for event in self.events)
        return self.cap_at if self.cap_after is not None and saved >= self.cap_after else None

    def of(self, kind):
        return [event for event in self.events if event.type == kind]


@dataclass
class Lab:
    """One folder with rows, a reward and a model."""

    folder: object
    model: str

    def job(self, which, /, *, seed=1, **sections):
        manifest = MANIFESTS[which]
        sections = {name: {**manifest.get(name, {}), **values} for name, values in sections.items()}
        raw = {
            "network": {
                "pretrained_model_name_or_path": self.model,
                "max_context_length": 96,
                "lora_config": {
                    "lora_r": 2,
                    "lora_alpha": 8,
                    "lora_dropout": 0.0,
                    "target_modules": ["q_proj", "v_proj", "down_proj"],
                },
            },
            **manifest,
            **sections,
        }
        raw["training"] = {"max_steps": 64, "evo_steps": 2, "eval_rows": 4, "test_rows": 8} | raw.get(
            "training", {}
        )
        category = CATEGORIES.get(which, DatasetCategory.REASONING)
        return JobSpec(
            run_id="r1",
            segment=0,
            experiment="tiny",
            fingerprint="f",
            manifest=parse_manifest(raw).manifest.normal(),
            inputs=JobInputs(
                dataset=DatasetInput(
                    address="dataset/tiny",
                    category=category,
                    column_mapping={role: role for role in COLUMNS[category]},
                    digest=DIGEST,
                    format="jsonl",
                ),
                reward=None
                if which in CATEGORIES
                else RewardInput(address="reward/tiny", files={"reward.py": DIGEST}, entry="reward.py"),
            ),
            model=ModelRef(id=self.model),
            seed=seed,
            tier="local",
        )

    def materials(self, name="run", resume=None, base=None):
        return Materials(
            workdir=self.folder / name,
            dataset=(self.folder / "rows.jsonl",),
            reward=self.folder / "reward",
            resume=resume,
            base=base,
        )

    def reward(self, source):
        (self.folder / "reward" / "reward.py").write_text(source)

    def ports(self, **settings):
        return Recorder(**settings)

    def run(self, job, name="run", resume=None, *, base=None, fails=False, **ports):
        """Train; the events and how it ended, which must be well unless the test says otherwise."""
        recorder = Recorder(**ports)
        recorder.finished = self.train(job, name, recorder, resume, base)
        assert (recorder.finished.state == "failed") is fails, recorder.finished.message
        return recorder

    def train(self, job, name, ports, resume=None, base=None):
        return train(job, self.materials(name, resume, base), ports)


def make_lab(folder, model):
    rows = [
        {
            "question": f"q{i}?",
            "answer": f"{i}",
            "prompt": f"q{i}?",
            "target": f"a{i % 3}!",
            "chosen": f"yes {i % 3}!",
            "rejected": "no",
        }
        for i in range(40)
    ]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "reward").mkdir()
    made = Lab(folder, str(model))
    made.reward(REWARD)
    return made


def files_of(folder):
    """Every byte of the states and exports a run left behind."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for room in ("states", "exports")
        for path in sorted((folder / room).rglob("*"))
        if path.is_file()
    }
