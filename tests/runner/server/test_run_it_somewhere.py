"""Dockerfile, compose file, systemd units and nginx's file: valid, without passwords, and their commands run for real.

No image is built here. The commands and variables are taken out of the files; folders, hosts and ports in them are
exchanged for some of this test, and nothing else.
"""

import configparser
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from ruamel.yaml import YAML

RUNNER = Path(__file__).resolve().parents[3] / "runner"
DEPLOY = RUNNER / "deploy"
UNITS = ("arena-server.service", "arena-mlflow.service", "arena-worker@.service")
BIN = Path(sys.executable).parent


@pytest.fixture(scope="module")
def compose():
    return YAML(typ="safe").load((RUNNER / "compose.yaml").read_text())["services"]


@pytest.fixture(scope="module")
def dockerfile():
    """Instructions in order, continued lines joined."""
    text = (RUNNER / "Dockerfile").read_text().replace("\\\n", " ")
    return [line.split(None, 1) for line in text.splitlines() if line and not line.startswith("#")]


def unit(name):
    """The [Service] part of a unit; a key may be there more than once."""
    parser = configparser.RawConfigParser(strict=False, comment_prefixes=("#",))
    parser.optionxform = str
    parser.read(DEPLOY / name)
    return parser["Service"]


def stage(dockerfile, name):
    """The instructions of one stage, with those of the stages it is made from."""
    starts = {parts[1].split(" AS ")[1]: i for i, parts in enumerate(dockerfile) if parts[0] == "FROM"}
    begin = starts[name]
    ends = [i for i in starts.values() if i > begin]
    own = dockerfile[begin + 1 : min(ends, default=len(dockerfile))]
    parent = dockerfile[begin][1].split(" AS ")[0]
    return (stage(dockerfile, parent) if parent in starts else []) + own


def last(instructions, name):
    return next(value for key, value in reversed(instructions) if key == name)


