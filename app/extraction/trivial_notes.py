"""Notes that hold nothing to extract, recognised by rule so that they cost no call of a model."""

import re
import unicodedata

from app.prompt_text import visible

WORD = re.compile(r"\w+")
# In bytes, since a character of Chinese or Japanese says about as much as a word.
MAX_BYTES = 5
COURTESIES = frozenset({
    "ack", "again", "agreed", "all", "alright", "and", "are", "awesome", "brb", "bye", "cheers", "cool", "cu", "danke",
    "done", "evening", "exactly", "fine", "for", "good", "goodbye", "got", "gotcha", "gracias", "great", "haha",
    "hello", "hey", "hi", "hm", "hmm", "how", "i", "in", "is", "it", "its", "just", "kk", "later", "lol", "lot", "lots",
    "many", "maybe", "merci", "moment", "morning", "much", "nice", "night", "no", "nope", "now", "of", "ok",
    "okay", "one", "perfect", "please", "right", "s", "see", "so", "soon", "sorry", "sounds", "sure", "thank", "thanks",
    "that", "the", "there", "thx", "to", "ty", "u", "understood", "very", "wait", "welcome", "well", "what", "worries",
    "wow", "yeah", "yep", "yes", "you", "your", "спасибо", "да", "нет", "谢谢", "ありがとう",
})  # fmt: skip


def is_trivial(content: str) -> bool:
    """Return whether a note has at most five bytes of words, or only words of courtesy such as "ok, thanks"."""
    words = WORD.findall(unicodedata.normalize("NFKC", visible(content)).lower().replace("'", ""))
    return sum(len(word.encode()) for word in words) <= MAX_BYTES or COURTESIES.issuperset(words)
