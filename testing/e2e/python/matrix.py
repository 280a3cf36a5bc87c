"""Runs cells of the SDK matrix, each with an unmodified client, and prints what the clients saw: one JSON object.

usage: matrix.py < PLAN

The plan: {"base_url": URL, "cells": [{"row", "scenario", "model", "key"}]}; rows of other drivers are left out.
Cells run side by side, as most of a cell is waiting. What a client saw is judged by the caller, never here; an error
of the client is reported, not raised. What it sent is counted by others.
"""

import concurrent.futures
import importlib.metadata
import json
import os
import sys

# LiteLLM would fetch its price table from the network at import.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
os.environ["LITELLM_LOG"] = "CRITICAL"

QUESTION = [{"role": "user", "content": "What is in the book?"}]
TOOL = "weather"
DESCRIPTION = "the weather of a city"
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city"],
}
OPENAI_TOOLS = {
    "tools": [{"type": "function", "function": {"name": TOOL, "description": DESCRIPTION, "parameters": SCHEMA}}],
    "tool_choice": "required",
}
RESPONSES_TOOLS = {
    "tools": [{"type": "function", "name": TOOL, "description": DESCRIPTION, "parameters": SCHEMA}],
    "tool_choice": "required",
}
ANTHROPIC_TOOLS = {
    "tools": [{"name": TOOL, "description": DESCRIPTION, "input_schema": SCHEMA}],
    "tool_choice": {"type": "any"},
}
CAP = 64


class Seen:
    """What one call gave, in the words that all drivers share."""

    def __init__(self):
        self.text = ""
        self.finish = None
        self.output = None
        self.tool = None
        self.arguments = None
        self.pieces = 0

    def as_dict(self):
        return dict(vars(self))


class OpenAiChat:
    """`openai`, chat completions."""

    package = "openai"

    def __init__(self, base_url, cell):
        import openai

        self.model = cell["model"]
        self.client = openai.OpenAI(base_url=base_url + "/v1", api_key=cell["key"])

    def plain(self, seen, tools=False):
        extra = OPENAI_TOOLS if tools else {}
        answer = self.client.chat.completions.create(model=self.model, messages=QUESTION, max_tokens=CAP, **extra)
        choice = answer.choices[0]
        seen.text = choice.message.content or ""
        seen.finish = choice.finish_reason
        seen.output = answer.usage.completion_tokens
        for call in choice.message.tool_calls or []:
            seen.tool, seen.arguments = call.function.name, json.loads(call.function.arguments)

    def stream(self, seen, tools=False):
        extra = OPENAI_TOOLS if tools else {"stream_options": {"include_usage": True}}
        arguments = ""
        stream = self.client.chat.completions.create(
            model=self.model, messages=QUESTION, max_tokens=CAP, stream=True, **extra
        )
        for chunk in stream:
            if chunk.usage:
                seen.output = chunk.usage.completion_tokens
            for choice in chunk.choices:
                seen.finish = choice.finish_reason or seen.finish
                seen.text += choice.delta.content or ""
                seen.pieces += bool(choice.delta.content or choice.delta.tool_calls)
                for call in choice.delta.tool_calls or []:
                    seen.tool = call.function.name or seen.tool
                    arguments += call.function.arguments or ""
        if tools:
            seen.arguments = json.loads(arguments)


class OpenAiResponses:
    """`openai`, responses."""

    package = "openai"

    def __init__(self, base_url, cell):
        import openai

        self.model = cell["model"]
        self.client = openai.OpenAI(base_url=base_url + "/v1", api_key=cell["key"])

    def note(self, seen, answer):
        seen.text = answer.output_text
        seen.finish = answer.status
        seen.output = answer.usage.output_tokens
        for item in answer.output:
            if item.type == "function_call":
                seen.tool, seen.arguments = item.name, json.loads(item.arguments)

    def ask(self, tools, **extra):
        if tools:
            extra.update(RESPONSES_TOOLS)
        return self.client.responses.create(
            model=self.model, input="What is in the book?", max_output_tokens=CAP, **extra
        )

    def plain(self, seen, tools=False):
        self.note(seen, self.ask(tools))

    def stream(self, seen, tools=False):
        for event in self.ask(tools, stream=True):
            if event.type == "error":
                raise RuntimeError(f"an event says: {event.message}")
            if event.type == "response.output_text.delta":
                seen.text += event.delta
            seen.pieces += event.type.endswith(("output_text.delta", "arguments.delta"))
            if event.type in ("response.completed", "response.incomplete", "response.failed"):
                self.note(seen, event.response)


