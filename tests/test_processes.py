"""Calls in several processes.

What must hold: results come in the order of the calls, whatever the number of processes; what a call raises is raised by the
caller; and no process outlives the one that began it, even where that is killed.
"""

import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from gapscope.errors import InputError
from gapscope.processes import side_by_side

ROOT = Path(__file__).parent.parent


def slow_first(number: int) -> tuple[int, int]:
    time.sleep(0.3 if number == 0 else 0)
    return number, os.getpid()


def failing() -> None:
    raise InputError("is at fault", field="this")


@pytest.mark.parametrize("processes", [1, 2, 9])
def test_results_come_in_the_order_of_the_calls(processes: int) -> None:
    found = list(side_by_side([partial(slow_first, number) for number in range(4)], processes, "calls", "call"))
    assert [number for number, _ in found] == [0, 1, 2, 3]
    assert (os.getpid() in {process for _, process in found}) == (processes == 1)


@pytest.mark.parametrize("processes", [1, 2])
def test_what_a_call_raises_is_raised(processes: int) -> None:
    with pytest.raises(InputError, match="is at fault"):
        list(side_by_side([failing, failing], processes, "calls", "call"))


def test_no_process_outlives_a_killed_one(tmp_path: Path) -> None:
    script = tmp_path / "kept.py"
    script.write_text(
        "import os, sys, time\n"
        "from functools import partial\n"
        "from gapscope.processes import side_by_side\n"
        "def waits(place):\n"
        "    open(os.path.join(place, str(os.getpid())), 'w').close()\n"
        "    time.sleep(60)\n"
        "if __name__ == '__main__':\n"
        "    list(side_by_side([partial(waits, sys.argv[1])] * 2, 2, 'calls', 'call'))\n"
    )
    place = tmp_path / "processes"
    place.mkdir()
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen([sys.executable, script, place], env=environment) as run:
        assert wait_for(lambda: len(list(place.iterdir())) == 2)
        run.send_signal(signal.SIGKILL)
    workers = [int(file.name) for file in place.iterdir()]
    assert wait_for(lambda: not any(alive(worker) for worker in workers)), workers


def wait_for(condition, seconds: float = 30.0) -> bool:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.1)
    return bool(condition())


def alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{process}/status")
    # One that has ended but that nobody has asked after is a zombie.
    return not (status.exists() and "State:\tZ" in status.read_text())
