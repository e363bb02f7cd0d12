"""Stored text as a part of a prompt: data that cannot close its fence, start a line of ours or imitate a role.

Everything that is rendered for a model goes through this module. What is stored stays as it was written.
"""

import re
import unicodedata

# Default_Ignorable_Code_Point of Unicode: zero-width, joining, bidirectional and tag characters, variation selectors.
DEFAULT_IGNORABLE = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f"
    "\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
LINE_ENDS = re.compile("\r\n|[\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
# Also control characters, surrogates and the marks of annotations.
INVISIBLE = re.compile(f"[{DEFAULT_IGNORABLE}\x00-\x08\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufff9-\ufffb]")
# A comparison (a < 5, x <= y) or an arrow stays readable; any other bracket could begin a tag.
LESS_THAN = re.compile(r"[<\ufe64\uff1c](?!\s*[0-9=-])")
# Brackets that only look like "<": quotation marks in other languages, so they are escaped only before a tag.
LOOKALIKES = re.compile("[\u02c2\u1438\u2039\u227a\u2329\u276c\u276e\u27e8\u29fc\u3008\u00ab\u226a\u27ea\u300a\u226e]")
LOOKALIKE_TAG = re.compile(
    r"\s*(?:[/|]|(?:memories|note|statement|system|assistant|user|human|inst|sys|im_(?:start|end))\b)"
)
SQUARE = re.compile("[\\[\ufe47\uff3b]")
# Markers of roles and tools in the prompt formats of models.
SQUARE_MARKER = re.compile(
    r"\s*/?\s*(?:inst|sys|system_prompt|available_tools|tool_calls|tool_results|tool_content|call_id|args|think|gmask"
    r"|cls|sep|mask|pad|unk)\s*\]"
)
LOOKAHEAD = 40
LINE_PREFIX = "> "
MAX_NAME = 80
# What a name may not begin with, so that it looks like no heading, list, quotation or fence.
NAME_START = re.compile(r"[\s#>*`~=|:+-]+")
NAME_END = re.compile(r"[\s:|]+\Z")
COLON = re.compile(r":+(?=\s)")


def visible(text: str) -> str:
    """Return a text without control, zero-width, bidirectional, tag and other invisible characters."""
    if text.isascii() and text.isprintable():
        return text
    return INVISIBLE.sub("", LINE_ENDS.sub("\n", text))


def escape(text: str) -> str:
    """Return visible text in which no tag and no marker of a model's prompt format begins; idempotent."""
    shown = visible(text)
    shown = LESS_THAN.sub("&lt;", shown)
    shown = LOOKALIKES.sub(lambda found: _escape_before(found, LOOKALIKE_TAG, "&lt;"), shown)
    return SQUARE.sub(lambda found: _escape_before(found, SQUARE_MARKER, "&#91;"), shown)


def _escape_before(found: re.Match[str], following: re.Pattern[str], escaped: str) -> str:
    ahead = unicodedata.normalize("NFKC", found.string[found.end() : found.end() + LOOKAHEAD]).casefold()
    return escaped if following.match(ahead) else found[0]


def inline(text: str) -> str:
    """Return escaped text on one line, with white space collapsed."""
    return " ".join(escape(text).split())


def quote_lines(text: str) -> str:
    """Return escaped text whose every line begins with a quotation mark, so that it starts no line of ours."""
    return "\n".join((LINE_PREFIX + line).rstrip() for line in escape(text).split("\n"))


def quote_name(name: str, *, limit: int = MAX_NAME) -> str:
    """Return a name in double quotes: one line, bounded, without what would make it a heading or a role's line."""
    flat = inline(name).replace('"', "'")
    flat = COLON.sub("", NAME_END.sub("", NAME_START.sub("", flat, count=1) if NAME_START.match(flat) else flat))
    if len(flat) > limit:
        flat = flat[: limit - 1].rstrip() + "…"
    return f'"{flat or "?"}"'


def fence(tag: str, body: str) -> str:
    """Return a body, made by the functions of this module, between the tags that it cannot close."""
    return f"<{tag}>\n{body}\n</{tag}>"