class AnthropicMessages:
    """`anthropic`, messages."""

    package = "anthropic"

    def __init__(self, base_url, cell):
        import anthropic

        self.model = cell["model"]
        self.client = anthropic.Anthropic(base_url=base_url, api_key=cell["key"])

    def note(self, seen, answer):
        seen.finish = answer.stop_reason
        seen.output = answer.usage.output_tokens
        for block in answer.content:
            if block.type == "text":
                seen.text += block.text
            elif block.type == "tool_use":
                seen.tool, seen.arguments = block.name, block.input

    def plain(self, seen, tools=False):
        extra = ANTHROPIC_TOOLS if tools else {}
        self.note(
            seen, self.client.messages.create(model=self.model, messages=QUESTION, max_tokens=CAP, **extra)
        )

    def stream(self, seen, tools=False):
        extra = ANTHROPIC_TOOLS if tools else {}
        with self.client.messages.stream(
            model=self.model, messages=QUESTION, max_tokens=CAP, **extra
        ) as stream:
            for event in stream:
                seen.pieces += event.type == "content_block_delta"
            self.note(seen, stream.get_final_message())


class LangChain:
    """Either of LangChain's chat models."""

    def tool(self):
        from langchain_core.tools import tool

        @tool
        def weather(city: str, days: int) -> str:
            """the weather of a city"""
            return city + str(days)

        return self.chat.bind_tools([weather], tool_choice="any")

    def note(self, seen, message):
        content = message.content
        if isinstance(content, list):
            content = "".join(part.get("text", "") for part in content if isinstance(part, dict))
        seen.text += content
        about = message.response_metadata
        seen.finish = about.get("finish_reason") or about.get("stop_reason") or about.get("status")
        if message.usage_metadata:
            seen.output = message.usage_metadata["output_tokens"]
        for call in message.tool_calls:
            seen.tool, seen.arguments = call["name"], call["args"]

    def plain(self, seen, tools=False):
        self.note(seen, (self.tool() if tools else self.chat).invoke("What is in the book?"))

    def stream(self, seen, tools=False):
        whole = None
        for chunk in (self.tool() if tools else self.chat).stream("What is in the book?"):
            seen.pieces += bool(chunk.content or chunk.tool_call_chunks)
            whole = chunk if whole is None else whole + chunk
        self.note(seen, whole)


class LangChainOpenAi(LangChain):
    package = "langchain-openai"
    extra = {}

    def __init__(self, base_url, cell):
        from langchain_openai import ChatOpenAI

        self.chat = ChatOpenAI(
            model=cell["model"], api_key=cell["key"], base_url=base_url + "/v1", max_tokens=CAP, **self.extra
        )


class LangChainResponses(LangChainOpenAi):
    extra = {"use_responses_api": True}


class LangChainAnthropic(LangChain):
    package = "langchain-anthropic"

    def __init__(self, base_url, cell):
        from langchain_anthropic import ChatAnthropic

        self.chat = ChatAnthropic(
            model=cell["model"], api_key=cell["key"], base_url=base_url, max_tokens=CAP
        )


