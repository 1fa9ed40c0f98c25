import signal

import pytest

from moonpool.cli import run
from moonpool.cli.supervision import Restarts, exit_text


def test_a_child_is_started_again_at_once_and_then_ever_later_while_it_keeps_dying() -> None:
    restarts = Restarts()
    delays = [restarts.delay_ms(ran_ms=100) for _ in range(8)]
    assert delays == [0, 200, 400, 800, 1600, 3200, 5000, 5000]


def test_a_child_that_ran_for_long_is_started_again_at_once() -> None:
    restarts = Restarts()
    for _ in range(5):
        restarts.delay_ms(ran_ms=100)
    assert restarts.delay_ms(ran_ms=60_000) == 0


def test_how_a_child_ended_is_said_in_words() -> None:
    assert exit_text(-signal.SIGKILL) == "was killed by SIGKILL"
    assert exit_text(3) == "ended with exit code 3"


@pytest.mark.parametrize(
    "arguments", [["no-such-command"], ["get"], ["why", "k", "--last", "2"], ["top", "--interval", "0"]]
)
def test_a_wrong_call_gives_exit_code_2_and_one_reason(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Traceback" not in captured.err
    assert captured.err.strip()


def test_an_error_of_ours_is_one_line_with_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["get", "k", "--set", "node.segmentbytes=4"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert error.startswith("moonpool: unknown setting node.segmentbytes")
    assert "did you mean node.segment_bytes?" in error
