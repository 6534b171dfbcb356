"""The settings of Sphinx; `nox -s docs` builds, and runs the examples."""

from __future__ import annotations

from importlib.metadata import version as installed_version

project = "Legation"
author = "The Legation developers"
copyright = author
version = release = installed_version("legation")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.doctest"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"Legation {release}"

myst_enable_extensions = ["colon_fence", "deflist", "fieldlist"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
doctest_test_doctest_blocks = ""  # an example that runs says so: it is a `doctest` directive
