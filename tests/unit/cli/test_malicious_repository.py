"""What a hostile pull request may try: it is planned or refused in bounded time and memory, and nothing happens."""

import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest
from loopback import scripted as loopback_scripted
from repos import commit, put, write

from arena_gitops.plan.build import build
from arena_gitops.plan.model import Plan
from arena_gitops.report import text as report_text
from arena_gitops.spec.wire import Owner
from arena_gitops.state import DesiredState, ObservedState

GIGABYTE = 1 << 30
ARENA = [str(Path(sys.executable).parent / "arena-gitops")]
"""the script: `python -m` would look for modules in the hostile folder first, before a line of ours has run"""
EMPTY = b'{"platform":"t","version":"t","lineage":"t","etag":"e","resources":[],"algorithms":["GRPO","SFT"]}'
attacker = loopback_scripted
"""A second server; the URL of the repository's own target."""


@pytest.fixture
def pinned(scripted):
    """The server that CI has pinned by ARENA_BASE_URL."""
    scripted.will((200, EMPTY, {"ETag": '"e"'}))
    return scripted


@pytest.fixture
def plan(tmp_path, pinned):
    """`arena plan` as a process: exit code, output, CPU seconds, largest memory in MiB."""
    home = tmp_path / "home"
    home.mkdir()
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("ARENA_", "GITHUB_")) and k != "CI"}
    own = {"HOME": str(home), "XDG_CACHE_HOME": str(home / "cache"), "ARENA_API_KEY": "the-token"}

    def call(root, *args):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            [sys.executable, "-c", MEASURED, *args],
            cwd=root,
            env={**kept, **own, "ARENA_BASE_URL": pinned.url, "CANARY": "must not be read"},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        peak = int(done.stderr.rpartition("PEAK ")[2])
        return done.returncode, done.stdout + done.stderr, cpu, peak

    return call


MEASURED = f"""
import resource, subprocess, sys
code = subprocess.run([*{ARENA!r}, "plan", *sys.argv[1:]]).returncode
print("PEAK", resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024, file=sys.stderr)
sys.exit(code)
"""
"""In a small process of its own: a child's peak begins with that of its parent."""


def hostile(root, marker):
    """Everything that is read and must do nothing."""
    trap = f"open({str(marker)!r}, 'w').write('it ran')\n"
    write(root, stack="team", targets='prod: {platform: http, url: "https://prod.example.org"}')
    put(
        root,
        {
            "rewards/sums.py": f"{trap}\n\ndef reward(question, answer, completion):\n    return 1.0\n",
            "sitecustomize.py": trap,
            "rewards/__init__.py": trap,
            "conftest.py": trap,
            "json.py": trap,
            ".gitattributes": "*.csv filter=evil diff=evil\n",
        },
    )
    return root


def test_importing_shadowing_hooks_and_filters_run_nothing(plan, tmp_path):
    root, marker = hostile(tmp_path / "repository", tmp_path / "marker"), tmp_path / "marker"
    commit(root)
    hook = root / ".git" / "hooks" / "post-index-change"
    hook.write_text(f"#!/bin/sh\ntouch {marker}\n")
    hook.chmod(0o755)
    code, out, _, _ = plan(root)
    assert code == 0, out
    assert "6 to create" in out
    assert not marker.exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "attributes"), [(GIGABYTE, ""), (GIGABYTE // 2, "*.csv filter=evil ident text=auto\n")]
)
def test_a_gigabyte_of_rows_is_planned_in_bounded_memory(plan, tmp_path, size, attributes):
    root = hostile(tmp_path / "repository", tmp_path / "marker")
    put(root, {".gitattributes": attributes})
    commit(root)
    with (root / "data" / "sums.csv").open("r+b") as file:
        file.truncate(size)
    code, out, cpu, peak = plan(root)
    assert code in {0, 65}, out
    assert cpu < 30
    assert peak < 300


def test_a_token_goes_to_the_pinned_server_and_nowhere_else(plan, tmp_path, pinned):
    """The repository names another server as its only target, and as a redirect."""
    from http.server import BaseHTTPRequestHandler, HTTPServer
    from threading import Thread

    asked = []

    class Attacker(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.headers.get("Authorization"))
            self.send_response(404)
            self.end_headers()

        def log_message(self, *args):
            pass

    server = HTTPServer(("127.0.0.1", 0), Attacker)
    Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}"
    root = write(tmp_path / "repository", stack="team", targets=f'prod: {{platform: http, url: "{url}"}}')
    commit(root)
    code, out, _, _ = plan(root)
    assert code == 0, out
    assert {request.headers.get("authorization") for request in pinned.asked} == {"Bearer the-token"}
    code, out, _, _ = plan(root, "--target", "prod")
    assert code == 6, out
    pinned.will((307, b"", {"Location": f"{url}/api/v1/state"}))
    code, out, _, _ = plan(root, "--json")
    assert code == 1, out
    server.shutdown()
    assert asked == []


def bomb(levels):
    """Nine aliases of nine aliases of …"""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, levels)]
    return "\n".join(lines) + "\n"


