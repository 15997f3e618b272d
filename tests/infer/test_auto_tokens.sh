#!/bin/bash
# tier 1; rooms infer foresight machine
# infer.tokens: auto follows from what plait probe has measured of this machine: the more a product costs beside its FLOPs, the larger is
# a tick.
. "$SOURCE/tests/train/harness.sh" || exit 1
export XDG_CACHE_HOME=$PWD/cache
model=$SOURCE/tests/model/golden/llama-tied

tick() { "$PLAIT" plan "$model" infer.context=1000 "$@" 2>log | sed -n 's/^tick  *at most //p'; }
same() { [ "$2" = "$3" ] || fail "$1: $2, not $3: $(cat log)"; }
usual='256 tokens, as on all machines that plait probe has not measured (infer.tokens: auto)'
same "nothing is measured" "$(tick)" "$usual"
kept=$(echo cache/plait/machine-*.yaml) # plan has measured a product, and kept that
[ -s "$kept" ] || die "no file is kept: $(ls -R cache)"

# A machine whose products take $1 seconds and 10 ps for a FLOP.
made_up() {
  cat >"$kept" <<end
name: "this machine"
device:
  name: "$this"
  backend: cpu
  matrix: {fp32: 1e11}
  vector: {fp32: 1e11}
  sustained: 1
  units: 1
  cache: 33554432
  memory: 24e9
  bandwidth: 1e12
  reserved: 0
  launch: 0
  host: 1e-7
  helping: 1
  source: "made up"
levels:
  - {name: "machine", count: 2, kind: bus, ports: 1, bandwidth: 9e9, latency: 1e-5, source: "made up"}
kernels: |
  op,dtype,threads,active,kind,a,b,c,d,flops,bytes,seconds
$(for m in 1 8 64 512; do for n in 64 256 1024; do
    awk -v m=$m -v n=$n -v s="$1" 'BEGIN { f = 2 * m * n * n
      printf "  matmul,fp32,1,1,16,%d,%d,%d,1,%d,%d,%.6g\n", m, n, n, f, 4 * n * (2 * m + n), s + f / 1e11 }'
  done; done)
  attention,fp32,1,1,0,1024,8,64,0,32768,8192,1e-6
  add,fp32,1,1,0,8192,2048,0,0,0,8192,1e-7
source: "made up"
end
}
this='no such machine'
made_up 1e-6
same "another machine's" "$(tick)" "$usual"
this=$("$PLAIT" simulate recipe.yaml --cluster "$kept" 2>&1 | sed -n 's/.* was measured on another machine (.*; this one is \(.*\): measure it with plait probe$/\1/p')
[ -n "$this" ] || die "this machine has no name"
measured='by what plait probe measured of this machine (infer.tokens: auto)'
made_up 1e-6
same "products take little beside their FLOPs" "$(tick infer.requests=1)" "64 tokens, $measured"
made_up 1e-4
same "products take long beside their FLOPs" "$(tick infer.requests=1)" "1000 tokens, $measured"
same "no more than the context" "$(tick infer.context=100)" "100 tokens, $measured"
same "one for each request" "$(tick infer.context=100 infer.requests=300)" "300 tokens, $measured"
same "a given number" "$(tick infer.tokens=50)" "50 tokens, as infer.tokens says"
finish
