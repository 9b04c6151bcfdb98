"""Sample logs of lm-evaluation-harness, old and new, whole and damaged.

What must hold: the recomputed accuracy is the run's own; filters and metrics are never mixed; the log's numbering of
documents has no influence; what is not a finite number is unscored; text, choices and gold are found in the log itself.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from gapscope.errors import InputError
from gapscope.results.bring import items_of
from gapscope.results.lm_eval import read_lm_eval
from gapscope.results.select import TaskScores, select
from gapscope.results.subject import detect, match
from tests.results.made_logs import ACC, QUESTIONS, choice_row, old_choice_row, results, samples, sum_rows, write_lines

ALL = range(len(QUESTIONS))


def read(*files: Path, metric: str | None = None, name: str | None = None) -> list[TaskScores]:
    return select(read_lm_eval(list(files)), metric, name)


def fault(*files: Path, metric: str | None = None, name: str | None = None) -> str:
    with pytest.raises(InputError) as caught:
        read(*files, metric=metric, name=name)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_whole_run(tmp_path: Path) -> None:
    file = samples(tmp_path, map(choice_row, ALL))
    results(tmp_path)
    log = read_lm_eval([file])
    assert detect(file) == "lm_eval"
    assert (log.model, log.tasks, log.notes) == ("some/model", ["colours"], [])
    assert log.understood == {"colours": "text doc.question; choices doc.choices; id doc.id"}
    (task,) = select(log, "acc", None)
    assert (task.stated, task.recomputed, task.equal, task.n_rows, task.filter) == (0.75, 0.75, True, 4, "none")
    assert task.scores == ACC
    first = task.answers[0]
    assert (first.text, first.choices, first.answer, first.name) == (QUESTIONS[0]["question"], ("red", "blue", "green"), 0, "q-1")
    assert first.logprobs == (-1.0, -2.0, -3.0)
    assert [answer.prediction for answer in task.answers] == ["0", "0", "0", "1"]


@pytest.mark.parametrize("form", ["list", "lines", "lines.gz", "bom", "crlf"])
def test_the_oldest_field_set_gives_the_same(tmp_path: Path, form: str) -> None:
    rows = [old_choice_row(k) for k in ALL]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    file = tmp_path / ("pretrained__some__model_colours.jsonl" + (".gz" if form.endswith("gz") else ""))
    match form:
        case "list":
            file.write_text(json.dumps(rows, indent=2))
        case "lines":
            file.write_text(lines)
        case "lines.gz":
            file.write_bytes(gzip.compress(lines.encode()))
        case "bom":
            file.write_text("\ufeff" + lines, encoding="utf-8")
        case _:
            file.write_text(lines.replace("\n", "\r\n"), newline="")
    (tmp_path / "results.json").write_text(json.dumps({"results": {"colours": {"acc": 0.75, "acc_norm": 0.75}}, "config": {}}))
    assert detect(file) == "lm_eval"
    (task,) = read(file, metric="acc")
    (new,) = read(samples(tmp_path, map(choice_row, ALL)), metric="acc")
    assert (task.task, task.equal, task.scores) == ("colours", True, new.scores)
    for old, answer in zip(task.answers, new.answers, strict=True):
        for name in ("text", "choices", "answer", "name", "prediction", "logprobs", "prompt"):
            assert getattr(old, name) == getattr(answer, name), name


def test_two_metrics_need_a_choice(tmp_path: Path) -> None:
    file = samples(tmp_path, map(choice_row, ALL))
    assert "2 metrics: acc (0.75 over 4), acc_norm (0.75 over 4) (choose one with --metric)" in fault(file)
    assert "no metric 'f1' in the log (it has: acc, acc_norm)" in fault(file, metric="f1")


def test_two_filters_need_a_choice_and_then_rows_equal_documents(tmp_path: Path) -> None:
    file = samples(tmp_path, sum_rows(), "sums")
    message = fault(file)
    assert "strict-match (exact_match 0.5 over 2), flexible-extract (exact_match 1 over 2) (choose one with --filter)" in message
    (strict,) = read(file, name="strict-match")
    assert (strict.scores, strict.n_rows, strict.metric) == ([1.0, 0.0], 4, "exact_match")
    assert len({answer.doc_hash for answer in strict.answers}) == len(strict.answers) == 2
    (flexible,) = read(file, name="flexible-extract")
    assert (flexible.scores, flexible.answers[1].prediction) == ([1.0, 1.0], "500")


def test_filters_that_an_older_log_does_not_name(tmp_path: Path) -> None:
    file = samples(tmp_path, sum_rows(named=False), "sums")
    assert "2 filters: #1 (exact_match 0.5 over 2), #2 (exact_match 1 over 2)" in fault(file)
    (second,) = read(file, name="#2")
    assert second.scores == [1.0, 1.0]
    cut = samples(tmp_path, sum_rows(named=False)[:3], "cut")
    assert "no whole number of filters" in fault(cut)


def test_two_runs_in_one_file(tmp_path: Path) -> None:
    rows = [choice_row(k) for k in ALL]
    message = fault(samples(tmp_path, rows + rows), metric="acc")
    assert ":5: " in message
    assert "item 'q-1' is in row 1 already" in message


def test_a_question_that_the_data_set_has_twice(tmp_path: Path) -> None:
    rows = [choice_row(k) for k in ALL] + [choice_row(1, doc_id=4, acc=1.0)]
    (task,) = read(samples(tmp_path, rows), metric="acc")
    assert task.recomputed == 4 / 5
    assert task.scores == [1.0, 0.5, 1.0, 1.0]


def test_the_numbering_of_documents_has_no_influence(tmp_path: Path) -> None:
    rows = [choice_row(k) for k in ALL]
    (right,) = read(samples(tmp_path, rows), metric="acc")
    items, _dropped = items_of(right.answers, "colours", "other")
    wrong = [{**row, "doc_id": (k + 1) % 4} for k, row in enumerate(rows)]
    log = read_lm_eval([samples(tmp_path, reversed(wrong))])
    shuffled = match(log, select(log, "acc", None), items)
    assert [(score.item_id, score.score) for score in shuffled.scores] == [
        (f"colours-{question['id']}", score) for question, score in zip(QUESTIONS, ACC, strict=True)
    ]


@pytest.mark.parametrize(
    ("value", "score"), [("1.0", 1.0), (True, 1.0), (1, 1.0), ("0.25", 0.25), (None, None), (float("nan"), None), ([True, False], 0.5)]
)
def test_values_in_many_forms(tmp_path: Path, value: Any, score: float | None) -> None:
    (task,) = read(samples(tmp_path, [choice_row(0, acc=value), choice_row(1)]), metric="acc")
    assert task.scores[0] == score


def test_a_metric_out_of_range_is_no_score(tmp_path: Path) -> None:
    rows = [choice_row(k, metrics=["acc", "bleu", "pair"], bleu=31.5, pair=["a", "b"]) for k in ALL]
    file = samples(tmp_path, [{key: value for key, value in row.items() if key != "acc_norm"} for row in rows])
    (task,) = read(file)
    assert task.metric == "acc"
    assert "bleu is no score: 31.5 in row 1: not from 0 to 1" in fault(file, metric="bleu")
    alone = samples(tmp_path, [choice_row(k, metrics=["bleu"], bleu=31.5) for k in ALL], "alone")
    assert "no metric is a score from 0 to 1 (bleu: 31.5 in row 1" in fault(alone)


@pytest.mark.parametrize("value", ["nan", "-inf", "inf"])
def test_a_log_probability_that_is_not_finite_is_unscored(tmp_path: Path, value: str) -> None:
    """The harness takes NaN for the greatest and scores choice A."""
    rows = [choice_row(k) for k in ALL]
    rows[0]["filtered_resps"][0][0] = value
    (task,) = read(samples(tmp_path, rows), metric="acc")
    assert task.scores == [None, 0.0, 1.0, 1.0]
    assert task.answers[0].fault == "not_finite"
    assert task.recomputed == 0.75  # the log's own accuracy counts it


def test_a_limited_run_is_told(tmp_path: Path) -> None:
    file = samples(tmp_path, map(choice_row, ALL))
    results(tmp_path, **{"n-samples": {"colours": {"original": 400, "effective": 4}}})
    assert read_lm_eval([file]).notes == ["colours: the run asked 4 of 400 items (--limit or --samples)"]
    results(tmp_path, **{"n-samples": {}, "config": {"limit": 4.0}})
    assert read_lm_eval([file]).notes == ["colours: the run was limited (--limit 4.0)"]


def test_an_accuracy_that_contradicts_the_log_probabilities_is_told(tmp_path: Path) -> None:
    file = samples(tmp_path, [choice_row(0, acc=0.0), choice_row(1), choice_row(2)])
    assert read_lm_eval([file]).notes == ["colours: acc contradicts the log-probabilities and the target in 1 of 3 rows, first in row 1"]


def test_several_tasks_with_their_own_metrics(tmp_path: Path) -> None:
    files = [samples(tmp_path, map(choice_row, ALL)), samples(tmp_path, sum_rows(), "sums")]
    colours, sums = read(*files, metric="acc_norm", name="strict-match")
    assert (colours.metric, sums.metric, sums.filter) == ("acc_norm", "exact_match", "strict-match")
    again = write_lines(tmp_path / "samples_colours_2026-02-02T00-00-00.0.jsonl", [choice_row(0)])
    assert f"task colours is also in {files[0].name}" in fault(files[0], again, metric="acc")


def test_the_prediction_is_that_of_the_metric(tmp_path: Path) -> None:
    """acc chooses by the sum, acc_norm by the sum over the characters: -2.5 / 4 is more than -1.5 / 3."""
    rows = [choice_row(1, filtered_resps=[["-1.8", "False"], ["-1.9", "False"], ["-9", "False"]])]
    file = samples(tmp_path, rows)
    assert read(file, metric="acc")[0].answers[0].prediction == "0"
    assert read(file, metric="acc_norm")[0].answers[0].prediction == "1"


def docs(tmp_path: Path, rows: list[dict[str, Any]]) -> tuple[str, Any]:
    log = read_lm_eval([samples(tmp_path, rows, "other")])
    return log.understood["other"], log.answers[0]


def generation(doc: dict[str, Any], text: str, target: Any, **more: Any) -> dict[str, Any]:
    asked = {"gen_args_0": {"arg_0": text, "arg_1": {"until": []}}}
    return {"doc_id": 0, "doc": doc, "target": target, "arguments": asked, "filtered_resps": ["?"], "exact_match": 0.0, **more}


def test_passage_and_question_are_found_in_their_order(tmp_path: Path) -> None:
    doc = {"question": "is the lake a deep one", "passage": "The lake is ninety  metres deep.", "title": "Lake", "label": 1}
    shots = "A shot.\nQuestion: is it?\nAnswer: yes\n\n"
    text = shots + "The lake is ninety metres deep.\nQuestion: is the lake a deep one?\nAnswer:"
    asked = {f"gen_args_{k}": {"arg_0": text, "arg_1": f" {name}"} for k, name in enumerate(("no", "yes"))}
    row = {"doc_id": 0, "doc": doc, "target": "1", "arguments": asked, "filtered_resps": [["-2", "False"], ["-1", "True"]], "acc": 1.0}
    understood, answer = docs(tmp_path, [row])
    assert understood == "text doc.passage, doc.question; choices the continuations; id a hash of the content"
    assert answer.text == "The lake is ninety  metres deep.\nis the lake a deep one"
    assert (answer.choices, answer.answer) == (("no", "yes"), 1)


def test_letters_as_continuations_still_give_the_texts_of_the_choices(tmp_path: Path) -> None:
    doc = {
        "question": "Which gas do plants take in?",
        "choices": {"label": ["A", "B"], "text": ["oxygen", "carbon dioxide"]},
        "answerKey": "B",
    }
    text = "Which gas do plants take in?\nA. oxygen\nB. carbon dioxide\nAnswer:"
    asked = [[text, " A"], [text, " B"]]
    row = {"doc_id": 0, "doc": doc, "target": "B", "arguments": asked, "filtered_resps": [[-2.0, False], [-1.0, True]], "acc": 1.0}
    understood, answer = docs(tmp_path, [row])
    assert "choices doc.choices.text" in understood
    assert (answer.choices, answer.answer) == (("oxygen", "carbon dioxide"), 1)


def test_choices_inside_the_context(tmp_path: Path) -> None:
    """As Winogrande is asked: the choice stands in the context, the end of the sentence is the continuation."""
    doc = {"sentence": "The cup did not fit the bag because _ was too big.", "option1": "the cup", "option2": "the bag", "answer": "1"}
    start = "The cup did not fit the bag because "
    asked = [[start + "the cup", " was too big."], [start + "the bag", " was too big."]]
    row = {"doc_id": 0, "doc": doc, "target": "0", "arguments": asked, "filtered_resps": [[-1.0, False], [-2.0, False]], "acc": 1.0}
    _understood, answer = docs(tmp_path, [row])
    assert answer.text == "The cup did not fit the bag because the _ was too big."
    assert (answer.choices, answer.answer) == (("cup", "bag"), 0)


def test_options_of_a_generation(tmp_path: Path) -> None:
    doc = {
        "question_id": 70,
        "question": "What is the capital of France?",
        "options": ["Rome", "Paris", "Oslo"],
        "answer": "B",
        "category": "other",
    }
    understood, answer = docs(tmp_path, [generation(doc, "Question: What is the capital of France?\nA. Rome", "B")])
    assert understood == "text doc.question; choices doc.options; id doc.question_id"
    assert (answer.choices, answer.answer, answer.target, answer.name, dict(answer.meta)) == (
        ("Rome", "Paris", "Oslo"),
        1,
        None,
        "70",
        {"category": "other"},
    )


@pytest.mark.parametrize("target", [["Paris", "paris, France"], "['Paris', 'paris, France']"])
def test_several_references(tmp_path: Path, target: Any) -> None:
    _understood, answer = docs(
        tmp_path, [generation({"question": "What is the capital of France?"}, "What is the capital of France?", target)]
    )
    assert (answer.target, answer.references) == ("Paris", ("Paris", "paris, France"))


def test_a_chat_prompt_and_a_document_that_does_not_hold_it(tmp_path: Path) -> None:
    chat = json.dumps([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Is 17 a prime number?"}])
    understood, answer = docs(tmp_path, [generation({"number": 17}, chat, "yes")])
    assert understood.startswith("text the prompt; choices none")
    assert answer.text == "Is 17 a prime number?"


def test_fixed_examples_are_cut_from_a_prompt(tmp_path: Path) -> None:
    shots = "Is 4 prime?\nno\n\nIs 5 prime?\nyes\n\n"
    rows = [generation({"number": n}, f"{shots}Is {n} prime?", "yes", doc_id=n) for n in (7, 9)]
    log = read_lm_eval([samples(tmp_path, rows, "primes")])
    assert [answer.text for answer in log.answers] == ["Is 7 prime?", "Is 9 prime?"]


def test_text_of_any_script_comes_through(tmp_path: Path) -> None:
    doc = {"id": "語", "question": "水 は 何 度 で 凍りますか <|im_start|> مرحبا\u2028?", "choices": ["零度", "百度"], "answer": 0}
    asked = {f"gen_args_{k}": {"arg_0": doc["question"], "arg_1": choice} for k, choice in enumerate(doc["choices"])}
    row = choice_row(0, doc=doc, arguments=asked, filtered_resps=[["-1", "F"], ["-2", "F"]])
    (task,) = read(samples(tmp_path, [row]), metric="acc")
    assert (task.answers[0].text, task.answers[0].name) == (doc["question"], "語")


GOOD = json.dumps(choice_row(0))


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", "the file is empty"),
        (GOOD.encode() + b"\n" + GOOD[:-20].encode(), ":2: not valid JSON"),
        (GOOD.encode() + b"\n" + GOOD[:-20].encode(), "the file may be cut short"),
        (GOOD.encode() + b"\n\x00\n", ":2: holds a NUL byte"),
        (GOOD.encode() + b'\n{"doc": "\xff"}\n', ":2: not UTF-8 at byte 9 of the line"),
        (GOOD.encode() + b"\n3\n", ":2: each line must be a JSON object"),
        (GOOD.encode() + b"\n" + b"[" * 100_000 + b"\n", ":2: JSON that cannot be read"),
        (GOOD.encode() + b'\n{"acc": 1.0, "doc": {}, "acc": 0.0}\n', ":2: acc: the key occurs twice in one object"),
        (b'{"doc": {}}\n', ":1: arguments: is missing"),
        (b'{"doc": "text", "arguments": []}\n', ":1: doc: is missing, or of another type"),
        (b"\n\n", "holds no row"),
    ],
)
def test_damaged_files_are_named(tmp_path: Path, data: bytes, expected: str) -> None:
    file = tmp_path / "samples_colours_2026.jsonl"
    file.write_bytes(data)
    assert expected in fault(file, metric="acc")


def test_a_damaged_gzip_file(tmp_path: Path) -> None:
    file = tmp_path / "samples_colours_2026.jsonl.gz"
    file.write_bytes(gzip.compress(GOOD.encode() * 100)[:-20])
    assert "not a readable gzip file" in fault(file)


def test_a_results_file_is_no_log(tmp_path: Path) -> None:
    file = results(tmp_path)
    file.write_text(json.dumps(json.loads(file.read_text()), indent=2))
    with pytest.raises(InputError, match=r"give samples_\*\.jsonl"):
        detect(file)
