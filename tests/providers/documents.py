"""Documents for tests: a PDF and a Word file that every reader of them reads."""

from __future__ import annotations

import zipfile
from io import BytesIO

__all__ = ["make_docx", "make_pdf"]

_W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"


def make_pdf(text: str = "Invoice 17: 42 EUR", size: int = 0) -> bytes:
    """Return a PDF of one page (ISO 32000-2), of at least `size` bytes, that says `text`."""
    drawn = f"BT /F1 12 Tf 72 720 Td ({text}) Tj ET".encode()
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        (
            b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Contents 4 0 R"
            b"/Resources<</Font<</F1 5 0 R>>>>>>"
        ),
        b"<</Length %d>>stream\n%b\nendstream" % (len(drawn), drawn),
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
        b"<</Length %d>>stream\n%b\nendstream" % (size, bytes(size)),
    ]
    body, places = b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n", list[int]()
    for number, content in enumerate(objects, 1):
        places.append(len(body))
        body += b"%d 0 obj%b endobj\n" % (number, content)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    count = len(objects) + 1
    head = b"xref\n0 %d\n0000000000 65535 f \n" % count
    tail = b"trailer<</Root 1 0 R/Size %d>>\nstartxref\n%d\n%%%%EOF\n" % (count, len(body))
    return body + head + table + tail


def make_docx(*paragraphs: str) -> bytes:
    """Return a file of Word (ISO/IEC 29500) with these paragraphs."""
    words = "".join(f"<w:p><w:r><w:t>{one}</w:t></w:r></w:p>" for one in paragraphs)
    document = f'<w:document xmlns:w="{_W}"><w:body>{words}</w:body></w:document>'
    with BytesIO() as buffer:
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, text in (
                ("[Content_Types].xml", "<Types/>"),
                ("word/document.xml", document),
            ):
                archive.writestr(zipfile.ZipInfo(name), text)  # of 1980: the same at each call
        return buffer.getvalue()
