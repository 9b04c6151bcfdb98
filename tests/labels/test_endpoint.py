from __future__ import annotations

import logging

import pytest
from pydantic import ValidationError

from gapscope.errors import InputError
from gapscope.labels.endpoint import EndpointWriter
from gapscope.labels.replies import Replies, Reply
from gapscope.params_labels import Endpoint
from tests.labels.chat_server import Answer, chat_server, completion

KEY = "sk-very-secret-0815"


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")


def endpoint(url: str, **more: object) -> Endpoint:
    return Endpoint(kind="endpoint", url=url, model="m", **{"retries": 2, "timeout": 5.0, **more})


def writer(url: str, waits: list[float] | None = None, **more: object) -> EndpointWriter:
    return EndpointWriter(endpoint(url, **more), KEY, (lambda _seconds: None) if waits is None else waits.append)


def test_the_request_and_the_reply():
    usage = {"prompt_tokens": 12, "completion_tokens": 3, "total_tokens": 15}
    with chat_server(lambda prompt, _number: completion(f"re: {prompt}", usage, "length")) as server:
        reply = writer(server.url, max_tokens=40).reply("hello")
    assert reply == Reply("re: hello", 12, 3, "length")
    (request,) = server.requests
    assert request["path"] == "/v1/chat/completions"
    assert request["authorization"] == f"Bearer {KEY}"
    message = {"role": "user", "content": "hello"}
    assert request["body"] == {"model": "m", "messages": [message], "max_tokens": 40, "temperature": 0}


def test_no_key_no_header():
    with chat_server(lambda _prompt, _number: completion("x")) as server:
        assert EndpointWriter.of(endpoint(server.url)).reply("hello") == Reply("x", None, None, "stop")
    assert server.requests[0]["authorization"] is None


@pytest.mark.parametrize(
    "fault",
    [
        Answer(429, b"slow down"),
        Answer(500, b"<html>oops</html>"),
        Answer(503),
        Answer(200, b"<html>not json</html>"),
        Answer(200, b'{"choices": []}'),
        Answer(200, b'{"choices": [{"message": {"content": null}}]}'),
        Answer(200, b"[]"),
        Answer(200, b'{"choices": [{"mess', cut=True),
    ],
)
def test_passing_faults_are_tried_again(fault):
    waits: list[float] = []
    with chat_server(lambda _prompt, number: fault if number < 3 else completion("fine")) as server:
        assert writer(server.url, waits).reply("x").text == "fine"
    assert len(server.requests) == 3
    assert waits == [1.0, 2.0]


def test_the_server_says_how_long_to_wait():
    waits: list[float] = []
    answers = [Answer(429, headers={"Retry-After": "7"}), Answer(429, headers={"Retry-After": "9999"}), completion("fine")]
    with chat_server(lambda _prompt, number: answers[number - 1]) as server:
        writer(server.url, waits).reply("x")
    assert waits == [7.0, 60.0]


def test_a_slow_server_and_none_at_all():
    with chat_server(lambda _prompt, number: Answer(wait=3.0) if number == 1 else completion("fine")) as server:
        assert writer(server.url, timeout=0.3).reply("x").text == "fine"
    with pytest.raises(InputError, match=r"no reply after 3 attempts: no answer \(.*refused"):
        writer(server.url).reply("x")


def test_it_gives_up_in_one_line_without_the_key(caplog):
    with chat_server(lambda _prompt, _number: Answer(500, f"your key\n{KEY} is fine".encode())) as server, caplog.at_level(logging.DEBUG):
        with pytest.raises(InputError) as caught:
            writer(server.url).reply("x")
        asked = len(server.requests)
    assert str(caught.value).startswith(f"{server.url}: no reply after 3 attempts: status 500: your key *** is fine")
    assert "\n" not in str(caught.value)
    assert asked == 3
    assert KEY not in caplog.text
    assert KEY not in repr(writer(server.url))


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Answer(401, f"bad key {KEY}".encode()), "status 401: bad key *** (check the key)"),
        (Answer(404, b"no such model"), "status 404: no such model (check labels.llm.url and labels.llm.model)"),
        (Answer(400, b"max_tokens too large"), "status 400: max_tokens too large"),
        (Answer(302, headers={"Location": "http://127.0.0.1:9/elsewhere"}), "status 302 (give the address it redirects to)"),
    ],
)
def test_a_refusal_is_final(answer, words):
    with chat_server(lambda _prompt, _number: answer) as server, pytest.raises(InputError) as caught:
        writer(server.url).reply("x")
    assert words in str(caught.value)
    assert len(server.requests) == 1


def test_the_key_comes_from_the_environment(monkeypatch):
    monkeypatch.delenv("SOME_KEY", raising=False)
    with pytest.raises(InputError, match="the environment variable SOME_KEY is not set"):
        EndpointWriter.of(endpoint("http://127.0.0.1:1/v1", key_variable="SOME_KEY"))
    monkeypatch.setenv("SOME_KEY", KEY)
    made = EndpointWriter.of(endpoint("http://127.0.0.1:1/v1", key_variable="SOME_KEY"))
    assert made.key == KEY
    assert KEY not in str(made.identity)


@pytest.mark.parametrize("url", ["http://user:secret@host/v1", "https://host/v1?key=secret", "ftp://host", "host/v1"])
def test_no_secret_in_the_address(url):
    with pytest.raises(ValidationError):
        endpoint(url)


def test_replies_are_asked_for_once(tmp_path):
    with chat_server(lambda prompt, _number: completion(prompt.upper(), {"prompt_tokens": 2, "completion_tokens": 1})) as server:
        for run in range(2):
            replies = Replies.of(writer(server.url), tmp_path)
            found = replies.ask("label", [("a", "one"), ("b", "two"), ("c", "one")])
            assert [reply.text for reply in found] == ["ONE", "TWO", "ONE"]
            assert replies.n_new == (2 if run == 0 else 0)
            assert replies.totals() == {"n_replies": 3, "n_without_tokens": 0, "n_cut_short": 0, "prompt_tokens": 6, "completion_tokens": 3}
        assert len(server.requests) == 2
        Replies.of(writer(server.url, max_tokens=9), tmp_path).ask("label", [("a", "one")])
        assert len(server.requests) == 3, "another length is another question"


def test_what_came_in_before_a_failure_is_kept(tmp_path):
    prompts = [(str(k), f"prompt {k}") for k in range(12)]
    failing = [True]

    def answer(prompt: str, number: int) -> Answer:
        return Answer(403) if failing[0] and number > 5 else completion(prompt)

    with chat_server(answer) as server:
        with pytest.raises(InputError, match="status 403"):
            Replies.of(writer(server.url, parallel=1), tmp_path).ask("label", prompts)
        assert len(list(tmp_path.rglob("*.json"))) == 5
        failing[0] = False
        replies = Replies.of(writer(server.url), tmp_path)
        assert [reply.text for reply in replies.ask("label", prompts)] == [prompt for _about, prompt in prompts]
    assert replies.n_new == 7


def test_half_a_character_is_replaced_and_kept(tmp_path):
    whole, half = "a smile \U0001f600", "a smile \ud83d"
    with chat_server(lambda prompt, _number: completion(whole if prompt == "whole" else half, ended="\udfff")) as server:
        for _run in range(2):
            found = Replies.of(writer(server.url), tmp_path).ask("label", [("a", "whole"), ("b", "half")])
            assert [(reply.text, reply.ended) for reply in found] == [(whole, "\ufffd"), ("a smile \ufffd", "\ufffd")]
        assert len(server.requests) == 2
