#!/bin/bash
# tier 1; rooms machine
# plait cluster: what it prints, where names are found, and the sentence for every kind of wrong file.
. "$SOURCE/tests/script.sh" || exit 1
export PLAIT_CLUSTERS=$SOURCE/clusters

# --- what is printed --------------------------------------------------------------------------------------------------

"$PLAIT" cluster --docs | cmp - "$SOURCE/docs/clusters.md" || fail "docs/clusters.md is out of date: plait cluster --docs writes it"
for path in "$SOURCE"/clusters/*.yaml; do
  name=$(basename "$path" .yaml)
  "$PLAIT" cluster | grep -q "^$name  *[0-9]* devices  " || fail "plait cluster does not list $name"
  "$PLAIT" cluster "$name" >"$work/by-name" || fail "$name does not load"
  "$PLAIT" cluster "$path" >"$work/by-path" || fail "$path does not load"
  cmp "$work/by-name" "$work/by-path" || fail "$name and $path differ"
done
[ "$("$PLAIT" cluster | wc -l)" -eq 6 ] || fail "plait cluster lists: $("$PLAIT" cluster)"
shown=$("$PLAIT" cluster dgx-a100-superpod)
for line in '4480 devices' 'memory    80.0 GB at 2.04 TB/s, of which 2.00 GB are reserved' \
  'bf16 312 TFLOP/s, fp16 312 TFLOP/s; in long runs × 0.8308' \
  'nvlink       8 devices              switch      1  300 GB/s    300 GB/s    1.34 PB/s   3.4 µs' \
  'infiniband   560 × nvlink           switch      8  25.0 GB/s   200 GB/s    112 TB/s    9.6 µs'; do
  [[ $shown == *"$line"* ]] || fail "plait cluster dgx-a100-superpod lacks: $line"
done
"$PLAIT" cluster dgx-a100-superpod --what-if infiniband.ports=4 | grep -q '100 GB/s    56.0 TB/s' || fail "--what-if changes nothing"

for line in 'ring        2  450 GB/s    900 GB/s    7.20 TB/s' 'mesh        2  450 GB/s    3.15 TB/s   25.2 TB/s' \
  'bus         2  450 GB/s    450 GB/s    450 GB/s'; do
  sed "s/kind: switch/kind: ${line%% *}/; s/ports: 1/ports: 2/" "$SOURCE/clusters/h200-node.yaml" >"$work/kind.yaml"
  "$PLAIT" cluster "$work/kind.yaml" | grep -qF "$line" || fail "$("$PLAIT" cluster "$work/kind.yaml")"$'\n'"    lacks: $line"
done

# --- where names are found: in an installation beside the binary --------------------------------------------------------

mkdir -p "$work/prefix/bin" "$work/prefix/share/plait/clusters" "$work/own"
cp "$PLAIT" "$work/prefix/bin/plait"
cp "$SOURCE/clusters/dgx-2.yaml" "$work/prefix/share/plait/clusters"
cp "$SOURCE/clusters/h200-node.yaml" "$work/own/mine.yaml"
[ "$(env -u PLAIT_CLUSTERS "$work/prefix/bin/plait" cluster | cut -d' ' -f1)" = dgx-2 ] || fail "an installed plait does not find its clusters"
[ "$(PLAIT_CLUSTERS=$work/own "$work/prefix/bin/plait" cluster | cut -d' ' -f1 | tr '\n' ' ')" = "dgx-2 mine " ] ||
  fail "PLAIT_CLUSTERS does not add to the installed clusters"

# --- wrong files --------------------------------------------------------------------------------------------------------

cat >"$work/good.yaml" <<'YAML'
name: a test
device:
  name: GPU
  matrix: {fp32: 10e12, bf16: 100e12}
  vector: {fp32: 10e12}
  units: 10
  memory: 10e9
  bandwidth: 1e12
  launch: 1e-6
  host: 1e-6
  source: none
spaces:
  - {name: host, memory: 1e12, bandwidth: 20e9, latency: 1e-5, shared_by: 2, source: none}
levels:
  - {name: nvlink, count: 4, bandwidth: 100e9, latency: 1e-6, source: none}
  - {name: network, count: 2, ports: 4, bandwidth: 10e9, latency: 1e-5, source: none}
software: {attention: flash, source: none}
spread: 0.01
base: [1e-6, 2e-6]
source: none
YAML
(cd "$work" && "$PLAIT" cluster good.yaml >/dev/null) || fail "the good file does not load"

sed '/^spread/d; /^source/d; s/^base.*/base: auto/' "$work/good.yaml" >"$work/auto.yaml" # no numbers, so no source
"$PLAIT" cluster "$work/auto.yaml" >/dev/null || fail "base: auto wants a source"

