"""Drives cases with the official SDKs, unmodified, and prints what happened: a JSON list with one object per case.

usage: sdk.py CASE [CASE ...] --base-url URL --key KEY [--model NAME] [--script JSON] [--calls N] [--max-retries N] [--timeout S]

`attempts` are the HTTP statuses in the order in which they came back, the SDK's own retries included; an error is
reported, not raised. The exit code is 0 whenever the case ran, whatever its outcome; the caller judges.
"""

import argparse
import json
import sys
import time

import anthropic
import openai

TOOL_SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city"],
}
QUESTION = [{"role": "user", "content": "What is in the book?"}]


class Attempts:
    """What went over the wire, counted below the SDK's retries."""

    def __init__(self):
        self.statuses = []
        self.retry_counts = []
        self.request_ids = []
        self.headers = {}

    def on_request(self, request):
        self.retry_counts.append(request.headers.get("x-stainless-retry-count"))

    def on_response(self, response):
        self.statuses.append(response.status_code)
        self.request_ids.append(response.headers.get("x-request-id") or response.headers.get("request-id"))
        self.headers = {name: value for name, value in response.headers.items() if interesting(name)}

    def hooks(self):
        return {"request": [self.on_request], "response": [self.on_response]}


def interesting(name):
    return name.startswith(("x-ratelimit", "anthropic-ratelimit", "ratelimit", "retry-after", "x-tollbook", "x-should"))


def usage_of(value):
    return None if value is None else value.to_dict()


def openai_client(options, attempts):
    return openai.OpenAI(
        base_url=options.base_url.rstrip("/") + "/v1",
        api_key=options.key,
        max_retries=options.max_retries,
        timeout=options.timeout,
        http_client=openai.DefaultHttpxClient(event_hooks=attempts.hooks()),
    )


def anthropic_client(options, attempts):
    return anthropic.Anthropic(
        base_url=options.base_url,
        api_key=options.key,
        max_retries=options.max_retries,
        timeout=options.timeout,
        http_client=anthropic.DefaultHttpxClient(event_hooks=attempts.hooks()),
    )


def chat(client, options, **extra):
    if options.script:
        extra["extra_headers"] = {"x-mock-script": options.script}
    return client.chat.completions.create(model=options.model, messages=QUESTION, **extra)


def messages(client, options, **extra):
    if options.script:
        extra["extra_headers"] = {"x-mock-script": options.script}
    extra.setdefault("max_tokens", 64)
    return client.messages.create(model=options.model, messages=QUESTION, **extra)


def openai_plain(client, options):
    answer = chat(client, options, max_tokens=64)
    choice = answer.choices[0]
    return {
        "text": choice.message.content,
        "finish": choice.finish_reason,
        "usage": usage_of(answer.usage),
        "model": answer.model,
    }


def openai_stream(client, options, **extra):
    text, finish, usage, chunks, empty = [], None, None, 0, 0
    for chunk in chat(client, options, stream=True, max_tokens=64, **extra):
        chunks += 1
        usage = chunk.usage or usage
        if not chunk.choices:
            empty += 1
            continue
        text.append(chunk.choices[0].delta.content or "")
        finish = chunk.choices[0].finish_reason or finish
    return {
        "text": "".join(text),
        "finish": finish,
        "usage": usage_of(usage),
        "chunks": chunks,
        "chunks_without_choice": empty,
    }


def openai_stream_usage(client, options):
    return openai_stream(client, options, stream_options={"include_usage": True})


OPENAI_TOOLS = {
    "tools": [{"type": "function", "function": {"name": "weather", "parameters": TOOL_SCHEMA}}],
    "tool_choice": "required",
}


def openai_tools(client, options):
    answer = chat(client, options, max_tokens=64, **OPENAI_TOOLS)
    call = answer.choices[0].message.tool_calls[0]
    return {
        "tool": call.function.name,
        "arguments": json.loads(call.function.arguments),
        "finish": answer.choices[0].finish_reason,
        "usage": usage_of(answer.usage),
    }


