#!/bin/bash
# tier 3
# The page of plait explain --play in headless Chromium: it steps by keys and slider, and holds and sends what the plan says. The page
# drives itself where its address ends in #test (selfTest in src/cmd/play/play_control.js).
. "$SOURCE/tests/script.sh" || exit 1
command -v python3 > /dev/null || { echo "skipped: no python3"; exit 77; }
for browser in "${CHROMIUM-}" chromium chromium-browser google-chrome ''; do
  [ -n "$browser" ] && command -v "$browser" > /dev/null && break
done
[ -n "$browser" ] || { echo "skipped: no Chromium (Debian: apt-get install chromium)"; exit 77; }
cat > check.py <<'P'
import html, json, re, sys
found = re.search(r"RESULT(\{.*\})RESULT</pre>", sys.stdin.read(), re.S)
assert found, "the page did not come to the end of its test"
r = json.loads(html.unescape(found.group(1)))
what, last = sys.argv[1], r["times"] - 1
assert not r["errors"], r["errors"]
assert last > 20, last
at = {name: r[name]["at"] for name in ("home", "right", "left", "pass", "end", "slider")}
assert (at["home"], at["right"], at["left"], at["end"]) == (0, 3, 2, last), at
assert at["pass"] > 3 and at["slider"] == (last + 1) // 2, at
for name in at: assert r[name]["slider"] == at[name] and r[name]["where"] == f"step {at[name] + 1} of {last + 1}", r[name]
assert r["playing"] and r["paused"], (r["playing"], r["paused"])
assert r["focus"] == (0 if what == "pipeline" else -1), r["focus"]
assert r["home"]["now"] != r["slider"]["now"] != r["end"]["now"]
for view in r["views"]:
    for c in view:
        assert c["most"] <= c["total"] and c["peak"]["gradients"] > 0, c
        assert abs(c["sent"] - c["traffic"]) < 0.5, c
said = ["\n".join("\n".join(moment[v]) for moment in r["sentences"]) for v in range(len(r["views"]))]
both = "\n".join(said)
assert "undefined" not in both and "NaN" not in both, re.search(r".*(?:undefined|NaN).*", both).group(0)
def says(view, pattern): assert re.search(pattern, said[view]), f"view {view} never says {pattern}"
if what == "zero":
    says(0, r"forward of microbatch 0: .*gathers the weights of layer 1 over dp \(2 ranks, each sends [0-9.]+ kB\)")
    says(0, r"frees the gathered weights of layer 0")
    assert "gathers the weights of layer 1 over" not in said[1].replace("begins the step: gathers", ""), "ZeRO 1 gathers once a step"
    assert all(c["peak"]["gathered"] > 0 for c in r["views"][0]) and all(c["peak"]["gathered"] == 0 for c in r["views"][1])
    says(0, r"updates the weights that it owns \(adamw\)")
else:
    says(0, r"forward of microbatch 1: receives hidden states from pp 0 \([0-9.]+ kB\); microbatch 1 takes activation slot 0")
    says(0, r"backward of microbatch 1: .*then sends the gradient of hidden states to pp 0")
    says(0, r"idle: waits for the gradient of hidden states of microbatch 0 from pp 1")
    assert r["views"][0][0]["peak"]["activations"] * 2 == r["views"][1][0]["peak"]["activations"], "1F1B keeps 2 of GPipe's 4 microbatches"
P
# run WHAT SETTINGS BESIDE
run() {
  # shellcheck disable=SC2086 # words on purpose
  "$PLAIT" explain "$SOURCE/recipes/step.yaml" $2 --play "$1.html" --beside "$3" > /dev/null || { failures=1; return; }
  HOME=$work timeout 180 "$browser" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --user-data-dir="$work/profile" \
    --virtual-time-budget=10000 --dump-dom "file://$work/$1.html#test" > "$1.dom" 2> "$1.log"
  python3 check.py "$1" < "$1.dom" || { echo "FAIL: $1: $2"; grep -v dbus "$1.log" | tail -5; failures=1; }
}
run zero 'mesh.dp=2 mesh.tp=1 parallel.zero=3' 'parallel.zero=1'
run pipeline 'mesh.pp=2 mesh.dp=1 mesh.tp=1 parallel.zero=0 parallel.layers=[1,1]' 'parallel.pipeline=gpipe'
finish
