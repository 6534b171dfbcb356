from __future__ import annotations

import subprocess
import sys
import threading

from legation_host.entropy import unpredictable


def test_as_many_bytes_come_as_were_asked_for() -> None:
    for size in range(70):
        assert len(unpredictable(size)) == size


def test_no_id_is_given_out_twice_by_several_threads() -> None:
    given: list[list[bytes]] = [[] for _ in range(4)]

    def take(ids: list[bytes]) -> None:
        ids.extend(unpredictable(16) for _ in range(5_000))

    threads = [threading.Thread(target=take, args=(ids,)) for ids in given]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len({one for ids in given for one in ids}) == 20_000


def test_a_child_gives_out_nothing_that_its_parent_has_left() -> None:
    program = (
        "import os, sys\n"
        "from legation_host.entropy import unpredictable\n"
        "unpredictable(16)  # now there is something left\n"
        "child = os.fork()\n"
        "ids = [unpredictable(16).hex() for _ in range(128)]\n"
        "child and os.waitpid(child, 0)\n"
        "print(*ids, flush=True)\n"
    )

    told = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout

    assert len(set(told.split())) == 256
