from __future__ import annotations

import inspect

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legation.tools.docstrings import explain

GOOGLE = """Look up the weather.

    It is the forecast of the service,
    not ours.

    Args:
        city (str): Where: in English,
            please.

            Or in German.
        *days: How many.
        unit:
            On its own line.

    Returns:
        days: no parameter.
    """
SPHINX = """
    Look up the weather.

    :param city: Where,
        in English.
    :type city: str
    :param int days: How many.
    :param: nothing
    :returns: days
    """


def test_google_style_is_read() -> None:
    found = explain(GOOGLE)

    assert found.description == (
        "Look up the weather.\n\nIt is the forecast of the service,\nnot ours."
    )
    assert found.parameters == {
        "city": "Where: in English, please. Or in German.",
        "days": "How many.",
        "unit": "On its own line.",
    }


def test_sphinx_style_is_read() -> None:
    found = explain(SPHINX)

    assert found.description == "Look up the weather."
    assert found.parameters == {"city": "Where, in English.", "days": "How many."}


@pytest.mark.parametrize("docstring", [None, "", "\n  \n"])
def test_no_docstring_says_nothing(docstring: str | None) -> None:
    assert explain(docstring).description == ""
    assert explain(docstring).parameters == {}


def test_a_section_may_be_all_there_is() -> None:
    found = explain("\n    Args:\n        a: One.\n")

    assert found.description == ""
    assert found.parameters == {"a": "One."}


LINES = st.sampled_from(
    ["Args:", "Returns:", "    a: x", "        more", "  b", "", ":param c: y", ":x:", "text", "\t"]
)


@given(st.lists(LINES | st.text(max_size=9), max_size=8).map("\n".join))
def test_any_docstring_is_read(docstring: str) -> None:
    found = explain(docstring)

    assert found.description in inspect.cleandoc(docstring)
    assert all(name and "\n" not in text for name, text in found.parameters.items())