def openai_tools_stream(client, options):
    name, arguments, finish = None, [], None
    for chunk in chat(client, options, stream=True, max_tokens=64, **OPENAI_TOOLS):
        for choice in chunk.choices:
            finish = choice.finish_reason or finish
            for call in choice.delta.tool_calls or []:
                name = call.function.name or name
                arguments.append(call.function.arguments or "")
    return {"tool": name, "arguments": json.loads("".join(arguments)), "finish": finish}


def openai_models(client, options):
    return {"models": sorted(model.id for model in client.models.list())}


def anthropic_plain(client, options):
    answer = messages(client, options)
    return {
        "text": "".join(block.text for block in answer.content if block.type == "text"),
        "finish": answer.stop_reason,
        "usage": usage_of(answer.usage),
        "model": answer.model,
    }


def anthropic_stream(client, options):
    extra = {"extra_headers": {"x-mock-script": options.script}} if options.script else {}
    with client.messages.stream(model=options.model, messages=QUESTION, max_tokens=64, **extra) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    return {"text": text, "finish": final.stop_reason, "usage": usage_of(final.usage)}


ANTHROPIC_TOOLS = {
    "tools": [{"name": "weather", "input_schema": TOOL_SCHEMA}],
    "tool_choice": {"type": "any"},
}


def anthropic_tools(client, options):
    answer = messages(client, options, **ANTHROPIC_TOOLS)
    call = next(block for block in answer.content if block.type == "tool_use")
    return {
        "tool": call.name,
        "arguments": call.input,
        "finish": answer.stop_reason,
        "usage": usage_of(answer.usage),
    }


def anthropic_tools_stream(client, options):
    extra = {"extra_headers": {"x-mock-script": options.script}} if options.script else {}
    with client.messages.stream(
        model=options.model, messages=QUESTION, max_tokens=64, **ANTHROPIC_TOOLS, **extra
    ) as stream:
        final = stream.get_final_message()
    call = next(block for block in final.content if block.type == "tool_use")
    return {"tool": call.name, "arguments": call.input, "finish": final.stop_reason}


def anthropic_models(client, options):
    return {"models": sorted(model.id for model in client.models.list())}


CASES = {
    name: case
    for name, case in globals().items()
    if name.startswith(("openai_", "anthropic_")) and not name.endswith("_client")
}


def error_of(error):
    body = getattr(error, "body", None)
    return {
        "class": type(error).__name__,
        "status": getattr(error, "status_code", None),
        "code": getattr(error, "code", None),
        "type": getattr(error, "type", None),
        "message": str(error),
        "body": body if isinstance(body, (dict, list, str, type(None))) else str(body),
    }


def run(case, options):
    attempts = Attempts()
    make = openai_client if case.startswith("openai_") else anthropic_client
    client = make(options, attempts)
    outcomes = []
    started = time.monotonic()
    for _ in range(options.calls):
        before = len(attempts.statuses)
        began = time.monotonic()
        outcome = {}
        try:
            outcome = CASES[case](client, options)
        except (openai.OpenAIError, anthropic.AnthropicError) as error:
            outcome = {"error": error_of(error)}
        outcome["attempts"] = attempts.statuses[before:]
        outcome["elapsed_ms"] = round((time.monotonic() - began) * 1000)
        outcomes.append(outcome)
    return {
        "case": case,
        "sdk": [openai.__version__, anthropic.__version__],
        "calls": outcomes,
        "attempts": attempts.statuses,
        "retry_counts": attempts.retry_counts,
        "request_ids": attempts.request_ids,
        "last_headers": attempts.headers,
        "elapsed_ms": round((time.monotonic() - started) * 1000),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="+", choices=sorted(CASES), metavar="CASE")
    parser.add_argument("--base-url", required=True, help="without /v1")
    parser.add_argument("--key", required=True)
    parser.add_argument("--model", default="mock-small")
    parser.add_argument("--script", help="script for the fake provider, sent as x-mock-script")
    parser.add_argument("--calls", type=int, default=1, help="how often, one after another")
    parser.add_argument("--max-retries", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=30.0)
    options = parser.parse_args()
    json.dump([run(case, options) for case in options.cases], sys.stdout)


if __name__ == "__main__":
    main()
