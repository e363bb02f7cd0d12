"""Which text of an object is embedded."""

from typing import Any

import pytest

from app.objects.content import embed_text


def embedded(properties: dict[str, Any], paths: list[str] | None = None) -> list[str]:
    return (embed_text(title="Billing", properties=properties, paths=paths) or "").split("\n")


@pytest.mark.parametrize(
    "name",
    ["apiKey", "API_KEY", "api key", "api-keys", "secret", "clientSecretValue", "token", "access_tokens", "Password",
     "db_passwd"],
)  # fmt: skip
def test_8a_d16_what_a_name_calls_a_secret_is_not_embedded(name: str) -> None:
    assert embedded({name: "hidden", "city": "Paris"}) == ["Billing", "Paris"]
    assert embedded({"deep": [{"x": {name: "hidden", "town": "Lyon"}}], name: ["hidden", {"y": "hidden"}]}) == [
        "Billing",
        "Lyon",
    ]


def test_a_secretary_is_no_secret() -> None:
    assert embedded({"secretary": "Ann", "tokenizer": "wordpiece"}) == ["Billing", "Ann", "wordpiece"]


def test_8a_d16_nor_is_it_when_a_path_leads_to_it() -> None:
    properties = {"auth": {"token": {"value": "hidden"}, "kind": "bearer"}, "password": ["hidden"]}
    assert embedded(properties, ["/auth/token/value", "/password/0", "/auth"]) == ["Billing", "bearer"]


def test_words_are_embedded_once_and_in_order() -> None:
    properties = {"a": "one", "b": ["two", " ", 3, None, {"c": "one"}], "d": "three"}
    assert embedded(properties) == ["Billing", "one", "two", "three"]
    assert embedded(properties, ["/d", "/none", "/b/0"]) == ["Billing", "three", "two"]
    assert embed_text(title=None, properties={"token": "hidden"}, paths=None) is None
