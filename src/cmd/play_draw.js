// Draws the views, and answers keys, slider and mouse. The state of the page is a position in the list of times.
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

// How a pipeline rank is called; where there is no pipeline, all ranks do the same.
function who(view, c) { return view.pipeline_ranks > 1 ? "pp " + c.pp : "all ranks"; }
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
    [view.microbatches, view.microbatches === 1 ? "microbatch" : "microbatches", "Each data rank takes its samples of a step in so many parts."],
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

// ---- timeline -------------------------------------------------------------------------------------------------------

// The part of the time that is shown: all of it, or, zoomed, around the position.
function range() {
  const width = (SPAN.to - SPAN.from) / S.zoom;
  const from = Math.max(SPAN.from, Math.min(SPAN.to - width, now() - width / 2));
  return S.zoom > 1 ? [from, from + width] : [SPAN.from, SPAN.to];
}
function rowTop(row) { return ROW.top + row * (ROW.gantt + ROW.memory + ROW.gap); }
function rowAt(view, e) {
  const row = Math.floor((e.offsetY - ROW.top) / (ROW.gantt + ROW.memory + ROW.gap));
  return row >= 0 && row < view.coordinates.length ? row : -1;
}
function xOf(view, t) { const [a, b] = range(); return ROW.label + (t - a) / (b - a) * (view.canvas.clientWidth - ROW.label - 4); }
function timeAt(view, x) { const [a, b] = range(); return a + (x - ROW.label) / (view.canvas.clientWidth - ROW.label - 4) * (b - a); }

