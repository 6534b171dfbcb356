"""A process that holds a name beside a SQLite file, until it is killed.

`python name_holder.py PATH NAME [fork]` prints the place and, where it was to fork a child that
does nothing, the id of that.  It looks for the names that it is given, one list in each line of its
input, and prints those of the dead.
"""

from __future__ import annotations

import json
import os
import sys
import time

import anyio

from legation_host.logs import quiet
from legation_host.names import Names, place_beside


def tell(value: object) -> None:
    """Print a line for whoever started this."""
    sys.stdout.write(f"{json.dumps(value)}\n")
    sys.stdout.flush()


def main() -> None:
    path, name, *more = sys.argv[1:]
    names = Names("main", place_beside(path), quiet)
    place = anyio.run(names.hold, name)
    child = 0
    if more == ["fork"]:
        child = os.fork()
        if child == 0:
            time.sleep(60)
            os._exit(0)
    tell({"place": place, "pid": os.getpid(), "child": child})
    for line in sys.stdin:
        dead = anyio.run(names.find_dead, tuple(json.loads(line)))
        tell(dead)


if __name__ == "__main__":
    main()
