#!/bin/bash
# tier 3; rooms compile; numbers
# The examples over plait/graph.h print on four ranks what they print on one; and docs/one-device-to-mesh.md shows the real
# difference of its two programs. PLAIT: the binary, beside which the examples are; SOURCE: the repository.
. "$SOURCE/tests/script.sh" || exit 1
examples=$(dirname "$PLAIT")/examples
[ -x "$examples/mlp_classifier" ] || { echo "no examples in $examples"; exit 77; }

# FILE FILE TOLERANCE: the same words, and numbers that differ by no more than that
near() {
  awk -v most="$3" 'NR == FNR { line[FNR] = $0; lines = FNR; next }
    { n = split(line[FNR], a); if (n != split($0, b)) exit 1
      for (i = 1; i <= n; i++) if (a[i] != b[i] && (a[i] !~ /^[0-9.]+$/ || (a[i] - b[i]) ^ 2 > most ^ 2)) exit 1
      seen = FNR }
    END { if (seen != lines) exit 1 }' "$1" "$2"
}

# ---- a classifier with labels
"$examples/mlp_classifier" >one.txt || fail "mlp_classifier on one rank: $(cat one.txt)"
grep -q '^accuracy \(9[0-9]\|100\)\.' one.txt || fail "mlp_classifier learns: $(cat one.txt)"
for mesh in "dp=4" "dp=2 tp=2" "pp=2 dp=2" "tp=4" "pp=2 tp=2" "dp=7"; do
  "$examples/mlp_classifier" "$mesh" >mesh.txt 2>&1 || fail "mlp_classifier $mesh: $(cat mesh.txt)"
  near one.txt mesh.txt 0.000002 || fail "mlp_classifier on $mesh is not one rank's: $(diff one.txt mesh.txt)"
done
"$examples/mlp_classifier" "dp=2 foo=4" >log.txt 2>&1 && fail "mlp_classifier runs on foo=4"
grep -q 'names the axis "foo", so that its 4 ranks would all compute the same' log.txt || fail "foo=4: $(cat log.txt)"

# ---- a transformer on text
text=$SOURCE/docs/design.md
"$examples/transformer_by_hand" "$text" >one.txt || fail "transformer_by_hand on one rank: $(cat one.txt)"
[ "$(grep -c '^step' one.txt)" -ge 6 ] || fail "transformer_by_hand prints no losses: $(cat one.txt)"
awk '/^step/ { last = $4; if (!first) first = $4 } END { exit !(last < first / 2) }' one.txt || fail "it does not learn: $(cat one.txt)"
grep '^step' one.txt >one-losses.txt
for mesh in "dp=4" "dp=2 tp=2" "pp=2 tp=2"; do
  "$examples/transformer_by_hand" "$text" "$mesh" >mesh.txt 2>&1 || fail "transformer_by_hand $mesh: $(cat mesh.txt)"
  grep '^step' mesh.txt >losses.txt
  near one-losses.txt losses.txt 0.002 || fail "transformer_by_hand on $mesh: $(diff one-losses.txt losses.txt)"
  head -2 one-losses.txt >first.txt
  head -2 losses.txt >mesh-first.txt
  near first.txt mesh-first.txt 0.00002 || fail "transformer_by_hand on $mesh: $(diff first.txt mesh-first.txt)"
done
"$examples/transformer_by_hand" /nowhere >log.txt 2>&1
[ $? -eq 2 ] && grep -q '^usage: ' log.txt || fail "without a file: $(cat log.txt)"

# ---- one device, and the same on a mesh
"$examples/one_device" >one.txt || fail "one_device: $(cat one.txt)"
grep -q '^step 100 ' one.txt || fail "one_device prints no losses: $(cat one.txt)"
for mesh in "" "dp=4" "dp=2 tp=2" "pp=2 dp=2" "dp=5"; do
  "$examples/one_device_mesh" ${mesh:+"$mesh"} >mesh.txt 2>&1 || fail "one_device_mesh $mesh: $(cat mesh.txt)"
  near one.txt mesh.txt 0.000002 || fail "one_device_mesh on \"$mesh\" is not one_device: $(diff one.txt mesh.txt)"
done
"$examples/one_device_mesh" "dp=2 tq=2" 2>&1 | grep -q 'did you mean "tp"?' || fail "tq=2 is not refused as the page says"
diff -u "$SOURCE/examples/one_device.c" "$SOURCE/examples/one_device_mesh.c" | tail -n +3 >real.diff
[ -s real.diff ] || fail "the two programs do not differ"
sed -n '/^```diff$/,/^```$/p' "$SOURCE/docs/one-device-to-mesh.md" | sed '1d;$d' >page.diff
diff page.diff real.diff >log.txt || fail "docs/one-device-to-mesh.md shows another difference: $(cat log.txt)"
[ "$(grep -c '^[-+]' real.diff)" -le 10 ] || fail "more than ten lines change"
finish
