from __future__ import annotations

import inspect

import docstring_parser
import pytest
from hypothesis import given
from hypothesis import strategies as st

from legation.tools.docstrings import Explanation, explain

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


NUMPY = """
    Look up the weather.

    It is the forecast of the service.

    Parameters
    ----------
    city : str
        Where: in English,
        please.

        Or in German.
    days, nights : int, optional
        How many.
    unit: {'C', 'F'}
        Of the temperature.
    *rest
        Whatever else.
    nothing : str

    Returns
    -------
    str
        A sentence.

    Other Parameters
    ----------------
    late : bool
        Whether it is.

    Notes
    -----
    days : no parameter
        here
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


def test_numpy_style_is_read() -> None:
    found = explain(NUMPY)

    assert found.description == "Look up the weather.\n\nIt is the forecast of the service."
    assert found.parameters == {
        "city": "Where: in English, please. Or in German.",
        "days": "How many.",
        "nights": "How many.",
        "unit": "Of the temperature.",
        "rest": "Whatever else.",
        "nothing": "",
        "late": "Whether it is.",
    }


def test_heading_in_the_text_is_no_section() -> None:
    text = "Parameters\nare not listed.\n\nMine\n----\na : int\n    One."

    assert explain(text) == Explanation(text, {})


@pytest.mark.parametrize("docstring", [GOOGLE, SPHINX, NUMPY], ids=["google", "sphinx", "numpy"])
def test_docstring_parser_reads_the_same(docstring: str) -> None:
    # One field without a name, and it reads none.
    judge = docstring_parser.parse(docstring.replace(":param: nothing", ""))
    found = explain(docstring)

    assert found.description.split() == (judge.description or "").split()
    for parameter in judge.params:
        for name in parameter.arg_name.split(","):
            described = found.parameters.get(name.strip().lstrip("*"), "")
            assert described.split() == (parameter.description or "").split(), name


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
UNDERLINED = st.sampled_from(["Parameters", "Returns", "----------", "a : int", "b, *c", "    x"])


@given(st.lists(LINES | UNDERLINED | st.text(max_size=9), max_size=8).map("\n".join))
def test_any_docstring_is_read(docstring: str) -> None:
    found = explain(docstring)

    assert found.description in inspect.cleandoc(docstring)
    assert all(name and "\n" not in text for name, text in found.parameters.items())