REFUSED = {
    "a tag that calls": (
        "experiments/x.yaml",
        "kind: Experiment\nname: !!python/object/apply:os.system [id]\n",
        "yaml-tag",
    ),
    "an alias bomb": (
        "experiments/x.yaml",
        "kind: Experiment\nname: x\nlabels:\n  " + bomb(12).replace("\n", "\n  "),
        "too-many-nodes",
    ),
    "an alias of itself": (
        "experiments/x.yaml",
        "kind: Experiment\nname: x\nlabels: &a {b: *a}\n",
        "alias-cycle",
    ),
    "deep nesting": (
        "experiments/x.yaml",
        "kind: Experiment\nname: x\nlabels: " + "{a: " * 5000 + "1" + "}" * 5000 + "\n",
        "too-deep",
    ),
    "deep lists": ("experiments/x.yaml", "[" * 100_000, ""),
    "a way out by dots": (
        "datasets/x.yaml",
        "kind: Dataset\nname: x\ncategory: reasoning\nfile: ../../../../etc/rows.csv\ncolumn_mapping: {question: q, answer: a}\n",
        "outside-repository",
    ),
    "deep Python": (
        "rewards/deep.py",
        "def reward(q, a, c):\n    return " + "(" * 5000 + "1" + ")" * 5000 + "\n",
        "python-syntax",
    ),
    "a megabyte of YAML": ("experiments/x.yaml", "# " + "x" * (2 << 20) + "\n", "file-too-large"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_meant_well_is_refused_soon_and_by_name(plan, tmp_path, what):
    path, text, code_of_problem = REFUSED[what]
    root = put(write(tmp_path / "repository", stack="team"), {path: text})
    commit(root)
    began = time.monotonic()
    code, out, cpu, peak = plan(root)
    assert code == 65, out[-2000:]
    assert code_of_problem in out
    assert cpu < 5
    assert peak < 200
    assert time.monotonic() - began < 30


@pytest.mark.parametrize("name", ["rewards/out.py", "experiments/out.yaml"])
def test_a_link_out_of_the_repository_is_not_followed(plan, tmp_path, name):
    secret = tmp_path / "secret"
    secret.write_text("canary: 4711\n")
    root = write(tmp_path / "repository", stack="team")
    (root / name).symlink_to(secret)
    commit(root)
    code, out, _, _ = plan(root)
    assert code == 65, out
    assert "outside-repository" in out
    assert "4711" not in out


@pytest.mark.parametrize("form", ["text", "markdown", "json"])
def test_workflow_commands_in_descriptions_are_no_lines_of_their_own(plan, tmp_path, form):
    evil = '"fine\\n::set-env name=PATH::/evil\\n::add-mask::x"'
    root = write(tmp_path / "repository", stack="team", description=evil)
    commit(root)
    code, out, _, _ = plan(root, "--format", form)
    assert code == 0, out
    assert [line for line in out.splitlines() if line.lstrip().startswith("::")] == []


HOSTED = {"Content-Type": "application/json"}
NOTHING = [(200, b"[]", HOSTED), (200, b"[]", HOSTED), (200, b"[]", HOSTED), (200, b'{"tiers": {}}', HOSTED)]
"""What hosted Arena says where there is nothing: projects, datasets, deployments, tiers."""


def hosted(root, url):
    return commit(write(root, stack="team", targets=f'prod: {{platform: arena_cloud, url: "{url}"}}'))


def test_a_plan_for_hosted_arena_only_looks_and_only_there(plan, tmp_path, pinned):
    pinned.will(*NOTHING)
    code, out, _, _ = plan(hosted(tmp_path / "repository", pinned.url))
    assert code == 0, out
    assert "to create" in out
    assert {request.method for request in pinned.asked} == {"GET"}
    assert {request.headers.get("authorization") for request in pinned.asked} == {"Bearer the-token"}
    paths = {request.path for request in pinned.asked}
    assert {path for path in paths if not path.startswith("/api/cli/v1/")} == {"/api/users/credits"}


def test_a_hosted_target_that_only_the_repository_names_gets_no_token(plan, tmp_path, pinned, attacker):
    root = hosted(tmp_path / "repository", attacker.url)
    code, out, _, _ = plan(root)  # the pinned server is asked, in its own protocol
    assert code == 0, out
    code, out, _, _ = plan(root, "--target", "prod")
    assert code == 6, out
    assert attacker.asked == []


def test_a_redirect_of_hosted_arena_is_not_followed(plan, tmp_path, pinned, attacker):
    root = hosted(tmp_path / "repository", pinned.url)
    pinned.will((307, b"", {"Location": f"{attacker.url}/api/cli/v1/projects"}))
    code, out, _, _ = plan(root)
    assert code == 1, out
    assert attacker.asked == []


def test_nothing_of_what_a_run_or_a_platform_says_is_a_line_of_its_own():
    """A reward may fail with any words, and hosted Arena names what it likes."""
    evil = "fine\n::add-mask::x\r::error::y\x1b[2J"
    nothing = build(DesiredState(Owner(stack="team"), {}), ObservedState("arena_cloud"), target=evil)
    change = {"address": "experiment/x", "action": "held", "reason": "run_failed", "message": evil}
    check = {"name": "leftovers", "status": "warn", "message": evil}
    planned = Plan.model_validate({**nothing.model_dump(), "changes": [change], "checks": [check]})
    for text in (
        report_text.render(planned),
        report_text.render(planned, colour=True).replace("\x1b[0m", ""),
    ):
        assert [line for line in text.splitlines() if line.lstrip().startswith("::")] == []
        assert "\x1b[2J" not in text
