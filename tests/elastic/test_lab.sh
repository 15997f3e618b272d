#!/bin/bash
# tier 3; rooms comm train; numbers
# plait launch on machines that come and go (tests/net/lab): 4, 3, 1 and 4 of them. In fp64 the losses are those of one rank. Then halves of
# a network: one goes on, the other ends its workers, and joins again when it can (test_member.c has more of them, with time of its own).
# Needs root and GnuTLS.
. "$SOURCE/tests/elastic/environment.sh" || exit 1
. "$SOURCE/tests/elastic/machines.sh" || exit 1
. "$SOURCE/tests/net/lab" || exit 1
. "$SOURCE/tests/elastic/four_machines.sh" || exit 1
"$PLAIT" launch --make-secret key || die "--make-secret"
"$PLAIT" launch --nproc-per-node 2 --secret key recipe.yaml schedule.steps=8 run.dir=first >log 2>&1
if grep -q 'this plait was built without GnuTLS; install it' log; then
  echo "skipped: a build without GnuTLS"
  exit 77
fi
lab_open hostA hostB hostC hostD || die "no lab"

come_and_go;
# shellcheck disable=SC2046 # words on purpose
as_one_rank run 30 $(grep -o '"first_step": [0-9]*' run/launch.jsonl | awk '{ print $2 - 1 }')
[ "$(tail -1 run/launch.jsonl | sed 's/.*"restarts"/"restarts"/')" = '"restarts": 0, "status": 0}' ] || fail "$(tail -1 run/launch.jsonl)"

# ---- halves ----

# Two machines are the least now: a half of one cannot go on, and where it has the store, that goes to the others.
least=2 id=halves$$
keys+=(batch.global=24 batch.micro=2 schedule.steps=100000 checkpoint.keep=3 run.log_every=100)
all=(hostA hostB hostC hostD)
none_of() { for host in "$@"; do [ -z "$(workers_of "$host")" ] || return 1; done; }
# apart GOING LEFT: the one half trains, the other ends its workers and says why; all are together again when the network is
apart() {
  has_round_of halves "$(wc -w <<<"$1")" 3
  # shellcheck disable=SC2086 # words on purpose
  wait_for none_of $2 || { ps -ef | grep rdzv-id; die "there are workers on $2"; }
  for host in $2; do
    wait_for grep -qE 'no store answers|cut off from the store' "$host.log" || { cat "$host.log"; fail "$host does not say that it is cut off"; }
  done
  lab_heal
  has_round_of halves 4 3
  echo "$2 cut off and back: $SECONDS s since the start of the test"
  for host in "${all[@]}"; do : >"$host.log"; done
}
echo "4, 3, 1 and 4 machines: $SECONDS s"
for host in "${all[@]}"; do begins "$host" run.dir=halves --grace 50; done # a worker that hangs is seen
has_round_of halves 4 3
echo "4 machines: $SECONDS s"
lab_part hostC hostD
apart "hostA hostB" "hostC hostD"
lab_down hostA # it has the store
apart "hostB hostC hostD" hostA
kill -USR1 "${pid[hostD]}"
all_end 75 "${all[@]}"
no_workers "$id" || fail "processes are left: $(workers "$id")"
[ "$(losses halves | cut -d' ' -f1)" = "$(seq 1 "$(last_step halves)")" ] || fail "halves: not each step once"
[ -d "halves/checkpoints/step-$(last_step halves)" ] || fail "halves: the last step is not saved"
grep -q '"restarts": 0, "status": 75' halves/launch.jsonl || fail "$(tail -1 halves/launch.jsonl)"
grep -o '"cause": "[^"]*\|"seconds_to_step": .*' halves/launch.jsonl | tr '\n' ' ' | sed 's/"cause"/\n&/g'
echo
finish
