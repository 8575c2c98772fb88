// The page of `localspec web`: one script, no build step, nothing from elsewhere.
// What models and files said becomes text nodes only, never markup.
"use strict";

const $ = (id) => document.getElementById(id);
const KEPT_MS = 5000;

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value);
  }
  for (const child of children.flat()) element.append(child);  // more of them than a call takes arguments
  return element;
}

function svg(tag, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

// --- Markdown into nodes ---------------------------------------------------------------------------
// Every text takes time in proportion to its length, and no tree is deeper than this: deeper than that a
// text is shown as it was said. So nothing here searches from each place to the end: what was looked for
// once is remembered until the place that was found is behind.

const MAX_NESTING = 16;
const ADDRESS = /\((https?:\/\/[^\s)]{1,2000})\)/y;

function finder(text, what) {
  let found = -2;
  return (from) => {
    if (found !== -1 && found < from) found = text.indexOf(what, from);
    return found;
  };
}

function codeSpans(text) {
  // For the place of each run of backticks: where the next run of the same length is.
  const ends = new Map(), last = new Map();
  for (const run of text.matchAll(/`+/g)) {
    const before = last.get(run[0].length);
    if (before !== undefined) ends.set(before, run.index);
    last.set(run[0].length, run.index);
  }
  return ends;
}

function links(text) {
  // The label and address of a link that begins at a bracket, and where it ends.
  const closing = finder(text, "]");
  let known = -1, address = null;
  return (at) => {
    const end = closing(at + 1);
    if (end === -1 || end === at + 1) return null;
    if (end !== known) {
      ADDRESS.lastIndex = end + 1;
      known = end;
      address = ADDRESS.exec(text);
    }
    return address && { label: text.slice(at + 1, end), address: address[1], end: end + 1 + address[0].length };
  };
}

function emphasis(text, at, star) {
  // What stands between this asterisk and the next one, where that is emphasis.
  const end = star(at + 1), words = end === -1 ? "" : text.slice(at + 1, end);
  const apart = /^[\w*]/.test(text[at - 1] ?? "") || /^\w/.test(text[end + 1] ?? "");
  return words && !apart && words.trim() === words ? words : null;
}

function inline(text, depth = 0) {
  if (depth >= MAX_NESTING) return [text];
  const nodes = [], spans = codeSpans(text), link = links(text), strong = finder(text, "**"), star = finder(text, "*");
  let end = 0, at = 0;
  const add = (node, next) => {
    nodes.push(text.slice(end, at), node);
    at = end = next;
  };
  const special = /[`*[]/g;
  for (let found; (special.lastIndex = at, found = special.exec(text)); ) {
    at = found.index;
    if (text[at] === "`") {
      const marks = /`+/y;
      marks.lastIndex = at;
      const { length } = marks.exec(text)[0], close = spans.get(at);
      if (close === undefined) at += length;
      else add(make("code", {}, text.slice(at + length, close)), close + length);
    } else if (text[at] === "*") {
      const close = text[at + 1] === "*" ? strong(at + 3) : -1;
      const words = close === -1 ? emphasis(text, at, star) : null;
      if (close !== -1) add(make("strong", {}, inline(text.slice(at + 2, close), depth + 1)), close + 2);
      else if (words) add(make("em", {}, inline(words, depth + 1)), at + words.length + 2);
      else at += 1;
    } else {
      const to = link(at);
      if (to) add(make("a", { href: to.address, target: "_blank", rel: "noopener noreferrer" }, to.label), to.end);
      else at += 1;
    }
  }
  nodes.push(text.slice(end));
  return nodes;
}

function codeBlock(language, lines) {
  const code = make("code", language ? { title: language } : {});
  inColours(code, language, lines.join("\n"));
  return make("pre", {}, code, make("button", { type: "button", onclick: (event) => copy(event.target, code.textContent) }, "Copy"));
}

async function copy(button, text) {
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    button.textContent = "Not allowed";
  }
  setTimeout(() => { button.textContent = "Copy"; }, 1500);
}

const FENCE = /^(\s*)(`{3,}(?=[^`]*$)|~{3,})\s*(.*)$/;
const ITEM = /^(\s*)([-*+]|\d+[.)])\s+(.*)/;
const ROW = /^\s*\|.*\|\s*$/;
const RULE = /^\s*([-*_])(\s*\1){2,}\s*$/;

function markdown(text, depth = 0) {
  const out = document.createDocumentFragment(), lines = text.split("\n");
  let at = 0;
  if (depth >= MAX_NESTING) {
    out.append(make("p", {}, text));
    return out;
  }
  const special = (line) => FENCE.test(line) || ITEM.test(line) || ROW.test(line) || RULE.test(line) || /^\s*(#{1,6}\s|>)/.test(line);
  while (at < lines.length) {
    const line = lines[at];
    const fence = FENCE.exec(line);
    if (!line.trim()) at += 1;
    else if (fence) {
      const body = [];
      at += 1;
      while (at < lines.length && !(lines[at].trim().startsWith(fence[2]) && !lines[at].trim().slice(fence[2].length).trim())) {
        body.push(lines[at].startsWith(fence[1]) ? lines[at].slice(fence[1].length) : lines[at]);
        at += 1;
      }
      at += 1;
      out.append(codeBlock(fence[3].trim(), body));
    } else if (RULE.test(line)) { out.append(make("hr")); at += 1; }
    else if (/^\s*#{1,6}\s/.test(line)) {
      const [, marks, title] = /^\s*(#{1,6})\s+(.*)/.exec(line) ?? [, "#", line];
      out.append(make(`h${Math.min(6, marks.length + 2)}`, {}, inline(title)));
      at += 1;
    } else if (/^\s*>/.test(line)) {
      const quoted = [];
      while (at < lines.length && /^\s*>/.test(lines[at])) quoted.push(lines[at++].replace(/^\s*> ?/, ""));
      out.append(make("blockquote", {}, markdown(quoted.join("\n"), depth + 1)));
    } else if (ROW.test(line)) {
      const rows = [];
      while (at < lines.length && ROW.test(lines[at])) rows.push(lines[at++]);
      out.append(table(rows));
    } else if (ITEM.test(line)) {
      let end = at + 1;
      while (end < lines.length && lines[end].trim() && (ITEM.test(lines[end]) || /^\s/.test(lines[end]))) end += 1;
      out.append(list(lines.slice(at, end), depth));
      at = end;
    } else {
      const words = [];
      while (at < lines.length && lines[at].trim() && !(words.length && special(lines[at]))) words.push(lines[at++]);
      out.append(make("p", {}, inline(words.join("\n"))));
    }
  }
  return out;
}

function list(lines, depth) {
  const [, indent, mark] = ITEM.exec(lines[0]);
  const items = make(/\d/.test(mark) ? "ol" : "ul", /\d/.test(mark) ? { start: parseInt(mark, 10) } : {});
  let at = 0;
  while (at < lines.length) {
    const words = ITEM.exec(lines[at])[3], inner = [], edge = new RegExp(`^(\\t| {1,${lines[at].length - words.length}})`);
    at += 1;
    while (at < lines.length && !(ITEM.test(lines[at]) && ITEM.exec(lines[at])[1].length <= indent.length)) inner.push(lines[at++]);
    const item = make("li", {}, inline(words));
    if (inner.length) item.append(markdown(inner.map((line) => line.replace(edge, "")).join("\n"), depth + 1));
    items.append(item);
  }
  return items;
}

function table(rows) {
  const cells = (row) => row.trim().replace(/^\||\|$/g, "").split("|").map((cell) => cell.trim());
  const headed = rows.length > 1 && cells(rows[1]).every((cell) => /^:?-+:?$/.test(cell));
  const body = headed ? [rows[0], ...rows.slice(2)] : rows;
  return make("table", {}, body.map((row, index) =>
    make("tr", {}, cells(row).map((cell) => make(headed && index === 0 ? "th" : "td", {}, inline(cell))))));
}

// --- Conversations: the files that `localspec chats` lists ---------------------------------------------

let listed = [];
let keeping = false;
let current = null;
let answering = null;

async function call(method, path, body) {
  const headers = { "Content-Type": "application/json" };
  const answer = await request(path, { method, headers, body: body && JSON.stringify(body) });
  const found = await answer.json();
  if (!answer.ok) throw Object.assign(new Error(sentence(found)), { status: answer.status });
  return found;
}

const address = (name) => `chats/${encodeURIComponent(name)}`;

function written({ name, stamp, model, system, draft, params, trimmed, turns }) {
  // A conversation as the archive takes it.
  const said = turns.filter((turn) => turn.content).map(({ role, content }) => ({ role, content }));
  return { name, stamp, model, system, draft, params, trimmed, turns: said };
}

async function save(chat) {
  if (chat.removed) return;
  chat.unsaved = true;
  try {
    const before = chat.name, place = await call("POST", "chats", written(chat));
    Object.assign(chat, place, { unsaved: false });
    if (before && place.name && place.name !== before) tell(`${before} went on elsewhere; this is now ${place.name}.`);
    if (place.name) tabs.postMessage({ kept: place.name });
    if (chat === current) remember();
  } catch (error) {
    if (isGone(error)) followed();
    else tell(`${error.message}\nThe conversation goes on; it is not kept until that is mended.`);
  }
}

function tell(words) {
  $("notice").textContent = words;
}

async function listChats() {
  try {
    const { keep, chats } = await call("GET", chatsPath());
    listed = chats;
    keeping = keep;
    const found = chats.length || !searched() ? "" : "No conversation has these words.";
    $("kept").textContent = keep ? found : "chat.keep is false: nothing is kept.";
    showChats();
  } catch (error) {
    if (isGone(error)) followed();
    else tell(error.message);
  }
}

function showChats() {
  const unnamed = current && !searched() && !listed.some((chat) => chat.name === current.name) ? [{ name: current.name, title: titled(current) }] : [];
  $("chats").replaceChildren(...[...unnamed, ...listed].map(({ name, title }) => make("li", current?.name === name ? { class: "here" } : {},
    make("button", { type: "button", class: "title", title: name, onclick: () => open(name) }, title || name),
    ...(name ? [make("button", { type: "button", class: "remove", "aria-label": `Remove ${title}`, onclick: () => remove(name) }, "×")] : []))));
}

function titled(chat) {
  return chat.turns[0]?.content.trim().split("\n")[0].slice(0, 72) ?? "";
}

async function open(name) {
  if (name === current?.name && !$("talk").hidden) return;
  stop();
  tell("");
  try {
    show(await call("GET", address(name)));
  } catch (error) {
    tell(error.message);
  }
}

function show(chat) {
  current = chat;
  remember();
  showSettings(chat);
  if (chat) {
    $("speculation").value = chat.draft;
    choose(chat.model);
    if (!$("words").value) $("words").value = takenBack(chat);
  }
  $("side").classList.remove("open");
  showDashboard(false);
  showChats();
  showTalk();
  fit();
  $("words").focus();
}

function takenBack(chat) {
  // A question that nobody answered: it goes back into the line, or the next one takes its place.
  if (chat.turns.at(-1)?.role === "assistant" && !chat.turns.at(-1).content) chat.turns.pop();
  return chat.turns.at(-1)?.role === "user" ? chat.turns.pop().content : "";
}

async function remove(name) {
  if (!confirm(`Remove this conversation?\n${listed.find((chat) => chat.name === name)?.title ?? name}`)) return;
  try {
    await call("DELETE", address(name));
  } catch (error) {
    if (error.status !== 404) tell(error.message);
  }
  if (name === current?.name) {
    stop();
    current.removed = true;
    show(null);
  }
  await listChats();
}

async function catchUp() {
  // What was said in a terminal or another tab meanwhile is here when somebody comes back to this window.
  await listChats();
  const chat = current, busy = () => chat !== current || answering || chat.unsaved || $("talk").querySelector("textarea.edit");
  if (!chat?.name || busy()) return;
  try {
    const found = await call("GET", address(chat.name));
    if (busy() || found.stamp === chat.stamp) return;
    current = found;
    showChats();
    const talk = $("talk"), place = talk.scrollTop, follows = atEnd();
    showTalk();
    if (!follows) talk.scrollTop = place;
  } catch { /* removed elsewhere: what is here can go on */ }
}

function atEnd() {
  const talk = $("talk");
  return talk.scrollHeight - talk.scrollTop - talk.clientHeight < 80;
}

// --- Turns --------------------------------------------------------------------------------------------

const THOUGHT = /^\s*<think>(.*?)(?:<\/think>|$)/s;

function parts(turn) {
  const found = turn.role === "assistant" && !turn.thinking ? THOUGHT.exec(turn.content) : null;
  return found ? { thinking: found[1], text: turn.content.slice(found[0].length) } : { thinking: turn.thinking, text: turn.content };
}

function shown(turn) {
  const { thinking, text } = parts(turn), element = make("article", { class: `turn ${turn.role}` });
  if (thinking && thinking.trim()) {
    const attributes = { class: "thinking" };
    if (!text.trim()) attributes.open = "";
    element.append(make("details", attributes, make("summary", {}, "Thinking"), make("div", {}, thinking.trim())));
  }
  const coloured = $("origins").checked && turn.origins && turn.origins.length;
  const body = make("div", { class: coloured ? "text raw" : "text" });
  if (turn.role === "user") body.textContent = text;
  else if (coloured) body.append(...byOrigin(turn));
  else body.append(markdown(text));
  element.append(body);
  if (turn.waiting && !turn.done) element.append(waited(turn));
  if (turn.error) element.append(make("p", { class: "error" }, turn.error));
  if (turn.role === "user") element.append(make("div", { class: "figures" }, again(turn)));
  const written = turn.done || (turn.content && !(answering && current?.turns.at(-1) === turn)); // kept ones, too
  if (turn.role === "assistant" && written) element.append(figures(turn, text));
  return element;
}

function byOrigin(turn) {
  let at = 0;
  return turn.origins.map(([length, source]) => {
    const words = turn.content.slice(at, at += length);
    return make("span", { class: `from-${/^[a-z]+$/.test(source) ? source : "other"}`, title: source }, words);
  });
}

function figures(turn, text) {
  const line = make("div", { class: "figures" }, make("button", { type: "button", onclick: (event) => copy(event.target, text.trim()) }, "Copy"));
  if (current?.turns.at(-1) === turn) line.append(again(turn));
  const { timings, speculation } = $("speed").checked ? turn : {};
  if (timings) {
    line.append(`${timings.predicted_n} tokens`, make("span", {}, `${(timings.predicted_per_second ?? 0).toFixed(1)} tokens/s`));
    line.append(make("span", {}, `prompt ${timings.prompt_n} tokens in ${((timings.prompt_ms ?? 0) / 1000).toFixed(2)} s`));
  }
  for (const [source, count] of Object.entries(speculation?.sources ?? {})) {
    if (count.drafted) line.append(make("span", { class: `from-${source}` }, `${source}: ${count.accepted} of ${count.drafted} drafted tokens kept`));
  }
  return line;
}

function showTalk() {
  const turns = current?.turns ?? [];
  $("talk").replaceChildren(...(turns.length ? turns.map(shown) : [make("p", { class: "empty" }, "What you ask stays on this machine.")]));
  $("talk").scrollTop = $("talk").scrollHeight;
  colour();
}

let drawing = 0;
function redraw(turn) {
  if (drawing) return;
  // Long answers are drawn less often: Markdown is read anew each time.
  drawing = setTimeout(() => requestAnimationFrame(() => {
    drawing = 0;
    const talk = $("talk"), follows = atEnd();
    if (current?.turns.at(-1) === turn) talk.lastElementChild.replaceWith(shown(turn));
    if (follows) talk.scrollTop = talk.scrollHeight;
  }), Math.min(250, turn.content.length / 40));
}

// --- Asking -------------------------------------------------------------------------------------------

async function ask(words, ended = (turn) => backInLine(turn, words), keepsFirst = true) {
  current ??= { name: "", stamp: "", system: "", params: {}, trimmed: 0, turns: [] };
  const turn = { role: "assistant", content: "", thinking: "", origins: [] }, chat = current;
  Object.assign(chat, { model: $("model").value || null, draft: $("speculation").value, ...settled() });
  takenBack(chat);
  chat.turns.push({ role: "user", content: words }, turn);
  const mine = answering = new AbortController();
  $("send").textContent = "Stop";
  showChats();
  showTalk();
  if (keepsFirst) await save(chat);
  try {
    await received(chat, turn, mine.signal);
  } catch (error) {
    if (error.name !== "AbortError") Object.assign(turn, { code: error.code, error: isGone(error) ? "The daemon went away before the answer was whole." : error.message });
    if (isGone(error)) followed();
  }
  turn.done = true;
  if (keepsFirst || turn.content) {
    chat.unsaved = true;
    if (!away) await save(chat);
  }
  if (answering === mine) {
    answering = null;
    $("send").textContent = "Send";
  }
  ended(turn);
  if (chat === current) showTalk();
  if (!away) await listChats();
}

function backInLine(turn, words) {
  if (turn.content || $("words").value || !current?.turns.includes(turn)) return;
  $("words").value = words;
  fit();
}

async function received(chat, turn, signal) {
  const sent = chat.trimmed;
  for (;;) {
    try {
      return await receive(chat, turn, signal);
    } catch (error) {
      if (error.code === "context_length_exceeded" && !turn.content && makeRoom(chat)) {
        tell("The context is full: leaving out the oldest turns.");
        continue;
      }
      if (chat.trimmed !== sent && !turn.content) {
        chat.trimmed = sent;
        tell("There is no answer, so the oldest turns stay in the conversation.");
      }
      throw error;
    }
  }
}

function makeRoom(chat) {
  // Half of the questions and their answers: cutting little would cost the cache at every turn.
  const questions = [...chat.turns.keys()].filter((at) => at >= chat.trimmed && chat.turns[at].role === "user");
  if (questions.length < 2) return false;
  chat.trimmed = questions[Math.ceil(questions.length / 2)];
  return true;
}

async function receive(chat, turn, signal) {
  const system = chat.system ? [{ role: "system", content: chat.system }] : [];
  const said = chat.turns.slice(chat.trimmed, -1).filter((one) => one.content).map((one) => ({ role: one.role, content: parts(one).text }));
  const answer = await request("/v1/chat/completions", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({
      ...chat.params,
      model: chat.model, messages: [...system, ...said], stream: true, return_origins: true, return_progress: true,
      speculation: { mode: chat.draft === "on" ? "always" : chat.draft },
    }),
    signal,
  });
  if (!answer.ok) throw failure(await answer.json());
  let keptAt = performance.now();
  for await (const event of events(answer.body)) {
    if (event.error) throw failure(event);
    if (event.waiting) turn.waiting = event.waiting;
    else if (event.choices?.[0]?.delta?.content || event.choices?.[0]?.delta?.reasoning_content) turn.waiting = null;
    const delta = event.choices?.[0]?.delta;
    turn.content += delta?.content ?? "";
    turn.thinking += delta?.reasoning_content ?? "";
    if (delta?.content && event.origins) turn.origins.push(...event.origins);
    if (event.timings) Object.assign(turn, { timings: event.timings, speculation: event.speculation });
    redraw(turn);
    if (performance.now() - keptAt > KEPT_MS) {
      await save(chat);
      keptAt = performance.now();
    }
  }
}

function failure(said) {
  return Object.assign(new Error(sentence(said)), { code: said.error?.code });
}

function sentence({ error }) {
  return [error?.message, error?.fix].filter(Boolean).join("\n") || "The daemon did not say what is wrong.";
}

async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      if (line.startsWith(":") && line.slice(1).trim()) yield { waiting: inWords(line.slice(1).trim()) };
      if (!line.startsWith("data: ") || line === "data: [DONE]") continue;
      const event = JSON.parse(line.slice(6));
      if (event.prompt_progress?.total) event.waiting = reading(event.prompt_progress);
      yield event;
    }
  }
}

function stop() {
  answering?.abort();
}

// --- What the machine does -----------------------------------------------------------------------------

let watching = 0;
const speeds = [];
let before = null;

function showDashboard(visible) {
  $("dashboard").hidden = !visible;
  $("talk").hidden = $("ask").hidden = visible;
  clearInterval(watching);
  if (visible) {
    watch();
    watching = setInterval(watch, 1000);
  }
}

async function watch() {
  try {
    const answer = await request("/v1/status");
    if (!answer.ok) throw new Error(sentence(await answer.json()));
    draw(await answer.json());
  } catch (error) {
    $("dashboard").replaceChildren(make("p", { class: "error" }, error.message));
  }
}

function draw(status) {
  const now = performance.now(), tokens = status.models.reduce((sum, one) => sum + (one.completion_tokens ?? 0), 0);
  if (before) speeds.push(Math.max(0, (tokens - before.tokens) / ((now - before.now) / 1000)));
  if (speeds.length > 120) speeds.shift();
  before = { now, tokens };
  const running = status.models.filter((one) => one.state !== "unloaded");
  $("dashboard").replaceChildren(
    make("div", { class: "cards" },
      card("tokens a second, now", (speeds.at(-1) ?? 0).toFixed(1)),
      card("requests answering", running.reduce((sum, one) => sum + (one.active ?? 0), 0)),
      card("requests waiting", running.reduce((sum, one) => sum + (one.queued ?? 0), 0)),
      card("running for", duration(status.uptime_seconds))),
    make("div", { class: "card wide" }, make("div", { class: "name" }, "tokens a second, the last two minutes"), curve(speeds)),
    ...running.flatMap(ofModel),
    ...(running.length ? [] : [make("p", { class: "empty" }, "No model is loaded. The first question loads one.")]));
}

function ofModel(model) {
  const found = [make("h3", {}, `${model.name}: ${model.state}`)];
  found.push(make("div", { class: "cards" },
    card("slots in use", `${model.active ?? 0} of ${model.slots ?? "?"}`),
    card("context", model.context ? `${model.context.toLocaleString()} tokens` : "?"),
    card("exactness", (model.exactness ?? "?") + (model.checking ? `, checked ${model.checking.join(" of ")}` : "")),
    card("crashes", model.crashes ?? 0)));
  if (model.speculation_off) found.push(make("p", {},
    `${model.drafters?.length ? "No draft model" : "It does not speculate"}: ${model.speculation_off.replace(/\.$/, "")}.`));
  const drafted = Object.entries(model.drafted ?? {}).filter(([, count]) => count);
  if (drafted.length) found.push(shares("drafted tokens that were kept", drafted.map(([source, count]) =>
    [source, (model.accepted?.[source] ?? 0) / count, `${model.accepted?.[source] ?? 0} of ${count}`])));
  const devices = model.devices ?? [], most = Math.max(...devices.map((part) => part.bytes), 1);
  if (devices.length) found.push(shares("memory", devices.map((part) => [`${part.device} ${part.what}`, part.bytes / most, bytes(part.bytes)])));
  if (model.cost_ms_by_rows) found.push(make("div", { class: "card wide" },
    make("div", { class: "name" }, "milliseconds of a forward, by its rows"), stairs(model.cost_ms_by_rows)));
  return found;
}

function card(name, value) {
  return make("div", { class: "card" }, make("div", { class: "name" }, name), make("div", { class: "value" }, String(value)));
}

function shares(title, rows) {
  return make("div", { class: "card wide" }, make("div", { class: "name" }, title), ...rows.map(([name, share, much]) => {
    const filled = make("i");
    filled.style.width = `${Math.round(100 * Math.min(1, share))}%`;
    return make("div", { class: "share" }, make("span", {}, name), make("span", { class: "bar" }, filled), make("span", { class: "much" }, much));
  }));
}

function curve(values) {
  const most = Math.max(...values, 1), points = values.map((value, at) => `${(at + 120 - values.length) * 5},${95 - (85 * value) / most}`);
  return svg("svg", { viewBox: "0 0 600 100", preserveAspectRatio: "none", role: "img", "aria-label": "tokens a second" },
    svg("polyline", { points: points.join(" ") }));
}

function stairs(costs) {
  const steps = Object.entries(costs).map(([rows, ms]) => [Number(rows), ms]).sort((a, b) => a[0] - b[0]);
  const most = Math.max(...steps.map(([, ms]) => ms)), width = 600 / steps.length;
  const named = labelled(steps, width);
  return svg("svg", { viewBox: "0 0 600 120", role: "img", "aria-label": "milliseconds by rows" }, ...steps.flatMap(([rows, ms], at) => {
    const height = (85 * ms) / most, bar = { x: at * width + width * 0.15, y: 102 - height, width: width * 0.7, height };
    const rect = svg("rect", bar, svg("title", {}, `${rows} rows: ${milliseconds(ms)} ms`));
    if (!named.has(at)) return [rect];
    const label = { x: named.get(at), "text-anchor": "middle" };
    return [rect, svg("text", { ...label, y: 116 }, String(rows)), svg("text", { ...label, y: 98 - height }, milliseconds(ms))];
  }));
}

function labelled(steps, width) {
  // Where labels stand that have room beside each other: the last one, and powers of two before it.
  const places = new Map();
  let free = 600;
  for (let at = steps.length - 1; at >= 0; at -= 1) {
    const [rows, ms] = steps[at], half = 5 * Math.max(String(rows).length, milliseconds(ms).length);
    const middle = Math.max(half, Math.min((at + 0.5) * width, 600 - half));
    if (at < steps.length - 1 && (rows & (rows - 1) || middle + half > free)) continue;
    places.set(at, middle);
    free = middle - half;
  }
  return places;
}

function milliseconds(ms) {
  return ms < 10 ? ms.toFixed(1) : ms.toFixed(0);
}

function bytes(count) {
  return count >= 1e9 ? `${(count / 1e9).toFixed(2)} GB` : `${(count / 1e6).toFixed(0)} MB`;
}

function duration(seconds) {
  const hours = Math.floor(seconds / 3600), minutes = Math.floor(seconds / 60) % 60;
  return hours ? `${hours} h ${minutes} min` : minutes ? `${minutes} min` : `${Math.floor(seconds)} s`;
}

// --- What is there to choose, and what listens ----------------------------------------------------------------------------------------

async function showModels() {
  let answer;
  try {
    answer = await request("/v1/status");
  } catch {
    return void followed();
  }
  if (!answer.ok) {
    $("talk").replaceChildren(make("p", { class: "error" }, sentence(await answer.json()), "\nOpen the page anew: localspec web"));
    return;
  }
  const { models, upstreams } = await answer.json();
  const names = [...models.map((one) => one.name), ...upstreams.flatMap((one) => one.models)];
  const chosen = $("model").value || models.find((one) => one.default)?.name;
  $("model").replaceChildren(...names.map((name) => make("option", { value: name }, name)));
  choose(chosen);
}

function choose(model) {
  // A model that has gone is not replaced by another one without a word.
  if (!model || $("model").value === model) return;
  if ([...$("model").options].some((option) => option.value === model)) $("model").value = model;
  else if ($("model").value) tell(`${model} is not here any more; ${$("model").value} answers the next question.`);
}

const MAX_FITTED_CHARS = 10000;  // more fill every window, and measuring them at each key is felt

function fit() {
  const words = $("words");
  if (words.value.length > MAX_FITTED_CHARS) return void (words.style.height = "40dvh");
  words.style.height = "auto";
  words.style.height = `${words.scrollHeight + 2}px`;
  return undefined;
}

$("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  if (answering) return stop();
  const words = $("words").value.trim();
  if (!words && !files.length) return undefined;
  if (!settingsHold()) return undefined;
  tell("");
  $("words").value = "";
  fit();
  const sent = files;
  files = [];
  showFiles();
  return ask([words, ...sent.map(fenced)].filter(Boolean).join("\n\n"), (turn) => sentBack(turn, words, sent));
});
$("words").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    if (!answering) $("ask").requestSubmit();
  }
  if (event.key === "Escape") stop();
});
$("words").addEventListener("input", fit);
window.addEventListener("resize", fit);
$("new").addEventListener("click", () => { stop(); tell(""); show(null); });
$("menu").addEventListener("click", () => $("side").classList.toggle("open"));
$("origins").addEventListener("change", showTalk);
$("board").addEventListener("click", () => { $("side").classList.remove("open"); showDashboard($("dashboard").hidden); });
$("model").addEventListener("focus", showModels);
$("side").parentElement.addEventListener("click", (event) => {
  if (!event.target.closest("#side, #menu")) $("side").classList.remove("open");
});
window.addEventListener("focus", catchUp);
