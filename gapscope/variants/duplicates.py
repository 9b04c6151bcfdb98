"""Near duplicates among variants, by MinHash over word shingles (Broder 1997)."""

from __future__ import annotations

from datasketch import MinHash

from gapscope.items import Item
from gapscope.params_robustness import FilterParams
from gapscope.variants.wording import normalise, words

SEED = 1


def shingles(item: Item, size: int) -> set[str]:
    """Runs of ``size`` words of the text, and each choice as a whole, so that what differs in its choices alone counts as another."""
    sequence = words(item.text)
    runs = {" ".join(sequence[k : k + size]) for k in range(max(1, len(sequence) - size + 1))}
    return runs | {f"choice {normalise(choice)}" for choice in item.choices}


def key(item: Item) -> tuple[str, frozenset[str], str]:
    """What exact duplicates have in common: the text, the set of choices and the gold one, in normal form."""
    gold = "" if item.answer is None else normalise(item.choices[item.answer])
    return normalise(item.text), frozenset(map(normalise, item.choices)), gold


class Seen:
    """Variants met so far, by type, that later ones are compared with."""

    def __init__(self, params: FilterParams) -> None:
        self._params = params
        self._keys: dict[tuple[str, tuple[str, frozenset[str], str]], str] = {}
        self._hashes: dict[str, list[tuple[str, MinHash]]] = {}

    def twin(self, item: Item, slug: str) -> str | None:
        """Id of a variant of the same type that this one repeats, exactly or nearly; None where there is none."""
        exact = self._keys.get((slug, key(item)))
        if exact is not None:
            return exact
        mine = self._hash(item)
        near = [name for name, other in self._hashes.get(slug, []) if mine.jaccard(other) >= self._params.near_duplicate]
        return near[0] if near else None

    def add(self, item: Item, slug: str) -> None:
        """Remember a variant."""
        self._keys.setdefault((slug, key(item)), item.id)
        self._hashes.setdefault(slug, []).append((item.id, self._hash(item)))

    def _hash(self, item: Item) -> MinHash:
        # Named by value, not by default: another release's default seed would give other duplicates.
        made = MinHash(num_perm=self._params.permutations, seed=SEED)
        made.update_batch([text.encode() for text in sorted(shingles(item, self._params.shingle_words))])
        return made