const COLOR = {F: "forward", B: "backward", W: "weight", begin: "edge", end: "edge", sums: "edge"};
function drawBoxes(g, view, c, y, X, a, b) {
  let first = indexAt(c, a);
  while (first && c.moments[first - 1].bodyIndex === c.moments[first].bodyIndex) first--;
  for (let i = first, j; i < c.moments.length && c.moments[i].t0 <= b; i = j) {
    const m = c.moments[i];
    for (j = i + 1; j < c.moments.length && !m.idle && c.moments[j].bodyIndex === m.bodyIndex;) j++;
    const end = c.moments[j - 1].t1, x = X(m.t0), w = Math.max(1, X(end) - x);
    if (m.idle || end < a) continue;
    g.fillStyle = COLORS[COLOR[m.name]];
    g.globalAlpha = view.steps > 1 && m.stream % 2 ? .72 : 1;
    g.fillRect(x, y, Math.max(1, w - (w > 3)), ROW.gantt);
    g.globalAlpha = 1;
    g.fillStyle = COLORS.move;
    for (let k = i; k < j && w > 4; k++) { // collectives: a mark at the foot of the box
      const s = c.moments[k], moves = s.step.moves;
      if (!moves || moves.early) continue;
      const last = moves.until ? Math.min(j - 1, k + moves.until - s.number - 1) : k;
      g.fillRect(X(s.t0), y + ROW.gantt - 5, Math.max(1.5, X(c.moments[last].t1) - X(s.t0) - .5), 5);
    }
    const text = m.name === "begin" ? "" : m.name === "end" ? "END" : String(m.microbatch);
    if (w > g.measureText(text).width + 3) { g.fillStyle = "#fff"; g.fillText(text, x + w / 2 - .5, y + ROW.gantt / 2 - 1); }
  }
}
const total = held => held.reduce((x, y) => x + y, 0);
function drawMemory(g, c, y, X, a, b) {
  const h = ROW.memory, scale = h / CEILING;
  const first = indexAt(c, a);
  const columns = []; // [left, right, held]: of what falls on one pixel the most
  for (let i = first; i < c.moments.length && c.moments[i].t0 < b; i++) {
    const m = c.moments[i], x0 = Math.max(X(m.t0), X(a)), x1 = Math.min(X(m.t1), X(b)), last = columns[columns.length - 1];
    if (last && x1 - last[0] < 1) { last[1] = x1; if (total(m.held) > total(last[2])) last[2] = m.held; }
    else columns.push([x0, x1, m.held]);
  }
  if (!columns.length) return;
  const sums = columns.map(() => 0), layers = HELD.map((_, k) => columns.map((x, i) => sums[i] += x[2][k]));
  for (let k = HELD.length - 1; k >= 0; k--) { // the largest sum first, the others over it
    g.beginPath();
    g.moveTo(columns[0][0], y + h);
    columns.forEach(([x0, x1], i) => { g.lineTo(x0, y + h - layers[k][i] * scale); g.lineTo(x1, y + h - layers[k][i] * scale); });
    g.lineTo(columns[columns.length - 1][1], y + h);
    g.closePath();
    g.fillStyle = COLORS[HELD[k][0]];
    g.fill();
  }
  g.strokeStyle = COLORS.soft;
  g.setLineDash([4, 3]);
  g.beginPath();
  g.moveTo(X(a), y + h - c.memory.total * scale + .5);
  g.lineTo(X(b), y + h - c.memory.total * scale + .5);
  g.stroke();
  g.setLineDash([]);
}
// t null: all; else those that are under way then.
function drawMessages(g, view, X, t) {
  for (const [from, sent, to, got] of view.messages) {
    const down = to > from, y0 = rowTop(from) + (down ? ROW.gantt : 0), y1 = rowTop(to) + (down ? 0 : ROW.gantt);
    if (t !== null && (sent > t + 1e-9 || t > got + (SPAN.to - SPAN.from) * .004)) continue;
    g.strokeStyle = t === null ? COLORS.faint : COLORS.move;
    g.globalAlpha = t === null ? .35 : 1;
    g.lineWidth = t === null ? 1 : 2;
    g.beginPath();
    g.moveTo(X(sent), y0);
    g.lineTo(Math.max(X(got), X(sent) + 1), y1);
    g.stroke();
  }
  g.globalAlpha = g.lineWidth = 1;
}
let COLORS = {};
function readColors() {
  COLORS = Object.fromEntries(["forward", "backward", "weight", "edge", "move", "head", "ink", "soft", "faint", "line", "track", "card", ...HELD.map(h => h[0])].map(n => [n, css(n)]));
}
// All that does not move with the position, drawn once for a size, range and theme.
function drawRows(view, g, width, height, a, b) {
  const rows = view.coordinates.length, X = t => xOf(view, t);
  g.clearRect(0, 0, width, height);
  g.textBaseline = "middle";
  view.coordinates.forEach((c, row) => {
    const y = rowTop(row), line = y + ROW.gantt + 2 + ROW.memory * (1 - c.memory.total / CEILING);
    g.fillStyle = COLORS.track;
    g.fillRect(ROW.label, y, width - ROW.label - 4, ROW.gantt);
    g.textAlign = "left";
    g.font = "650 13px system-ui, sans-serif";
    g.fillStyle = S.focus === c.pp ? COLORS.move : COLORS.ink;
    g.fillText(view.pipeline_ranks > 1 ? "pp " + c.pp : "ranks", 2, y + 13);
    g.font = "10.5px system-ui, sans-serif";
    g.fillStyle = COLORS.faint;
    if (row === 0) g.fillText("memory", 2, y + ROW.gantt + ROW.memory - 3);
    g.textAlign = "right";
    g.fillText(bytes(c.memory.total), ROW.label - 6, Math.min(Math.max(line + 1, y + ROW.gantt + 5), y + ROW.gantt + ROW.memory - 14));
    g.fillText("0", ROW.label - 6, y + ROW.gantt + ROW.memory - 3);
    g.save();
    g.beginPath();
    g.rect(ROW.label, 0, width - ROW.label - 4, height);
    g.clip();
    g.textAlign = "center";
    g.font = "600 11.5px system-ui, sans-serif";
    drawBoxes(g, view, c, y, X, a, b);
    drawMemory(g, c, y + ROW.gantt + 2, X, a, b);
    if (row === rows - 1 && rows > 1) drawMessages(g, view, X, null);
    g.restore();
  });
  g.fillStyle = COLORS.faint;
  g.font = "10.5px system-ui, sans-serif";
  for (let k = 0; k <= 4; k++) {
    const at = LONGEST * k / 4;
    if ((k === 3 && width < 900) || at < a || at > b) continue;
    g.textAlign = k === 4 ? "right" : k ? "center" : "left";
    g.fillText(k === 0 ? "0" : flopsText(at) + (k === 4 ? " of a rank" : ""), X(at), rowTop(rows) + 6);
  }
}
function drawTimeline(view) {
  const canvas = view.canvas, rows = view.coordinates.length, width = canvas.clientWidth, height = rowTop(rows) + ROW.bottom, ratio = devicePixelRatio || 1;
  const [a, b] = range(), X = t => xOf(view, t), t = now(), state = [width, ratio, a, b, S.focus, COLORS.ink].join();
  if (state !== view.drawn) {
    view.still = view.still || document.createElement("canvas");
    for (const x of [canvas, view.still]) x.width = Math.round(width * ratio), x.height = Math.round(height * ratio);
    canvas.style.height = height + "px";
    const g = view.still.getContext("2d");
    g.setTransform(ratio, 0, 0, ratio, 0, 0);
    drawRows(view, g, width, height, a, b);
    view.drawn = state;
  }
  const g = canvas.getContext("2d");
  g.setTransform(1, 0, 0, 1, 0, 0);
  g.clearRect(0, 0, canvas.width, canvas.height);
  g.drawImage(view.still, 0, 0);
  g.setTransform(ratio, 0, 0, ratio, 0, 0);
  g.save();
  g.beginPath();
  g.rect(ROW.label, 0, width - ROW.label - 4, height);
  g.clip();
  if (rows > 1) drawMessages(g, view, X, t);
  g.strokeStyle = g.fillStyle = COLORS.head;
  g.lineWidth = 1.6;
  g.beginPath();
  g.moveTo(X(t), 0);
  g.lineTo(X(t), rowTop(rows) - 4);
  g.stroke();
  g.beginPath();
  g.moveTo(X(t) - 5, 0);
  g.lineTo(X(t) + 5, 0);
  g.lineTo(X(t), 6);
  g.fill();
  g.restore();
}
function flopsText(n) { const u = ["", "k", "M", "G", "T", "P", "E"]; let i = 0; while (n >= 999.5 && i < 6) n /= 1000, i++; return (i && n < 100 ? n.toPrecision(3) : Math.round(n)) + " " + u[i] + "FLOPs"; }

