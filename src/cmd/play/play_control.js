// Moves the position: keys, slider, mouse, and the address; and drives the page for its test.
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
