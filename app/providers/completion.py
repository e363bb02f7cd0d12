"""Completers behind HTTP: anything that speaks OpenAI's chat completions, and ollama."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from app.providers.base import AnswerUnusable, Completion, InputRefused, Message, Usage
from app.providers.http import JsonClient

OPENAI_HOST = "api.openai.com"
AVAILABLE_SECONDS = 3.0


class _Written(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    message: _Written
    finish_reason: str | None = None


class _Tokens(msgspec.Struct):
    prompt_tokens: int = 0
    completion_tokens: int = 0


class _ChatAnswer(msgspec.Struct):
    choices: list[_Choice]
    usage: _Tokens | None = None


class OpenAICompleter:
    """POST /chat/completions."""

    name = "openai"

    def __init__(self, http: JsonClient, *, model: str) -> None:
        self._http = http
        self.model = model
        # OpenAI has renamed the parameter and refuses the old name for its newer models; the servers that follow
        # its API know the old one.
        self._knows_schemas = True
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
        answer = await self._ask(body, json_schema, timeout_seconds)
        if not answer.choices or answer.choices[0].message.content is None:
            raise AnswerUnusable(f"{self.name}/{self.model} answered without a text.")
        choice, tokens = answer.choices[0], answer.usage or _Tokens()
        return Completion(
            text=choice.message.content or "",
            usage=Usage(input_tokens=tokens.prompt_tokens, output_tokens=tokens.completion_tokens),
            truncated=choice.finish_reason == "length",
        )

    async def _ask(
        self, body: dict[str, Any], json_schema: Mapping[str, Any] | None, timeout_seconds: float | None
    ) -> _ChatAnswer:
        if json_schema is None:
            return await self._http.post("/chat/completions", body, _ChatAnswer, timeout_seconds=timeout_seconds)
        if self._knows_schemas:
            named = {"name": "answer", "schema": json_schema}
            asked = {**body, "response_format": {"type": "json_schema", "json_schema": named}}
            try:
                return await self._http.post("/chat/completions", asked, _ChatAnswer, timeout_seconds=timeout_seconds)
            except InputRefused:
                # Some of those who speak the API know only JSON as such; one that refuses that too is asked no more.
                asked["response_format"] = {"type": "json_object"}
                answer = await self._http.post("/chat/completions", asked, _ChatAnswer, timeout_seconds=timeout_seconds)
                self._knows_schemas = False
                return answer
        asked = {**body, "response_format": {"type": "json_object"}}
        return await self._http.post("/chat/completions", asked, _ChatAnswer, timeout_seconds=timeout_seconds)

    async def available(self) -> bool:
        return await self._http.answers("/models", seconds=AVAILABLE_SECONDS)

    async def aclose(self) -> None:
        await self._http.aclose()


class _OllamaAnswer(msgspec.Struct):
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
        said = {
            role: [turn.content for turn in messages if (turn.role == "system") == (role == "system")]
            for role in ("system", "prompt")
        }
        body: dict[str, Any] = {
            "model": self.model,
            "prompt": "\n\n".join(said["prompt"]),
            "stream": False,
            # What it thinks would be paid for, and might leave no room for the answer.
            "think": False,
            "options": options,
        }
        if said["system"]:
            body["system"] = "\n\n".join(said["system"])
        if json_schema is not None:
            body["format"] = json_schema
        answer = await self._http.post("/api/generate", body, _OllamaAnswer, timeout_seconds=timeout_seconds)
        if answer.response is None:
            raise AnswerUnusable(f"{self.name}/{self.model} answered without a text.")
        return Completion(
            text=answer.response,
            usage=Usage(input_tokens=answer.prompt_eval_count, output_tokens=answer.eval_count),
            truncated=answer.done_reason == "length",
        )

    async def available(self) -> bool:
        return await self._http.answers("/api/tags", seconds=AVAILABLE_SECONDS)

    async def aclose(self) -> None:
        await self._http.aclose()
