// Draws a view's ranks: what each holds, gathers and sends at the position.
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
      let html = '<tr><th style="width:58px"></th>' + forms.map(f => '<th data-tip="' + escape(f[2]) + '">' + (f[1] === "optimizer" && forms.length > 3 ? "optim." : f[1]) + "</th>").join("") + "</tr>";
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

// The number of columns with which rows of cards are equally long, where there is room; a card is as wide as the heads of its table need.
function setColumns(entry) {
  const n = entry.cards.length, forms = entry.grid.querySelector("tr").children.length - 1, width = 101 + 54 * forms;
  const most = Math.max(1, Math.min(n, Math.floor((entry.grid.clientWidth + 9) / (width + 9))));
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

function layersAround(c, group) { // the number of rows of layers that fit on a card
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

