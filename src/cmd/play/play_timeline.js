// Draws a view's timeline: rows of actions and of memory, and messages between them.
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

