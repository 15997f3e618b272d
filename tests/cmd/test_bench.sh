#!/bin/bash
# tier 1; rooms comm
# plait bench comm as a user meets it: every collective and size has a line, wrong words are refused in one sentence.
. "$SOURCE/tests/script.sh" || exit 1
fail() {
  printf 'FAILED: %s\n' "$*"
  cat output
  failures=$((failures + 1))
}

# refuse WORDS ARGUMENTS…: status 2 and one sentence with the words
refuse() {
  local words=$1
  shift
  "$PLAIT" bench "$@" >output 2>&1
  [ $? -eq 2 ] && [ "$(wc -l <output)" -eq 1 ] && grep -q -e "$words" output || fail "bench $*"
}

"$PLAIT" bench --help >output 2>&1 || fail "--help"
grep -q 'mpirun -n 2 plait bench comm' output || fail "--help has no example"

collectives='all_reduce reduce_scatter all_gather broadcast reduce gather scatter all_to_all shift all_gather_v all_to_all_v send_recv'
for ranks in 1 2 3; do
  for dtype in fp32 bf16 uint8; do
    "$PLAIT" bench comm --ranks $ranks --dtype $dtype --sizes 8,24,48K --repeat 2 >output 2>&1 || fail "$ranks ranks of $dtype"
    for collective in $collectives; do
      [ $ranks -eq 1 ] && [ $collective = send_recv ] && continue # nobody to send to
      # name, size and unit, microseconds above 0, GB/s above 0
      [ "$(awk -v name="$collective" '$1 == name && NF == 5 && $4 > 0 && ($5 > 0 || $3 == "B")' output | wc -l)" -eq 3 ] ||
        fail "$ranks ranks of $dtype: $collective"
    done
    [ "$(grep -c '^barrier ' output)" -eq 1 ] || fail "$ranks ranks: barrier"
    [ "$(wc -l <output)" -eq $((ranks == 1 ? 36 : 39)) ] || fail "$ranks ranks: other lines"
  done
done
"$PLAIT" bench comm --collectives all_reduce --to 64K --repeat 1 >output 2>&1 || fail "--to"
[ "$(awk '$1 == "all_reduce" {print $2 $3}' output | tr '\n' ' ')" = '8B 64B 256B 1KiB 4KiB 16KiB 64KiB ' ] || fail "the default sizes"

refuse '--patterns: threads of one process have one pattern only; start processes' comm --patterns --ranks 4
refuse '--patterns: broadcast has one pattern only; all_reduce, reduce_scatter and all_gather have several' comm --patterns --collectives all_reduce,broadcast
refuse 'unknown benchmark "com"; allowed: comm' com
refuse 'comm is missing; usage: plait bench' --ranks 2
refuse 'did you mean all_reduce?' comm --collectives barrier,all_reduc
refuse '--collectives needs a value, LIST, and "" is none' comm --collectives ''
refuse '--sizes "," is a list of no words' comm --sizes ,
refuse '--sizes: "2G" is not a size' comm --sizes 8,2G
refuse '"1.5K" is not a size' comm --sizes 1.5K
refuse '--to: "0" is not a size' comm --to 0
refuse '"-8" is not a size' comm --to=-8
refuse 'too many words; allowed are 1 to 32' comm --sizes "$(seq -s, 1 33)"
refuse 'did you mean fp32?' comm --dtype fp31
refuse '--comm must be auto, local, mpi or net' comm --comm nccl
refuse '--ranks must be an integer from 1 to 256' comm --ranks 0
refuse '256 ranks with two buffers of .* are available; take fewer --ranks or smaller --sizes' comm --ranks 256 --sizes 1G

finish
