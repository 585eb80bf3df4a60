"""However a repository is written and wherever it is checked out, its plan is the same."""

import json
import shutil
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from infra_repo import InfraRepo
from places import REPOSITORY, Place, reordered
from ruamel.yaml import YAML

FLOW = st.booleans()
COMMENT = st.sampled_from(["", "# by somebody else\n", "\n\n#\n"])
FOLDER = st.sampled_from(["a", "with space/deep", "ünï"])


def rewritten(text, chance, flow, comment):
    """The same document with its keys in another order, in flow style or not, below a comment."""
    yaml = YAML(typ="safe", pure=True)
    tree = reordered(yaml.load(text), chance)

    body = json.dumps(tree, ensure_ascii=False) if flow else _block(tree)
    return comment + body + "\n"


def _block(tree, indent=0):
    lines = []
    for key, value in tree.items():
        nested = isinstance(value, dict) and value
        lines.append(f"{' ' * indent}{key}:" + ("" if nested else f" {json.dumps(value)}"))
        if nested:
            lines.append(_block(value, indent + 2))
    return "\n".join(lines)


@given(st.randoms(use_true_random=False), FLOW, COMMENT, FOLDER, st.booleans())
@settings(max_examples=12, deadline=None)
def test_order_style_comments_place_and_line_ends_make_no_other_plan(chance, flow, comment, folder, windows):
    with tempfile.TemporaryDirectory() as name:
        files = {
            path: rewritten(text, chance, flow, comment) if path.endswith(".yaml") else text
            for path, text in REPOSITORY.items()
        }
        names = list(files)
        chance.shuffle(names)
        repo = InfraRepo.make(Path(name) / folder, {path: files[path] for path in names} | ATTRIBUTES)
        if windows:
            for path in files:
                place = repo.root / path
                place.write_bytes(place.read_bytes().replace(b"\n", b"\r\n"))
        assert Place(repo).plan().plan_id == expected()
        shutil.rmtree(repo.root)


ATTRIBUTES = {".gitattributes": "* text=auto\n"}


def expected():
    """As `tests/acceptance` has it."""
    return (Path(__file__).parents[1] / "acceptance" / "plan_id.txt").read_text().strip()
