"""The settings of Sphinx; `nox -s docs` builds, and runs the examples."""

from __future__ import annotations

import sys
from importlib.metadata import version as installed_version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "Legation"
author = "The Legation developers"
copyright = author
version = release = installed_version("legation")

extensions = [
    "legation_docs",
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.doctest",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
]
exclude_patterns = ["_build", "_ext"]
default_role = "code"  # docstrings write `code` as Markdown does
smartquotes = False  # `--host` is no dash, and a text to match has the quotes it has

html_theme = "furo"
html_title = f"Legation {release}"
html_static_path = ["_static"]
html_css_files = ["legation.css"]
html_show_copyright = False
html_copy_source = False
html_search_scorer = str(Path(__file__).parent / "_ext" / "scorer.js")

myst_enable_extensions = ["colon_fence", "deflist", "fieldlist"]
myst_heading_anchors = 3

# A copy button takes commands without their prompts and without what they print.
copybutton_prompt_text = r"\$ |> |>>> |\.\.\. "
copybutton_prompt_is_regexp = True
copybutton_copy_empty_lines = False
copybutton_here_doc_delimiter = "EOF"

autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_type_aliases = {name: f"legation.effects.{name}" for name in ("Effect", "Program")}
autodoc_typehints = "signature"
autodoc_class_signature = "mixed"
doctest_test_doctest_blocks = ""  # an example that runs says so: it is a `doctest` directive