function heldTable(m, plan) {
  const sum = total(m.held);
  return "<table>" + HELD.map((h, k) => m.held[k] ? '<tr><td><i class="dot" style="background:var(--' + h[0] + ')"></i> ' + h[1] + "</td><td>" + bytes(m.held[k]) + "</td></tr>" : "").reverse().join("") +
    "<tr><td><b>in use</b></td><td><b>" + bytes(sum) + "</b></td></tr><tr><td>reserved</td><td>" + bytes(plan.total) + "</td></tr></table>";
}
function hover(view, e) {
  const row = rowAt(view, e);
  if (row < 0) return tip("");
  const c = view.coordinates[row], y = e.offsetY - rowTop(row);
  if (e.offsetX < ROW.label) return tip("<b>" + who(view, c) + "</b>: " + stagesName(view, c) + "<br>Click to show its ranks alone.", e.clientX, e.clientY);
  const m = momentAt(c, timeAt(view, e.offsetX)), s = sentence(view, c, m);
  tip("<b>" + who(view, c) + ": " + s.head + "</b>" + (y > ROW.gantt ? heldTable(m, c.memory) : "<br>" + s.text.replace(/<[^>]*>/g, "")), e.clientX, e.clientY);
}
function seekTo(view, e) {
  const t = timeAt(view, e.offsetX), all = TIMES[S.detail];
  let best = 0;
  while (best + 1 < all.length && all[best + 1] <= t) best++;
  go(best);
}

// ---- ranks ----------------------------------------------------------------------------------------------------------

