// What the page is made of: its state, which is a position in the list of times; tooltips; the views with all that stays.
const $ = id => document.getElementById(id), css = name => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
const S = {detail: "fine", at: 0, playing: false, focus: -1, zoom: 1, timer: 0};
const ROW = {label: 74, gantt: 26, memory: 62, gap: 16, top: 8, bottom: 22};
const CEILING = Math.max(...VIEWS.flatMap(v => v.coordinates.map(c => c.memory.total)));
const now = () => TIMES[S.detail][S.at];
function make(tag, className, parent, html) {
  const e = document.createElement(tag);
  if (className) e.className = className;
  if (html !== undefined) e.innerHTML = html;
  if (parent) parent.appendChild(e);
  return e;
}

// ---- tooltips -------------------------------------------------------------------------------------------------------

function tip(html, x, y) {
  const t = $("tip");
  if (!html) return void (t.style.display = "none");
  t.innerHTML = html;
  t.style.display = "block";
  const box = t.getBoundingClientRect();
  t.style.left = Math.max(6, Math.min(x + 14, innerWidth - box.width - 8)) + "px";
  t.style.top = (y + 18 + box.height > innerHeight ? y - box.height - 12 : y + 18) + "px";
}
document.addEventListener("mouseover", e => {
  const about = e.target.closest && e.target.closest("[data-tip]");
  if (about) tip(about.dataset.tip, e.clientX, e.clientY);
  else if (e.target.tagName !== "CANVAS") tip("");
});
document.addEventListener("mouseleave", () => tip(""));

// ---- what stays -----------------------------------------------------------------------------------------------------

// How a pipeline rank is called, as the subject of a sentence; where there is no pipeline, all ranks do the same.
function who(view, c) { return view.pipeline_ranks > 1 ? "pp " + c.pp : "every rank"; }
function axesText(view) { return view.axes.filter(a => a[1] > 1).map(a => a[0] + " " + a[1]).join(" × ") || "one rank"; }
function titleParts(view) {
  const parts = [["zero", "ZeRO " + view.setting.zero]];
  if (view.pipeline_ranks > 1) parts.push(["schedule", view.schedule === "1f1b" ? "1F1B" : view.schedule === "gpipe" ? "GPipe" : view.schedule]);
  parts.push(["mesh", axesText(view)]);
  return parts;
}
function sentTotal(c) { return c.traffic.reduce((sum, t) => sum + t[1], 0); }
function facts(view) {
  const most = view.coordinates.reduce((a, b) => (a.memory.total > b.memory.total ? a : b)), sends = view.coordinates.reduce((a, b) => (sentTotal(a) > sentTotal(b) ? a : b));
  const states = most.memory.parameters + most.memory.gradients + most.memory.optimizer + most.memory.versions, plan = most.memory;
  const out = [
    [plural(view.ranks, "rank"), "on the mesh", "The mesh: " + axesText(view)],
    [view.microbatches, view.microbatches === 1 ? "microbatch" : "microbatches", "Each data rank takes its samples of a step in this many parts."],
    [bytes(plan.total), "reserved by a rank", "By the memory plan, on pp " + most.pp + " where it is largest:<table>" +
      [["weights", plan.parameters + plan.versions], ["gradients", plan.gradients], ["optimizer state", plan.optimizer], ["activations", plan.activations],
        ["workspace", plan.workspace], ["communication", plan.communication]].map(r => "<tr><td>" + r[0] + "</td><td>" + bytes(r[1]) + "</td></tr>").join("") + "</table>"],
    [bytes(states), "of it are states", "Weights, gradients and optimizer state: what ZeRO shards."],
    [bytes(sentTotal(sends)), "sent by a rank, a step", "By collectives (as rings send them) and messages, of pp " + sends.pp + " that sends the most:<table>" +
      sends.traffic.map(t => "<tr><td>over " + escape(view.sets[t[0]].name) + "</td><td>" + bytes(t[1]) + "</td></tr>").join("") + "</table>"]];
  if (view.pipeline_ranks > 1)
    out.push([(100 * view.bubble).toFixed(1) + " %", "bubble", "The part of the time in which pipeline ranks wait, by FLOPs; " + (100 * view.equal_bubble).toFixed(1) + " % if all passes took the same time. Transfers are not counted."]);
  return out;
}