def test_the_compose_file_is_one(tmp_path):
    check = [BIN / "check-jsonschema", "--builtin-schema", "vendor.compose-spec", RUNNER / "compose.yaml"]
    done = subprocess.run(
        check, check=False, capture_output=True, text=True, env={**os.environ, "HOME": str(tmp_path)}
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not here")
def test_the_units_are_units(tmp_path):
    for name in UNITS:
        text = (DEPLOY / name).read_text().replace("/opt/arena/bin", str(BIN))
        (tmp_path / name).write_text(text)
    command = ["systemd-analyze", "verify", "--man=no", *(tmp_path / name for name in UNITS)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    mine = [line for line in done.stderr.splitlines() if "arena-" in line]
    assert (done.returncode, mine) == (0, [])


@pytest.mark.skipif(shutil.which("nginx") is None, reason="nginx is not here: apt-get install nginx")
def test_nginx_understands_its_file(tmp_path):
    request = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=x"]
    subprocess.run(
        [*request, "-keyout", tmp_path / "privkey.pem", "-out", tmp_path / "fullchain.pem"],
        check=True,
        capture_output=True,
    )
    site = (DEPLOY / "nginx.conf").read_text().replace("/etc/ssl/arena", str(tmp_path))
    (tmp_path / "site.conf").write_text(site)
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    folders = " ".join(f"{kind}_temp_path {tmp_path}/{kind};" for kind in kinds)
    inner = f"access_log off; {folders} include {tmp_path}/site.conf;"
    around = f"pid {tmp_path}/pid; events {{}} http {{ {inner} }}"
    (tmp_path / "nginx.conf").write_text(around)
    check = ["nginx", "-t", "-p", tmp_path, "-c", tmp_path / "nginx.conf", "-e", tmp_path / "errors"]
    done = subprocess.run(check, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["server", "worker"])
def test_an_image_is_pinned_and_its_process_is_nobody_special(dockerfile, name):
    instructions = stage(dockerfile, name)
    user = last(instructions, "USER")
    made = next(
        value for key, value in instructions if key == "RUN" and f"useradd --uid 10001 --gid {user}" in value
    )
    assert "nologin" in made
    assert re.fullmatch(r"PYTHON=\d+\.\d+\.\d+-slim-\w+", last(dockerfile, "ARG"))
    bases = [value.split(" AS ")[0] for key, value in dockerfile if key == "FROM"]
    stages = [value.split(" AS ")[1] for key, value in dockerfile if key == "FROM"]
    assert {base for base in bases if base not in stages} == {"python:${PYTHON}"}


def test_what_an_image_copies_is_there(dockerfile):
    root = RUNNER.parent
    for key, value in dockerfile:
        if key == "COPY" and "--from" not in value:
            assert all((root / source).exists() for source in value.split()[:-1]), value


def test_no_file_has_a_password_in_it(compose, dockerfile):
    """What is secret comes from variables without defaults, or from files."""
    secret = re.compile(r"(?i)password|token|secret|key|_url")
    for service in compose.values():
        for name, value in (service.get("environment") or {}).items():
            assert not secret.search(name) or "${" in value, f"{name} is written down"
            for variable in re.findall(r"\$\{(\w+)", value):
                assert f"${{{variable}:?" in value, f"{variable} has a default"
    fixed = [value for key, value in dockerfile if key in {"ENV", "ARG"}]
    fixed += [unit(name).get("Environment", "") for name in UNITS]
    assert not [text for text in fixed if secret.search(text)]


def test_only_the_server_is_reached_from_outside_and_only_by_this_machine(compose):
    assert {name for name, service in compose.items() if "ports" in service} == {"server"}
    assert all(port.startswith("127.0.0.1:") for port in compose["server"]["ports"])
    assert compose["mlflow"]["networks"] == compose["database"]["networks"] == ["inside"]


def test_units_and_images_run_the_same_commands(compose, dockerfile):
    """Only addresses, folders and where the token comes from may differ."""
    server = shlex.split(unit("arena-server.service")["ExecStart"])[1:]
    assert _flags(server) == _flags(json.loads(last(stage(dockerfile, "server"), "CMD")))
    assert _flags(server) | {"--mlflow-uri"} == _flags(compose["server"]["command"])
    worker = shlex.split(unit("arena-worker@.service")["ExecStart"])[1:]
    image = json.loads(last(stage(dockerfile, "worker"), "CMD"))
    assert _flags(worker) - {"--token-file"} == _flags(image) == _flags(compose["worker"]["command"])
    mlflow = shlex.split(unit("arena-mlflow.service")["ExecStart"])[1:]
    assert _flags(mlflow) - {"--uvicorn-opts", "--no-access-log"} == _flags(compose["mlflow"]["command"]) - {
        "--allowed-hosts"
    }


def _flags(command):
    return {part for part in command if part.startswith("--")} | {command[0]}


class Place:
    """Where the commands run: folders of this test, ports of this machine."""

    def __init__(self, root):
        self.root, self.processes = root, []
        self.ports = {"8000": _free_port(), "5000": _free_port()}
        self.given = {
            name: value for name, value in os.environ.items() if not name.startswith(("ARENA_", "MLFLOW_"))
        }

    def here(self, text):
        """A word of a command, with what belongs to the other place exchanged."""
        text = text.replace("/var/lib/arena", str(self.root)).replace("/etc/arena", str(self.root / "etc"))
        text = text.replace("/opt/arena/bin", str(BIN))
        for port, mine in self.ports.items():
            text = re.sub(rf"(server|mlflow|127\.0\.0\.1):{port}\b", f"127.0.0.1:{mine}", text)
            text = str(mine) if text == port else text
        return text.replace("0.0.0.0", "127.0.0.1")

    def run(self, command, **variables):
        command = [self.here(word) for word in command]
        if not command[0].startswith("/"):
            command[0] = str(BIN / command[0])
        self.root.mkdir(parents=True, exist_ok=True)
        log = (self.root / f"{len(self.processes)}.log").open("w+b")
        environment = {**self.given, **{name: self.here(value) for name, value in variables.items()}}
        self.processes.append(
            subprocess.Popen(command, stdout=log, stderr=log, env=environment, cwd=self.root)
        )
        return log

    def url(self, port, path=""):
        return f"http://127.0.0.1:{self.ports[port]}{path}"

    def stop(self):
        for process in reversed(self.processes):
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def _free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
def place(tmp_path):
    place = Place(tmp_path / "arena")
    yield place
    place.stop()


def _answers(url):
    try:
        return httpx.get(url, timeout=5).status_code == 200
    except httpx.TransportError:
        return False


def _token(place, role, **variables):
    command = [BIN / "arena-runner", "token", "--home", place.root, "create", "--role", role, "--name", role]
    made = subprocess.run(
        command, capture_output=True, text=True, check=True, env={**place.given, **variables}
    )
    return made.stdout.strip()


def _workers(place, token):
    answer = httpx.get(place.url("8000", "/api/v1/workers"), headers={"Authorization": f"Bearer {token}"})
    return [(worker["tier"], worker["state"]) for worker in answer.json()]


def _ready(place):
    answer = httpx.get(place.url("8000", "/readyz"), timeout=10)
    return answer.json()["state"] == "ready"


def test_the_commands_of_the_compose_file_work_together(compose, dockerfile, place, postgres, build):
    with postgres.database() as database:
        environment = compose["server"]["environment"]
        address = re.sub(r"\$\{ARENA_DATABASE_PASSWORD:\?[^}]*\}", "hush", environment["ARENA_DATABASE_URL"])
        assert address == "postgresql://arena:hush@database:5432/arena"
        variables = {**_variables(dockerfile, "server"), "ARENA_DATABASE_URL": database}
        (place.root / "mlflow").mkdir(parents=True)
        shutil.copy(DEPLOY / "tiers.yaml", place.root / "tiers.yaml")
        mlflow = compose["mlflow"]
        place.run([*mlflow["entrypoint"], *mlflow["command"]], **mlflow["environment"])
        server = place.run(["arena-runner", *compose["server"]["command"]], **variables)
        build.until(lambda: _answers(place.url("8000", "/healthz")))
        check = json.loads(last(stage(dockerfile, "server"), "HEALTHCHECK").partition("CMD ")[2])
        healthy = subprocess.run(
            [sys.executable, *(place.here(word) for word in check[1:])], check=False, capture_output=True
        )
        assert healthy.returncode == 0, healthy.stderr
        token = _token(place, "worker", ARENA_DATABASE_URL=database)
        admin = json.loads((place.root / "server.json").read_text())["token"]
        worker = _variables(dockerfile, "worker") | {"ARENA_WORKER_TOKEN": token}
        place.run(["arena-runner", *compose["worker"]["command"]], **worker)
        build.until(lambda: _workers(place, admin) == [("gpu", "idle")], 60)
        build.until(lambda: _ready(place), 60)
        place.stop()
        place.processes.clear()
        server.seek(0)
        lines = [json.loads(line) for line in server.read().decode().splitlines()]
    assert lines[-1]["message"] == "stopped"


def _variables(dockerfile, name):
    """ENV of an image, but for the search path."""
    words = [word for key, value in stage(dockerfile, name) if key == "ENV" for word in value.split()]
    return dict(word.split("=", 1) for word in words if not word.startswith("PATH="))


def test_the_commands_of_the_units_work_together(place, build):
    (place.root / "etc").mkdir(parents=True)
    (place.root / "mlflow").mkdir()
    shutil.copy(DEPLOY / "tiers.yaml", place.root / "tiers.yaml")
    secret = "/" + "d" * 40
    mlflow = unit("arena-mlflow.service")
    place.run(shlex.split(mlflow["ExecStart"]), MLFLOW_STATIC_PREFIX=secret, **_environment(mlflow))
    server = unit("arena-server.service")
    address = f"http://127.0.0.1:5000{secret}"
    place.run(shlex.split(server["ExecStart"]), ARENA_MLFLOW_URI=address, **_environment(server))
    build.until(lambda: _answers(place.url("8000", "/healthz")))
    (place.root / "etc" / "worker.token").write_text(_token(place, "worker") + "\n")
    worker = unit("arena-worker@.service")
    given = {"ARENA_SERVER": place.url("8000"), "ARENA_TIER": "gpu"}
    command = [
        re.sub(r"\$\{(\w+)\}", lambda name: given[name[1]], word) for word in shlex.split(worker["ExecStart"])
    ]
    place.run([word.replace("-%i", "/w0") for word in command])
    admin = json.loads((place.root / "server.json").read_text())["token"]
    assert build.until(lambda: _workers(place, admin) == [("gpu", "idle")], 60)
    assert build.until(lambda: _ready(place), 60)


def _environment(service):
    return dict(word.split("=", 1) for word in service.get("Environment", "").split())
