"""Completers over HTTP: servers with OpenAI's chat completions API, and Ollama."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from app.providers.base import Completion, InputRefused, Message, UnusableResponse, Usage
from app.providers.http import JsonClient

OPENAI_HOST = "api.openai.com"
AVAILABLE_SECONDS = 3.0


class _Message(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    message: _Message
    finish_reason: str | None = None


class _Tokens(msgspec.Struct):
    prompt_tokens: int = 0
    completion_tokens: int = 0


class _ChatResponse(msgspec.Struct):
    choices: list[_Choice]
    usage: _Tokens | None = None


class OpenAICompleter:
    """POST /chat/completions."""

    name = "openai"

    def __init__(self, http: JsonClient, *, model: str) -> None:
        self._http = http
        self.model = model
        self._supports_schemas = True
        # OpenAI renamed the parameter and rejects the old name for newer models; other servers expect the old one.
        self._limit = "max_completion_tokens" if OPENAI_HOST in http.base_url else "max_tokens"

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        max_tokens: int,
        temperature: float | None = 0,
        json_schema: Mapping[str, Any] | None = None,
        timeout_seconds: float | None = None,
    ) -> Completion:
        body: dict[str, Any] = {"model": self.model, "messages": messages, self._limit: max_tokens}
        if temperature is not None:
            body["temperature"] = temperature
        answer = await self._post(body, json_schema, timeout_seconds)
        if not answer.choices or answer.choices[0].message.content is None:
            raise UnusableResponse(f"{self.name}/{self.model} responded without a text.")
        choice, tokens = answer.choices[0], answer.usage or _Tokens()
        return Completion(
            text=choice.message.content or "",
            usage=Usage(input_tokens=tokens.prompt_tokens, output_tokens=tokens.completion_tokens),
            truncated=choice.finish_reason == "length",
        )

    async def _post(
        self, body: dict[str, Any], json_schema: Mapping[str, Any] | None, timeout_seconds: float | None
    ) -> _ChatResponse:
        if json_schema is None:
            return await self._chat(body, timeout_seconds)
        if self._supports_schemas:
            named = {"name": "answer", "schema": json_schema}
            request = {**body, "response_format": {"type": "json_schema", "json_schema": named}}
            try:
                return await self._chat(request, timeout_seconds)
            except InputRefused:
                # Some servers support only JSON without a schema; if that is rejected too, the error is raised.
                request["response_format"] = {"type": "json_object"}
                answer = await self._chat(request, timeout_seconds)
                self._supports_schemas = False
                return answer
        request = {**body, "response_format": {"type": "json_object"}}
        return await self._chat(request, timeout_seconds)

    async def _chat(self, body: dict[str, Any], timeout_seconds: float | None) -> _ChatResponse:
        return await self._http.post("/chat/completions", body, _ChatResponse, timeout_seconds=timeout_seconds)

    async def available(self) -> bool:
        return await self._http.is_available("/models", seconds=AVAILABLE_SECONDS)

    async def aclose(self) -> None:
        await self._http.aclose()


class _GenerateResponse(msgspec.Struct):
    response: str | None = None
    done_reason: str | None = None
    prompt_eval_count: int = 0
    eval_count: int = 0


class OllamaCompleter:
    """POST /api/generate."""

    name = "ollama"

    def __init__(self, http: JsonClient, *, model: str) -> None:
        self._http = http
        self.model = model

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        max_tokens: int,
        temperature: float | None = 0,
        json_schema: Mapping[str, Any] | None = None,
        timeout_seconds: float | None = None,
    ) -> Completion:
        options: dict[str, Any] = {"num_predict": max_tokens}
        if temperature is not None:
            options["temperature"] = temperature
        texts = {
            role: [turn.content for turn in messages if (turn.role == "system") == (role == "system")]
            for role in ("system", "prompt")
        }
        body: dict[str, Any] = {
            "model": self.model,
            "prompt": "\n\n".join(texts["prompt"]),
            "stream": False,
            # Thinking costs tokens, and may leave none for the response.
            "think": False,
            "options": options,
        }
        if texts["system"]:
            body["system"] = "\n\n".join(texts["system"])
        if json_schema is not None:
            body["format"] = json_schema
        answer = await self._http.post("/api/generate", body, _GenerateResponse, timeout_seconds=timeout_seconds)
        if answer.response is None:
            raise UnusableResponse(f"{self.name}/{self.model} responded without a text.")
        return Completion(
            text=answer.response,
            usage=Usage(input_tokens=answer.prompt_eval_count, output_tokens=answer.eval_count),
            truncated=answer.done_reason == "length",
        )

    async def available(self) -> bool:
        return await self._http.is_available("/api/tags", seconds=AVAILABLE_SECONDS)

    async def aclose(self) -> None:
        await self._http.aclose()
