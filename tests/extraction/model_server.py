"""A server on the loopback address that speaks the protocols of Ollama and OpenAI and answers by script."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Asked:
    """One call, whatever protocol it came by."""

    path: str
    model: str
    system: str
    prompt: str
    body: dict[str, Any]

    @property
    def is_decision(self) -> bool:
        return "Memories:\n" in self.prompt

    @property
    def said(self) -> str:
        """The note or statement that the call is about."""
        lines = self.prompt.partition(">\n")[2].partition("\n</")[0].split("\n")
        return "\n".join(line.removeprefix("> ") for line in lines)


@dataclass(frozen=True)
class Reply:
    """What the model says to a call, and how its server behaves about it."""

    text: str = ""
    status: int = 200
    delay: float = 0.0
    headers: dict[str, str] = field(default_factory=dict)
    raw: bytes | None = None
    tokens: tuple[int, int] = (10, 5)
    hang_up: bool = False


Script = Callable[[Asked], Reply | str]


def extraction(*facts: Any, entities: list[dict[str, Any]] | None = None) -> str:
    """An answer with these statements, each a text or a whole object."""
    made = [{"content": one, "type": "fact", "confidence": 0.9} if isinstance(one, str) else one for one in facts]
    return json.dumps({"facts": made, "entities": entities or []})


def decision(action: str, target: str | None = None, *, confidence: float = 0.95, reason: str = "because") -> str:
    """An answer to what shall become of a statement."""
    return json.dumps({"action": action, "targetId": target, "confidence": confidence, "reason": reason})


class ModelServer:
    """Scripts by the name of the model, so that tests do not meet; and all that was asked."""

    def __init__(self) -> None:
        self.url = ""
        self.scripts: dict[str, Script] = {}
        self.asked: list[Asked] = []
        self.in_flight = 0
        self._lock = threading.Lock()

    def of(self, model: str) -> list[Asked]:
        """What this model was asked."""
        with self._lock:
            return [one for one in self.asked if one.model == model]

    def take(self, asked: Asked) -> Reply:
        with self._lock:
            self.asked.append(asked)
            self.in_flight += 1
        try:
            said = self.scripts[asked.model](asked)
            reply = Reply(said) if isinstance(said, str) else said
            time.sleep(reply.delay)
            return reply
        finally:
            with self._lock:
                self.in_flight -= 1


def _handler(server: ModelServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            found = self.path in ("/api/tags", "/v1/models")
            self._send(200 if found else 404, b"{}", {})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            if self.path == "/api/generate":
                asked = Asked(self.path, body["model"], body.get("system", ""), body["prompt"], body)
            elif self.path == "/v1/chat/completions":
                said = {one["role"]: one["content"] for one in body["messages"]}
                asked = Asked(self.path, body["model"], said.get("system", ""), said["user"], body)
            else:
                self._send(404, b"not here", {})
                return
            reply = server.take(asked)
            if reply.hang_up:
                self.close_connection = True
                return
            self._send(reply.status, self._content(reply), reply.headers)

        def _content(self, reply: Reply) -> bytes:
            if reply.raw is not None:
                return reply.raw
            if reply.status != 200:
                return json.dumps({"error": reply.text}).encode()
            read, written = reply.tokens
            if self.path == "/api/generate":
                done: dict[str, Any] = {"response": reply.text, "done": True, "done_reason": "stop"}
                return json.dumps({**done, "prompt_eval_count": read, "eval_count": written}).encode()
            choice = {"message": {"role": "assistant", "content": reply.text}, "finish_reason": "stop"}
            usage = {"prompt_tokens": read, "completion_tokens": written}
            return json.dumps({"choices": [choice], "usage": usage}).encode()

        def _send(self, status: int, content: bytes, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in {"content-type": "application/json", **headers}.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def handle(self) -> None:
            # Who asks may be killed in the middle of it.
            with suppress(BrokenPipeError, ConnectionResetError):
                super().handle()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    return Handler


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


@contextmanager
def model_server() -> Iterator[ModelServer]:
    """The server, as long as the block lasts."""
    known = ModelServer()
    http = _Server(("127.0.0.1", 0), _handler(known))
    known.url = f"http://127.0.0.1:{http.server_address[1]}"
    thread = threading.Thread(target=http.serve_forever, daemon=True)
    thread.start()
    try:
        yield known
    finally:
        http.shutdown()
        http.server_close()
        thread.join()