const FORMS = [["parameters", "weights", "The weights: filled is the shard that this rank holds; pink the rest while it is gathered."],
  ["copies", "copy", "The copy of the weights that the rank computes with."], ["versions", "versions", "What weights were in earlier steps, for delayed gradients."],
  ["gradients", "gradients", "The accumulated gradients."], ["optimizer", "optimizer", "The optimizer's state."]];
const MOST_LAYERS = 10;

function strip(view, sections, rank, fill) {
  const total = sections.reduce((sum, s) => sum + s[0], 0) || 1;
  let html = "";
  for (const [size, cut, owners, owner] of sections) {
    if (size / total < .015) continue;
    const set = view.sets[owners >= 0 ? owners : cut], index = owners >= 0 ? owner : set.index[rank], has = owners < 0 || set.index[rank] === owner;
    const cells = owners >= 0 ? 1 : Math.max(1, set.ranks), many = cells > 16;
    html += '<div class="section" style="flex:' + (size / total).toFixed(4) + " 1 0;--fill:var(--" + fill + ')">';
    if (many) html += '<div class="cell" style="flex:' + index + ' 1 0"></div><div class="cell own" style="flex:0 0 3px"></div><div class="cell" style="flex:' + (cells - index - 1) + ' 1 0"></div>';
    else for (let k = 0; k < cells; k++) html += '<div class="cell' + ((owners >= 0 ? has : k === index) ? " own" : "") + '"></div>';
    html += "</div>";
  }
  return html;
}
function rankCount(view) { return view.ranks / view.pipeline_ranks; }
function chosenRanks(view, c) {
  const many = S.focus >= 0 ? 8 : Math.max(1, Math.floor(8 / Math.min(8, view.coordinates.length)));
  return c.ranks.slice(0, many);
}
function shownCoordinates(view) {
  const focus = view.coordinates.filter(c => c.pp === S.focus);
  return focus.length ? focus : view.coordinates.slice(0, 8);
}
function groupShort(view, g) { return g === 0 ? "embed" : g > view.layers ? "head" : "layer " + (g - 1); }

function makeRanks(view) {
  view.stagesBox.innerHTML = "";
  view.stagesBox.classList.toggle("pairs", shownCoordinates(view).length > 1 && chosenRanks(view, view.coordinates[0]).length <= 2);
  view.cards = [];
  for (const c of shownCoordinates(view)) {
    const box = make("div", "stage", view.stagesBox), title = make("div", "title", box), grid = make("div", "cards", box), entry = {c, title, grid, cards: []};
    const forms = FORMS.filter(f => c.groups.some(g => g.forms[f[0]]));
    for (const [rank, text] of chosenRanks(view, c)) {
      const card = make("div", "rank", grid);
      make("div", "name", card, "<b>rank " + rank + "</b><span>" + escape(text.replace(/(\d) /g, "$1 · ")) + '</span><span class="does"></span>');
      let html = '<tr><th style="width:46px"></th>' + forms.map(f => '<th data-tip="' + escape(f[2]) + '">' + (f[1] === "optimizer" && forms.length > 3 ? "optim." : f[1]) + "</th>").join("") + "</tr>";
      c.groups.forEach(g => {
        html += '<tr data-group="' + g.group + '"><td class="layer">' + groupShort(view, g.group) + "</td>" + forms.map(f => "<td>" + (g.forms[f[0]] ? '<div class="strip" data-form="' + f[0] + '">' +
          strip(view, g.forms[f[0]], rank, f[0] === "versions" ? "copies" : f[0]) + "</div>" : "") + "</td>").join("") + "</tr>";
      });
      make("table", "", card, html);
      make("div", "badgeline", card);
      make("div", "bar", card);
      make("div", "bytes", card);
      entry.cards.push({rank, card, place: Object.fromEntries((text.match(/\S+ \d+/g) || []).map(w => w.split(" ")))});
    }
    const left = rankCount(view) - entry.cards.length;
    if (left > 0) make("div", "more", box, plural(left, "more rank") + " of pp " + c.pp + " run the same instructions" + (S.focus < 0 && c.ranks.length > entry.cards.length ? "; click on pp " + c.pp + " in the timeline to see more" : "") + ".");
    view.cards.push(entry);
    setColumns(entry);
  }
  const left = view.coordinates.length - shownCoordinates(view).length;
  if (left > 0 && S.focus < 0) make("div", "more", view.stagesBox, "Cards of " + plural(left, "more pipeline rank") + " are left out; click on a row of the timeline to see its ranks.");
}

