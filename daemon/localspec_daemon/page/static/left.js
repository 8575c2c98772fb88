// A tab that was left: a reload comes back to the conversation that was open, with what was written of its
// answer, what stood in the line, and its files. page.js and tools.js call what is here, and the other way
// round. This storage is of one tab; where no conversation is kept, it keeps none either.
"use strict";

const LEFT = "localspec-left";

function remember(more = {}) {
  // The name of the open conversation, always; the rest while the tab is being left.
  for (const left of [{ name: current?.name, ...more }, { name: current?.name }]) {
    try {
      sessionStorage.setItem(LEFT, JSON.stringify(left));
      return;
    } catch { /* more than the browser keeps for a tab */ }
  }
}

function leave() {
  const chat = current, last = chat?.turns.at(-1), line = { words: $("words").value, files };
  if (!keeping) return remember();
  if (answering && !last.content) line.question = chat.turns.at(-2).content;
  if (!chat?.unsaved && !(answering && last.content)) return remember(line);
  remember({ ...line, chat, stopped: answering !== null });
  // Where the tab is closed, this is what remains: it is sent although the page goes, up to 64 KiB.
  const options = { method: "POST", headers: { "Content-Type": "application/json" }, keepalive: true };
  if (chat.name) request("chats", { ...options, body: JSON.stringify(written(chat)) }).catch(() => {});
  return undefined;
}

async function comeBack() {
  const left = JSON.parse(sessionStorage.getItem(LEFT) ?? "{}"), chat = await wasOpen(left);
  if (current || answering) return;
  if (chat) show(chat);
  if (chat && !chat.name && !chat.turns.length) current = null;
  const words = new Set([$("words").value || left.question, left.words]);
  $("words").value = [...words].filter(Boolean).join("\n\n");
  files.push(...left.files ?? []);
  showFiles();
  fit();
  if (left.question) tell("This page was left before the answer began; the question is in the line again.");
  if (current?.unsaved) await save(current);
  await listChats();
}

async function wasOpen({ name, chat, stopped }) {
  // The conversation to come back to: what this tab had of it, unless the file has all of that and more.
  if (stopped) Object.assign(chat.turns.at(-1), { done: true, waiting: null, error: "This page was left before the answer was whole." });
  if (!name) return chat;
  let kept;
  try {
    kept = await call("GET", address(name));
  } catch (error) {
    if (error.status !== 404) tell(error.message);
    return error.status === 404 ? null : chat;
  }
  if (!chat) return kept;
  const { turns } = written(chat);
  if (begins(kept.turns, turns)) return { ...chat, stamp: kept.stamp, unsaved: !begins(turns, kept.turns) };
  return begins(turns, kept.turns) ? kept : { ...chat, unsaved: true };
}

function begins(some, all) {
  // Whether `all` goes on where `some` ends, be it inside of a turn.
  const last = some.length - 1;
  return last < all.length && some.every(({ role, content }, at) =>
    role === all[at].role && (at === last ? all[at].content.startsWith(content) : all[at].content === content));
}

window.addEventListener("pagehide", leave);
tabs.addEventListener("message", ({ data }) => {
  // Another tab has kept a conversation; a hidden one catches up when it is looked at.
  if (data.kept && !document.hidden) catchUp();
});
