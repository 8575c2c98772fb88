// What stands around a conversation: settings, files, search, questions asked again, colours of code,
// and a daemon that was away. page.js calls what is here, and the other way round.
"use strict";

// --- Settings of a conversation: they go with each of its questions ----------------------------------

const NUMBERS = ["temperature", "max_tokens", "seed"];

function settled() {
  const params = { ...current?.params };
  for (const name of NUMBERS) {
    const value = $(name).value.trim();
    if (value === "") delete params[name];
    else params[name] = Number(value);
  }
  return { system: $("system").value.trim(), params };
}

function showSettings(chat) {
  $("system").value = chat?.system ?? "";
  for (const name of NUMBERS) $(name).value = chat?.params?.[name] ?? "";
  marked();
}

function marked() {
  // A conversation that is not answered as others are says so, also while the settings are closed.
  const { system, params } = settled();
  const differs = system || NUMBERS.some((name) => name in params);
  $("settings").querySelector("summary").textContent = differs ? "Settings •" : "Settings";
}

function settingsHold() {
  // Whether every setting is in its range; one that is not is shown, with the browser's own words.
  const wrong = $("settings").querySelector(":invalid");
  $("settings").open = wrong !== null;
  return wrong === null || wrong.reportValidity();
}

function leaveSettings(event) {
  // They cover the talk: a key or a click elsewhere puts them away.
  if (event.key === "Escape" || (event.type === "click" && !event.target.closest("#settings"))) $("settings").open = false;
}

// --- Files: text that goes with the next question -----------------------------------------------------

const MAX_FILE_BYTES = 8 * 1024 * 1024;
let files = [];

async function attach(chosen) {
  const refused = [];
  for (const file of chosen) {
    if (file.size > MAX_FILE_BYTES) {
      refused.push(`${file.name} is larger than 8 MiB.`);
      continue;
    }
    try {
      const text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
      if (text.includes("\0")) throw new TypeError("not text");
      files.push({ name: file.name, text });
    } catch {
      refused.push(`${file.name} is not UTF-8 text, and only text can be attached here.`);
    }
  }
  tell(refused.join("\n"));
  showFiles();
}

function showFiles() {
  $("files").replaceChildren(...files.map((file) => make("span", { class: "file" }, file.name,
    make("button", { type: "button", "aria-label": `Take ${file.name} off`, onclick: () => {
      files = files.filter((other) => other !== file);
      showFiles();
    } }, "×"))));
}