// So many columns that rows of cards are equally long, where there is room.
function setColumns(entry) {
  const n = entry.cards.length, most = Math.max(1, Math.min(n, Math.floor((entry.grid.clientWidth + 9) / 214)));
  let columns = most;
  while (columns > 1 && n % columns) columns--;
  entry.grid.style.gridTemplateColumns = "repeat(" + (columns === 1 ? most : columns) + ", minmax(0, 1fr))";
}

// The ranks with whom one is in a group over the axes of a set, by the names of these.
function groupKey(place, set) { const axes = set.name.split(" "); return Object.entries(place).filter(([axis]) => !axes.includes(axis)).map(p => p.join()).join(" "); }

function movesOf(m) { return m.idle ? [] : [...m.step.flight, ...(m.step.moves && !m.step.moves.early ? [m.step.moves] : []), ...m.notes.reduce]; }

function drawLinks(view, entry, moves) {
  let svg = entry.grid.querySelector("svg.links");
  if (svg) svg.remove();
  if (!moves.length || entry.cards.length < 2) return;
  const set = view.sets[moves[moves.length - 1].over], groups = {}, frame = entry.grid.getBoundingClientRect();
  for (const x of entry.cards) if (set.index[x.rank] !== undefined) (groups[groupKey(x.place, set)] = groups[groupKey(x.place, set)] || []).push(x.card.getBoundingClientRect());
  let paths = "";
  for (const boxes of Object.values(groups))
    for (let i = 1, head = boxes[0]; i < boxes.length; i++) {
      const p = boxes[i - 1], q = boxes[i], y = q.bottom - frame.top - 4, x0 = p.left + p.width / 2 - frame.left, x1 = q.left + q.width / 2 - frame.left;
      if (Math.abs(p.top - q.top) < 4) paths += '<path d="M' + x0 + " " + y + " C" + x0 + " " + (y + 18) + " " + x1 + " " + (y + 18) + " " + x1 + " " + y + '"/>';
      else { // the next row of cards
        const x = head.left - frame.left, from = head.top + head.height / 2 - frame.top, to = q.top + q.height / 2 - frame.top;
        paths += '<path d="M' + x + " " + from + " C" + (x - 16) + " " + from + " " + (x - 16) + " " + to + " " + x + " " + to + '"/>';
        head = q;
      }
    }
  if (!paths) return;
  entry.grid.insertAdjacentHTML("beforeend", '<svg class="links">' + paths + "</svg>");
}

function layersAround(c, group) { // so many rows of layers fit on a card
  if (c.groups.length <= MOST_LAYERS) return null;
  const at = Math.max(0, c.groups.findIndex(g => g.group === group)), from = Math.max(0, Math.min(c.groups.length - MOST_LAYERS, at - MOST_LAYERS / 2));
  return new Set(c.groups.slice(from, from + MOST_LAYERS).map(g => g.group));
}

