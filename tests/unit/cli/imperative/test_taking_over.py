"""`arena import` of an environment that a command has registered: the same code as files, and nothing is made anew."""

from __future__ import annotations

import pytest
from archives import MERGE
from infra_repo import InfraRepo

CODE = {
    "merge.py": MERGE.replace("size=4", "size=EDGE").replace(
        "import numpy", "from parts.cell import EDGE\nimport numpy"
    ),
    "parts/__init__.py": "",
    "parts/cell.py": "EDGE = 4\n",
}
STACK = "name: taking-over\ntargets: {{prod: {{platform: http, url: '{url}'}}}}\ndefault_target: prod\n"


@pytest.fixture
def repo(arena, server, monkeypatch):
    """An empty repository, and an environment `grid` at the server that nobody manages."""
    for path, text in {**CODE, "env_config.yaml": "size: 6\n"}.items():
        place = arena.folder / "code" / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    arena("env", "validate", "grid", "--source", "code")
    made = InfraRepo.make(arena.folder / "infra", {"arena.yaml": STACK.format(url=server.url)})
    monkeypatch.chdir(made.root)
    yield made
    arena("destroy", "--yes")


def test_an_environment_is_written_imported_and_then_unchanged(arena, repo):
    there = [found["address"] for found in arena.json("import", "--list")["resources"]]
    assert "environment/grid" in there

    arena("import", "environment/grid", "grid", "--write", "environments/grid.yaml")
    code = repo.root / "environments" / "grid"
    assert {f.relative_to(code).as_posix(): f.read_text() for f in code.rglob("*.*")} == CODE
    assert (code.parent / "grid-config.yaml").read_text() == "size: 6\n"
    arena("import", "environment/grid", "grid", "--write", "environments/grid.yaml")
    (code / "parts" / "cell.py").write_text("EDGE = 5\n")
    _, err = arena.both("import", "environment/grid", "--write", "environments/grid.yaml", expect=64)
    assert (
        "nothing was written, because these exist with other content: environments/grid/parts/cell.py" in err
    )
    (code / "parts" / "cell.py").write_text(CODE["parts/cell.py"])

    repo.commit()
    (planned,) = arena.json("plan")["changes"]
    assert (planned["address"], planned["action"]) == ("environment/grid", "import")
    assert {field["class"] for field in planned["fields"]} <= {"metadata"}
    arena("apply", "--yes")
    assert arena.json("plan", "--detailed-exitcode")["changes"] == []
    there = [found["address"] for found in arena.json("import", "--list")["resources"]]
    assert "environment/grid" not in there
