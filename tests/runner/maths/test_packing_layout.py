import pytest

from arena_runner.packing import Group, pack

GROUP = Group(3, (10, 11, 12), ((1, 2), (4,), (5, 6, 7)), (0, 1, 2))


def test_completions_follow_the_prompt_and_restart_its_positions():
    (piece,) = pack([GROUP], 100)

    assert piece.input_ids.tolist() == [10, 11, 12, 1, 5, 6]
    assert piece.position_ids.tolist() == [0, 1, 2, 3, 3, 4]
    assert piece.members.tolist() == [3] * 6


def test_every_completion_token_is_predicted_by_the_one_before_it():
    (piece,) = pack([GROUP], 100)

    assert piece.targets.tolist() == [1, 2, 4, 5, 6, 7]
    assert piece.input_ids[piece.source].tolist() == [12, 1, 12, 12, 5, 6]
    assert piece.rows.tolist() == [0, 0, 1, 2, 2, 2]


@pytest.mark.parametrize("budget", [1, 5, 6, 7, 12, 100])
def test_no_pack_exceeds_the_budget_unless_one_completion_does(budget):
    packs = list(pack([GROUP, GROUP], budget))

    assert all(p.tokens <= budget or sum(len(g.completions) for g in p.groups) == 1 for p in packs)
    assert sum(len(p.targets) for p in packs) == 12


def test_the_padded_path_counts_the_prompt_once_per_completion():
    assert (GROUP.tokens, GROUP.padded_tokens) == (6, 12)
    assert [len(p.rows.unique()) for p in pack([GROUP], 8, shared=False)] == [2, 1]
