from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legation.migrations.schema_version import EMPTY, MalformedVersion, Version, parse_version

NUMBERS = st.integers(0, 999_999_999)
VERSIONS = st.builds(Version, NUMBERS, NUMBERS, NUMBERS)


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("2.5.6", Version(2, 5, 6)),
        ("v2.5.6", Version(2, 5, 6)),
        ("2.5", Version(2, 5, 0)),
        ("2", Version(2, 0, 0)),
        ("0", EMPTY),
        ("02.05.06", Version(2, 5, 6)),
        ("999999999.0.0", Version(999_999_999, 0, 0)),
    ],
)
def test_up_to_three_numbers_are_a_version(text: str, version: Version) -> None:
    assert parse_version(text) == version


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "v",
        "vv2",
        "V2.5.6",
        "abc",
        "null",
        "-1",
        "+1",
        "2.",
        ".5",
        "2..6",
        "2.5.6.7",
        "2.5.6rc1",
        "2.5.6+local",
        "1!2.5.6",
        " 2.5.6",
        "2.5.6\n",
        "2_0",
        "\u0662",
        "\uff12.5.6",
        "1234567890",
        "2.5.6\x00",
    ],
)
def test_anything_else_is_malformed(text: str) -> None:
    assert parse_version(text) == MalformedVersion(text)


def test_the_sentence_about_a_malformed_version_is_ascii_and_short() -> None:
    malformed = parse_version("\u0662" * 10_000)

    assert isinstance(malformed, MalformedVersion)
    assert malformed.detail.isascii()
    assert len(malformed.detail) < 400
    assert MalformedVersion("abc").detail == (
        "'abc' is not a version: expected up to three numbers, as 2.5.6"
    )


@given(st.text() | st.from_regex(r"v?[0-9.]{1,12}", fullmatch=True))
def test_every_text_is_a_version_or_malformed(text: str) -> None:
    version = parse_version(text)

    assert isinstance(version, Version | MalformedVersion)
    if isinstance(version, Version):
        assert text.isascii()


@given(VERSIONS)
def test_a_version_reads_back_from_its_text(version: Version) -> None:
    assert parse_version(str(version)) == version
    assert parse_version(f"v{version}") == version


@given(VERSIONS, VERSIONS)
def test_versions_compare_number_by_number(one: Version, other: Version) -> None:
    numbers = (one.major, one.minor, one.patch), (other.major, other.minor, other.patch)

    assert (one < other) == (numbers[0] < numbers[1])
    assert (one == other) == (numbers[0] == numbers[1])
    assert one >= EMPTY
