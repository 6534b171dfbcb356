from __future__ import annotations

import mmap
import re
import tomllib
from pathlib import Path

import pytest

from legation_host.assets import read_assets

ROOT = Path(__file__).parent.parent.parent
FILES = read_assets()
built = pytest.mark.skipif(not FILES, reason="the files of the pages are not here: build, or -e it")


@built
def test_every_page_has_its_files_and_their_licences() -> None:
    assert set(FILES) == {
        "oauth2-redirect.js",
        "redoc.LICENSE.txt",
        "redoc.standalone.js",
        "redoc.standalone.js.LICENSE.txt",
        "swagger-ui-bundle.js",
        "swagger-ui.LICENSE.txt",
        "swagger-ui.css",
    }


@built
def test_they_are_mapped_and_not_read() -> None:
    assert all(body.readonly and isinstance(body.obj, mmap.mmap) for body in FILES.values())


@built
def test_nothing_is_fetched_from_the_makers_of_the_pages() -> None:
    for name, body in FILES.items():
        assert not re.search(rb'src:"https?://', body), name


def test_where_they_come_from_is_a_requirement_of_the_build_alone() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))

    assert any("sidecar" in one for one in project["build-system"]["requires"])
    assert not any("sidecar" in one for one in project["project"]["dependencies"])


def test_they_are_not_in_the_repository() -> None:
    assert "/frontends/legation_host/pages/" in (ROOT / ".gitignore").read_text("utf-8")
