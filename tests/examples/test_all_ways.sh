#!/bin/bash
# tier 3; rooms compile; numbers
# One model in all ways (examples/by_hand_*.c, half_by_hand_llama.c, automatic_llama.c, by_recipe.yaml): whatever the way and the number of ranks, the printed losses are those of
# one device, to nine digits after the point.
# PLAIT: the binary, whose folder is the build; SOURCE: the repository.
. "$SOURCE/tests/script.sh" || exit 1
examples=$(dirname "$PLAIT")/examples
same() { # NAME: its losses are in the file `losses`
  cmp -s losses one || fail "$1 is not one device: $(diff losses one)"
}

"$examples/by_hand_one" >one || fail by_hand_one
[ "$(grep -c '^step .* loss [0-9.]*$' one)" -eq 5 ] || fail "by_hand_one prints: $(cat one)"
[ "$(awk '{print $4 < 2}' one | paste -sd ' ')" = "0 0 0 0 1" ] || fail "it does not learn: $(cat one)"
for way in ddp:1,2,4,8 zero3:1,2,4,8 tensor_parallel:1,2,4 gpipe:1,2,4; do
  name=by_hand_${way%:*} ranks=${way#*:}
  for n in ${ranks//,/ }; do
    "$examples/$name" "$n" >losses 2>&1 || fail "$name $n: $(cat losses)"
    same "$name $n"
  done
  "$examples/$name" 3 >losses 2>&1
  [ $? -eq 2 ] && grep -q "usage: $name \[RANKS\], a divisor of" losses || fail "$name 3: $(cat losses)"
done

for way in dp=1,0 dp=4,0 dp=4,3 tp=4,0 pp=4,0 "dp=2 tp=2,2" "pp=2 tp=2,0"; do
  "$examples/half_by_hand_llama" "${way%,*}" "${way#*,}" >losses 2>&1 || fail "half_by_hand_llama $way: $(cat losses)"
  same "half_by_hand_llama $way"
done

# Fully automatic: the plan and then the losses, whatever the search chooses; with a mesh it says what it cut.
while read -r ranks cluster mesh; do
  "$examples/automatic_llama" "$ranks" "$SOURCE/clusters/$cluster.yaml" ${mesh:+"$mesh"} >printed 2>&1 || fail "automatic_llama $ranks $cluster $mesh: $(cat printed)"
  grep '^step' printed >losses
  same "automatic_llama $ranks $cluster $mesh"
  grep -q "^mesh ${mesh:-pp=[0-9]* dp=[0-9]* tp=[0-9]*}, [0-9]* microbatch" printed || fail "automatic_llama says no plan: $(cat printed)"
  case $mesh in *tp=*) grep -q '^  cut over tp: dim [012] of ' printed || fail "automatic_llama $mesh cuts nothing: $(cat printed)" ;; esac
done <<'END'
1 h200-node
4 h200-node
8 dgx-a100-superpod
4 pcie-10g
4 h200-node tp=4
4 dgx-2 pp=2 tp=2
END
"$examples/automatic_llama" 9 "$SOURCE/clusters/h200-node.yaml" >printed 2>&1 && fail "nine ranks on eight GPUs"
grep -q '8 devices' printed || fail "nine ranks: $(cat printed)"

mkdir files && "$examples/by_hand_files" files || fail by_hand_files
"$examples/by_hand_files" nowhere 2>losses && fail "by_hand_files nowhere"
grep -q '^nowhere/config.json: No such file' losses || fail "by_hand_files nowhere: $(cat losses)"
for mesh in "mesh.dp=4" "mesh.dp=4 parallel.zero=3" "mesh.tp=4" "mesh.pp=4 parallel.pipeline=gpipe" "mesh.dp=2 mesh.tp=2 parallel.zero=2"; do
  rm -rf run
  # shellcheck disable=SC2086 # words on purpose
  "$PLAIT" train "$SOURCE/examples/by_recipe.yaml" model.init=files data.train=files/tokens run.dir=run $mesh >log 2>&1 || fail "$mesh: $(cat log)"
  sed -nE 's/.*"step": *([0-9]+), *"loss": *([0-9.e+-]+).*/\1 \2/p' run/metrics.jsonl |
    awk '$1 == 1 || $1 % 5 == 0 {printf "step %2d  loss %.9f\n", $1, $2}' >losses
  same "by_recipe.yaml $mesh"
done

# docs/all-ways.md shows the code that there is, and what it prints
page=$SOURCE/docs/all-ways.md
cp "$page" page.md && PLAIT=$PLAIT "$SOURCE/scripts/step-page" page.md || fail "scripts/step-page"
diff "$page" page.md || fail "docs/all-ways.md is not what programs print now; scripts/step-page docs/all-ways.md writes it anew"
[ "$(grep -c '^```c$' page.md)" -ge 7 ] || fail "docs/all-ways.md has hardly any code"
[ "$(grep '^step' page.md | sort | uniq -c | awk '{print $1}' | paste -sd ' ')" = "10 10 10 10 10" ] || fail "docs/all-ways.md shows losses that differ"
printf '<!-- code: examples/train.c | no such words | } -->\n<!-- end -->\n' >wrong.md
"$SOURCE/scripts/step-page" wrong.md 2>/dev/null && fail "code that does not exist is accepted"
finish
