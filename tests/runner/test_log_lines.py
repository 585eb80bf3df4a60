"""What a line is about is on the line, in every form."""

import io
import json
import logging
import subprocess
import sys
import threading

import pytest

from arena_runner import logs

log = logging.getLogger("arena_runner.tests")


@pytest.fixture
def written():
    """`written(form)` sends this process's lines to a text that it returns a reader of."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level

    def configure(form):
        stream = io.StringIO()
        logs.configure(form, stream)
        return stream.getvalue

    yield configure
    root.handlers[:] = before
    root.setLevel(level)


def test_a_line_for_people_ends_with_what_it_is_about(written):
    read = written("text")
    with logs.about(run_id="r_1", segment=0, deployment=None):
        log.info("saved %d", 3)
    assert read().endswith("INFO arena_runner.tests: saved 3 (run_id=r_1 segment=0)\n")


def test_a_line_for_machines_is_one_json_object_also_with_a_traceback(written):
    read = written("json")
    with logs.about(run_id="r_1"):
        try:
            json.loads("first\nsecond")
        except ValueError:
            log.exception("it\nfailed")
    (line,) = map(json.loads, read().splitlines())
    assert (line["level"], line["message"], line["run_id"]) == ("ERROR", "it\nfailed", "r_1")
    assert line["traceback"].startswith("Traceback")
    assert line["time"]


@pytest.mark.parametrize("form", ["text", "json", "plain"])
def test_a_hidden_word_is_in_no_line_whoever_says_it(written, form):
    logs.hide("c0ffee")
    read = written(form)
    log.warning("MLflow: %s", ConnectionError("Max retries exceeded with url: /c0ffee/api"))
    assert "/***/api" in read()
    assert "c0ffee" not in read()


def test_a_plain_line_is_its_words(written):
    read = written("plain")
    with logs.about(run_id="r_1"):
        log.info("m0  8/16")
    assert read() == "m0  8/16\n"


def test_the_lines_own_word_goes_before_what_is_around_it(written):
    read = written("json")
    with logs.about(status="outer"):
        log.info("x", extra={"status": 200})
    assert json.loads(read())["status"] == 200


def test_what_is_inside_ends_with_it_and_other_threads_do_not_see_it(written):
    read = written("text")
    with logs.about(run_id="r_1"):
        with logs.about(segment=2):
            assert (logs.field("run_id"), logs.field("segment")) == ("r_1", 2)
        other = threading.Thread(target=lambda: log.info("elsewhere"))
        other.start()
        other.join()
    log.info("after")
    assert logs.field("run_id") is None
    assert "(" not in read()


def test_the_libraries_of_the_form_for_people_are_light():
    code = (
        "import sys, arena_runner.logs; print([n for n in ('pythonjsonlogger', 'torch') if n in sys.modules])"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"
