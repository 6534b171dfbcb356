from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legation.observability.request_log import RequestLine
from legation_host.logs import open_log, open_request_log, quiet

LINE: Final = RequestLine(0, 1, "a" * 32, "GET", "/agents", "get_agents", 200, "")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_json_line_has_time_level_event_and_fields() -> None:
    stream = io.StringIO()
    open_log("json", stream=stream)("warning", "slow", {"seconds": 1.5, "who": "é", "none": None})

    (line,) = lines(stream)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z", str(line.pop("time")))
    assert line == {
        "level": "warning",
        "event": "slow",
        "seconds": 1.5,
        "who": "é",
        "none": None,
    }


def test_auto_is_text_for_a_terminal_and_json_for_a_file() -> None:
    terminal, file = Terminal(), io.StringIO()
    open_log(stream=terminal)("info", "said", {"n": 1})
    open_log(stream=file)("info", "said", {"n": 1})

    assert "said" in terminal.getvalue()
    assert not terminal.getvalue().startswith("{")
    assert lines(file)[0]["n"] == 1


def test_lines_below_the_level_are_dropped() -> None:
    stream = io.StringIO()
    write = open_log("json", level="warning", stream=stream)
    for level in ("debug", "info", "warning", "error", "critical", "unheard of"):
        write(level, level, {})

    assert [line["event"] for line in lines(stream)] == [
        "warning",
        "error",
        "critical",
        "unheard of",
    ]


@pytest.mark.parametrize("name", ["authorization", "api_key", "Access_Token", "app_secret"])
def test_what_is_named_like_a_secret_is_not_written(name: str) -> None:
    stream = io.StringIO()
    open_log("json", stream=stream)("info", "careless", {name: "hunter2"})

    assert "hunter2" not in stream.getvalue()


def test_fields_named_like_our_own_stay_apart() -> None:
    stream = io.StringIO()
    open_log("json", stream=stream)("info", "said", {"event": "e", "level": "l", "time": "t"})

    (line,) = lines(stream)
    assert (line["event"], line["level"]) == ("said", "info")
    assert (line["event_"], line["level_"], line["time_"]) == ("e", "l", "t")


@pytest.mark.parametrize("form", ["json", "text"])
@pytest.mark.parametrize("field", ["exc_info", "error"])
def test_an_exception_is_written_as_its_kind_and_place(form: str, field: str) -> None:
    stream = io.StringIO()
    try:
        int("what a user sent")
    except ValueError as error:
        open_log(form, stream=stream)("error", "job_failed", {field: error})

    (line,) = stream.getvalue().splitlines()
    assert "error" in line
    assert "ValueError in test_an_exception_is_written_as_its_kind_and_place:" in line
    assert "what a user sent" not in line
    assert "Traceback" not in line


HOSTILE: Final = (
    'a\n{"level":"error"}',
    "a\r\nb",
    "\x1b[2J\x1b[31mred",
    "\x9b31m",
    "a\x85b",
    "a\u2028b\u2029c",
    "\u202etxt.exe",
    "half of a pair \ud800",
    "\U000e0041",
    "\0\x7f",
)


@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
def test_what_is_in_a_field_makes_one_line_that_can_be_seen(text: str) -> None:
    told: dict[str, str] = {}
    for form in ("json", "text"):
        stream = io.StringIO()
        open_log(form, stream=stream)("info", f"said {text}", {"text": text, "list": [text]})
        told[form] = stream.getvalue()

    for line in told.values():
        assert line.endswith("\n")
        assert line[:-1].isprintable()
    read = json.loads(told["json"])
    assert (read["event"], read["text"], read["list"]) == (f"said {text}", text, [text])


@given(st.text(st.characters()))
def test_any_text_comes_back_out_of_its_one_json_line(text: str) -> None:
    stream = io.StringIO()
    open_log("json", stream=stream)("info", "said", {"text": text})

    (line,) = stream.getvalue().splitlines()
    assert json.loads(line)["text"] == text


@pytest.mark.parametrize(("form", "level"), [("xml", "info"), ("json", "loud")])
def test_an_unknown_form_or_level_is_refused(form: str, level: str) -> None:
    with pytest.raises(ValueError, match="a log is one of"):
        open_log(form, level=level)


