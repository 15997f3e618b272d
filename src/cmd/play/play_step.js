// From the data of a view to the moments of its pipeline ranks: what each does, holds and moves, and the sentence that says so.
"use strict";
const DATA = JSON.parse(document.getElementById("data").textContent);
const VIEWS = DATA.views;

// What a rank holds, from the bottom of the memory chart up. Names are those of the variables in CSS.
const HELD = [
  ["parameters", "weights", "The weights, or the shard of them that a rank owns; with lower precision or ZeRO 1 and 2 also the copy that it computes with."],
  ["gradients", "gradients", "Accumulated over the microbatches of a step."],
  ["optimizer", "optimizer state", "For AdamW two moments of every weight."],
  ["other", "counters", "Loss, step number and other scalars."],
  ["activations", "activations", "Slots: what the backward pass of a microbatch needs of its forward pass."],
  ["gathered", "gathered weights", "Weights that are whole for as long as a layer computes with them, then freed."],
  ["making", "gradients in the making", "The gradients of one microbatch before they are accumulated or reduced."],
  ["temporary", "temporaries", "All else that lives within one pass."],
  ["messages", "messages", "Staging buffers of what is sent and received, and results of collectives that overlap with computing."],
  ["scratch", "kernel scratch", "Room that a kernel asks for while it runs."],
];
const KIND = Object.fromEntries(HELD.map(([name], i) => [name, i]));
const ENTER = VIEWS[0].actions.length, LEAVE = ENTER + 1, RECEIVED = ENTER + 2;
const PHASES = {F: "forward", B: "backward", W: "weight"};

function bytes(n) {
  const units = ["B", "kB", "MB", "GB", "TB", "PB"];
  let u = 0;
  while (n >= 999.5 && u < units.length - 1) n /= 1000, u++;
  return (u && n < 100 ? n.toPrecision(3) : Math.round(n)) + " " + units[u];
}
const plural = (n, word) => n + " " + word + (n === 1 ? "" : word.endsWith("ch") ? "es" : "s");
const list = words => words.length < 2 ? words.join("") : words.slice(0, -1).join(", ") + " and " + words[words.length - 1];
const escape = s => String(s).replace(/[&<>"]/g, c => ({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;"})[c]);

function groupName(view, g) { return g === 0 ? "the embedding" : g > view.layers ? "the head" : "layer " + (g - 1); }
function groupsName(view, groups) {
  const layers = groups.filter(g => g > 0 && g <= view.layers).map(g => g - 1).sort((a, b) => a - b), words = [];
  if (groups.includes(0)) words.push("the embedding");
  if (layers.length > 2 && layers[layers.length - 1] - layers[0] === layers.length - 1)
    words.push("layers " + layers[0] + "–" + layers[layers.length - 1]);
  else if (layers.length) words.push((layers.length > 1 ? "layers " : "layer ") + list(layers.slice(0, 6).map(String)) + (layers.length > 6 ? " …" : ""));
  if (groups.some(g => g > view.layers)) words.push("the head");
  return list(words);
}
function stagesName(view, c) {
  const words = [];
  if (c.stages.some(s => s[0] === 0)) words.push("embedding");
  for (const [, from, to] of c.stages)
    if (to > from) words.push(to - from > 1 ? "layers " + from + "–" + (to - 1) : "layer " + from);
  if (c.stages.some(s => s[0] === view.stage_ranks.length - 1)) words.push("head");
  return words.join(", ");
}

// ---- moments --------------------------------------------------------------------------------------------------------

// The bytes that a set of intervals [offset, bytes] covers.
function covered(intervals) {
  let end = 0, sum = 0;
  for (const [from, size] of [...intervals].sort((a, b) => a[0] - b[0])) {
    const to = from + size;
    if (to > end) sum += to - Math.max(from, end), end = to;
  }
  return sum;
}

