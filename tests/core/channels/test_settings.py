"""What a channel may be configured with."""

from __future__ import annotations

import pytest
from attrs import Attribute, field, fields, frozen

from legation.channels.settings import base_url, check_base_url, check_segment, check_token


@frozen
class Settings:
    token: str = field(default="t", validator=check_token)
    segment: str = field(default="s", validator=check_segment)
    url: str = field(default="http://x", converter=base_url, validator=check_base_url)


def test_a_slash_at_the_end_of_a_url_is_dropped() -> None:
    assert Settings(url="https://example.org/v1/").url == "https://example.org/v1"


@pytest.mark.parametrize("name", [a.name for a in fields(Settings)])
@pytest.mark.parametrize("value", ["", "a b", "a\r\nb", "é", "\0"])
def test_what_cannot_stand_in_a_request_is_refused_without_repeating_it(
    name: str, value: str
) -> None:
    with pytest.raises(ValueError, match=f"^{name} must be") as refused:
        Settings(**{name: value})

    assert not value or value not in str(refused.value).removeprefix(name).replace(" ", "")


@pytest.mark.parametrize("value", ["a/b", "..", "a?b", "x" * 129])
def test_a_segment_is_one(value: str) -> None:
    attribute: Attribute[str] = fields(Settings).segment

    with pytest.raises(ValueError, match="segment"):
        check_segment(None, attribute, value)
