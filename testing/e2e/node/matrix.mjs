// Runs cells of the SDK matrix, each with an unmodified client, and prints what the clients saw: one JSON object.
//
// usage: node matrix.mjs < PLAN
//
// The plan: {"base_url": URL, "cells": [{"row", "scenario", "model", "key"}]}. Cells run side by side. What a client
// saw is judged by the caller, never here; an error of the client is reported, not raised.

import { readFileSync } from 'node:fs';

import Anthropic from '@anthropic-ai/sdk';
import { createAnthropic } from '@ai-sdk/anthropic';
import { createOpenAI } from '@ai-sdk/openai';
import { generateText, streamText, tool } from 'ai';
import OpenAI from 'openai';
import { z } from 'zod';

const TEXT = 'What is in the book?';
const QUESTION = [{ role: 'user', content: TEXT }];
const TOOL = 'weather';
const DESCRIPTION = 'the weather of a city';
const SCHEMA = {
  type: 'object',
  properties: { city: { type: 'string' }, days: { type: 'integer' } },
  required: ['city'],
};
const CAP = 64;

class OpenAiChat {
  static package = 'openai';
  tools = {
    tools: [{ type: 'function', function: { name: TOOL, description: DESCRIPTION, parameters: SCHEMA } }],
    tool_choice: 'required',
  };

  constructor(baseUrl, cell) {
    this.model = cell.model;
    this.client = new OpenAI({ baseURL: `${baseUrl}/v1`, apiKey: cell.key });
  }

  ask(more) {
    return this.client.chat.completions.create({
      model: this.model, messages: QUESTION, max_tokens: CAP, ...more,
    });
  }

  async plain(seen, tools) {
    const answer = await this.ask(tools ? this.tools : {});
    const [choice] = answer.choices;
    seen.text = choice.message.content ?? '';
    seen.finish = choice.finish_reason;
    seen.output = answer.usage.completion_tokens;
    for (const call of choice.message.tool_calls ?? []) {
      seen.tool = call.function.name;
      seen.arguments = JSON.parse(call.function.arguments);
    }
  }

  async stream(seen, tools) {
    const more = tools ? this.tools : { stream_options: { include_usage: true } };
    let pieces = '';
    for await (const chunk of await this.ask({ stream: true, ...more })) {
      seen.output = chunk.usage?.completion_tokens ?? seen.output;
      for (const choice of chunk.choices) {
        seen.finish = choice.finish_reason ?? seen.finish;
        seen.text += choice.delta.content ?? '';
        seen.pieces += choice.delta.content || choice.delta.tool_calls ? 1 : 0;
        for (const call of choice.delta.tool_calls ?? []) {
          seen.tool = call.function.name ?? seen.tool;
          pieces += call.function.arguments ?? '';
        }
      }
    }
    if (tools) seen.arguments = JSON.parse(pieces);
  }
}

class OpenAiResponses {
  static package = 'openai';
  tools = {
    tools: [{ type: 'function', name: TOOL, description: DESCRIPTION, parameters: SCHEMA, strict: false }],
    tool_choice: 'required',
  };

  constructor(baseUrl, cell) {
    this.model = cell.model;
    this.client = new OpenAI({ baseURL: `${baseUrl}/v1`, apiKey: cell.key });
  }

  ask(tools, more) {
    return this.client.responses.create({
      model: this.model, input: TEXT, max_output_tokens: CAP, ...(tools ? this.tools : {}), ...more,
    });
  }

  note(seen, answer) {
    seen.finish = answer.status;
    seen.output = answer.usage.output_tokens;
    for (const item of answer.output) {
      if (item.type === 'function_call') {
        seen.tool = item.name;
        seen.arguments = JSON.parse(item.arguments);
      }
    }
  }

  async plain(seen, tools) {
    const answer = await this.ask(tools, {});
    seen.text = answer.output_text;
    this.note(seen, answer);
  }

  async stream(seen, tools) {
    for await (const event of await this.ask(tools, { stream: true })) {
      if (event.type === 'error') throw new Error(`an event says: ${event.message}`);
      if (event.type === 'response.output_text.delta') seen.text += event.delta;
      seen.pieces += /(output_text|arguments)\.delta$/.test(event.type) ? 1 : 0;
      if (/^response\.(completed|incomplete|failed)$/.test(event.type)) this.note(seen, event.response);
    }
  }
}

class AnthropicMessages {
  static package = '@anthropic-ai/sdk';
  tools = {
    tools: [{ name: TOOL, description: DESCRIPTION, input_schema: SCHEMA }],
    tool_choice: { type: 'any' },
  };

  constructor(baseUrl, cell) {
    this.model = cell.model;
    this.client = new Anthropic({ baseURL: baseUrl, apiKey: cell.key });
  }

  request(tools) {
    return { model: this.model, messages: QUESTION, max_tokens: CAP, ...(tools ? this.tools : {}) };
  }

