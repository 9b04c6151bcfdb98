"""Families stay whole, domains are shared out, and the place of the marked choice says nothing."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from gapscope.errors import InputError
from gapscope.items import Item, write_items
from gapscope.params_variants import SeedsParams
from gapscope.variants.seed_sets import read_split, write_seed_sets
from gapscope.variants.seeds import DIMENSIONS, ORIGINAL, Seed
from gapscope.variants.splits import SPLITS, assign_positions, split_families, split_seeds
from gapscope.variants.types import TYPES

HERE = Path("seeds.jsonl")


def made(family: str, slug: str, *, valid: bool = True, answer: int = 0, choices: tuple[str, ...] = ("a", "b", "c", "d")) -> Seed:
    verdict = dict.fromkeys(DIMENSIONS, True) | {"lc": valid}
    meta = {"type": slug, "domain": family.split("_")[0], "verdict": {**verdict, "valid": valid}}
    item = Item(f"{family}-{slug}{'' if valid else '-bad'}", "seeds", family, "Why?", choices, answer, kind="choice", meta=meta)
    return Seed(item, slug, verdict, HERE, 1)


def seeds_of(families: list[str]) -> list[Seed]:
    return [
        made(family, slug, valid=valid)
        for family in families
        for slug in (ORIGINAL, *TYPES)
        for valid in (True, False)[: 1 + (slug != ORIGINAL)]
    ]


def varied(families: list[str]) -> list[Seed]:
    """Of every family the original, and of every type a valid variant and one for each dimension that fails."""
    found = []
    for family in families:
        found.append(made(family, ORIGINAL))
        for slug in TYPES:
            found.append(made(family, slug))
            for name in DIMENSIONS:
                entry = made(family, slug, valid=False)
                verdict = dict.fromkeys(DIMENSIONS, True) | {name: False}
                meta = {**entry.item.meta, "verdict": {**verdict, "valid": False}}
                found.append(Seed(replace(entry.item, id=f"{entry.item.id}-{name}", meta=meta), slug, verdict, HERE, 1))
    return found


def test_every_domain_is_divided_in_the_same_shares() -> None:
    domains = {f"{domain}_{index}": domain for domain in ("work", "health") for index in range(10)}
    found = split_families(domains, development=0.2, heldout=0.3, seed=1)
    for domain in ("work", "health"):
        assert Counter(found[family] for family in domains if domains[family] == domain) == {"train": 5, "development": 2, "heldout": 3}


def test_a_split_depends_on_its_own_domain_and_the_seed_only() -> None:
    domains = {f"work_{index}": "work" for index in range(12)}
    more = domains | {f"health_{index}": "health" for index in range(12)}
    first = split_families(domains, 0.25, 0.25, seed=1)
    assert {family: split_families(more, 0.25, 0.25, seed=1)[family] for family in domains} == first
    assert split_families(dict(reversed(domains.items())), 0.25, 0.25, seed=1) == first
    assert split_families(domains, 0.25, 0.25, seed=2) != first


def test_no_family_is_on_two_sides_and_no_seed_is_lost() -> None:
    seeds = seeds_of([f"work_{index}" for index in range(10)])
    parts = split_seeds(seeds, 0.2, 0.2, seed=3)
    families = [{entry.item.family for entry in parts[name]} for name in SPLITS]
    assert [len(group) for group in families] == [6, 2, 2]
    assert not families[0] & families[1] and not families[1] & families[2] and not families[0] & families[2]
    assert sorted(entry.item.id for part in parts.values() for entry in part) == sorted(entry.item.id for entry in seeds)


@pytest.mark.parametrize("valid", [True, False])
def test_the_marked_choice_takes_each_place_equally_often(valid: bool) -> None:
    seeds = [made(f"work_{index:02}", "causal_inference", valid=valid) for index in range(10)]
    arranged = assign_positions(seeds, seed=5)
    counts = Counter(entry.item.answer for entry in arranged)
    assert sorted(counts.values()) == [2, 2, 3, 3]
    for before, after in zip(seeds, arranged, strict=True):
        assert after.item.choices[after.item.answer or 0] == "a"
        assert sorted(after.item.choices) == sorted(before.item.choices)
        assert (after.item.text, after.verdict) == (before.item.text, before.verdict)


def test_meta_choices_keep_their_place_even_where_it_is_the_fault() -> None:
    last = made("work_1", "critical_testing", choices=("a", "b", "c", "None of the above"), answer=1)
    gold = made("work_2", "critical_testing", choices=("a", "b", "c", "None of the above"), answer=3)
    first = made("work_3", "critical_testing", valid=False, choices=("None of the above", "a", "b", "c"), answer=2)
    every = made("work_4", "critical_testing", valid=False, choices=("a", "b", "c", "All of the above"), answer=0)
    found = {entry.item.family: entry.item for entry in assign_positions([last, gold, first, every], seed=2)}
    assert found["work_1"].choices[3] == found["work_2"].choices[3] == "None of the above" and found["work_2"].answer == 3
    assert found["work_3"].choices[0] == "None of the above" and found["work_3"].choices[found["work_3"].answer or 0] == "b"
    assert found["work_4"].choices[3] == "All of the above"


def test_order_of_the_input_does_not_matter_and_a_duplicate_choice_survives() -> None:
    seeds = [made(f"work_{index}", "causal_inference", valid=False, choices=("x", "x", "y", "z"), answer=1) for index in range(5)]
    assert assign_positions(seeds, 7) == assign_positions(list(reversed(seeds)), 7)
    assert all(sorted(entry.item.choices) == ["x", "x", "y", "z"] for entry in assign_positions(seeds, 7))


def test_a_split_of_one_verdict_is_refused_with_its_counts_and_the_parameter(tmp_path: Path) -> None:
    families = [f"work_{index}" for index in range(10)]
    place = split_families(dict.fromkeys(families, "work"), 0.2, 0.2, 3)
    for name in SPLITS:
        seeds = [entry for entry in varied(families) if entry.verdict["lc"] or place[entry.item.family] != name]
        (tmp_path / name).mkdir()
        write_items(tmp_path / name / "seeds.jsonl", [entry.item for entry in seeds])
        n = 3 * len(TYPES) * list(place.values()).count(name)
        with pytest.raises(InputError) as caught:
            write_seed_sets(tmp_path / name, tmp_path / "out", SeedsParams(), 3)
        said = str(caught.value)
        assert f"of the {n} variants of {name}, lc holds of {n} and fails of 0" in said
        assert f"seeds.{'development' if name == 'train' else name}" in said
        assert not (tmp_path / "out").exists()


def test_a_family_without_its_original_is_refused(tmp_path: Path) -> None:
    write_items(tmp_path / "train.jsonl", [made("work_1", "causal_inference").item])
    with pytest.raises(InputError, match=r"train\.jsonl:1: family: family 'work_1' has 0 originals"):
        read_split(tmp_path, "train")
