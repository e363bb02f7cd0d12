"""Files for the tests: small PDFs, good and bad."""

import zlib


def make_pdf(*pages: str, title: str | None = None) -> bytes:
    """A PDF with a line of text on each page."""
    return _pdf([f"BT /F1 12 Tf 20 100 Td ({page}) Tj ET".encode() for page in pages], title)


def bomb_pdf(size: int) -> bytes:
    """A small PDF whose only page unpacks to very much text."""
    return _pdf([b"BT /F1 12 Tf 20 100 Td " + b"(all work and no play) Tj " * (size // 26) + b"ET"], None)


def _pdf(contents: list[bytes], title: str | None) -> bytes:
    count = len(contents)
    kids = " ".join(f"{4 + 2 * number} 0 R" for number in range(count))
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {count} >>".encode(),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for number, content in enumerate(contents):
        objects.append(
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 300 200] /Resources << /Font << /F1 3 0 R >> >> "
            + f"/Contents {5 + 2 * number} 0 R >>".encode()
        )
        packed = zlib.compress(content, 9)
        head = f"<< /Length {len(packed)} /Filter /FlateDecode >>\nstream\n".encode()
        objects.append(head + packed + b"\nendstream")
    if title is not None:
        objects.append(f"<< /Title ({title}) >>".encode())
    made = bytearray(b"%PDF-1.4\n")
    places: list[int] = []
    for number, text in enumerate(objects, start=1):
        places.append(len(made))
        made += f"{number} 0 obj\n".encode() + text + b"\nendobj\n"
    start = len(made)
    made += f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n".encode()
    made += b"".join(f"{place:010} 00000 n \n".encode() for place in places)
    info = f" /Info {len(objects)} 0 R" if title is not None else ""
    return bytes(made) + f"trailer << /Size {len(objects) + 1} /Root 1 0 R{info} >>\nstartxref\n{start}\n%%EOF".encode()