function drawRanks(view, t) {
  for (const entry of view.cards) {
    const {c} = entry, m = momentAt(c, t), moves = movesOf(m), sum = total(m.held);
    let slots = "";
    for (const [stage, count] of c.slots) {
      slots += '<span class="slots" data-tip="Slots of stage ' + stage + ": each keeps the activations of one microbatch, from its forward to its backward pass. The plan has " + plural(count, "slot") + '.">' + (c.slots.length > 1 ? "stage " + stage : "activations of microbatch");
      for (let k = 0; k < count && k < 24; k++) {
        const full = m.slots[stage] && m.slots[stage][k] !== undefined;
        slots += '<span class="slot' + (full ? " full" : "") + '">' + (full ? m.slots[stage][k] % view.microbatches : "&nbsp;") + "</span>";
      }
      slots += (count > 24 ? " … " + (count - 24) + " more" : "") + "</span>";
    }
    entry.title.innerHTML = "<b>" + who(view, c) + "</b><span>" + stagesName(view, c) + "</span>" + slots;
    const color = m.idle ? "faint" : COLOR[m.name], group = m.idle ? -1 : m.name === "begin" || m.name === "end" ? -1 : m.step.group, around = layersAround(c, group);
    const bar = HELD.map((h, k) => m.held[k] ? '<i style="width:' + 100 * m.held[k] / CEILING + "%;background:var(--" + h[0] + ')"></i>' : "").join(""), about = heldTable(m, c.memory);
    for (const {card} of entry.cards) {
      card.classList.toggle("moving", moves.length > 0);
      const does = card.querySelector(".does");
      does.textContent = m.idle ? "idle" : m.name === "begin" ? "begin" : m.name === "end" || m.name === "sums" ? "end" : PHASES[m.name] + " " + m.microbatch;
      does.style.background = "var(--" + color + ")";
      for (const row of card.querySelectorAll("tr[data-group]")) {
        const g = +row.dataset.group;
        row.style.display = !around || around.has(g) ? "" : "none";
        row.classList.toggle("active", g === group);
        const first = row.querySelector('.strip[data-form="parameters"]');
        if (first) first.classList.toggle("whole", !m.idle && m.step.gathered.includes(g));
      }
      const last = moves[moves.length - 1];
      card.querySelector(".badgeline").textContent = last ? "⇄ " + view.ops[last.op].replace(/_/g, " ") + " of " + last.what + " over " + view.sets[last.over].name + (moves.length > 1 ? " (+" + (moves.length - 1) + ")" : "") : "";
      card.querySelector(".bar").innerHTML = bar;
      card.querySelector(".bytes").innerHTML = "<span>" + bytes(sum) + " in use</span><span>" + bytes(c.memory.total) + " reserved</span>";
      card.querySelector(".bar").dataset.tip = about;
    }
    drawLinks(view, entry, moves);
  }
}

function drawNow(view, t) {
  const all = S.focus >= 0 && view.coordinates.some(c => c.pp === S.focus) ? view.coordinates.filter(c => c.pp === S.focus) : view.coordinates.slice(0, 8), fresh = now();
  while (view.nowBox.children.length > all.length) view.nowBox.lastChild.remove();
  all.forEach((c, i) => {
    const m = momentAt(c, t), s = sentence(view, c, m), line = view.nowBox.children[i] || make("div", "line", view.nowBox, '<div class="who"></div><div class="what"></div>');
    line.classList.toggle("many", all.length > 2);
    line.classList.toggle("fresh", Math.abs(m.t0 - fresh) < (SPAN.to - SPAN.from) * 2e-7);
    line.style.borderLeftColor = "var(--" + (m.idle ? "line" : COLOR[m.name]) + ")";
    line.onclick = () => focusOn(S.focus === c.pp ? -1 : c.pp);
    line.children[0].textContent = who(view, c);
    line.dataset.tip = "<b>" + who(view, c) + ": " + s.head + "</b><br>" + s.text.replace(/<[^>]*>/g, "");
    line.children[1].innerHTML = "<b>" + s.head + ":</b> " + s.text;
  });
}

function drawSent(view, t) {
  const c = view.coordinates.find(x => x.pp === S.focus) || view.coordinates.reduce((a, b) => (sentTotal(a) >= sentTotal(b) ? a : b)), m = momentAt(c, t);
  const totals = {}, sofar = {};
  for (const [set, n] of c.traffic) totals[view.sets[set].name] = (totals[view.sets[set].name] || 0) + n * view.steps;
  for (const key in m.sent) { const name = key === "pp" ? "pp" : view.sets[key].name; sofar[name] = (sofar[name] || 0) + m.sent[key]; }
  view.sentBox.innerHTML = (view.pipeline_ranks > 1 ? "<span>pp " + c.pp + "</span>" : "") + Object.keys(totals).map(name => '<span class="axis"><span>over ' + escape(name) + '</span><span class="track"><i style="width:' +
    Math.min(100, 100 * (sofar[name] || 0) / totals[name]) + '%"></i></span><span>' + bytes(sofar[name] || 0) + " of " + bytes(totals[name]) + "</span></span>").join("");
}

