"""A small web for the tests: pages that behave, and pages that do not."""

import gzip
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PAGE = b"<html><head><title>A page of the web</title></head><body><h1>Heading</h1><p>The heron stands still.</p></body>"

# Fifty megabytes in fifty kilobytes; made beforehand, so that it is sent at once.
BOMB = gzip.compress(b"a" * 50_000_000, 6)


class Handler(BaseHTTPRequestHandler):
    """Answers by path."""

    protocol_version = "HTTP/1.1"
    server: "Web"

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing."""

    def do_GET(self) -> None:
        self.server.asked.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
        name = self.path.strip("/").partition("?")[0].partition("-")[0]
        with suppress(BrokenPipeError, ConnectionResetError):
            getattr(self, f"say_{name}", self.say_nothing)()
        self.close_connection = True

    def send(self, body: bytes, content_type: str | None = "text/html; charset=utf-8", **headers: str) -> None:
        self.send_response(200)
        if content_type is not None:
            self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        for header, value in headers.items():
            self.send_header(header.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def redirect(self, target: str) -> None:
        self.send_response(302)
        self.send_header("Location", target)
        self.send_header("Set-Cookie", "secret=1")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def say_nothing(self) -> None:
        self.send_error(404)

    def say_page(self) -> None:
        self.send(PAGE)

    def say_markdown(self) -> None:
        self.send(b"# The title of it\n\nSome *words*.", "text/markdown")

    def say_latin(self) -> None:
        self.send("<p>Caf\xe9 au lait</p>".encode("latin-1"), "text/html; charset=iso-8859-1")

    def say_image(self) -> None:
        self.send(b"\x89PNG", "image/png")

    def say_untyped(self) -> None:
        self.send(PAGE, None)

    def say_packed(self) -> None:
        self.send(gzip.compress(PAGE), Content_Encoding="gzip")

    def say_bomb(self) -> None:
        self.send(BOMB, Content_Encoding="gzip")

    def say_brotli(self) -> None:
        self.send(b"\x00\x01", Content_Encoding="br")

    def say_huge(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(100_000_000))
        self.end_headers()
        self.say_forever(started=True)

    def say_forever(self, *, started: bool = False) -> None:
        if not started:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain")
            self.end_headers()
        for _ in range(10_000):
            self.wfile.write(b"again and again. " * 1000)

    def say_slowly(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.end_headers()
        for _ in range(200):
            self.wfile.write(b".")
            time.sleep(0.1)

    def say_loop(self) -> None:
        self.redirect("/loop")

    def say_hop(self) -> None:
        """hop-3 leads to hop-2 and so on, to the page."""
        left = int(self.path.rpartition("-")[2].partition("?")[0])
        self.redirect(f"/hop-{left - 1}" if left > 1 else "/page")

    def say_inside(self) -> None:
        self.redirect(f"http://127.0.0.1:{self.server.server_port}/page")

    def say_userinfo(self) -> None:
        self.redirect(f"http://me:secret@127.0.0.2:{self.server.server_port}/page")

    def say_file(self) -> None:
        self.redirect("file:///etc/passwd")

    def say_broken(self) -> None:
        self.send_error(503)

    def say_flaky(self) -> None:
        """Fails the first time."""
        if sum(path == self.path for path, _ in self.server.asked) == 1:
            self.send_error(503)
        else:
            self.send(PAGE)

    def say_changing(self) -> None:
        """Is empty the first time."""
        first = sum(path == self.path for path, _ in self.server.asked) == 1
        self.send(b"<p> </p>" if first else PAGE)


class Web(ThreadingHTTPServer):
    """The server, with what it was asked for."""

    daemon_threads = True
    asked: list[tuple[str, dict[str, str]]]

    @property
    def url(self) -> str:
        return f"http://127.0.0.2:{self.server_port}"


@contextmanager
def serve_web() -> Iterator[Web]:
    """The web on 127.0.0.2, and so nowhere else."""
    server = Web(("127.0.0.2", 0), Handler)
    server.asked = []
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