# wrong SENTENCE SED…: the good file, edited, is refused with just this sentence and status 2.
wrong() {
  local sentence=$1 got status
  shift
  sed "$@" "$work/good.yaml" >"$work/c.yaml"
  cmp -s "$work/good.yaml" "$work/c.yaml" && fail "no edit: $*"
  got=$(cd "$work" && "$PLAIT" cluster c.yaml 2>&1)
  status=$?
  [ $status -eq 2 ] || fail "$*: status $status, expected 2"
  [ "$got" = "plait cluster: $sentence" ] || fail "$*: $got"$'\n'"    expected: $sentence"
}

wrong 'c.yaml:7:3: device.memroy: unknown key; did you mean memory?' 's/memory: 10e9/memroy: 10e9/'
wrong 'c.yaml:18:1: zzz: unknown key; allowed are name, device, spaces, levels, software, spread, base, measured, kernel_rows, kernels, islands, source' 's/^spread/zzz/'
wrong 'c.yaml:18:1: bandwidth: unknown key; it belongs into device' 's/^spread/bandwidth/'
wrong 'c.yaml:15:30: nvlink.bandwith: unknown key; did you mean bandwidth?' 's/bandwidth: 100e9/bandwith: 100e9/'
wrong 'c.yaml:3:3: device has numbers but no source; say where they come from, as in source: "data sheet"' '11d'
wrong 'c.yaml:16:5: network has numbers but no source; say where they come from, as in source: "data sheet"' '16s/, source: none//'
wrong 'c.yaml:17:11: software has numbers but no source; say where they come from, as in source: "data sheet"' '17s/, source: none//'
wrong 'c.yaml:1:1: the top of the file has numbers but no source; say where they come from, as in source: "data sheet"' '20d'
wrong 'c.yaml:3:3: device.memory must be given: The device'\''s memory.' '7d'
wrong 'c.yaml:2:1: name must be given: The name of the cluster, for people.' '1s/.*//'
wrong 'c.yaml:7:11: device.memory must be a number of at least 1 B, not "80GB"' 's/10e9$/80GB/'
wrong 'c.yaml:7:11: device.memory must be a number of at least 1 B, not "-3"; the nearest is 1' 's/memory: 10e9/memory: -3/'
wrong 'c.yaml:7:11: device.memory must be a number of at least 1 B, not "10e9" in quotes' 's/memory: 10e9/memory: "10e9"/'
wrong 'c.yaml:7:11: device.memory must be a number of at least 1 B, not "nan"' 's/memory: 10e9/memory: nan/'
wrong 'c.yaml:7:11: device.memory must be a number of at least 1 B, not "1e999"' 's/memory: 10e9/memory: 1e999/'
wrong 'c.yaml:7:11: device.memory must be a number of at least 1 B, not a list' 's/memory: 10e9/memory: [1]/'
wrong 'c.yaml:6:10: device.units must be an integer from 1 to 1000000, not "10.5"; the nearest is 10' 's/units: 10/units: 10.5/'
wrong 'c.yaml:6:10: device.units must be an integer from 1 to 1000000, not "1e3"; write 1000' 's/units: 10/units: 1e3/'
wrong 'c.yaml:7:3: units is given twice (first on line 6)' '7s/memory: 10e9/units: 10/'
wrong 'c.yaml:4:11: device.matrix has no rate for fp32, in which some of every step is computed; write matrix: {fp32: RATE}' 's/{fp32: 10e12, bf16/{bf16/'
wrong 'c.yaml:4:25: device.matrix: "bf61" is not a dtype that has a rate; those are fp64, fp32, bf16, fp16; did you mean bf16?' 's/bf16/bf61/'
wrong 'c.yaml:4:25: device.matrix: "uint8" is not a dtype that has a rate; those are fp64, fp32, bf16, fp16' 's/bf16/uint8/'
wrong 'c.yaml:4:31: device.matrix.bf16 must be a number of at least 1 FLOP/s, not "0"; the nearest is 1' 's/bf16: 100e12/bf16: 0/'
wrong 'c.yaml:4:11: device.matrix must be a map from dtypes to numbers of at least 1 FLOP/s, as in {fp32: 19.5e12}, not "312e12"' 's/matrix: .*/matrix: 312e12/'
wrong 'c.yaml:13:12: spaces[0].name must be host or disk, not "hots"; did you mean host?' 's/name: host/name: hots/'
wrong 'c.yaml:15:36: nvlink.kind must be switch, ring, mesh or bus, not "rign"; did you mean ring?' 's/bandwidth: 100e9/kind: rign, bandwidth: 100e9/'
wrong 'c.yaml:15:12: levels[0].name must be a word of a-z, 0-9, _ and - that starts with a letter, of at most 32 characters, and not the name of another section, not "device"' 's/name: nvlink/name: device/'
wrong 'c.yaml: two levels are called nvlink; give them different names' 's/name: network/name: nvlink/'
wrong 'c.yaml:15:27: nvlink.count must be an integer from 1 to 1048576, not "0"; the nearest is 1' 's/count: 4/count: 0/'
wrong 'c.yaml: the counts of the levels make 34359738368 devices; at most 16777216 are allowed' 's/count: 4/count: 1048576/;s/count: 2/count: 32768/'
wrong 'c.yaml:14:9: levels must be a list of at most 4 maps of keys, not "none"' '14s/.*/levels: none/;15,16d'
wrong 'c.yaml:15:5: levels[0] must be a map of keys, not "nvlink"' '15s/.*/  - nvlink/'
wrong 'c.yaml:18:9: spread must be a number from 0 to 1, not "2"; the nearest is 1' 's/0.01/2/'
wrong 'c.yaml:19:7: base must be auto, or a list of two numbers from 0 to 1 s, not a list' 's/base: .*/base: [1e-6]/'
wrong 'c.yaml:19:14: base must be auto, or a list of two numbers from 0 to 1 s, but it contains "many"' 's/base: .*/base: [1e-6, many]/'
wrong 'c.yaml:17:23: software.attention must be flash, materialised or cudnn, not "fast"; did you mean flash?' 's/flash/fast/'
wrong 'c.yaml: device.reserved is 10000000000 B, which leaves nothing of the memory of 10000000000 B' '7s/$/\n  reserved: 10e9/'
wrong 'c.yaml:2:9: anchors and aliases (&name, *name) are not allowed here' '2s/$/ \&a/;s/^software: .*/software: *a/'