function fenced({ name, text }) {
  // A file as Markdown, in a fence longer than any inside it.
  const longest = Math.max(2, ...[...text.matchAll(/`{3,}/g)].map((found) => found[0].length));
  const fence = "`".repeat(longest + 1);
  return `${name}:\n${fence}\n${text}${text.endsWith("\n") ? "" : "\n"}${fence}`;
}

const REFUSED_TEXT = new Set(["context_length_exceeded", "too_large", "template_error", "poisonous"]);

function sentBack(turn, words, sent) {
  // A question without an answer goes back into the line, and its files beside it: unless the text of
  // these is why, and every later question would fail as well.
  if (turn.content) return;
  if (!sent.length) {
    backInLine(turn, words);
    return;
  }
  if (REFUSED_TEXT.has(turn.code)) tell(`Not attached any more: ${sent.map((file) => file.name).join(" and ")}.`);
  else files = [...sent, ...files];
  showFiles();
  $("words").value ||= words;
  fit();
}

// --- Questions asked again ------------------------------------------------------------------------------

function again(turn) {
  // The buttons of a turn: a question can be changed, an answer be written anew.
  const act = (label, work) => make("button", { type: "button", onclick: () => { if (!answering) work(); } }, label);
  if (turn.role === "user") return act("Edit", () => edit(turn));
  return act("Retry", () => retry(turn));
}

function edit(turn) {
  const at = current.turns.indexOf(turn), article = $("talk").children[at];
  const area = make("textarea", { class: "edit", "aria-label": "The question" });
  area.value = turn.content;
  area.rows = Math.min(12, turn.content.split("\n").length + 1);
  const done = () => { if (area.value.trim()) from(at, area.value.trim()); };
  area.addEventListener("keydown", (event) => {
    if (event.key === "Escape") showTalk();
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      done();
    }
  });
  article.replaceChildren(area, make("div", { class: "figures" },
    make("button", { type: "button", onclick: done }, "Ask"),
    make("button", { type: "button", onclick: showTalk }, "Cancel"),
    make("span", {}, "What was said after this question is answered anew.")));
  area.focus();
}

function retry(turn) {
  const at = current.turns.indexOf(turn) - 1;
  if (current.turns[at]?.role === "user") from(at, current.turns[at].content);
}

async function from(at, words) {
  // The turns from here on stay until the new answer has text.
  const chat = current, before = chat.turns, trimmed = chat.trimmed;
  chat.turns = before.slice(0, at);
  chat.trimmed = Math.min(trimmed, at);
  tell("");
  await ask(words, (turn) => {
    if (turn.content) return;
    Object.assign(chat, { turns: before, trimmed });
    if (turn.error) tell(turn.error);
  }, false);
}

// --- Search -------------------------------------------------------------------------------------------------

let searching = 0;

function search() {
  clearTimeout(searching);
  searching = setTimeout(listChats, 150);
}

function searched() {
  return $("search").value.trim();
}

function chatsPath() {
  const words = searched();
  return words ? `chats?words=${encodeURIComponent(words)}` : "chats";
}

// --- What is being waited for -------------------------------------------------------------------------------

const STAGES = {
  start: "starting the model", room: "waiting for memory", target: "reading the model",
  draft: "reading the draft model", probe: "checking that drafts change nothing", warmup: "measuring this machine",
};

function inWords(told) {
  // "loading target 42%", as the daemon says it, as people do; a percent where the whole is known.
  const found = /^loading (\w+) (\d+)%$/.exec(told);
  if (!found) return { words: told };
  const words = STAGES[found[1]] ?? found[1];
  return found[1] === "target" || found[1] === "draft" ? { words, percent: Number(found[2]) } : { words };
}

function reading({ total, cache, processed, time_ms }) {
  const rate = processed > cache && time_ms > 0 ? Math.round((1000 * (processed - cache)) / time_ms) : 0;
  const words = rate ? `reading the prompt at ${rate} tokens/s,` : "reading the prompt";
  return { words, percent: Math.round((100 * processed) / total) };
}

function waited(turn) {
  const { words, percent } = turn.waiting;
  const line = make("p", { class: "waiting", role: "status" }, percent === undefined ? `${words} …` : `${words} ${percent} % `);
  if (percent !== undefined) line.append(make("progress", { max: 100, value: percent }));
  return line;
}

// --- A daemon that was away -----------------------------------------------------------------------------------

const AWAY_MS = 1500;
let away = false;

async function followed() {
  // Until the daemon answers again: the same page, the same conversation, the same words in the line.
  if (away) return;
  away = true;
  for (;;) {
    tell("The daemon does not answer; this page waits for it. To start it: localspec start");
    await new Promise((done) => { setTimeout(done, AWAY_MS); });
    try {
      const answer = await request("/v1/status");
      if (answer.ok || answer.status === 401 || answer.status === 403) break;
    } catch { /* not yet */ }
  }
  away = false;
  tell("The daemon is back.");
  await showModels();
  if (current?.unsaved && !answering) await save(current);
  await listChats();
}

function isGone(error) {
  return error instanceof TypeError;  // what fetch throws where nobody listens
}

// --- Colours of code ---------------------------------------------------------------------------------------------

const coloured = new Map();
const MAX_COLOURED = 200;
let unknown = [];

function inColours(code, language, text) {
  // Text at once, colours when the daemon has told them; each block is asked about once.
  const key = `${language}\n${text}`, known = coloured.get(key);
  if (known) return void code.replaceChildren(...known.map(([kind, words]) => (kind ? make("span", { class: `c-${kind}` }, words) : words)));
  code.textContent = text;
  if (language && text.trim()) unknown.push({ code, language, text, key });
  return undefined;
}

async function colour() {
  const asked = unknown.filter(({ code }) => code.isConnected);
  unknown = [];
  if (!asked.length) return;
  try {
    const { blocks } = await call("POST", "highlight", { blocks: asked.map(({ language, text }) => ({ language, text })) });
    for (const [at, pieces] of blocks.entries()) {
      if (!pieces.length) continue;
      if (coloured.size >= MAX_COLOURED) coloured.delete(coloured.keys().next().value);
      coloured.set(asked[at].key, pieces);
      inColours(asked[at].code, asked[at].language, asked[at].text);
    }
  } catch { /* plain code can be read as well */ }
}

// --- The beginning ------------------------------------------------------------------------------------------------------

$("search").addEventListener("input", search);
$("settings").addEventListener("input", marked);
for (const type of ["click", "keydown"]) document.addEventListener(type, leaveSettings);
$("attach").addEventListener("click", () => $("chosen").click());
$("chosen").addEventListener("change", async () => {
  await attach($("chosen").files);
  $("chosen").value = "";
});
$("speed").addEventListener("change", showTalk);
document.addEventListener("dragover", (event) => event.preventDefault());
document.addEventListener("drop", (event) => {
  event.preventDefault();
  attach(event.dataTransfer.files);
});

showSettings(null);
fit();
showTalk();
listChats();
showModels().then(comeBack);
