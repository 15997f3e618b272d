#!/bin/bash
# Which folder of src may include which: downwards only, so that there are no circles. A line is a folder and those it may know beside
# base and itself; include/plait belongs to everybody.
cd "$SOURCE/src" || exit 1
base=''
ir='' # shapes, tensors, nodes: no ops
op='ir'
sharding='ir op'
device='ir op'
check='ir op device' # cases of ops, and kernels compared with the reference
model='ir op'
schedule='ir'
net=''
worker='' # between a worker and its supervisor
comm='net worker'
tokenizer=''
chat='tokenizer' # messages to ids
data='ir tokenizer'
grammar='tokenizer chat' # schemas and masks: no server, no engine
checkpoint='ir model tokenizer worker'
elastic='net worker comm checkpoint'
parallel='ir op sharding schedule model'
compile='ir op sharding device model parallel'
program='op sharding schedule device comm'
machine='op sharding device program' # what a machine costs: no recipes
runtime='ir op check sharding schedule device worker comm data checkpoint compile program'
recipe='ir op sharding schedule device model parallel compile' # the language: not what a run is
setup='op sharding schedule worker data tokenizer compile program machine recipe runtime'
foresight='ir op sharding schedule device model data comm program machine recipe runtime setup' # before a run: no trainer
train='sharding worker comm data tokenizer checkpoint model parallel program runtime recipe setup foresight'
infer='data tokenizer checkpoint model recipe runtime setup foresight'
serve='device tokenizer checkpoint grammar chat recipe runtime infer' # HTTP: not commands
api='ir op sharding schedule tokenizer checkpoint machine runtime setup foresight train infer'
cli='recipe'
cmd="$api check chat serve recipe net worker comm data tokenizer device elastic model parallel compile program cli"
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
