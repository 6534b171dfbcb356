"""The contract kit sees each fault that is planted in a host, and calls the rule by its name."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack
from typing import Final

import pytest

from legation_testing import BrokenHost, check_host, host_cases

from ..engines import Cluster
from .host_faults import names, network, programs, units, waits
from .host_faults.planting import Fault, plant
from .kit_hosts import HOSTS

FAULTS: Final = (*programs.FAULTS, *units.FAULTS, *names.FAULTS, *network.FAULTS, *waits.FAULTS)


def named(faults: tuple[Fault, ...]) -> Mapping[str, Fault]:
    return {fault.name: fault for fault in faults}


ON_SQLITE: Final = named(tuple(fault for fault in FAULTS if fault.host != "postgresql"))
ON_POSTGRESQL: Final = named(tuple(fault for fault in FAULTS if fault.host == "postgresql"))


def broken_rules(fault: Fault, host: str, databases: Mapping[str, str] | None = None) -> list[str]:
    with pytest.raises(BrokenHost) as caught:
        check_host(
            plant(fault, HOSTS[host]()),
            databases=databases,
            only=fault.rules,
            virtual_time=host == "simulation",
        )
    report = caught.value.report
    assert set(report.passed) <= {"host.end"}
    assert all(rule.name in str(caught.value) and rule.found for rule in report.broken)
    return sorted(rule.name for rule in report.broken)


@pytest.mark.parametrize("name", ON_SQLITE)
def test_planted_fault_is_seen_by_name(name: str) -> None:
    fault = ON_SQLITE[name]

    assert broken_rules(fault, fault.host) == sorted(fault.rules)


@pytest.fixture
def two_schemas(postgres_cluster: Cluster) -> Generator[Mapping[str, str]]:
    with ExitStack() as stack:
        yield {
            name: stack.enter_context(postgres_cluster.new_schema()) for name in ("first", "second")
        }


@pytest.mark.parametrize("name", ON_POSTGRESQL)
def test_planted_fault_is_seen_on_postgresql(name: str, two_schemas: Mapping[str, str]) -> None:
    fault = ON_POSTGRESQL[name]

    assert broken_rules(fault, "asyncio", two_schemas) == sorted(fault.rules)


def test_every_case_sees_a_planted_fault() -> None:
    seen = {rule for fault in FAULTS for rule in fault.rules}

    assert seen == {case.name for case in host_cases()}


def test_faults_are_many(figures: Callable[[str], None]) -> None:
    figures(f"{len(FAULTS)} planted faults of hosts are seen by name")

    assert len({fault.name for fault in FAULTS}) == len(FAULTS) >= 150