// ---- moving ---------------------------------------------------------------------------------------------------------

function draw() {
  const t = now();
  for (const view of VIEWS) { drawNow(view, t); drawTimeline(view); drawRanks(view, t); drawSent(view, t); }
  $("slider").max = TIMES[S.detail].length - 1;
  $("slider").value = S.at;
  $("where").textContent = "step " + (S.at + 1) + " of " + TIMES[S.detail].length;
  $("sign").setAttribute("d", S.playing ? "M1 0h4v13H1zM8 0h4v13H8z" : "M2 0v13l11-6.5z");
}
function go(at) { S.at = Math.max(0, Math.min(TIMES[S.detail].length - 1, at)); draw(); }
// To the next (1) or last (-1) beginning of a pass.
function goPass(way) {
  const t = now(), all = TIMES.coarse, slack = (SPAN.to - SPAN.from) * 2e-7, target = way > 0 ? all.find(x => x > t + slack) : [...all].reverse().find(x => x < t - slack);
  if (target === undefined) return go(way > 0 ? TIMES[S.detail].length - 1 : 0);
  const own = TIMES[S.detail];
  go(own.findIndex(x => x >= target - slack));
}
function setDetail(detail) {
  const t = now();
  S.detail = detail;
  let at = 0;
  while (at + 1 < TIMES[detail].length && TIMES[detail][at + 1] <= t) at++;
  go(at);
}
function play(on) {
  S.playing = on;
  clearTimeout(S.timer);
  if (on && S.at === TIMES[S.detail].length - 1) S.at = 0;
  const tick = () => {
    if (!S.playing) return;
    if (S.at === TIMES[S.detail].length - 1) return play(false);
    go(S.at + 1);
    S.timer = setTimeout(tick, 900 / $("speed").value);
  };
  if (on) S.timer = setTimeout(tick, 900 / $("speed").value);
  draw();
}
function focusOn(pp) {
  S.focus = pp;
  VIEWS.forEach(makeRanks);
  draw();
}
function moveFocus(way) {
  const all = VIEWS[0].coordinates.map(c => c.pp), at = all.indexOf(S.focus);
  if (all.length > 1) focusOn(all[at < 0 ? (way > 0 ? 0 : all.length - 1) : Math.max(0, Math.min(all.length - 1, at + way))]);
}
function zoom(by) { S.zoom = Math.max(1, Math.min(256, S.zoom * by)); draw(); }
function key(e) {
  if (e.ctrlKey || e.metaKey || e.altKey || (e.target.tagName === "SELECT" && e.key !== "Escape")) return;
  const keys = {ArrowRight: () => e.shiftKey ? goPass(1) : go(S.at + 1), ArrowLeft: () => e.shiftKey ? goPass(-1) : go(S.at - 1), Home: () => go(0), End: () => go(Infinity),
    " ": () => play(!S.playing), ArrowUp: () => moveFocus(-1), ArrowDown: () => moveFocus(1), Escape: () => focusOn(-1), "+": () => zoom(2), "=": () => zoom(2), "-": () => zoom(.5),
    PageDown: () => goPass(1), PageUp: () => goPass(-1)};
  if (!keys[e.key]) return;
  e.preventDefault();
  if (e.key !== " " && S.playing && e.key.startsWith("Arrow") && !/Up|Down/.test(e.key)) play(false);
  keys[e.key]();
}
function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  readColors();
  if (VIEWS[0].canvas) draw();
}

