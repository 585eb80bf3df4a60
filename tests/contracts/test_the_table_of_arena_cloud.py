"""What the contract suite leaves out for hosted Arena is what its capability table says, and nothing else."""

import ast
from pathlib import Path

from hosted_arena import CANNOT

from arena_gitops.platforms.arena_cloud.abilities import TABLE, markdown

HERE = Path(__file__).parent


def test_every_test_that_is_left_out_exists_and_has_a_row_that_is_no_yes():
    functions = {
        node.name
        for path in HERE.glob("test_*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef)
    }
    rows = {row.what: row.can for row in TABLE}
    for test, what in CANNOT.items():
        assert test.partition("[")[0] in functions
        assert what in rows, test


def test_the_table_in_the_documentation_is_this_one():
    page = (HERE.parents[1] / "docs" / "hosted.md").read_text()
    assert markdown() in page
