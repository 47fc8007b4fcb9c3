# SPDX-License-Identifier: Apache-2.0
"""Sends chats to a server with the openai client; runs in vLLM's environment.

Usage: vllm_chat.py URL. Reads {"chats": [messages, ...], "tokens": n} from standard input and
writes [{"text": ..., "tok_s": ...}, ...]; tok_s is the pace from the first token to the last.
"""

import json
import sys
import time

from openai import OpenAI


def main() -> None:
    job = json.load(sys.stdin)
    client = OpenAI(base_url=sys.argv[1] + "/v1", api_key="none", timeout=600, max_retries=0)
    model = client.models.list().data[0].id
    answers = [_chat(client, model, messages, job["tokens"]) for messages in job["chats"]]
    json.dump(answers, sys.stdout)


def _chat(client: OpenAI, model: str, messages: list[dict], tokens: int) -> dict:
    stream = client.chat.completions.create(
        model=model, messages=messages, max_tokens=tokens, temperature=0, stream=True
    )
    parts, times = [], []
    for chunk in stream:
        if chunk.choices and (text := chunk.choices[0].delta.content):
            parts.append(text)
            times.append(time.monotonic())
    pace = (len(times) - 1) / (times[-1] - times[0]) if len(times) > 1 else 0.0
    return {"text": "".join(parts), "tok_s": pace}


main()
