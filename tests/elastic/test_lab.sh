#!/bin/bash
# plait launch on machines that come and go (tests/net/lab): 4, 3, 1 and 4 of them. In fp64 the losses are those of one rank. Then halves of
# a network: one goes on, the other ends its workers, and joins again when it can. Needs root, UCX and GnuTLS.
. "$SOURCE/tests/elastic/environment.sh" || exit 1
. "$SOURCE/tests/elastic/machines.sh" || exit 1
. "$SOURCE/tests/net/lab" || exit 1
. "$SOURCE/tests/elastic/four_machines.sh" || exit 1
"$PLAIT" launch --make-secret key || die "--make-secret"
"$PLAIT" launch --nproc-per-node 2 --secret key recipe.yaml schedule.steps=8 run.dir=first >log 2>&1
if grep -q 'this plait was built without GnuTLS; install it\|without which this plait was built; install it' log; then
  echo "skipped: a build without GnuTLS or UCX"
  exit 77
fi
lab_open hostA hostB hostC hostD || die "no lab"

come_and_go
# shellcheck disable=SC2046 # words on purpose
as_one_rank run 30 $(grep -o '"first_step": [0-9]*' run/launch.jsonl | awk '{ print $2 - 1 }')
cp -r all.log run /tmp/lab-out/
finish
