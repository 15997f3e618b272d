#!/bin/bash
# Which folder of src may include which: downwards only, so that there are no circles. A line is a folder and those it may know beside
# base and itself; include/plait belongs to everybody.
cd "$SOURCE/src" || exit 1
base=''
ir='' # shapes, tensors, nodes: no ops
op='ir'
sharding='ir op'
device='ir op'
comm=''
elastic='comm checkpoint'
data=''
model='ir op'
checkpoint='model ir op data'
schedule='ir'
compile='ir op sharding schedule device model'
program='ir op sharding schedule device comm'
runtime='ir op sharding schedule device comm data checkpoint compile program'
plan='ir op sharding schedule device comm program'
recipe="model data $runtime runtime plan"
train="$recipe recipe plan"
infer="$recipe recipe"
api="$train train"
cmd="$api infer api elastic"
failures=0
for path in */; do
  folder=${path%/}
  [ -n "$(ls -A "$folder")" ] || continue
  [ -n "${!folder+set}" ] || { echo "src/$folder has no line here"; failures=1; continue; }
  found=$(grep -rhoE '^ *#include "[a-z_]+/' "$folder" | sed -E 's/.*"([a-z_]+)\/.*/\1/' | sort -u)
  for other in $found; do
    case " base plait $folder ${!folder} " in *" $other "*) continue ;; esac
    echo "src/$folder must not include src/$other:"
    grep -rnE "^ *#include \"$other/" "$folder" | sed 's/^/  /'
    failures=1
  done
done
[ $failures = 0 ] && [ -n "$found" ] # the last one, cmd, includes something
