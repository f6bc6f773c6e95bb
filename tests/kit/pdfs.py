"""PDFs for tests, as small as the format allows: text on pages, an outline of none, no pages at all, a password."""

from __future__ import annotations

__all__ = ["encrypted_pdf", "make_pdf"]


def make_pdf(*pages: str, broken: int = 0, trailer: str = "") -> bytes:
    """Return a PDF with some lines of text on each page.

    Parameters
    ----------
    *pages : str
        The texts, in ASCII; none makes a PDF without pages.
    broken : int
        The number of a page, from 1, whose object is not there.
    trailer : str
        What else the trailer has.
    """
    kids = " ".join(f"{4 + 2 * at} 0 R" for at in range(len(pages)))
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>".encode(),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for at, text in enumerate(pages):
        shown = text.replace("\\", r"\\").replace("(", r"\(").replace(")", r"\)").replace("\n", ") Tj 0 -13 Td (")
        drawn = f"BT /F1 12 Tf 72 720 Td ({shown}) Tj ET".encode()
        page = f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents {5 + 2 * at} 0 R"
        page += " /Resources << /Font << /F1 3 0 R >> >> >>"
        objects.append(b"null" if at + 1 == broken else page.encode())
        objects.append(b"<< /Length %d >>\nstream\n%s\nendstream" % (len(drawn), drawn))
    out, places = bytearray(b"%PDF-1.4\n"), []
    for number, body in enumerate(objects, 1):
        places.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    table = len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    out += b"".join(b"%010d 00000 n \n" % place for place in places)
    out += f"trailer\n<< /Size {len(objects) + 1} /Root 1 0 R {trailer} >>\nstartxref\n{table}\n%%EOF\n".encode()
    return bytes(out)


def encrypted_pdf() -> bytes:
    """Return a PDF that opens with a password, which nobody knows."""
    guard = f"/Encrypt << /Filter /Standard /V 1 /R 2 /P -4 /O <{'1f' * 32}> /U <{'2e' * 32}> >>"
    return make_pdf("secret", trailer=f"{guard} /ID [<{'00' * 16}> <{'00' * 16}>]")
