from __future__ import annotations

from legation.api.console_files import ConsoleFiles


def brought(**files: bytes) -> ConsoleFiles:
    made = ConsoleFiles()
    made.bring({name.replace("_", "/"): body for name, body in files.items()})
    return made


def test_the_digest_is_that_of_all_files_in_any_order() -> None:
    one, other = brought(a=b"1", b=b"2"), brought(b=b"2", a=b"1")

    assert one.digest == other.digest == one.digest
    assert len(one.digest) == 16


def test_any_change_is_another_digest() -> None:
    digests = [
        brought(),
        brought(a=b"1"),
        brought(a=b"2"),
        brought(b=b"1"),
        brought(a=b"1", b=b""),
        brought(a=b"", b=b"1"),
        brought(a_b=b"1"),
    ]

    assert len({files.digest for files in digests}) == len(digests)


def test_other_files_replace_those_before() -> None:
    files = brought(a=b"1")
    before = files.digest

    files.bring({"b": b"1"})
    assert [*files.assets] == ["b"]
    assert files.digest != before