// What one pipeline rank does, one after the other: [{t0, t1, idle | event, step, held (bytes by HELD), slots, …}].
function momentsOf(view, c, scale, total, edges) {
  const moments = [], slots = {}, left = {}, staging = {}, reduced = new Map(), memory = c.memory;
  const NONE = {recv: [], enter: [], reduce: [], zero: [], send: [], leave: []};
  let notes = fresh(), at = edges.begin ? -edges.begin : 0, bodyIndex = 0, slotsNow = {}, sentNow = {}, base = null;
  function fresh() { return {recv: [], enter: [], reduce: [], zero: []}; }
  // Between the bodies of a microbatch its slot holds what the last one has left; before the first one, what was received.
  function inSlot(stage, microbatch) { return left[stage + " " + microbatch] ?? c.slots.find(([s]) => s === stage)[2]; }
  // Without a step's own: until a buffer is entered or left.
  function buffers() {
    const h = new Array(HELD.length).fill(0);
    h[KIND.parameters] = memory.parameters + memory.versions;
    h[KIND.gradients] = memory.gradients;
    h[KIND.optimizer] = memory.optimizer;
    h[KIND.other] = memory.other + memory.inputs;
    for (const [stage] of c.slots) for (const k of Object.values(slots[stage] || {})) h[KIND.activations] += inSlot(stage, k);
    for (const [stage, phase, , size] of c.staging) h[KIND.messages] += Object.keys(staging[stage + " " + (1 + phase)] || {}).length * size;
    h[KIND.messages] += covered(reduced.values());
    return h;
  }
  // own: [stage, microbatch] of a step's slot, which fills forward and empties backward.
  function held(step, own) {
    base = base || buffers();
    const h = base.slice();
    let slot = 0;
    if (step) [h[KIND.gathered], h[KIND.making], h[KIND.temporary], slot, h[KIND.scratch]] = step.held;
    if (own && Object.values(slots[own[0]] || {}).includes(own[1]))
      h[KIND.activations] += slot - inSlot(...own);
    return h;
  }
  function snapshot() { base = null; slotsNow = {}; for (const s in slots) slotsNow[s] = {...slots[s]}; }
  for (const b of c.bodies) // collectives under way during a step, and those that are done when it begins
    b.steps.forEach((s, number) => {
      const before = b.steps.slice(0, number).map(x => x.moves).filter(x => x);
      s.freed = number ? b.steps[number - 1].gathered.filter(g => !s.gathered.includes(g)) : [];
      s.flight = before.filter(x => x.until > number);
      s.done = before.filter(x => x.until === number);
    });
  function count(over, n) { sentNow = {...sentNow, [over]: (sentNow[over] || 0) + n}; }
  function idle(until, why) {
    if (until <= at + 1e-9 * total) return;
    moments.push({t0: at, t1: until, idle: true, why, held: held(null), slots: slotsNow, sent: sentNow});
    at = until;
  }
  function startReduced(first, step) { // of a stream: what END's first half leaves to its second
    c.reduced.forEach((b, i) => { if (b[2] >= first[0] && b[2] < first[1]) base = null, reduced.set(i + " " + step, [b[0] + step % c.sums_under_way * 1e15, b[1]]); });
  }
  function release(before, step) { // results of collectives whose last reader in END was before this step
    for (const key of [...reduced.keys()])
      if (c.reduced[parseInt(key)][3] < before && (!view.streams || key.endsWith(" " + step))) base = null, reduced.delete(key);
  }
  function body(e) {
    const [kind, from, to, stage, microbatch, index, s0, s1, step] = e, b = c.bodies[index], name = view.actions[kind];
    let t0 = from * scale, t1 = to * scale;
    if (name === "begin" && !view.streams) t0 = -edges.begin, t1 = 0;
    if (name === "end" && !view.streams) t0 = total, t1 = total + edges.end;
    idle(t0, notes.recv.length ? {recv: notes.recv} : name === "end" ? {end: true} : {});
    const steps = b.steps.slice(s0, s1), weight = steps.reduce((sum, s) => sum + s.weight, 0) || 1;
    if (name === "sums") startReduced([s0, s1], step);
    let t = t0;
    if (t1 <= t0 && view.streams) { // it takes no time there
      notes.zero.push([name, step]);
      steps.forEach(s => { if (s.moves && !s.moves.early) count(s.moves.over, s.moves.bytes); });
    } else steps.forEach((s, k) => {
      const end = k === steps.length - 1 ? t1 : t + (t1 - t0) * s.weight / weight, number = s0 + k;
      if (b.kind === "end") release(number, step);
      if (s.moves && !s.moves.early) count(s.moves.over, s.moves.bytes);
      moments.push({t0: t, t1: end, name, stage, microbatch, step: s, number, first: k === 0, bodyIndex, stream: step, held: held(s, b.kind === "begin" || b.kind === "end" ? null : [stage, microbatch]), slots: slotsNow, sent: sentNow,
        notes: k ? NONE : notes, after: k === steps.length - 1 ? {send: [], leave: []} : NONE});
      t = end;
    });
    if (b.kind === "end" && s1 === b.steps.length) release(Infinity, step);
    if (b.kind !== "begin" && b.kind !== "end" && s1 === b.steps.length) left[stage + " " + microbatch] = b.left, base = null;
    if (steps.length && (t1 > t0 || !view.streams)) notes = fresh();
    bodyIndex++;
    at = Math.max(at, t1);
  }
  snapshot();
  for (const e of c.events) {
    const name = view.actions[e[0]], previous = moments[moments.length - 1];
    if (e[0] === ENTER) {
      if (e[4] === 0) (slots[e[3]] = slots[e[3]] || {})[e[5]] = e[6], delete left[e[3] + " " + e[6]], snapshot(), notes.enter.push(e);
      else (staging[e[3] + " " + e[4]] = staging[e[3] + " " + e[4]] || {})[e[5]] = e[6], base = null;
    } else if (e[0] === LEAVE) {
      if (e[4] === 0) { if (slots[e[3]]) delete slots[e[3]][e[5]]; snapshot(); if (previous && !previous.idle) previous.after.leave.push(e); }
      else if (staging[e[3] + " " + e[4]]) delete staging[e[3] + " " + e[4]][e[5]], base = null;
    } else if (e[0] === RECEIVED) continue;
    else if (name === "send") { count("pp", e[7]); if (previous && !previous.idle) previous.after.send.push(e); }
    else if (name === "recv") notes.recv.push(e);
    else if (name === "reduce") {
      const moves = c.reduces[e[3]];
      base = null;
      for (const k of e.slice(4)) reduced.set(k + " 0", [c.reduced[k][0], c.reduced[k][1]]);
      count(moves.over, moves.bytes);
      notes.reduce.push(moves);
    } else body(e);
  }
  return moments;
}

