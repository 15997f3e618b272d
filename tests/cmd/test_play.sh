#!/bin/bash
# tier 2; rooms program machine schedule; numbers
# plait explain --play: the data of its page is JSON, and what it shows is what the plan says: bytes of every kind on every pipeline
# rank, bytes sent, messages that meet. test_play_page.sh runs the page itself in a browser.
. "$SOURCE/tests/cmd/llama.sh" || exit 1
command -v python3 > /dev/null || { echo "skipped: no python3"; exit 77; }

cat > check.py <<'P'
# check.py PAGE PLAN…: each PLAN is what `plait plan --bytes` says of a view of the page
import json, re, sys
text = open(sys.argv[1], encoding="utf-8").read()
assert "http://" not in text.replace("http://www.w3.org", "") and "https://" not in text, "the page must need no network"
assert len(text) < 2_000_000, len(text)
data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S).group(1))
assert len(data["views"]) == len(sys.argv) - 2, len(data["views"])

def rows(path):
    found = {}
    for line in open(path, encoding="utf-8"):
        words = re.match(r"  (parameters|gradients|optimizer|older parameters|activations|workspace|communication) +([0-9][0-9 ]*)$", line)
        if words: found[words.group(1)] = [int(n) for n in words.group(2).split()]
    return found

def covered(intervals):
    end = total = 0
    for offset, size in sorted(intervals):
        if offset + size > end:
            total += offset + size - max(offset, end)
            end = offset + size
    return total

def replay(view, c):
    """Goes along the events; returns the peak of what is held, and the bytes sent."""
    names = view["actions"]
    enter, leave = len(names), len(names) + 1
    slots, left, staging, reduced, peak, sent, last = {}, {}, {}, {}, 0, 0, 0
    received = {stage: n for stage, count, n in c["slots"]}
    count = {stage: n for stage, n, _ in c["slots"]}
    room = {(stage, 1 + phase): n for stage, phase, _, n in c["staging"]}
    for e in c["events"]:
        assert e[1] <= e[2] and e[1] >= last, e
        last = e[1]
        if e[0] == enter and e[4] == 0:
            assert (e[3], e[5]) not in slots and e[5] < count[e[3]], e
            slots[e[3], e[5]] = e[6]
            left.pop((e[3], e[6]), None)
        elif e[0] == leave and e[4] == 0: assert slots.pop((e[3], e[5])) == e[6], e
        elif e[0] == enter: staging[e[3], e[4], e[5]] = e[6]
        elif e[0] == leave: staging.pop((e[3], e[4], e[5]))
        elif e[0] >= len(names): continue
        elif names[e[0]] == "send": sent += e[7]
        elif names[e[0]] == "reduce":
            sent += c["reduces"][e[3]]["bytes"]
            for k in e[4:]: reduced[k] = c["reduced"][k]
        elif names[e[0]] != "recv":
            body = c["bodies"][e[5]]
            for number in range(e[6], e[7]):
                step = body["steps"][number]
                if body["kind"] == "end": reduced = {k: r for k, r in reduced.items() if r[3] >= number}
                own = body["kind"] not in ("begin", "end")
                rest = covered([r[:2] for r in reduced.values()]) + sum(room[k[:2]] for k in staging)
                rest += sum(left.get((stage, m), received[stage]) for (stage, _), m in slots.items() if not own or (stage, m) != (e[3], e[4]))
                peak = max(peak, sum(step["held"]) + rest)
                if "moves" in step and not step["moves"].get("early"): sent += step["moves"]["bytes"]
            if body["kind"] not in ("begin", "end") and e[7] == len(body["steps"]): left[e[3], e[4]] = body["left"]
    assert not slots, slots
    return peak, sent

for view, path in zip(data["views"], sys.argv[2:]):
    plan = rows(path)
    sends, receives = [], []
    assert len(view["coordinates"]) == view["pipeline_ranks"] == len(plan["activations"]), plan
    for i, c in enumerate(view["coordinates"]):
        m = c["memory"]
        for kind in ("parameters", "gradients", "optimizer", "activations", "workspace", "communication"):
            assert m[kind] == plan[kind][i], (path, i, kind, m[kind], plan[kind])
        for e in c["events"]:
            if e[0] >= len(view["actions"]): continue
            if view["actions"][e[0]] == "send": sends.append((e[3], e[5], e[4], e[6]))
            if view["actions"][e[0]] == "recv": receives.append((e[5], e[3], e[4], e[6]))
        if view["streams"]: continue
        peak, sent = replay(view, c)
        # Messages that have been sent are waited for later than shown: at most one of each slot's microbatch, and one of the
        # microbatch that was there before. One that a slot is to receive is shown before it comes.
        slots = sum(n for _, n, _ in c["slots"])
        most = {name: max((e[7] for e in c["events"] if e[0] < len(view["actions"]) and view["actions"][e[0]] == name), default=0) for name in ("send", "recv")}
        live = m["live"]
        assert live - 2 * slots * most["send"] <= peak <= live + slots * most["recv"], (path, i, peak, live)
        assert m["activations"] + m["workspace"] + m["communication"] == live + m["inputs"], (path, i, m)
        traffic = sum(bytes for _, bytes in c["traffic"])
        assert abs(sent - traffic) < 0.5, (path, i, sent, traffic)
        for s in view["sets"]: assert all(str(rank) in s["index"] for rank, _ in c["ranks"]), s
    assert sorted(sends) == sorted(receives), path
P

