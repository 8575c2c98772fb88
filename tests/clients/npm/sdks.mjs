// What the SDKs of OpenAI and of Vercel make of a daemon: one line of JSON for each thing tried.
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateObject, generateText, stepCountIs, streamText, tool } from "ai";
import OpenAI from "openai";
import { z } from "zod";

const [, , base, key, model] = process.argv;
const client = new OpenAI({ baseURL: `${base}/v1`, apiKey: key, maxRetries: 0 });
const vercel = createOpenAICompatible({
  name: "localspec",
  baseURL: `${base}/v1`,
  apiKey: key,
  includeUsage: true,
  supportsStructuredOutputs: true,
})(model);
const say = (content) => [{ role: "user", content }];
const weather = {
  name: "weather",
  parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
};

const tries = {
  async stream() {
    const options = { include_usage: true };
    const stream = await client.chat.completions.create({
      model, messages: say("Say hello."), stream: true, stream_options: options, max_tokens: 20,
    });
    let text = "", usage = null;
    for await (const chunk of stream) {
      text += chunk.choices[0]?.delta?.content ?? "";
      usage = chunk.usage ?? usage;
    }
    return { text, tokens: usage.completion_tokens };
  },
  async tool() {
    const { choices } = await client.chat.completions.create({
      model, messages: say("What is the weather in Paris?"), tool_choice: "required",
      tools: [{ type: "function", function: weather }],
    });
    const call = choices[0].message.tool_calls[0].function;
    return { name: call.name, city: JSON.parse(call.arguments).city, why: choices[0].finish_reason };
  },
  async error() {
    const asked = { model, messages: say("Hello."), temperature: -1 };
    const error = await client.chat.completions.create(asked).catch((one) => one);
    return { name: error.constructor.name, param: error.param };
  },
  async responses() {
    const asked = { model, input: "Say hello.", max_output_tokens: 20, temperature: 0 };
    const whole = await client.responses.create(asked);
    const streamed = await client.responses.stream(asked).finalResponse();
    return { whole: whole.output_text, streamed: streamed.output_text };
  },
  async aborted() {
    const control = new AbortController();
    const stream = await client.chat.completions.create(
      { model, messages: say("Count to a thousand."), stream: true }, { signal: control.signal },
    );
    let chunks = 0;
    for await (const _ of stream) if (++chunks === 3) control.abort();
    return { chunks };
  },
  async steps() {
    const done = await generateText({
      model: vercel, temperature: 0, prompt: "What is the weather in Paris? Use the tool.", maxOutputTokens: 60,
      tools: {
        weather: tool({
          description: "The weather of a city.",
          inputSchema: z.object({ city: z.string() }),
          execute: async ({ city }) => `It is sunny in ${city}.`,
        }),
      },
      stopWhen: stepCountIs(3),
    });
    return { reasons: done.steps.map((step) => step.finishReason), text: done.text };
  },
  async object() {
    const schema = z.object({ name: z.string().max(20), age: z.number().int() });
    return (await generateObject({ model: vercel, schema, prompt: "Make up a person." })).object;
  },
  async streamed() {
    const stream = streamText({ model: vercel, prompt: "Count to ten.", maxOutputTokens: 30 });
    let text = "";
    for await (const piece of stream.textStream) text += piece;
    return { text, tokens: (await stream.usage).outputTokens };
  },
};

for (const [name, attempt] of Object.entries(tries)) {
  console.log(JSON.stringify([name, await attempt()]));
}