// The moments of all views on one axis of time, in FLOPs of a rank.
const LONGEST = Math.max(...VIEWS.map(v => v.flops)) || 1;
const EDGES = VIEWS.some(v => !v.streams) ? {begin: LONGEST * .035, end: LONGEST * .13} : {begin: 0, end: 0};
VIEWS.forEach(view => {
  view.total = view.flops;
  view.coordinates.forEach(c => {
    c.moments = momentsOf(view, c, view.flops / view.resolution, view.total, EDGES);
    c.starts = Float64Array.from(c.moments, m => m.t0);
    c.peak = HELD.map((_, k) => c.moments.reduce((most, m) => Math.max(most, m.held[k]), 0));
    c.work = c.moments.reduce((most, m) => Math.max(most, m.held[KIND.gathered] + m.held[KIND.making] + m.held[KIND.temporary] + m.held[KIND.gaps]), 0);
    c.most = c.moments.reduce((most, m) => Math.max(most, m.held.reduce((a, b) => a + b, 0)), 0);
  });
});
const SPAN = {from: -EDGES.begin, to: LONGEST + EDGES.end};

function times(filter) {
  const all = [];
  for (const v of VIEWS) for (const c of v.coordinates) for (const m of c.moments) if (filter(m)) all.push(m.t0);
  all.sort((a, b) => a - b);
  const out = [];
  for (const t of all) if (!out.length || t - out[out.length - 1] > (SPAN.to - SPAN.from) * 1e-7) out.push(t);
  return out;
}
const TIMES = {fine: times(() => true), coarse: times(m => m.idle || m.first)};

