#!/bin/bash
# tier 2; rooms program schedule
# Every picture and page that plait draws, in headless Chromium: no text leaves the picture or its box, none covers another, and nothing
# of a page lies under its controls. docs/picture.svg too.
. "$SOURCE/tests/script.sh" || exit 1
for browser in "${CHROMIUM-}" chromium chromium-browser google-chrome ''; do
  [ -n "$browser" ] && command -v "$browser" > /dev/null && break
done
[ -n "$browser" ] || { echo "skipped: no Chromium (Debian: apt-get install chromium)"; exit 77; }
# seen FILE WIDTH,HEIGHT: what the page's script has written between the marks, one fault a line
seen() {
  HOME=$work timeout 180 "$browser" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --hide-scrollbars --user-data-dir="$work/profile" \
    --window-size="$2" --virtual-time-budget=5000 --dump-dom "file://$work/$1" 2> "$1.log" | tr '\n' '\f' |
    grep -oE '<pre>SEEN:.*:SEEN</pre>' | tr '\f' '\n' | sed -E 's/^<pre>SEEN://; s/:SEEN<\/pre>.*//'
}

# ---- pictures (SVG), all in one page
cat > svg.js <<'J'
const found = [];
let count = 0;
for (const svg of document.querySelectorAll("svg")) {
  const name = svg.parentNode.id, all = svg.getBoundingClientRect(), texts = [...svg.querySelectorAll("text")].filter(t => t.textContent.trim());
  const boxes = texts.map(t => t.getBoundingClientRect()), say = (t, what) => found.push(name + ": " + what + ": " + t.textContent);
  count += texts.length;
  texts.forEach((t, i) => {
    const b = boxes[i], rect = t.parentNode.tagName === "g" && t.parentNode.querySelector(":scope > rect");
    if (b.left < all.left || b.right > all.right || b.top < all.top || b.bottom > all.bottom) say(t, "outside the picture");
    if (rect && t.parentNode.querySelector("title")) {
      const r = rect.getBoundingClientRect();
      if (b.left < r.left || b.right > r.right || b.top < r.top || b.bottom > r.bottom) say(t, "outside its box");
    }
    if (texts.length < 2000)
      for (let k = 0; k < i; k++)
        if (Math.min(b.right, boxes[k].right) - Math.max(b.left, boxes[k].left) > 1 && Math.min(b.bottom, boxes[k].bottom) - Math.max(b.top, boxes[k].top) > 3)
          say(t, "covers " + texts[k].textContent);
    if (/…$|\w\(\)/.test(t.textContent)) say(t, "cut, or a scalar as a call");
  });
}
document.body.insertAdjacentHTML("beforeend", "<pre></pre>");
document.body.lastChild.textContent = "SEEN:" + count + " texts\n" + found.join("\n") + ":SEEN";
J
pictures() { # of the SVG files here, with the script
  { echo '<!DOCTYPE html><meta charset="utf-8"><body>'
    for svg in "$@"; do echo "<div id=\"$svg\">" && cat "$svg" && echo '</div>'; done
    echo '<script>' && cat svg.js && echo '</script></body>'; } > pictures.html
  seen pictures.html 1400,1000
}
explain() { "$PLAIT" explain "$SOURCE/recipes/$1" "${@:2}" > printed 2>&1 || { fail "plait explain $*"; tail -3 printed; }; }
cp "$SOURCE/docs/picture.svg" page.svg
explain step.yaml mesh.tp=1 --tensor layer.0.ffn.down.weight --picture small.svg
explain moe.yaml mesh.dp=4 mesh.tp=2 parallel.ep=4 parallel.zero=3 --tensor layer.0.experts.gate.weight --picture experts.svg
explain step.yaml mesh.dp=1 mesh.tp=8 parallel.tensor=3d batch.micro=1 model.config="$SOURCE/models/gpt-7.5b.json" --tensor layer.0.ffn.up.weight --picture cube.svg
for schedule in naive gpipe 1f1b interleaved zb-h1 zb-v; do # the narrowest of each
  explain demo.yaml mesh.pp=2 mesh.dp=1 batch.micro=2 batch.global=4 parallel.pipeline=$schedule --timeline $schedule.svg
done
explain demo.yaml mesh.pp=2 mesh.dp=1 batch.micro=1 optimizer.delay=1 parallel.pipeline=2bw --timeline 2bw.svg
explain demo.yaml mesh.pp=1 --timeline one.svg
explain gpt-175b.yaml --timeline large.svg
explain demo.yaml model.config="$SOURCE/models/gpt-small.json" mesh.pp=1 mesh.pp=2 mesh.dp=1 batch.micro=1 parallel.pipeline=interleaved \
  parallel.stages_per_rank=6 --timeline stages.svg