@pytest.mark.parametrize("form", ["json", "text"])
def test_workers_that_share_a_pipe_tear_no_line_of_one_another(form: str) -> None:
    writer = (
        "import sys\n"
        "from legation.observability.request_log import RequestLine\n"
        "from legation_host.logs import open_log, open_request_log\n"
        f"write = open_log({form!r})\n"
        f"note = open_request_log(write, {form!r})\n"
        "line = RequestLine(0, 1, sys.argv[1] * 32, 'GET', '/agents', 'get_agents', 200, '')\n"
        "for turn in range(40):\n"
        "    note([line] * 30)\n"
        "    write('info', 'request', {'request_id': sys.argv[1] * 32})\n"
    )
    reading, writing = os.pipe()
    workers = [
        subprocess.Popen([sys.executable, "-c", writer, name], stderr=writing) for name in "abc"
    ]
    os.close(writing)
    with os.fdopen(reading, buffering=1) as pipe:
        time.sleep(0.5)  # the pipe is full before anything is read
        told = [re.findall(r"request_id\W+(\w+)", line) for line in pipe]

    assert [worker.wait() for worker in workers] == [0, 0, 0]
    assert sorted(told) == [[name * 32] for name in "abc" for _ in range(40 * 31)]


# --- a log that cannot be written ----------------------------------------------------------------


def told(reading: int) -> list[dict[str, object]]:
    return [json.loads(line) for line in os.read(reading, 1 << 20).splitlines()]


def test_lines_for_a_reader_that_is_gone_are_lost_and_that_is_all() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as stream:
        write = open_log("json", stream=stream)
        for _ in range(3):
            write("info", "said", {})
        open_request_log(write, "json", stream)([LINE] * 100)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device is always full here")
def test_lines_for_a_full_disk_are_lost_and_nothing_is_kept_for_later() -> None:
    with Path("/dev/full").open("w") as stream:
        open_log("json", stream=stream)("info", "said", {})
        open_request_log(quiet, "json", stream)([LINE] * 100)


def test_lines_of_a_stream_that_was_closed_are_lost() -> None:
    stream = io.StringIO()
    write = open_log("json", stream=stream)
    stream.close()

    write("info", "said", {})


def test_a_reader_that_stops_reading_is_waited_for_once_and_told_what_it_missed() -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading, closefd=True), os.fdopen(writing, "w") as stream:
        write = open_log("json", stream=stream)
        began, written = time.monotonic(), 0
        while time.monotonic() - began < 0.5:
            write("info", "said", {"text": "x" * 1000})
            written += 1
        stalled = time.monotonic() - began
        for _ in range(50):
            write("info", "said", {"text": "x" * 1000})
        waited = time.monotonic() - began - stalled
        before = told(reading)
        write("info", "heard", {})
        loss, heard = told(reading)

    assert 0.5 <= stalled < 5  # the one line that found no room
    assert waited < 0.5
    assert (loss["event"], loss["level"]) == ("log_lines_lost", "warning")
    assert loss["lines"] == written + 50 - len(before)
    assert heard["event"] == "heard"


def test_what_is_told_behind_half_a_line_begins_a_line_of_its_own(tmp_path: Path) -> None:
    most = 500
    writer = (
        "import resource, signal, sys\n"
        "from legation_host.logs import open_log\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({most}, resource.RLIM_INFINITY))\n"
        "write = open_log('json')\n"
        "for number in range(9):\n"
        "    write('info', 'said', {'text': 'x' * 100})\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)\n"
        "write('info', 'heard', {})\n"
    )
    with (tmp_path / "log").open("w") as log:
        subprocess.run([sys.executable, "-c", writer], stderr=log, check=True)
    *whole, torn, loss, heard = (tmp_path / "log").read_text().splitlines()

    assert {json.loads(line)["event"] for line in whole} == {"said"}
    with pytest.raises(ValueError, match=r"Unterminated|delimiter|Expecting"):
        json.loads(torn)
    assert (json.loads(loss)["lines"], json.loads(heard)["event"]) == (9 - len(whole), "heard")


def test_a_process_without_standard_error_logs_nothing_and_goes_on() -> None:
    program = "from legation_host import open_log; open_log()('info', 'said', {}); print('on')"
    shell = 'exec "$0" -c "$1" 2>&-'
    command = ["sh", "-c", shell, sys.executable, program]

    assert subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout == b"on\n"


def test_a_line_longer_than_a_portion_is_written_whole() -> None:
    stream = io.StringIO()
    open_log("json", stream=stream)("info", "long", {"text": "é" * 5000})

    (line,) = lines(stream)
    assert line["text"] == "é" * 5000


def test_opening_a_host_does_not_import_what_may_never_be_used() -> None:
    program = (
        "import sys, anyio, legation_host\n"
        "async def main():\n"
        "    log = legation_host.open_log()\n"
        "    async with legation_host.open_host({'a': 'sqlite://'}, log=log):\n"
        "        pass\n"
        "anyio.run(main, backend='trio')\n"
        "late = {'httpx2', 'psycopg', 'structlog'} & set(sys.modules)\n"
        "sys.exit(f'imported: {late}' if late else 0)\n"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)

    assert done.returncode == 0, done.stderr