function start() {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  setTheme(/dark/.test(location.hash) || (dark.matches && !/light/.test(location.hash)) ? "dark" : "light");
  dark.addEventListener("change", () => setTheme(dark.matches ? "dark" : "light"));
  const two = VIEWS.length > 1;
  document.title = VIEWS.map(v => titleParts(v).map(p => p[1]).join(" · ")).join(" | ");
  $("lead").textContent = (two ? "Two settings of one step side by side, on one axis of time" : "One step of training") + ": who computes, gathers, sends and holds what. Press space, or step with the arrow keys.";
  if (two) $("views").classList.add("two"), $("notes").classList.add("two");
  makeLegend();
  VIEWS.forEach(makeView);
  VIEWS.forEach(makeRanks);
  $("notes").textContent = "Written by plait " + DATA.version + ". Passes take the time of their FLOPs; within a pass every instruction takes a little more, so that those without FLOPs are seen. " +
    "Transfers take no time, and BEGIN and END are drawn with a width of their own. Bytes sent are a rank's, of microbatch 0 where batches do not divide. Memory is the Program's plan: " +
    "states, slots and buffers of one rank of each row; loader and code are not in it." +
    (VIEWS.some(v => v.streams) ? " A schedule that never drains is shown over three steps; its BEGIN and END take no time here." : "");
  addEventListener("keydown", key);
  addEventListener("resize", () => { VIEWS.forEach(v => v.cards.forEach(setColumns)); draw(); });
  $("slider").addEventListener("input", () => go(+$("slider").value));
  $("home").onclick = () => go(0);
  $("end").onclick = () => go(Infinity);
  $("back").onclick = () => go(S.at - 1);
  $("next").onclick = () => go(S.at + 1);
  $("play").onclick = () => play(!S.playing);
  $("theme").onclick = () => setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");
  $("detail").onchange = () => setDetail($("detail").value);
  document.querySelectorAll("footer button").forEach(b => b.addEventListener("click", () => b.blur()));
  const at = /at=([\d.]+)/.exec(location.hash), focus = /pp=(\d+)/.exec(location.hash);
  if (focus) focusOn(+focus[1]);
  go(at ? Math.round(+at[1] * (TIMES.fine.length - 1)) : 0);
  if (/#test/.test(location.hash)) selfTest();
}

// For tests/cmd/test_play.sh: PAGE#test drives the page by keys and slider, and leaves what it saw in the document.
function selfTest() {
  const seen = {errors: []}, press = (k, more) => document.body.dispatchEvent(new KeyboardEvent("keydown", {key: k, bubbles: true, cancelable: true, ...more})), all = TIMES.fine.length;
  addEventListener("error", e => seen.errors.push(String(e.message)));
  const note = name => { seen[name] = {at: S.at, slider: +$("slider").value, where: $("where").textContent, now: VIEWS.map(v => v.nowBox.innerText || v.nowBox.textContent)}; };
  try {
    press("Home"); note("home");
    press("ArrowRight"); press("ArrowRight"); press("ArrowRight"); note("right");
    press("ArrowLeft"); note("left");
    press("ArrowRight", {shiftKey: true}); note("pass");
    press("End"); note("end");
    $("slider").value = Math.floor(all / 2); $("slider").dispatchEvent(new Event("input")); note("slider");
    press(" "); seen.playing = S.playing; press(" "); seen.paused = !S.playing;
    press("ArrowDown"); seen.focus = S.focus; press("Escape");
    const words = [];
    for (let i = 0; i < all; i++) { go(i); words.push(VIEWS.map(v => v.coordinates.map(c => sentence(v, c, momentAt(c, now()))).map(s => s.head + ": " + s.text.replace(/<[^>]*>/g, "")))); }
    seen.sentences = words;
    seen.views = VIEWS.map(v => v.coordinates.map(c => ({pp: c.pp, peak: Object.fromEntries(HELD.map((h, k) => [h[0], c.peak[k]])), work: c.work, most: c.most, total: c.memory.total,
      sent: Object.entries(c.moments[c.moments.length - 1].sent).reduce((sum, x) => sum + x[1], 0) - 0, traffic: sentTotal(c)})));
  } catch (e) { seen.errors.push(String(e && e.stack || e)); }
  seen.times = all;
  make("pre", "", document.body).id = "result";
  $("result").textContent = "RESULT" + JSON.stringify(seen) + "RESULT";
}
start();
