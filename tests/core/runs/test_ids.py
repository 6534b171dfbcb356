from __future__ import annotations

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from legation.effects import RandomBytes
from legation.runs.ids import new_id, uuid_text
from legation_testing import play

TIMES = st.integers(0, (1 << 48) * 1_000 - 1)
DRAWN = st.binary(min_size=16, max_size=16)


def made(now_us: int, drawn: bytes) -> str:
    return play(new_id(now_us), [(RandomBytes(16), drawn)])


@given(TIMES, DRAWN)
def test_an_id_is_a_uuid_of_version_7(now_us: int, drawn: bytes) -> None:
    one = UUID(made(now_us, drawn))

    assert str(one) == made(now_us, drawn)
    assert (one.version, one.variant) == (7, "specified in RFC 4122")
    assert one.int >> 80 == now_us // 1_000
    assert one.bytes[9:] == drawn[9:]


@given(TIMES, TIMES, DRAWN, DRAWN)
def test_ids_come_in_the_order_of_time(one: int, other: int, first: bytes, second: bytes) -> None:
    earlier, later = sorted((one // 1_000, other // 1_000))

    assert earlier == later or made(earlier * 1_000, first) < made(later * 1_000, second)


@given(st.integers(), DRAWN)
def test_a_clock_that_is_out_of_its_mind_makes_ids_all_the_same(now_us: int, drawn: bytes) -> None:
    assert UUID(made(now_us, drawn)).version == 7


@given(DRAWN)
def test_sixteen_bytes_are_a_uuid_of_version_4(sixteen: bytes) -> None:
    one = UUID(uuid_text(sixteen))

    assert one.version == 4
    assert one.bytes[:6] == sixteen[:6]
