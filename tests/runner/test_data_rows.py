"""Reading rows, the three splits, the prompt stream, prompts and what fits."""

import json
import subprocess
import sys
from collections import Counter
from contextlib import closing

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from arena_gitops.spec.job import DatasetCategory, DatasetInput, HubDataset
from arena_runner.data import DataError, LeftOut, Questions, read_rows
from arena_runner.rollouts.hub import split_files
from arena_runner.rollouts.prompts import Renderer, fit
from arena_runner.rollouts.stream import Stream
from arena_runner.spool import Picked, Spool


def source(fmt=None, **mapping):
    return DatasetInput(
        address="dataset/sums",
        category=DatasetCategory.REASONING,
        column_mapping=mapping or {"question": "q", "answer": "a"},
        format=fmt,
    )


def questions(n):
    return [{"question": f"What is {i} + {i}?", "answer": str(2 * i)} for i in range(n)]


def three_files(folder):
    records = [{"q": "one, two", "a": 'line\n"two"'}, {"q": "drei", "a": "ü"}]
    (folder / "a.csv").write_text('q,a\n"one, two","line\n""two"""\ndrei,ü\n')
    (folder / "a.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    pq.write_table(pa.Table.from_pylist(records), folder / "a.parquet")
    return [folder / f"a.{suffix}" for suffix in ("csv", "jsonl", "parquet")]


def test_csv_json_lines_and_parquet_hold_the_same_rows(tmp_path):
    tables = [read_rows(source(), [path], LeftOut()) for path in three_files(tmp_path)]

    expected = [{"question": "one, two", "answer": 'line\n"two"'}, {"question": "drei", "answer": "ü"}]
    assert [list(table) for table in tables] == [expected] * 3


def test_the_declared_format_wins_over_the_suffix(tmp_path):
    blob = tmp_path / "0123abcd"
    blob.write_text('{"q": "x", "a": 1}\n')

    assert list(read_rows(source("jsonl"), [blob], LeftOut())) == [{"question": "x", "answer": "1"}]


def test_lists_become_json_and_rows_with_an_empty_role_are_counted(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"q": [44, 19], "a": 25}\n{"q": "  ", "a": 1}\n{"q": "x", "a": null}\n')

    left_out = LeftOut()

    assert list(read_rows(source(), [path], left_out)) == [{"question": "[44, 19]", "answer": "25"}]
    assert left_out == LeftOut(empty=2)


def test_a_missing_column_names_the_file_and_what_it_has(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("question,answer\n1,2\n")

    with pytest.raises(DataError, match=r"dataset/sums: a\.csv has no column a, q; it has question, answer"):
        list(read_rows(source(), [path], LeftOut()))


def test_a_broken_line_names_its_place(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"q": "x", "a": "y"}\n{"q": }\n')

    with pytest.raises(DataError, match=r"a\.jsonl:2:7: not JSON"):
        list(read_rows(source(), [path], LeftOut()))


def test_a_file_that_is_no_parquet_is_one_clear_error(tmp_path):
    path = tmp_path / "a.parquet"
    path.write_text("q,a\n1,2\n")

    with pytest.raises(DataError, match=r"a\.parquet: not a parquet file"):
        list(read_rows(source(), [path], LeftOut()))


def test_splits_are_disjoint_and_complete():
    rows = questions(400)

    parts = Questions(rows, key="question").split(eval_rows=64, test_rows=128)

    assert [len(parts.train), len(parts.eval), len(parts.test)] == [208, 64, 128]
    assert sorted(r["question"] for part in (parts.train, parts.eval, parts.test) for r in part) == sorted(
        r["question"] for r in rows
    )


def test_splits_do_not_depend_on_the_order_of_the_file():
    rows = questions(300)

    there, back = (
        Questions(order, key="question").split(eval_rows=20, test_rows=100) for order in (rows, rows[::-1])
    )

    assert [list(part) for part in (there.train, there.eval, there.test)] == [
        list(part) for part in (back.train, back.eval, back.test)
    ]


def test_copies_of_a_question_fall_into_one_split():
    rows = [
        *questions(60),
        *({**row, "question": row["question"].replace(" ", "  ")} for row in questions(60)),
    ]

    parts = Questions(rows, key="question").split(eval_rows=10, test_rows=20)

    seen = [{" ".join(r["question"].split()) for r in part} for part in (parts.train, parts.eval, parts.test)]
    assert [len(s) for s in seen] == [30, 10, 20]
    assert seen[0].isdisjoint(seen[1] | seen[2])
    assert seen[1].isdisjoint(seen[2])
    assert (len(parts.train), len(parts.eval), len(parts.test)) == (60, 10, 20)


def test_a_small_file_keeps_half_for_training_and_evaluation():
    parts = Questions(questions(200), key="question").split(eval_rows=64, test_rows=128)

    assert (len(parts.train), len(parts.eval), len(parts.test)) == (50, 50, 100)


def test_an_epoch_is_a_permutation_and_the_next_one_another():
    stream = Stream(50, seed=3)
    first, second = stream.take(0, 50), stream.take(50, 50)

    assert sorted(first) == sorted(second) == list(range(50))
    assert first != second != list(range(50))


def test_the_kth_prompt_does_not_depend_on_the_batch_size():
    stream = Stream(7, seed=3)
    small = [row for k in range(0, 20, 2) for row in stream.take(k, 2)]
    large = [row for k in range(0, 20, 5) for row in stream.take(k, 5)]

    assert small == large


def test_the_stream_follows_the_seed():
    assert Stream(50, seed=3).take(0, 50) == Stream(50, seed=3).take(0, 50) != Stream(50, seed=4).take(0, 50)


class Words:
    """A tokenizer of one id per word, with a chat template of plain markers."""

    chat_template = "yes"
    eos_token_id = 0

    def apply_chat_template(self, messages, tokenize, add_generation_prompt, continue_final_message):
        text = " ".join(f"<{m['role']}> {m['content']}" for m in messages)
        return text + (" <assistant>" if add_generation_prompt else "")

    def __call__(self, text, add_special_tokens):
        return {"input_ids": [1 + Counter(word)["e"] for word in text.split()]}


class Base(Words):
    chat_template = None


ROW = {"question": "What {answer} is it?", "answer": "seven"}


def test_without_a_template_the_question_is_the_users_message():
    assert Renderer(Words(), None, "question").text(ROW) == "<user> What {answer} is it? <assistant>"


def test_a_template_fills_placeholders_once_and_continues_the_assistant():
    template = {"assistant_10": "So", "system_0": "Use {braces}.", "user_1": "Q: {question} A: {answer}"}

    text = Renderer(Words(), template, "question").text(ROW)

    assert text == "<system> Use {braces}. <user> Q: What {answer} is it? A: seven <assistant> So"


def test_a_base_model_reads_plain_text():
    assert Renderer(Base(), None, "question").text(ROW) == "What {answer} is it?"


def test_an_unknown_message_name_is_refused():
    with pytest.raises(DataError, match=r"prompt_template\.robot_0"):
        Renderer(Words(), {"robot_0": "hi"}, "question")


def test_an_example_ends_with_the_end_token():
    prompt = Renderer(Base(), None, "prompt").example({"prompt": "a b", "target": "e ee"})

    assert (prompt.ids, prompt.target) == ((1, 1), (2, 3, 0))


def test_prompts_that_leave_no_room_are_dropped_and_counted():
    render = Renderer(Base(), None, "prompt")
    rows = [{"prompt": "w " * n, "target": "x"} for n in (2, 3, 8, 9)]
    for room, kept in ((0, 3), (7, 2)):
        fitted = fit(rows, render.example, longest=10, room=room)
        assert list(fitted.prompts) == [render.example(row) for row in rows[:kept]]
        assert fitted.dropped == 4 - kept


ROWS = [
    {"question": "a\nb", "answer": ""},
    {"question": "ü", "answer": '"'},
    {"question": "c", "answer": "d"},
]


def test_a_spool_gives_back_what_was_written_in_any_order(tmp_path):
    with closing(Spool(tmp_path, ROWS)) as spool:
        assert list(spool) == ROWS
        assert [spool[i] for i in (2, 0, -1, 1)] == [ROWS[i] for i in (2, 0, -1, 1)]
        assert list(Picked(spool, np.array([2, 0]))) == [ROWS[2], ROWS[0]]
        with pytest.raises(IndexError):
            spool[3]
    assert list(tmp_path.iterdir()) == []


GROWTH = """
import resource, sys
from pathlib import Path
from arena_gitops.spec.job import DatasetCategory, DatasetInput
from arena_runner.data import LeftOut, Questions, read_rows
from arena_runner.spool import Spool
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
before = peak()
source = DatasetInput(
    address="dataset/big", category=DatasetCategory.REASONING, column_mapping={"question": "q", "answer": "a"}
)
rows = Spool(Path(sys.argv[2]), read_rows(source, [Path(sys.argv[1])], LeftOut()))
splits = Questions(rows, key="question").split(eval_rows=64, test_rows=128)
assert len(splits.train) == len(rows) - 192 and splits.train[5]["answer"]
print(peak() - before)
"""


def test_memory_follows_the_number_of_rows_and_not_their_size(tmp_path):
    big = tmp_path / "big.jsonl"
    with big.open("w") as file:
        for i in range(40_000):
            file.write(json.dumps({"q": f"What is {i}?", "a": str(i) + "x" * 2000}) + "\n")
    ran = subprocess.run(
        [sys.executable, "-c", GROWTH, str(big), str(tmp_path)], capture_output=True, text=True, check=True
    )

    assert big.stat().st_size > 80e6
    assert float(ran.stdout) < 30  # MiB


HUB = HubDataset(id="someone/sums", config="main", split="train")


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (
            ["README.md", "main/train-00000-of-1.parquet", "socratic/train-0.parquet"],
            ["main/train-00000-of-1.parquet"],
        ),
        (
            ["data/train-0.parquet", "data/train-1.parquet", "test.csv"],
            ["data/train-0.parquet", "data/train-1.parquet"],
        ),
        (["rows.jsonl"], ["rows.jsonl"]),
        (["train.csv", "train.jsonl", "test.jsonl"], ["train.jsonl"]),
    ],
)
def test_the_files_of_a_hub_split_are_found(names, expected):
    assert split_files(names, HUB) == expected


def test_a_hub_repository_without_rows_is_refused():
    with pytest.raises(DataError, match=r"someone/sums: found no .* of split 'train'.*sums\.py"):
        split_files(["sums.py"], HUB)
