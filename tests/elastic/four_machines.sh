# Four machines of tests/net/lab that come and go while they train. Sourced by bash, after environment.sh, machines.sh and lab.
# test_lab.sh compares what comes of it; scripts/launch-page prints it into docs/launch.md.
keys=(precision=fp64 batch.global=95 batch.micro=8 schedule.steps=30 schedule.name=constant schedule.warmup=4 eval.every=0 checkpoint.every=3 checkpoint.keep=0)
id=run$$ least=1

told() { echo "$*" >>all.log; }
# begins HOST KEYS…: its supervisor; what it prints is in HOST.log, and of all together in all.log
begins() {
  local host=$1 lab_in
  shift
  lab_to "$host"
  "${lab_in[@]}" "$PLAIT" launch --nnodes "$least:4" --rdzv hostA:29400,hostB:29400 --rdzv-id "$id" --secret key --silence 1 \
    recipe.yaml "${keys[@]}" mesh.dp=auto run.silence=1 "$@" > >(tee -a "$host.log" | sed -u "s/^/$host: /" >>all.log) 2>&1 &
  pid[$host]=$!
}
# goes HOST…: these are switched off: nothing is heard of them any more, and their processes end
goes() {
  local host
  lab_cut "$@"
  for host in "$@"; do
    { kill -KILL "${pid[$host]}" && wait "${pid[$host]}"; } 2>/dev/null
    unset "pid[$host]"
  done
}
# round_of RUN MACHINES STEPS: the newest round has so many machines, and has made so many steps
round_of() {
  local round first
  round=$(grep '"first_step"' "$1/launch.jsonl" | tail -1)
  first=$(sed 's/.*"first_step": \([0-9]*\).*/\1/' <<<"$round")
  [ "$(grep -o '"host"' <<<"$round" | wc -l)" -eq "$2" ] && [ "$(last_step "$1")" -ge $((first + $3 - 1)) ]
}
has_round_of() { wait_for round_of "$@" || { tail -n 30 all.log; cat "$1/launch.jsonl"; die "$1: no round of $2 machines makes $3 steps"; }; }

# 4, 3, 1 and 4 machines, until the run is done
come_and_go() {
  local host
  for host in hostA hostB hostC hostD; do begins $host run.dir=run; done
  has_round_of run 4 6
  told "-- hostD is switched off"
  goes hostD
  has_round_of run 3 5
  told "-- hostA, which serves the store, and hostC are switched off"
  goes hostA hostC
  has_round_of run 1 4
  told "-- hostA, hostC and hostD are switched on, and start the same command"
  lab_heal
  for host in hostA hostC hostD; do begins $host run.dir=run; done
  all_end 0 hostA hostB hostC hostD
}
