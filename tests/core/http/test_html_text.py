from __future__ import annotations

import html
import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st

from legation.http.html_text import escape

ALONE = "import legation.http.html_text, sys; sys.exit('html.entities' in sys.modules)"


@given(st.text(st.sampled_from("&<>\"';ax\u00e9\n")) | st.text())
def test_a_text_is_escaped_as_by_the_library(text: str) -> None:
    assert escape(text) == html.escape(text)
    assert html.unescape(escape(text)) == html.unescape(html.escape(text))


def test_the_names_of_characters_are_not_loaded() -> None:
    subprocess.run([sys.executable, "-c", ALONE], check=True)
