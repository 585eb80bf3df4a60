"""Fifteen kinds of reward bug that people have reported in public, and fifteen rewards without one.

The bugs are re-created in our own words in `corpus/bugs`; each must be caught by the check that is meant to see it,
with a message that names it. Of fifteen clean rewards at most one may get a remark. The blind sets were written before
any of theirs had been checked; what was seen at first sight, before the checks learned from them, is in runner/LOG.md.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from arena_gitops.spec.wire import CheckRequest, CheckResult
from arena_runner.checks import run_checks
from arena_runner.sandbox import Limits

CORPUS = Path(__file__).parent / "corpus"
ROOT = Path(__file__).resolve().parents[3]
NUMBERS = [
    ("Ann has 3 pens and buys 4. How many?", "3 + 4 = 7\n#### 7"),
    ("6 boxes of 7 eggs. How many eggs?", "6 * 7 = 42\n#### 42"),
    ("Tom had 20 and lost 9. How many?", "20 - 9 = 11\n#### 11"),
    ("Half of 64?", "64 / 2 = 32\n#### 32"),
    ("5 cats with 4 legs. How many legs?", "5 * 4 = 20\n#### 20"),
    ("18 plus 17?", "18 + 17 = 35\n#### 35"),
]
UNREADABLE = ("A dozen and a half?", "12 + 6 = 18\n#### 18.")
LABELS = [("Great film!", "good"), ("Dull.", "bad"), ("I loved it", "good"), ("Never again", "bad")]
LETTERS = [("2+2? A 3 B 4", "B"), ("3+3? A 6 B 7", "A"), ("1+1? A 5 C 2", "C")]
CITIES = [("Capital of France?", "Paris"), ("Of Italy?", "Rome"), ("Of Spain?", "Madrid")]
SENTENCES = [
    ("Why is the sky blue?", "Because air scatters blue light more than red light"),
    ("Why do leaves fall?", "Trees save water in winter when roots cannot drink"),
    ("Why does ice float?", "Ice takes more room than the water it was made of"),
]
HELD_OUT = {
    "a_date_in_iso": [("When?", "1969-07-20"), ("And then?", "1989-11-09"), ("Last?", "2001-01-15")],
    "yes_or_no": [("Is 7 prime?", "yes"), ("Is 8 prime?", "no"), ("Is 9 prime?", "no"), ("Is 11?", "yes")],
    "fractions_are_equal": [("Half of 1/2?", "1/4"), ("1/3 + 1/3?", "2/3"), ("1 - 1/8?", "7/8")],
    "a_set_of_letters": [
        ("Primes? A 2 B 3 C 4", "A, B"),
        ("Even? A 2 B 3 C 4", "A, C"),
        ("Odd? A 1 B 4", "A"),
    ],
    "a_roman_numeral": [("9 in Roman?", "IX"), ("14?", "XIV"), ("40?", "XL")],
    "a_move_in_chess": [("Best move?", "e2e4"), ("And then?", "g1f3"), ("Next?", "f1b5")],
    "a_calibrated_guess": [("Rain?", "1"), ("Snow?", "0"), ("Sun?", "1")],
    "a_python_list": [("Sort 3 1 2", "[1, 2, 3]"), ("Reverse 1 2", "[2, 1]"), ("Evens below 5", "[0, 2, 4]")],
    "money": [("3 pens at $2?", "$6.00"), ("Half of $9?", "$4.50"), ("$1,000 twice?", "$2,000.00")],
    "parts_of_a_form": [("Where, when?", "Paris;1889"), ("And?", "Rome;80"), ("Last?", "London;1894")],
    "time_of_day": [("Noon?", "12:00"), ("Tea?", "16:30"), ("Bed?", "22:15")],
    "a_query_that_is_the_same": [
        ("All users", "SELECT * FROM users"),
        ("Names", "SELECT name FROM users"),
        ("How many", "SELECT COUNT(*) FROM users"),
    ],
    "within_one_percent": [("How far?", "42.2 km"), ("How heavy?", "80 kg"), ("How long?", "9.58 s")],
}
"""rows of clean rewards of other kinds; those left out take sentences or cities"""
FRESH = {
    "a_percentage": [("Half in percent?", "50%"), ("A fifth?", "20%"), ("An eighth?", "12.5%")],
    "an_ordered_ranking": [("Big to small?", "A > C > B"), ("Now?", "B > A > C"), ("Last?", "C > B > A")],
    "binary_digits": [("Five?", "101"), ("Six?", "110"), ("Nine?", "1001")],
    "distance_on_a_scale": [("Great!", "5"), ("Awful", "1"), ("Fine", "3")],
    "tuple_of_two": [("Start?", "(0, 1)"), ("Turn?", "(3, -4)"), ("End?", "(7, 7)")],
    "scientific_notation": [("Light?", "3.0e8"), ("Electron?", "1.6e-19"), ("Mole?", "6.02e23")],
    "country_codes": [("Germany?", "DE"), ("Japan?", "JP"), ("Chile?", "CL")],
    "first_sentence": LABELS,
    "keywords_all_there": SENTENCES,
    "edit_distance": CITIES,
    "after_final_colon": CITIES,
    "quoted_word": CITIES,
    "two_step_bonus": CITIES,
    "yaml_line": CITIES,
    "markdown_heading": CITIES,
}
"""rows of clean rewards written after the checks had been settled"""
ROWS = {
    **HELD_OUT,
    **FRESH,
    "an_unreadable_answer_pays_everything": [*NUMBERS, UNREADABLE],
    "the_same_text": CITIES,
    "the_capital_by_any_name": CITIES,
    "words_in_order": SENTENCES,
    "overlap_of_words": SENTENCES,
    "similar_text": SENTENCES,
    "one_word_label": LABELS,
    "a_letter": LETTERS,
    "tests_of_a_function": CITIES,
}
CAUGHT = {
    "a_list_instead_of_a_number": ("probes", "fail", "(list); expected a finite number"),
    "dot_does_not_match_line_breaks": ("robustness", "warn", "with reasoning of several lines"),
    "only_the_last_300_characters": ("robustness", "warn", "with a long remark after it"),
    "counts_what_follows_the_last_tag": ("range", "warn", "the score has no bounds"),
    "an_alarm_as_a_time_limit": ("source", "warn", "signal.alarm works in the main thread only"),
    "a_pattern_that_never_ends": ("probes", "fail", "took longer than"),
    "lets_the_completion_name_any_number": ("probes", "fail", "returned"),
    "runs_what_the_model_wrote": ("source", "warn", "eval() runs text as code"),
    "a_sandbox_of_its_own": ("source", "warn", "os.system starts a program"),
    "the_answer_anywhere": ("hack", "warn", "a list of all answers"),
    "an_unreadable_answer_pays_everything": ("discrimination", "warn", "on 6 of 7 rows"),
    "never_a_difference": ("signal", "warn", "training would have no signal"),
    "expects_a_column_nobody_has": ("import", "fail", "solution"),
    "a_crash_counts_as_nearly_right": ("hack", "warn", "is paid 95% of what the right answer"),
    "does_not_look_at_the_answer": ("discrimination", "warn", "on 0 of 6 rows"),
}
"""bug → the verdict that must see it: check, status, part of its message"""
ABOUT_THIS_MACHINE = {"sandbox"}
CLEAN = ("clean", "held_out", "fresh", "blind_clean", "blind2_clean", "blind3_clean")
BLIND = {
    name: case
    for file in ("blind.json", "blind2.json", "blind3.json")
    for name, case in json.loads((CORPUS / file).read_text()).items()
}
"""name → its rows, its prompt, and for a bug the checks of which one must see it"""
SHARED = {"numbers": NUMBERS, "cities": CITIES, "numbers and an unreadable one": [*NUMBERS, UNREADABLE]}
BUGS = ("bugs", "blind_bugs", "blind2_bugs", "blind3_bugs")
KINDS = (*BUGS, *CLEAN)
MUST_CATCH, MAY_ALARM = 14, 1
LIMIT_S = 2.0
SIDE_BY_SIDE = 3


def found(folder: str, name: str, tmp_path: Path):
    """Every verdict about one reward of the corpus."""
    source = (CORPUS / folder / f"{name}.py.txt").read_bytes()
    if "blind" not in folder:
        return checked(source, ROWS.get(name, NUMBERS), tmp_path)
    rows = BLIND[name]["rows"]
    return checked(source, SHARED[rows] if isinstance(rows, str) else rows, tmp_path, BLIND[name]["prompt"])


def checked(source: bytes, rows: list[tuple[str, str]], tmp_path: Path, prompt: str | None = None):
    """Every verdict about a reward over these rows, asked for by this prompt."""
    table = "".join(json.dumps({"question": q, "answer": a}) + "\n" for q, a in rows).encode()
    blobs = {}
    tmp_path = Path(tempfile.mkdtemp(dir=tmp_path))  # others write the same rows meanwhile
    for data in (source, table):
        digest = "sha256:" + hashlib.sha256(data).hexdigest()
        blobs[digest] = tmp_path / digest.replace(":", "-")
        blobs[digest].write_bytes(data)
    dataset, reward = (
        {"address": "dataset/d", "category": "reasoning", "digest": list(blobs)[1], "format": "jsonl"},
        {"address": "reward/r", "files": {"rewards/r.py": next(iter(blobs))}, "entry": "rewards/r.py"},
    )
    dataset["column_mapping"] = {"question": "question", "answer": "answer"}
    body = {
        "address": "experiment/e",
        "manifest": {
            "algorithm": {"name": "GRPO"},
            "environment": {"prompt_template": {"user_1": prompt}} if prompt else {},
        },
        "inputs": {"dataset": dataset, "reward": reward},
    }
    request = CheckRequest.model_validate(body)
    return list(run_checks(request, blobs.__getitem__, limits=Limits(call_timeout_s=LIMIT_S)))


def names(folder: str) -> list[str]:
    return sorted(path.name.removesuffix(".py.txt") for path in (CORPUS / folder).glob("*.py.txt"))


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory):
    """All of the corpus, checked once."""
    folder = tmp_path_factory.mktemp("corpus")
    every = [(kind, name) for kind in KINDS for name in names(kind)]
    with ThreadPoolExecutor(SIDE_BY_SIDE) as threads:
        results = threads.map(lambda one: found(*one, folder), every)
    told: dict[str, dict[str, list[CheckResult]]] = {kind: {} for kind in KINDS}
    for (kind, name), verdicts in zip(every, results, strict=True):
        told[kind][name] = verdicts
    return told


def alarms(results):
    return [r for r in results if r.status != "pass" and r.name not in ABOUT_THIS_MACHINE]


def test_the_corpus_has_fifteen_of_each():
    assert names("bugs") == sorted(CAUGHT)
    assert {kind: len(names(kind)) for kind in KINDS} == dict.fromkeys(KINDS, 15)


def test_at_least_fourteen_kinds_of_bug_are_caught_by_the_check_meant_for_them(verdicts):
    missed = {
        name: [(r.name, r.status, r.message) for r in alarms(verdicts["bugs"][name])]
        for name, (check, status, part) in CAUGHT.items()
        if not any(
            r.name == check and r.status == status and part in r.message for r in verdicts["bugs"][name]
        )
    }
    assert len(CAUGHT) - len(missed) >= MUST_CATCH, missed


@pytest.mark.parametrize("kind", BUGS[1:])
def test_at_least_fourteen_bugs_of_a_blind_set_are_caught(verdicts, kind):
    missed = {
        name: [(r.name, r.status, r.message) for r in results]
        for name, results in verdicts[kind].items()
        if not any(r.name in BLIND[name]["caught"] for r in alarms(results))
    }
    assert len(names(kind)) - len(missed) >= MUST_CATCH, missed


@pytest.mark.parametrize("kind", CLEAN)
def test_at_most_one_clean_reward_gets_a_remark(verdicts, kind):
    alarmed = {
        name: [(r.name, r.status, r.message) for r in found]
        for name, results in verdicts[kind].items()
        if (found := alarms(results))
    }
    assert len(alarmed) <= MAY_ALARM, alarmed


def test_no_clean_reward_fails(verdicts):
    failed = {
        n: r
        for kind in CLEAN
        for n, results in verdicts[kind].items()
        if (r := [x for x in results if x.status == "fail"])
    }
    assert failed == {}


def test_every_remark_about_a_reward_names_its_file(verdicts):
    bugs = [verdicts[kind] for kind in BUGS]
    places = {r.file for found in bugs for results in found.values() for r in alarms(results)}
    assert places == {"rewards/r.py"}


@pytest.mark.parametrize(
    ("entry", "rows"),
    [
        ("examples/infra-repo/rewards/word_problems.py", NUMBERS),
        ("examples/sft-then-grpo/rewards/tags.py", NUMBERS),
        ("examples/gsm8k-tutorial/rewards/gsm8k.py", NUMBERS),
    ],
)
def test_the_rewards_of_our_examples_tell_right_from_wrong(entry, rows, tmp_path):
    source = (ROOT / entry).read_bytes()
    results = checked(source, rows, tmp_path)
    assert [(r.name, r.message) for r in alarms(results)] == []
    assert ("discrimination", "pass") in {(r.name, r.status) for r in results}