class LiteLlm:
    """`litellm` as a client, with its router, as it is used in front of several models."""

    package = "litellm"
    provider = "openai"
    path = "/v1"

    def __init__(self, base_url, cell):
        import litellm

        target = {
            "model": f"{self.provider}/{cell['model']}",
            "api_key": cell["key"],
            "api_base": base_url + self.path,
        }
        self.router = litellm.Router(
            model_list=[{"model_name": "book", "litellm_params": target}], num_retries=2
        )

    def ask(self, tools, **extra):
        if tools:
            extra.update(OPENAI_TOOLS)
        return self.router.completion(model="book", messages=QUESTION, max_tokens=CAP, **extra)

    def plain(self, seen, tools=False):
        answer = self.ask(tools)
        choice = answer.choices[0]
        seen.text = choice.message.content or ""
        seen.finish = choice.finish_reason
        seen.output = answer.usage.completion_tokens
        for call in choice.message.tool_calls or []:
            seen.tool, seen.arguments = call.function.name, json.loads(call.function.arguments)

    def stream(self, seen, tools=False):
        arguments = ""
        for chunk in self.ask(tools, stream=True, stream_options={"include_usage": True}):
            usage = getattr(chunk, "usage", None)
            if usage:
                seen.output = usage.completion_tokens
            for choice in chunk.choices:
                seen.finish = choice.finish_reason or seen.finish
                seen.text += choice.delta.content or ""
                seen.pieces += bool(choice.delta.content or choice.delta.tool_calls)
                for call in choice.delta.tool_calls or []:
                    seen.tool = call.function.name or seen.tool
                    arguments += call.function.arguments or ""
        if tools:
            seen.arguments = json.loads(arguments)


class LiteLlmAnthropic(LiteLlm):
    provider = "anthropic"
    path = ""


ROWS = {
    "openai-python-chat": OpenAiChat,
    "openai-python-responses": OpenAiResponses,
    "anthropic-python": AnthropicMessages,
    "langchain-openai-chat": LangChainOpenAi,
    "langchain-openai-responses": LangChainResponses,
    "langchain-anthropic": LangChainAnthropic,
    "litellm-openai": LiteLlm,
    "litellm-anthropic": LiteLlmAnthropic,
}


def calls_of(scenario, client):
    """What a scenario has the client do, one call after another."""
    return {
        "plain": [client.plain],
        "stream": [client.stream],
        "tools": [lambda seen: client.plain(seen, tools=True)],
        "tools_stream": [lambda seen: client.stream(seen, tools=True)],
        "error": [client.plain],
        "stream_error": [client.stream],
        "rate": [client.plain, client.plain],
        "budget": [client.plain, client.plain],
    }[scenario]


def error_of(error):
    return {
        "class": type(error).__name__,
        "status": getattr(error, "status_code", None),
        "message": str(error),
    }


def run(base_url, cell):
    outcome = {"row": cell["row"], "scenario": cell["scenario"], "calls": []}
    try:
        client = ROWS[cell["row"]](base_url, cell)
        calls = calls_of(cell["scenario"], client)
    except Exception as error:  # a client that cannot be made has failed its cell
        outcome["calls"].append({"error": error_of(error)})
        return outcome
    for call in calls:
        seen = Seen()
        error = None
        try:
            call(seen)
        except Exception as raised:  # whatever a client raises is what its user sees
            error = error_of(raised)
        outcome["calls"].append({**seen.as_dict(), "error": error})
    return outcome


def main():
    plan = json.load(sys.stdin)
    cells = [cell for cell in plan["cells"] if cell["row"] in ROWS]
    # Imports are not for many threads at once.
    for row in sorted({cell["row"] for cell in cells}):
        ROWS[row](plan["base_url"], {"model": "none", "key": "none"})
    with concurrent.futures.ThreadPoolExecutor(len(cells)) as pool:
        outcomes = list(pool.map(lambda cell: run(plan["base_url"], cell), cells))
    packages = sorted({ROWS[cell["row"]].package for cell in cells})
    versions = {name: importlib.metadata.version(name) for name in packages}
    # Clients print warnings; the result is the last line.
    sys.stdout.write("\n" + json.dumps({"versions": versions, "cells": outcomes}) + "\n")


if __name__ == "__main__":
    main()
