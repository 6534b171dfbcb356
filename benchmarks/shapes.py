"""Reading the arguments of a call by type hints: this library, cattrs, msgspec and pydantic.

    python benchmarks/shapes.py [RUNS]

For each it prints the CPU milliseconds and MiB that its import adds to `from legation import Agent`
(medians of RUNS, 15, interleaved), microseconds per call that is read, how many of three mistakes
one error names, and which of our types it refuses to describe or to read strictly.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias, TypedDict
from uuid import UUID

import annotated_types as at
import attrs
import cattrs
import msgspec
import pydantic

from legation.tools.schema import schema_of
from legation.tools.shape_reader import Problems, read
from legation.tools.shapes import shape_of

Reader: TypeAlias = tuple[Callable[[Any], Any], Callable[[], Any] | None]

IMPORTS = {
    "legation": "",
    "cattrs": "import cattrs",
    "docstring-parser": "import docstring_parser",
    "msgspec": "import msgspec",
    "pydantic": "from pydantic import TypeAdapter, create_model",
}


@dataclass
class Item:
    """Item of an order."""

    sku: str
    count: int
    price: Decimal


@attrs.frozen
class Place:
    """Class of attrs."""

    name: str
    number: int


@dataclass
class Order:
    """The arguments that each library is timed with."""

    items: list[Item]
    day: date
    kind: Literal["gift", "own"] = "own"


class Spot(NamedTuple):
    """Named tuple."""

    x: int


class Options(TypedDict):
    """Dictionary with named members."""

    fast: bool


class Model(pydantic.BaseModel):
    """Model of pydantic."""

    n: int


ITEM = {"sku": "a", "count": 1, "price": "1.50"}
GOOD = {"items": [ITEM] * 5, "day": "2026-11-23"}
BAD = {"items": [{"sku": "a", "count": "two", "price": "x"}], "day": "soon"}
HINTS: dict[str, tuple[Any, Any, Any]] = {  # a hint, a value of it, and one that is none
    "attrs": (Place, {"name": "a", "number": 1}, {"name": 1, "number": 1}),
    "a dataclass": (Item, ITEM, {**ITEM, "sku": 1}),
    "NamedTuple": (Spot, {"x": 1}, {"x": "1"}),
    "TypedDict": (Options, {"fast": True}, {"fast": 1}),
    "Decimal": (Decimal, "1.50", "x"),
    "UUID": (UUID, "0f8fad5b-d9cb-469f-a165-70867728950e", "x"),
    "set": (set[int], [1, 2], [1, "2"]),
    "set, an item twice": (set[int], [1, 2], [1, 1]),
    "Ge(1)": (Annotated[int, at.Ge(1)], 1, 0),
    "MinLen(1)": (Annotated[list[int], at.MinLen(1)], [1], []),
    "two classes in a union": (Item | Spot, {"x": 1}, {"y": 1}),
    "a model of pydantic": (Model, {"n": 1}, {"n": "1"}),
    "an unknown member": (Item, ITEM, {**ITEM, "more": 1}),
    "3.0 as an integer": (int, 3.0, "3"),
}


def read_ours(hint: Any) -> Reader:
    """Return how this library reads and describes `hint`."""
    shape = shape_of(hint)

    def load(value: Any) -> Any:
        problems: Problems = []
        found = read(shape, value, "", problems)
        if problems:
            raise ValueError(problems)
        return found

    return load, lambda: schema_of(shape)


def read_cattrs(hint: Any) -> Reader:
    """Return how cattrs does, with the hooks that its reader has to write."""
    converter = cattrs.Converter(forbid_extra_keys=True)
    converter.register_structure_hook(Decimal, lambda value, _: Decimal(value))
    converter.register_structure_hook(UUID, lambda value, _: UUID(value))
    converter.register_structure_hook(date, lambda value, _: date.fromisoformat(value))
    return lambda value: converter.structure(value, hint), None


def read_msgspec(hint: Any) -> Reader:
    """Return how msgspec does."""
    return lambda value: msgspec.convert(value, hint), lambda: msgspec.json.schema(hint)


def read_pydantic(hint: Any) -> Reader:
    """Return how pydantic does, strictly."""
    adapter = pydantic.TypeAdapter(hint)

    def load(value: Any) -> Any:
        return adapter.validate_json(json.dumps(value), strict=True)

    return load, adapter.json_schema


READERS = {
    "legation": read_ours,
    "cattrs": read_cattrs,
    "msgspec": read_msgspec,
    "pydantic": read_pydantic,
}


def cost(code: str) -> tuple[float, float]:
    """Return CPU milliseconds and MiB of a process that imports an agent, and `code`."""
    script = (
        f"import time\nbegun = time.process_time()\nfrom legation import Agent\n{code}\n"
        "taken = time.process_time() - begun\n"
        "rss = next(line for line in open('/proc/self/status') if line.startswith('VmRSS'))\n"
        "print(taken, rss.split()[1])"
    )
    command = [sys.executable, "-c", script]
    seconds, kib = subprocess.check_output(command, text=True).split()
    return float(seconds) * 1000, int(kib) / 1024


def print_imports(runs: int) -> None:
    """Print what each import adds."""
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in IMPORTS}
    for _ in range(runs):
        for name, code in IMPORTS.items():
            taken[name].append(cost(code))
    middle = {
        name: [statistics.median(column) for column in zip(*rows, strict=True)]
        for name, rows in taken.items()
    }
    ms, mib = middle["legation"]
    print(f"from legation import Agent: {ms:.1f} ms of CPU, {mib:.1f} MiB; beside it")
    for name, (more_ms, more_mib) in middle.items():
        print(f"  {name:17} +{more_ms - ms:5.1f} ms (+{(more_ms / ms - 1) * 100:4.1f} %)"
              f"  +{more_mib - mib:4.1f} MiB")  # fmt: skip


def mistakes(load: Callable[[Any], Any]) -> int:
    """Return how many of the three mistakes in `BAD` the error of `load` names."""
    text = ""
    try:
        load(BAD)
    except cattrs.ClassValidationError as error:
        text = "\n".join(cattrs.transform_error(error))
    except Exception as error:  # noqa: BLE001
        text = str(error)
    return sum(word in text for word in ("count", "price", "day"))


def find_refusals(reader: Any) -> list[str]:
    """Return what `reader` does not read, does not refuse, or does not describe."""
    found: list[str] = []
    for name, (hint, good, bad) in HINTS.items():
        try:
            load, describe = reader(hint)
        except Exception as error:  # noqa: BLE001 - that is the question
            found.append(f"{name}: {type(error).__name__}")
            continue
        try:
            load(good)
        except Exception as error:  # noqa: BLE001
            found.append(f"{name}: refuses it ({type(error).__name__})")
        try:
            found.append(f"{name}: admits {load(bad)!r}")
        except Exception:  # noqa: BLE001
            pass
        if describe is None:
            found.append(f"{name}: no schema")
            continue
        try:
            describe()
        except Exception as error:  # noqa: BLE001
            found.append(f"{name}: no schema ({type(error).__name__})")
    return found


def main() -> None:
    """Print the figures."""
    print_imports(int(sys.argv[1]) if len(sys.argv) > 1 else 15)
    for name, reader in READERS.items():
        load, _ = reader(Order)
        best = min(_time(load) for _ in range(5))
        print(f"{name}: {best * 1e6:.1f} µs per call, {mistakes(load)} of 3 mistakes named")
        for line in find_refusals(reader):
            print(f"  {line}")


def _time(load: Callable[[Any], Any], times: int = 2_000) -> float:
    begun = time.process_time()
    for _ in range(times):
        load(GOOD)
    return (time.process_time() - begun) / times


if __name__ == "__main__":
    main()