// The last moment that has begun at time t.
const momentAt = (c, t) => c.moments[indexAt(c, t)];
function indexAt(c, t) {
  let lo = 0, hi = c.starts.length;
  const slack = (SPAN.to - SPAN.from) * 2e-7;
  while (lo < hi) { const mid = (lo + hi) >> 1; if (c.starts[mid] <= t + slack) lo = mid + 1; else hi = mid; }
  return Math.max(0, lo - 1);
}

// ---- sentences ------------------------------------------------------------------------------------------------------

const stageRank = (view, stage) => "pp " + view.stage_ranks[stage];

// What a collective moves: "the weights of layer 1".
function whatMoves(view, moves, backward) {
  const of = moves.groups.length ? " of " + groupsName(view, moves.groups) : "";
  if (moves.what === "numbers") return moves.tensors > 1 ? plural(moves.tensors, "number") + " (loss, norm)" : "a number (a count, the loss or a norm)";
  if (moves.what === "weights" || moves.what === "gradients") return "the " + moves.what + of;
  return (backward ? "gradients of " : "") + moves.what;
}

// By op: what a rank does, where to, what it gets, and the same while it is under way.
const VERBS = {
  all_gather: ["gathers", "", "", "gathering"], reduce_scatter: ["sums", "", "; each keeps its shard of the sum", "summing"],
  all_reduce: ["adds up", "", "; each gets the whole sum", "adding up"], all_to_all: ["exchanges", "", "", "exchanging"],
  broadcast: ["broadcasts", " from their owner", "", "broadcasting"], gather_to: ["gathers", " on one rank", "", "gathering"],
  scatter_from: ["hands out", " from one rank", "", "handing out"], reduce_to: ["sums", " on their owner", "", "summing"],
  shift: ["passes", " on to the next rank", "", "passing on"], exchange_rows: ["sends", " to their experts, or back,", "", "exchanging"],
};
function verbs(view, moves) {
  const op = view.ops[moves.op];
  return VERBS[op] || [op.replace(/_/g, " ") + " of", "", "", op.replace(/_/g, " ") + " of"];
}
function describeMove(view, moves, backward) {
  const [verb, where, gets] = verbs(view, moves), set = view.sets[moves.over];
  return '<span class="move">' + verb + " " + whatMoves(view, moves, backward) + where + "</span> over " + escape(set.name || "one rank") + " (" + plural(set.ranks, "rank") +
    ", each sends " + bytes(moves.bytes) + gets + ")";
}

const PARTS = {attention: "attention", ffn: "the feed-forward network", experts: "the experts", router: "the router", loss: "the loss", norm: "the final norm",
  wte: "token embeddings", wpe: "position embeddings", embedding: "their sum"};
const OPS = {fill: "sets the gradient accumulators to zero", count_targets: "counts the tokens to predict", sum_squares: "squares the gradients for their norm",
  clip: "finds the norm, and the factor that clips the gradients", mean_loss: "divides the loss by the count", advance: "counts the step", cast: "makes copies in the precision of the computing",
  gradient_seed: "seeds backward with 1 / count"};

