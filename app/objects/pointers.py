"""JSON Pointer (RFC 6901)."""

from typing import Any, cast


def escape(name: str) -> str:
    """A member's name as a part of a pointer."""
    return name.replace("~", "~0").replace("/", "~1")


def split(pointer: str) -> list[str]:
    """The names along a pointer; one that is none raises ValueError."""
    if not pointer:
        return []
    if not pointer.startswith("/"):
        raise ValueError("a JSON Pointer begins with /")
    parts = pointer[1:].split("/")
    for part in parts:
        if "~" in part.replace("~0", "").replace("~1", ""):
            raise ValueError("in a JSON Pointer ~ is written ~0, and / within a name ~1")
    return [part.replace("~1", "/").replace("~0", "~") for part in parts]


def resolve(document: Any, pointer: str) -> Any:
    """What stands at a place of a document; None when there is nothing."""
    found = document
    for name in split(pointer):
        if isinstance(found, dict):
            found = cast(dict[str, Any], found).get(name)
        elif isinstance(found, list) and name.isascii() and name.isdigit() and (name == "0" or name[0] != "0"):
            members = cast(list[Any], found)
            found = members[int(name)] if int(name) < len(members) else None
        else:
            return None
    return found
