"""`$ARENA_HOME`: where everything of one server lives. Two homes never share a file, a port or a process."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

DEFAULT_HOME = Path("~/.local/share/arena-gitops")


@dataclass(frozen=True, slots=True)
class Home:
    """The folders and files of one server."""

    root: Path

    @classmethod
    def find(cls, given: Path | None) -> Home:
        """The folder asked for, else `$ARENA_HOME`, else the user's default."""
        chosen = given or Path(os.environ.get("ARENA_HOME") or DEFAULT_HOME)
        return cls(chosen.expanduser().resolve())

    def prepare(self) -> None:
        """Create the folders; the root is readable by its owner only."""
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        for folder in (self.blobs, self.runs, self.logs, self.processes, self.models, self.mlflow):
            folder.mkdir(parents=True, exist_ok=True)

    @property
    def database(self) -> Path:
        """SQLite file."""
        return self.root / "arena.db"

    @property
    def blobs(self) -> Path:
        """Content-addressed files."""
        return self.root / "blobs"

    @property
    def runs(self) -> Path:
        """One folder per run: logs and the workers' scratch space."""
        return self.root / "runs"

    @property
    def logs(self) -> Path:
        """Logs of the server and of the processes it supervises."""
        return self.root / "logs"

    @property
    def processes(self) -> Path:
        """Records by which a restarted server recognises the processes of its predecessor."""
        return self.root / "processes"

    @property
    def models(self) -> Path:
        """Base models, shared by workers and model servers."""
        return Path(os.environ.get("ARENA_MODELS_DIR") or self.root / "models").expanduser()

    @property
    def wheels(self) -> Path:
        """Packages that rewards require, by what was asked for and for which interpreter."""
        return self.root / "wheels"

    @property
    def splits(self) -> Path:
        """Rows of the hub that workers train on, by dataset, revision and split."""
        return self.root / "splits"

    @property
    def mlflow(self) -> Path:
        """MLflow's database and artifacts."""
        return self.root / "mlflow"

    @property
    def announcement(self) -> Path:
        """`server.json`: how the CLI finds a server that is ready."""
        return self.root / "server.json"

    @property
    def memory(self) -> Path:
        """Port and token of the last life, kept so that addresses and logins survive a stop."""
        return self.root / "server.last.json"

    @property
    def secret_key(self) -> Path:
        """The server's own key, outside the database."""
        return self.root / "secret.key"

    @property
    def lock(self) -> Path:
        """flock: one server per home."""
        return self.root / "server.lock"

    @property
    def settings(self) -> Path:
        """Optional settings written by the user."""
        return self.root / "settings.yaml"

    @property
    def tiers(self) -> Path:
        """Optional tiers written by the user."""
        return self.root / "tiers.yaml"

    def run(self, run_id: str) -> Path:
        """The folder of one run."""
        return self.runs / run_id