cat > live.py <<'P'
# live.py PAGE PROGRAM: what each step of the first view holds in the workspace, by the lines of the Program that `plait explain`
# prints: fp32, one pipeline rank
import json, re, sys
view = json.loads(re.search(r'id="data">(.*?)</script>', open(sys.argv[1], encoding="utf-8").read(), re.S).group(1))["views"][0]
bodies, current = {}, None
for line in open(sys.argv[2], encoding="utf-8"):
    title = re.match(r"body (\S+)", line)
    if title: current = bodies.setdefault(title.group(1).replace("BEGIN", "begin").replace("END", "end"), [])
    elif current is not None: current.append(line)
steps = 0
for body in view["coordinates"][0]["bodies"]:
    lines, life = bodies[body["kind"]], {}
    for i, line in enumerate(lines):
        until = re.search(r" until (\d+)", line)
        for tensor, offset, shape in re.findall(r"%(\d+)=work\+(\d+)\(([\d,]*)\)", line):
            elements = 1
            for n in filter(None, shape.split(",")): elements *= int(n)
            first = life.get(tensor, (i,))[0]
            last = max(life.get(tensor, (0, 0))[1], int(until.group(1)) if until else i)
            life[tensor] = (first, last, int(offset), (4 * elements + 63) // 64 * 64)
    assert len(lines) == body["steps"][-1]["range"][1], (body["kind"], len(lines))
    for step in body["steps"]:
        held = []
        for i in range(*step["range"]):
            end = now = 0
            for x in sorted((x for x in life.values() if x[0] <= i <= x[1]), key=lambda x: x[2]):
                now += max(0, x[2] + x[3] - max(x[2], end))
                end = max(end, x[2] + x[3])
            held.append(now)
        assert sum(step["held"][:3]) in held, (body["kind"], step, held)
        steps += 1
assert steps > 50, steps
P

# page NAME SETTINGS [BESIDE]: makes the page, and holds it to the plans
page() {
  local name=$1 settings=$2 beside=${3-}
  # shellcheck disable=SC2086 # words on purpose
  "$PLAIT" plan recipe.yaml $settings --bytes > plan.a || fail "plan $settings"
  if [ -n "$beside" ]; then
    # shellcheck disable=SC2086
    "$PLAIT" plan recipe.yaml $settings $beside --bytes > plan.b || fail "plan $settings $beside"
    # shellcheck disable=SC2086
    expect 0 'open it in a browser' "$PLAIT" explain recipe.yaml $settings --play "$name.html" --beside "$beside"
    python3 check.py "$name.html" plan.a plan.b || fail "$name"
  else
    # shellcheck disable=SC2086
    expect 0 'open it in a browser' "$PLAIT" explain recipe.yaml $settings --play "$name.html"
    python3 check.py "$name.html" plan.a || fail "$name"
  fi
}
page one ''
page zero 'mesh.dp=4 parallel.zero=3' 'parallel.zero=1'
"$PLAIT" explain recipe.yaml mesh.dp=4 parallel.zero=3 > program.txt || fail "the Program"
python3 live.py zero.html program.txt || fail "what is held in the workspace"
page pipeline 'mesh.pp=4 mesh.dp=2 parallel.pipeline=1f1b parallel.zero=2' 'parallel.pipeline=gpipe'
page virtual 'mesh.pp=2 parallel.pipeline=interleaved' 'parallel.pipeline=zb-v'
page tensor 'mesh.tp=2 mesh.dp=2 mesh.pp=2 precision=bf16' 'parallel.recompute=full parallel.pipeline=zb-h1'
page owners 'mesh.dp=3 parallel.zero=3 parallel.unsplit_tensors=true' 'optimizer.name=muon'
page context 'mesh.cp=2 mesh.dp=2 parallel.context=ring parallel.overlap=false'
page stream 'mesh.pp=4 parallel.pipeline=2bw optimizer.delay=1'

# ---- bad input: one sentence, and no file
expect 2 '^plait explain: --play page.txt: the name must end in .html$' "$PLAIT" explain recipe.yaml --play page.txt
expect 2 '^plait explain: --beside is for the page' "$PLAIT" explain recipe.yaml --beside parallel.zero=1
expect 2 '^plait explain: --beside: .*paralel.zero.*parallel.zero' "$PLAIT" explain recipe.yaml --play bad.html --beside paralel.zero=1
expect 2 '^plait explain: --beside: it is empty' "$PLAIT" explain recipe.yaml --play bad.html --beside ' '
expect 2 '^plait explain: --beside: .*other.yaml' "$PLAIT" explain recipe.yaml --play bad.html --beside other.yaml
expect 2 'show different things; give one of them' "$PLAIT" explain recipe.yaml --play bad.html --mesh
expect 2 'does not go with .*--play' "$PLAIT" explain recipe.yaml --play bad.html --only x
expect 2 'mesh.tp' "$PLAIT" explain recipe.yaml mesh.tp=7 --play bad.html
expect 1 'nowhere/page.html' "$PLAIT" explain recipe.yaml --play nowhere/page.html
[ ! -e bad.html ] || fail "a page was written for bad input"
# another recipe, with a setting that has blanks
cp recipe.yaml other.yaml
expect 0 'beside zero 0' "$PLAIT" explain recipe.yaml --play other.html --beside "other.yaml mesh.tp=2 layout.ffn=[ tp ]"
# what the data says cannot end its element
cp recipe.yaml '<b>.yaml'
expect 0 'open it' "$PLAIT" explain '<b>.yaml' --play quoted.html
grep -q '"recipe":"\\u003cb>.yaml"' quoted.html || fail "a < in the data"
finish