function makeLegend() {
  const add = (color, name, about) => '<span data-tip="' + escape(about) + '"><i class="dot" style="background-color:var(--' + color + ')"></i>' + name + "</span>";
  const actions = new Set(VIEWS.flatMap(v => v.coordinates.flatMap(c => c.bodies.map(b => b.kind)))), any = k => VIEWS.some(v => v.coordinates.some(c => c.peak[k] > 0));
  let html = "<span><b>Time</b></span>" + add("forward", "forward", "The forward pass of a microbatch through the layers of a stage.") +
    add("backward", "backward", actions.has("W") ? "The gradient of a stage's input, which the rank before waits for." : "The backward pass: gradients of the input and of the weights.");
  if (actions.has("W")) html += add("weight", "weight gradients", "The second half of backward: nobody waits for it.");
  html += add("edge", "begin, end", "BEGIN clears gradients; END sums them over the data ranks, clips, and updates the weights. Drawn with a width of their own: they have hardly any FLOPs.") +
    add("move", "communication", "A collective or message is under way.") + '<i class="gap"></i><span><b>Memory</b></span>';
  HELD.forEach(([key, name, about], k) => { if (any(k) && key !== "other") html += add(key, name, about); });
  $("legend").innerHTML = html;
}

// As given, but of a key that is given twice the last.
function overrides(view) {
  const keyOf = word => word.split("=")[0].trim(), all = view.setting.overrides;
  return all.filter((word, i) => !all.slice(i + 1).some(later => keyOf(later) === keyOf(word)));
}

function makeView(view, number) {
  const box = make("section", "view", $("views")), two = VIEWS.length > 1, other = two ? titleParts(VIEWS[1 - number]) : [];
  view.box = box;
  const title = titleParts(view).map(([key, text]) => {
    const there = other.find(o => o[0] === key);
    return two && (!there || there[1] !== text) ? '<span class="differs">' + escape(text) + "</span>" : "<span>" + escape(text) + "</span>";
  });
  make("h2", "", box, (two ? '<span class="badge">' + "AB"[number] + "</span>" : "") + title.join("<span>·</span>"));
  make("div", "sub", box, "<code>" + escape([view.setting.recipe, ...overrides(view)].join(" ")) + "</code> &nbsp;" + escape(view.setting.parallel) +
    "; " + view.setting.samples + " sequences of " + view.setting.sequence + " tokens");
  const row = make("div", "facts", box);
  for (const [value, name, about] of facts(view)) make("div", "fact", row, "<b>" + value + "</b><span>" + name + "</span>").dataset.tip = about;
  make("h3", "", box, "What happens now");
  view.nowBox = make("div", "now", box);
  make("h3", "", box, "Time and memory");
  view.canvas = make("canvas", "", box);
  const left = view.pipeline_ranks - view.coordinates.length;
  if (left) make("div", "more", box, left + " of " + view.pipeline_ranks + " pipeline ranks are left out here.");
  make("h3", "", box, "Ranks, and what each holds");
  view.stagesBox = make("div", "stages", box);
  make("h3", "", box, "Sent so far, by one rank");
  view.sentBox = make("div", "sent", box);
  view.messages = messagesOf(view);
  view.canvas.addEventListener("pointermove", e => { if (e.buttons) seekTo(view, e); else hover(view, e); });
  view.canvas.addEventListener("pointerdown", e => {
    const c = rowAt(view, e);
    if (c >= 0 && e.offsetX < ROW.label) focusOn(S.focus === view.coordinates[c].pp ? -1 : view.coordinates[c].pp);
    else seekTo(view, e);
  });
  view.canvas.addEventListener("pointerleave", () => tip(""));
}

// SENDs with the RECVs that take them: [row of the sender, time, row of the receiver, time].
function messagesOf(view) {
  const scale = view.flops / view.resolution, open = {}, out = [], per = view.microbatches;
  view.coordinates.forEach((c, row) => { for (const e of c.events) if (view.actions[e[0]] === "send") (open[[e[3], e[5], e[4], e[6]]] = open[[e[3], e[5], e[4], e[6]]] || []).push([row, e[1] * scale]); });
  view.coordinates.forEach((c, row) => { for (const e of c.events) if (view.actions[e[0]] === "recv") {
    const from = (open[[e[5], e[3], e[4], e[6]]] || []).shift();
    if (from) out.push([from[0], from[1], row, e[2] * scale]);
  } });
  return out.length > 12 * per * view.coordinates.length || out.length > 3000 ? [] : out;
}