# --- wrong measurements -------------------------------------------------------------------------------------------------

# measured SENTENCE LINE…: the good file with a CSV of these lines after the header.
measured() {
  local sentence=$1 got status
  shift
  { echo kind,ranks,nodes,bytes,seconds; printf '%s\n' "$@"; } >"$work/m.csv"
  { cat "$work/good.yaml"; echo 'measured: m.csv'; } >"$work/c.yaml"
  got=$(cd / && "$PLAIT" cluster "$work/c.yaml" 2>&1) # the path is relative to the file
  status=$?
  got=${got//"$work/"/}
  [ $status -eq 2 ] || fail "$*: status $status, expected 2"
  [ "$got" = "plait cluster: $sentence" ] || fail "$*: $got"$'\n'"    expected: $sentence"
}

printf '# sorted\nkind,ranks,nodes,bytes,seconds\r\nall_gather,8,2,1e6,1e-4\nall_reduce,4,1,1e3,1e-5\nall_reduce,4,1,1e6,1e-4' >"$work/m.csv"
{ cat "$work/good.yaml"; echo 'measured: m.csv'; } >"$work/c.yaml"
"$PLAIT" cluster "$work/c.yaml" | grep -q '  3 measured collectives' || fail "measured collectives are not read"
measured 'm.csv:3: out of order: lines must be sorted by kind, then ranks, nodes and bytes; `sort -t, -k1,1 -k2,2n -k3,3n -k4,4g` sorts them' \
  all_reduce,4,1,1e6,1e-4 all_reduce,4,1,1e3,1e-5
measured 'm.csv:3: out of order: lines must be sorted by kind, then ranks, nodes and bytes; `sort -t, -k1,1 -k2,2n -k3,3n -k4,4g` sorts them' \
  all_reduce,4,1,1e6,1e-4 all_gather,4,1,1e6,1e-4
measured 'm.csv:3: this kind, ranks, nodes and bytes are there already, in the line before' all_reduce,4,1,1e6,1e-4 all_reduce,4,1,1000000,2e-4
measured 'm.csv:2: 9 ranks, but the cluster has 8 devices' all_reduce,9,1,1e6,1e-4
measured 'm.csv:2: 4 ranks cannot be on 5 nodes; there are at most 4 of them' all_reduce,4,5,1e6,1e-4
measured 'm.csv:2: "all_redcue" is not a kind of collective; those are all_reduce, reduce_scatter, all_gather, all_to_all, broadcast, reduce, shift; did you mean all_reduce?' \
  all_redcue,4,1,1e6,1e-4
measured 'm.csv:2: seconds must be a number above 0, not "-1e-4"' all_reduce,4,1,1e6,-1e-4
measured 'm.csv:2: bytes must be a number of at least 1, not "-5"' all_reduce,4,1,-5,1e-4
measured 'm.csv:2: ranks must be an integer from 1 to 16777216, not "2.5"' all_reduce,2.5,1,5,1e-4
measured 'm.csv:2: seconds must be a number above 0, not ""' all_reduce,4,1,5,
measured 'm.csv:2: a line has five values, kind,ranks,nodes,bytes,seconds' all_reduce,4,1,5
measured 'm.csv: holds no measurements; after the line kind,ranks,nodes,bytes,seconds there is one on each line'
echo 'kind,bytes' >"$work/m.csv"
got=$(cd "$work" && "$PLAIT" cluster c.yaml 2>&1)
[ "$got" = 'plait cluster: m.csv:1: the first line must name the columns: kind,ranks,nodes,bytes,seconds' ] || fail "$got"
rm "$work/m.csv"
got=$(cd "$work" && "$PLAIT" cluster c.yaml 2>&1)
[ "$got" = 'plait cluster: c.yaml:21:11: measured: m.csv: cannot be read: No such file or directory' ] || fail "$got"
{ cat "$work/good.yaml"; printf 'measured: |\n  kind,ranks,nodes,bytes,seconds\n  all_reduce,4,1,1,1e-5\n  shift,0,1,1,1\n'; } >"$work/c.yaml"
got=$(cd "$work" && "$PLAIT" cluster c.yaml 2>&1)
[ "$got" = 'plait cluster: c.yaml:24: ranks must be an integer from 1 to 16777216, not "0"' ] || fail "$got"

# --- islands ------------------------------------------------------------------------------------------------------------

islands() {
  local sentence=$1 got
  shift
  { cat "$work/good.yaml"; echo islands:; for island; do echo "  - {$island, device: {name: b, matrix: {fp32: 1e12}, vector: {fp32: 1e12}, units: 1, memory: 1e9, bandwidth: 1e9, launch: 0, host: 0, source: none}}"; done; } >"$work/c.yaml"
  got=$(cd "$work" && "$PLAIT" cluster c.yaml 2>&1)
  [ "$got" = "plait cluster: $sentence" ] || fail "$got"$'\n'"    expected: $sentence"
}
islands 'c.yaml: islands[0] is devices 6 to 8, but the cluster has 8, 0 to 7' 'first: 6, count: 3'
islands 'c.yaml: islands[1] starts at device 3, but the island before it ends at device 3; islands are in order and do not overlap' \
  'first: 0, count: 4' 'first: 3, count: 1'
islands 'c.yaml:22:5: islands[0].first must be given: The number of the first of them, from 0.' 'count: 3'

# --- the command line ---------------------------------------------------------------------------------------------------

refused() {
  local sentence=$1 got
  shift
  got=$("$PLAIT" cluster "$@" 2>&1)
  [ $? -eq 2 ] && [ "$got" = "plait cluster: $sentence" ] || fail "$*: $got"$'\n'"    expected: $sentence"
}
refused '"dgx2" is neither a file nor a cluster that comes with plait; those are aws-p4d, dgx-2, dgx-a100-superpod, h100-400g, h200-node, pcie-10g; did you mean dgx-2?' dgx2
refused "$work/nothing.yaml: there is no such file" "$work/nothing.yaml"
refused "$work/ is a folder; a cluster is a YAML file" "$work/"
refused 'nvlnk.bandwidth=2x: nvlnk.bandwidth: unknown key; did you mean nvlink.bandwidth?' h200-node --what-if nvlnk.bandwidth=2x
refused '--what-if needs a cluster to change' --what-if nvlink.bandwidth=2x
refused '--docs goes without a cluster and without --what-if' --docs dgx-2
: >"$work/empty.yaml"
refused "$work/empty.yaml: holds no keys; a cluster file starts with name, device, levels, …" "$work/empty.yaml"
echo '- 1' >"$work/empty.yaml"
refused "$work/empty.yaml:1:1: a cluster file must be a map of keys, not a list" "$work/empty.yaml"
got=$(PLAIT_CLUSTERS='' "$work/prefix/bin/plait" cluster dgx 2>&1)
[ "$got" = 'plait cluster: "dgx" is neither a file nor a cluster that comes with plait; those are dgx-2; did you mean dgx-2?' ] || fail "$got"

finish