function describeCompute(view, m) {
  const ops = m.step.ops.map(o => view.ops[o]);
  if (!ops.length) return "";
  if (m.name === "begin" || m.name === "end" || m.name === "sums") {
    const known = ops.filter(o => OPS[o]).map(o => OPS[o]);
    if (ops.some(o => /^(adamw|sgd|lion|muon)/.test(o))) return "updates the weights that it owns (" + ops.filter(o => /^(adamw|sgd|lion|muon)/.test(o)).join(", ") + ")";
    return known.length ? list(known) : "runs " + list(ops.slice(0, 4).map(o => o.replace(/_/g, " ")));
  }
  const embeds = ["wte", "wpe", "embedding"], backward = m.name !== "F";
  const names = m.step.parts.filter(p => !backward || !embeds.includes(p)), parts = [...new Set(names.map(p => PARTS[p] || p))].slice(0, 3);
  const where = m.step.group > 0 && m.step.group <= view.layers ? " of " + groupName(view, m.step.group) : "";
  return (m.name === "F" ? "computes " : m.name === "B" ? "goes back through " : "finds weight gradients of ") +
    list([...(parts.length ? [list(parts) + where] : []), ...(names.length < m.step.parts.length ? ["the embedding"] : [])]);
}

// Collectives of one kind as one, of all their layers and bytes.
function together(moves) {
  const out = [];
  for (const x of moves) {
    const like = out.find(y => y.op === x.op && y.what === x.what && y.over === x.over);
    if (like) like.groups = [...new Set([...like.groups, ...x.groups])], like.bytes += x.bytes, like.tensors += x.tensors;
    else out.push({...x});
  }
  return out;
}

// {head: "forward of microbatch 2", text: html}
function sentence(view, c, m) {
  const several = view.coordinates.some(x => x.stages.length > 1), says = [];
  if (m.idle) {
    const why = m.why || {};
    const text = why.end ? "has done its passes; END needs the gradient norm of all stages"
      : why.recv ? "waits for " + (PHASES[why.recv[0][5] < why.recv[0][3] ? "F" : "B"] === "forward" ? "hidden states" : "the gradient of hidden states") + " of microbatch " + why.recv[0][4] + " from " + stageRank(view, why.recv[0][5])
      : "has nothing to do yet";
    return {head: "idle", text, kind: "idle"};
  }
  const backward = m.name === "B" || m.name === "W";
  const head = m.name === "begin" ? "begins the step" : m.name === "end" ? "ends the step" : m.name === "sums" ? "ends step " + m.stream
    : (m.name === "W" ? "weight gradients" : PHASES[m.name]) + " of microbatch " + m.microbatch + (view.steps > 1 ? " of step " + m.stream : "") + (several ? ", stage " + m.stage : "");
  for (const [name, step] of m.notes.zero) says.push((name === "begin" ? "begins" : name === "sums" ? "updates and starts the sums of" : "ends") + " step " + step);
  for (const e of m.notes.recv) says.push("receives " + (e[5] < e[3] ? "hidden states" : "the gradient of hidden states") + " from " + stageRank(view, e[5]) + " (" + bytes(e[7]) + ")");
  for (const e of m.notes.enter) says.push("microbatch " + e[6] % view.microbatches + " takes activation slot " + e[5]);
  for (const r of together(m.notes.reduce)) says.push("starts in the background: " + describeMove(view, r, true));
  for (const d of together(m.step.done)) says.push(escape(whatMoves(view, d, backward)) + (d.what === "weights" ? " are there" : " are complete"));
  if (m.step.freed.length) says.push("frees the gathered weights of " + groupsName(view, m.step.freed));
  const compute = describeCompute(view, m);
  if (m.step.moves) {
    const moves = m.step.moves;
    if (moves.early) says.push("waits until this has finished, which began during backward: " + describeMove(view, moves, true));
    else says.push(describeMove(view, moves, backward) + (moves.until ? ", while it computes on" : ", and waits for it"));
  }
  if (compute) says.push(compute);
  const meanwhile = together(m.step.flight).map(f => '<span class="move">' + verbs(view, f)[3] + " " + whatMoves(view, f, backward) + "</span>");
  if (meanwhile.length) says.push("meanwhile " + list(meanwhile));
  for (const e of m.after.send) says.push("then sends " + (e[5] > e[3] ? "hidden states" : "the gradient of hidden states") + " to " + stageRank(view, e[5]) + " (" + bytes(e[7]) + ")");
  for (const e of m.after.leave) says.push("slot " + e[5] + " is free again");
  return {head, text: says.join("; ") || "…", kind: m.name};
}
