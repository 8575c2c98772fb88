// The key of this origin, which goes with each request of the page. The cookie beside it goes to every
// port of the host, so it opens nothing alone; this storage is of one port.
"use strict";

const KEY = "localspec-key";
const OTHER_TAB_MS = 300;
const tabs = new BroadcastChannel(KEY);

tabs.addEventListener("message", ({ data }) => {
  const key = sessionStorage.getItem(KEY);
  if (data === "wanted" && key) tabs.postMessage({ key });
});

function fromAnotherTab() {
  return new Promise((done) => {
    tabs.addEventListener("message", ({ data }) => { if (data.key) done(data.key); });
    setTimeout(() => done(null), OTHER_TAB_MS);
    tabs.postMessage("wanted");
  });
}

async function forCode(code) {
  history.replaceState(null, "", location.pathname);
  const answer = await fetch("/web/key", {
    method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ code }),
  });
  return answer.ok ? (await answer.json()).key : null;
}

async function entered() {
  const code = location.hash.slice(1);
  const key = (code && await forCode(code)) || sessionStorage.getItem(KEY) || await fromAnotherTab();
  if (key) sessionStorage.setItem(KEY, key);
}

const entering = entered();

async function request(path, options = {}) {
  await entering;
  const headers = { ...options.headers, "X-LocalSpec-Key": sessionStorage.getItem(KEY) ?? "" };
  return fetch(path, { ...options, headers });
}
