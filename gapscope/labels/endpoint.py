"""An OpenAI-compatible chat endpoint, asked over plain HTTP with the standard library.

The key comes from the environment, goes into one header, and is taken out of every message before that is raised or logged.
Redirects are refused, since they would carry it elsewhere.
"""

from __future__ import annotations

import http.client
import json
import logging
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from gapscope.errors import InputError
from gapscope.labels.replies import Reply
from gapscope.params_labels import Endpoint

logger = logging.getLogger(__name__)

FIRST_WAIT, LONGEST_WAIT = 1.0, 60.0
"""Seconds before the first further attempt, doubled before each one after it, and the most that is waited."""

MAX_BYTES = 4_000_000
"""A reply longer than this is no reply."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """Follow none: urllib then raises the redirect as an error."""
        return


class _TransientError(Exception):
    """A fault that another attempt may not meet; ``wait`` is what the server asks to wait (seconds)."""

    def __init__(self, message: str, wait: float | None = None) -> None:
        super().__init__(message)
        self.wait = wait


@dataclass(frozen=True)
class EndpointWriter:
    """A writer behind an endpoint.

    Attributes:
        endpoint: where and how to ask.
        key: the secret, or None; never shown.
        sleep: waits between attempts.
    """

    endpoint: Endpoint
    key: str | None = field(default=None, repr=False)
    sleep: Callable[[float], None] = time.sleep

    @staticmethod
    def of(endpoint: Endpoint) -> EndpointWriter:
        """The writer, with its key from the environment.

        Raises:
            InputError: the variable is named but not set.
        """
        if endpoint.key_variable is None:
            return EndpointWriter(endpoint)
        key = os.environ.get(endpoint.key_variable, "").strip()
        if not key:
            message = f"the environment variable {endpoint.key_variable} is not set"
            raise InputError(message, field="labels.llm.key_variable", fix="export it, or set key_variable to null")
        return EndpointWriter(endpoint, key)

    @property
    def identity(self) -> dict[str, Any]:
        """What a reply depends on: where, which model, and how long it may be."""
        return {"kind": "endpoint", "url": self.endpoint.url, "model": self.endpoint.model, "max_tokens": self.endpoint.max_tokens}

    @property
    def parallel(self) -> int:
        """Requests under way at once."""
        return self.endpoint.parallel

    def reply(self, prompt: str) -> Reply:
        """The reply to a prompt, at temperature 0, after as many attempts as it takes.

        Raises:
            InputError: the endpoint refuses the request, or no attempt brought a reply.
        """
        wait, attempts = FIRST_WAIT, self.endpoint.retries + 1
        for attempt in range(1, attempts + 1):
            try:
                return read_completion(self._post(prompt))
            except _TransientError as error:
                message = self._hide(str(error))
                if attempt == attempts:
                    fix = "run again later: the replies so far are kept"
                    raise InputError(f"no reply after {attempts} attempts: {message}", file=self.endpoint.url, fix=fix) from None
                pause = min(LONGEST_WAIT, wait if error.wait is None else max(error.wait, 0.0))
                logger.warning("%s: %s; attempt %d of %d follows in %g s", self.endpoint.url, message, attempt + 1, attempts, pause)
                self.sleep(pause)
                wait *= 2
        raise AssertionError("unreachable: the last attempt returns or raises")

    def _post(self, prompt: str) -> bytes:
        body = {
            "model": self.endpoint.model,
            "messages": [{"role": "user", "content": prompt}],
            "max_tokens": self.endpoint.max_tokens,
            "temperature": 0,
        }
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self.key is not None:
            headers["Authorization"] = f"Bearer {self.key}"
        address = self.endpoint.url.rstrip("/") + "/chat/completions"
        request = urllib.request.Request(address, json.dumps(body).encode(), headers, method="POST")
        try:
            with urllib.request.build_opener(_NoRedirect).open(request, timeout=self.endpoint.timeout) as response:
                data: bytes = response.read(MAX_BYTES + 1)
        except urllib.error.HTTPError as error:
            raise self._refusal(error) from None
        except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
            reason = getattr(error, "reason", None) or error
            raise _TransientError(f"no answer ({reason or type(error).__name__})") from None
        if len(data) > MAX_BYTES:
            raise _TransientError(f"an answer of more than {MAX_BYTES} bytes")
        return data

    def _refusal(self, error: urllib.error.HTTPError) -> Exception:
        """What an HTTP status means: to be tried again, or not."""
        said = _short(error.read(2000))
        if error.code in (408, 409, 425, 429) or error.code >= 500:
            return _TransientError(f"status {error.code}{said}", _seconds(error.headers.get("Retry-After")))
        fixes = {401: "check the key", 403: "check the key", 404: "check labels.llm.url and labels.llm.model"}
        fix = "give the address it redirects to" if 300 <= error.code < 400 else fixes.get(error.code)
        return InputError(self._hide(f"refuses the request with status {error.code}{said}"), file=self.endpoint.url, fix=fix)

    def _hide(self, text: str) -> str:
        return text if self.key is None else text.replace(self.key, "***")


def read_completion(data: bytes) -> Reply:
    """The reply in a chat completion.

    Raises:
        _TransientError: it is no JSON, or holds no text. Both are seen from overloaded servers and their proxies.
    """
    try:
        found = json.loads(data)
    except ValueError:
        raise _TransientError(f"an answer that is not JSON{_short(data)}") from None
    try:
        choice = found["choices"][0]
        text = choice["message"]["content"]
    except (KeyError, IndexError, TypeError):
        raise _TransientError(f"an answer without choices[0].message.content{_short(data)}") from None
    if not isinstance(text, str):
        raise _TransientError("an answer whose content is no text")
    usage = found.get("usage") or {}
    counts = [usage.get(name) if isinstance(usage, dict) else None for name in ("prompt_tokens", "completion_tokens")]
    prompt, completion = (count if isinstance(count, int) and count >= 0 else None for count in counts)
    ended = choice.get("finish_reason")
    return Reply(text, prompt, completion, ended if isinstance(ended, str) else None)


def _short(data: bytes) -> str:
    text = " ".join(data[:200].decode("utf-8", "replace").split())
    return f": {text}" if text else ""


def _seconds(header: str | None) -> float | None:
    """Retry-After in seconds; a date, or nothing, is None."""
    try:
        return None if header is None else float(header)
    except ValueError:
        return None