  note(seen, answer) {
    seen.finish = answer.stop_reason;
    seen.output = answer.usage.output_tokens;
    for (const block of answer.content) {
      if (block.type === 'text') seen.text += block.text;
      if (block.type === 'tool_use') {
        seen.tool = block.name;
        seen.arguments = block.input;
      }
    }
  }

  async plain(seen, tools) {
    this.note(seen, await this.client.messages.create(this.request(tools)));
  }

  async stream(seen, tools) {
    const stream = this.client.messages.stream(this.request(tools));
    for await (const event of stream) seen.pieces += event.type === 'content_block_delta' ? 1 : 0;
    this.note(seen, await stream.finalMessage());
  }
}

// The Vercel AI SDK over one of its providers.
class Vercel {
  static package = 'ai';

  options(tools) {
    const about = { description: DESCRIPTION, inputSchema: z.object({ city: z.string(), days: z.number() }) };
    const more = tools ? { tools: { [TOOL]: tool(about) }, toolChoice: 'required' } : {};
    return { model: this.model, prompt: TEXT, maxOutputTokens: CAP, ...more };
  }

  note(seen, answer) {
    seen.finish = answer.finishReason;
    seen.output = answer.usage.outputTokens;
    for (const call of answer.toolCalls) {
      seen.tool = call.toolName;
      seen.arguments = call.input;
    }
  }

  async plain(seen, tools) {
    const answer = await generateText(this.options(tools));
    seen.text = answer.text;
    this.note(seen, answer);
  }

  async stream(seen, tools) {
    let failure = null;
    const stream = streamText({ ...this.options(tools), onError: ({ error }) => { failure = error; } });
    for await (const part of stream.fullStream) {
      if (part.type === 'text-delta') seen.text += part.text;
      seen.pieces += part.type === 'text-delta' || part.type === 'tool-input-delta' ? 1 : 0;
    }
    if (failure) throw failure;
    this.note(seen, {
      finishReason: await stream.finishReason, usage: await stream.usage, toolCalls: await stream.toolCalls,
    });
  }
}

class VercelChat extends Vercel {
  constructor(baseUrl, cell) {
    super();
    this.model = createOpenAI({ baseURL: `${baseUrl}/v1`, apiKey: cell.key }).chat(cell.model);
  }
}

// What the provider gives if no surface is named.
class VercelResponses extends Vercel {
  constructor(baseUrl, cell) {
    super();
    this.model = createOpenAI({ baseURL: `${baseUrl}/v1`, apiKey: cell.key })(cell.model);
  }
}

class VercelAnthropic extends Vercel {
  constructor(baseUrl, cell) {
    super();
    this.model = createAnthropic({ baseURL: `${baseUrl}/v1`, apiKey: cell.key })(cell.model);
  }
}

const ROWS = {
  'openai-node-chat': OpenAiChat,
  'openai-node-responses': OpenAiResponses,
  'anthropic-node': AnthropicMessages,
  'vercel-openai-chat': VercelChat,
  'vercel-openai-responses': VercelResponses,
  'vercel-anthropic': VercelAnthropic,
};

// What a scenario has the client do, one call after another.
const SCENARIOS = {
  plain: ['plain'],
  stream: ['stream'],
  tools: ['plain'],
  tools_stream: ['stream'],
  error: ['plain'],
  stream_error: ['stream'],
  rate: ['plain', 'plain'],
  budget: ['plain', 'plain'],
};

function errorOf(error) {
  // The Vercel SDK wraps what its last attempt met.
  const met = error.lastError ?? error;
  return {
    class: error.constructor?.name ?? typeof error,
    status: met.status ?? met.statusCode ?? null,
    message: String(met.message ?? met),
  };
}

async function run(baseUrl, cell) {
  const client = new ROWS[cell.row](baseUrl, cell);
  const calls = [];
  for (const name of SCENARIOS[cell.scenario]) {
    const seen = { text: '', finish: null, output: null, tool: null, arguments: null, pieces: 0, error: null };
    try {
      await client[name](seen, cell.scenario.startsWith('tools'));
    } catch (error) {
      seen.error = errorOf(error);
    }
    calls.push(seen);
  }
  return { row: cell.row, scenario: cell.scenario, calls };
}

function version(name) {
  const path = new URL(`./node_modules/${name}/package.json`, import.meta.url);
  return JSON.parse(readFileSync(path, 'utf8')).version;
}

const plan = JSON.parse(readFileSync(0, 'utf8'));
const cells = await Promise.all(plan.cells.map((cell) => run(plan.base_url, cell)));
const names = ['@ai-sdk/anthropic', '@ai-sdk/openai', ...new Set(plan.cells.map((cell) => ROWS[cell.row].package))];
const versions = Object.fromEntries(names.map((name) => [name, version(name)]));
// Clients print warnings; the result is the last line.
process.stdout.write(`\n${JSON.stringify({ versions, cells })}\n`);