explain demo.yaml model.config="$SOURCE/models/gpt-small.json" mesh.pp=6 mesh.dp=1 batch.micro=1 batch.global=12 parallel.pipeline=zb-v --timeline v.svg
wrong=$(pictures ./*.svg)
[[ $wrong =~ ^([0-9]+)\ texts ]] && [ "${BASH_REMATCH[1]}" -ge 300 ] || fail "the browser saw no pictures: $wrong $(grep -v dbus pictures.html.log | tail -3)"
[ "$(sed 1d <<< "$wrong")" = '' ] || fail "pictures: $(sed 1d <<< "$wrong" | head -20)"

# ---- pages of --play, at three sizes of the window and a dozen moments
cat > hook.js <<'J'
const drawn = [], fillText = CanvasRenderingContext2D.prototype.fillText;
CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
  const w = this.measureText(text).width, t = this.getTransform(), left = x - (this.textAlign === "center" ? w / 2 : this.textAlign === "right" || this.textAlign === "end" ? w : 0);
  if (left * t.a + t.e < -1 || (left + w) * t.a + t.e > this.canvas.width + 1 || y * t.d + t.f < 0 || y * t.d + t.f > this.canvas.height) drawn.push("outside the timeline: " + text);
  return fillText.apply(this, arguments);
};
J
cat > page.js <<'J'
const found = new Set(), controls = document.querySelector("footer");
let count = 0;
function look() {
  const bar = controls.getBoundingClientRect(), walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node; (node = walk.nextNode());) {
    const of = node.parentElement;
    if (!node.textContent.trim() || /SCRIPT|STYLE|OPTION|PRE/.test(of.tagName) || !of.checkVisibility({visibilityProperty: true})) continue;
    const range = document.createRange(), text = node.textContent.trim().slice(0, 60);
    range.selectNodeContents(node);
    for (const r of range.getClientRects()) {
      if (r.width < 1) continue;
      let top = Math.max(0, r.top), bottom = Math.min(innerHeight, r.bottom), right = r.right, box = false; // box: the nearest has been looked at
      count++;
      for (let e = of; e && e !== document.documentElement; e = e.parentElement) {
        const s = getComputedStyle(e), b = e.getBoundingClientRect(), cuts = s.overflowX !== "visible" || s.overflowY !== "visible";
        const meant = s.webkitLineClamp !== "none" || s.textOverflow === "ellipsis", scrolls = s.overflowY === "auto" || s.overflowY === "scroll";
        if (cuts) { top = Math.max(top, b.top); bottom = Math.min(bottom, b.bottom); }
        if (meant) { right = Math.min(right, b.right); box = true; } // ends in …
        if (s.display === "inline" || right < r.right) continue;
        if (cuts && !meant && (r.left < b.left - 1 || r.right > b.right + 1)) found.add("cut: " + text);
        const own = parseFloat(s.borderLeftWidth) > 0 || !/rgba\(0, 0, 0, 0\)|transparent/.test(s.backgroundColor);
        if (own && !scrolls && !box && e !== document.body) {
          box = true;
          if (r.left < b.left - 1 || r.right > b.right + 1 || r.top < b.top - 2 || r.bottom > b.bottom + 2) found.add("outside its box: " + text);
        }
      }
      if (r.left < -1 || right > innerWidth + 1) found.add("outside the window: " + text);
      if (!controls.contains(of) && bottom > top && bottom > bar.top + 1 && top < bar.bottom - 1) found.add("under the controls: " + text);
      if (controls.contains(of) && (r.bottom > innerHeight + 1 || r.top < bar.top - 1)) found.add("outside the controls: " + text);
    }
  }
  if (/\ball ranks +begins/.test(document.body.innerText.replace(/\s+/g, " "))) found.add("all ranks begins");
}
const steps = TIMES.fine.length, scrolled = document.scrollingElement.scrollHeight > innerHeight ? document.scrollingElement : document.getElementById("page");
for (let i = 0; i <= 12; i++) {
  go(Math.round(i * (steps - 1) / 12));
  look();
}
if (scrolled) { scrolled.scrollTop = 1e6; look(); }
const last = document.getElementById("notes").getBoundingClientRect();
if (last.bottom > controls.getBoundingClientRect().top + 1) found.add("the last lines never come above the controls");
document.getElementById("help").open = true;
if (scrolled) scrolled.scrollTop = 0;
look();
document.body.insertAdjacentHTML("beforeend", "<pre></pre>");
document.body.lastChild.textContent = "SEEN:" + count + " texts\n" + [...found, ...new Set(drawn)].join("\n") + ":SEEN";
J
# page NAME RECIPE ARGUMENTS…
page() {
  local name=$1 size wrong
  explain "${@:2}" --play "$name.html"
  awk 'NR == FNR { hook = hook $0 "\n"; next } { print } /^<head>/ { print "<script>" hook "</script>" }' hook.js "$name.html" > "$name.seen.html"
  { echo '<script>' && cat page.js && echo '</script>'; } >> "$name.seen.html"
  for size in 1400,1000 1000,700 1920,1080; do
    wrong=$(seen "$name.seen.html" "$size")
    [[ $wrong =~ ^([0-9]+)\ texts ]] && [ "${BASH_REMATCH[1]}" -ge 500 ] || fail "$name at $size: nothing was seen: $wrong $(grep -v dbus "$name.seen.html.log" | tail -3)"
    [ "$(sed 1d <<< "$wrong")" = '' ] || fail "$name at $size: $(sed 1d <<< "$wrong" | head -12)"
  done
}
page step step.yaml
page zero step.yaml mesh.dp=4 mesh.tp=1 batch.micro=1 parallel.zero=3 --beside parallel.zero=1
page pipeline step.yaml model.config="$SOURCE/models/gpt-demo.json" mesh.pp=4 mesh.dp=2 mesh.tp=1 data.seq_len=64 batch.global=32 --beside parallel.pipeline=gpipe
page large gpt-175b.yaml
finish
