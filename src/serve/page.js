// The page of plait serve. Texts of the model are only ever shown as text.
const $ = id => document.getElementById(id);
const settings = ["mode", "temperature", "top_p", "max_tokens", "seed", "system", "key"];
let messages = []; // {role, content, reasoning, note, bad}
let running = null; // the AbortController of the answer that is being read
let model = "";

// A reload keeps the chat and the settings, in this tab.
function save() {
  const values = {};
  for (const id of settings) values[id] = $(id).value;
  try { sessionStorage.setItem("plait", JSON.stringify({messages, values})); } catch { /* a browser may refuse */ }
}

function restore() {
  try {
    const kept = JSON.parse(sessionStorage.getItem("plait"));
    for (const id of settings) if (kept.values[id]) $(id).value = kept.values[id];
    messages = kept.messages;
  } catch { messages = []; }
}

function make(tag, name, text) {
  const e = document.createElement(tag);
  if (name) e.className = name;
  if (text !== undefined) e.textContent = text;
  return e;
}

function button(text, act) {
  const b = make("button", "", text);
  b.type = "button";
  b.disabled = running !== null;
  b.addEventListener("click", act);
  return b;
}

function show(message, index) {
  const article = make("article", message.role), who = make("div", "who", message.role === "user" ? "You" : model || "Model");
  if (message.role === "user") who.append(button("Edit", () => edit(index)));
  else if (index === messages.length - 1) who.append(button("Retry", () => retry(index)));
  article.append(who);
  if (message.reasoning) article.append(make("div", "thought", message.reasoning));
  article.append(make("div", "text", message.content));
  if (message.note) article.append(make("div", message.bad ? "note bad" : "note", message.note));
  return article;
}

function draw() {
  const log = $("log");
  log.replaceChildren(...messages.map(show));
  log.scrollTop = log.scrollHeight;
  $("send").disabled = running !== null;
  $("stop").disabled = running === null;
  save();
}

// Only the last message changes while an answer comes.
function drawLast(message) {
  if (message !== messages[messages.length - 1]) return; // a new chat has begun
  const log = $("log"), follows = log.scrollHeight - log.scrollTop - log.clientHeight < 80;
  log.lastElementChild.replaceWith(show(message, messages.length - 1));
  if (follows) log.scrollTop = log.scrollHeight;
}

function edit(index) {
  const box = make("textarea"), article = $("log").children[index];
  const done = () => { messages = messages.slice(0, index); send(box.value); };
  box.value = messages[index].content;
  box.rows = Math.min(12, box.value.split("\n").length + 1);
  box.setAttribute("aria-label", "Message");
  box.addEventListener("keydown", e => {
    if (e.key === "Escape") { e.stopPropagation(); draw(); $("input").focus(); }
    if (e.key === "Enter" && !e.shiftKey && !e.isComposing) { e.preventDefault(); done(); }
  });
  article.replaceChildren(box, button("Send", done), button("Cancel", draw));
  box.focus();
}

function retry(index) {
  messages = messages.slice(0, index);
  answer();
}

function send(text) {
  if (running || !text.trim()) return;
  messages.push({role: "user", content: text});
  $("input").value = "";
  answer();
}

// ---- requests

function headers() {
  const h = {"Content-Type": "application/json"};
  if ($("key").value) h.Authorization = "Bearer " + $("key").value;
  return h;
}

function request() {
  const chat = $("mode").value === "chat", body = {stream: true, stream_options: {include_usage: true}};
  for (const id of ["temperature", "top_p", "max_tokens", "seed"])
    if ($(id).value !== "") body[id] = Number($(id).value);
  const told = messages.filter(m => m.content).map(m => ({role: m.role, content: m.content}));
  if (chat) {
    body.messages = $("system").value ? [{role: "system", content: $("system").value}, ...told] : told;
  } else {
    body.prompt = told.map(m => m.content).join("");
    if (body.max_tokens === undefined) body.max_tokens = 200;
  }
  return {path: chat ? "v1/chat/completions" : "v1/completions", body};
}

function take(event, message) {
  if (event.error) throw new Error(event.error.message);
  for (const c of event.choices) {
    const d = c.delta || {content: c.text};
    if (d.content) message.content += d.content;
    if (d.reasoning_content) message.reasoning += d.reasoning_content;
    if (c.finish_reason === "length") message.note = "The most tokens, or the context's end, are reached.";
  }
  return event.usage;
}

async function read(response, message) {
  const reader = response.body.getReader(), decoder = new TextDecoder();
  let rest = "", began = 0, events = 0, tokens = 0;
  for (;;) {
    const {value, done} = await reader.read();
    if (done) throw new Error("the connection ended before the answer did");
    rest += decoder.decode(value, {stream: true});
    const parts = rest.split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      if (!part.startsWith("data: ")) continue;
      const data = part.slice(6);
      if (data === "[DONE]") return;
      const usage = take(JSON.parse(data), message), now = performance.now();
      events++;
      if (!began && (message.content || message.reasoning)) { began = now; events = 0; }
      tokens = usage ? usage.completion_tokens : events;
      if (began && now > began) $("speed").textContent = (1000 * tokens / (now - began)).toFixed(1) + " tokens/s";
    }
    drawLast(message);
  }
}

async function answer() {
  const {path, body} = request(), message = {role: "assistant", content: "", reasoning: "", note: "", bad: false};
  running = new AbortController();
  messages.push(message);
  draw();
  try {
    const response = await fetch(path, {method: "POST", headers: headers(), body: JSON.stringify(body), signal: running.signal});
    if (!response.ok) throw new Error((await response.json()).error.message);
    await read(response, message);
  } catch (e) {
    message.bad = e.name !== "AbortError";
    message.note = message.bad ? "No answer: " + e.message : "Stopped.";
  }
  running = null;
  draw();
  $("input").focus();
}

async function findModel() {
  try {
    const response = await fetch("v1/models", {headers: headers()});
    if (!response.ok) throw new Error((await response.json()).error.message);
    model = (await response.json()).data[0].id;
    $("model").textContent = model;
    document.title = model + " – plait";
  } catch (e) { $("model").textContent = "plait: " + e.message; }
}

// ---- controls

$("form").addEventListener("submit", e => { e.preventDefault(); send($("input").value); });
$("stop").addEventListener("click", () => running && running.abort());
$("fresh").addEventListener("click", () => {
  if (running) running.abort();
  messages = [];
  draw();
  $("input").focus();
});
$("show").addEventListener("click", () => {
  $("settings").hidden = !$("settings").hidden;
  $("show").setAttribute("aria-expanded", String(!$("settings").hidden));
});
$("key").addEventListener("change", findModel);
for (const id of settings) $(id).addEventListener("change", save);
$("input").addEventListener("keydown", e => {
  if (e.key === "Enter" && !e.shiftKey && !e.isComposing) { e.preventDefault(); send($("input").value); }
  if (e.key === "ArrowUp" && !$("input").value && !running) {
    const last = messages.map(m => m.role).lastIndexOf("user");
    if (last >= 0) { e.preventDefault(); edit(last); }
  }
});
document.addEventListener("keydown", e => { if (e.key === "Escape" && running) running.abort(); });

restore();
draw();
findModel();
