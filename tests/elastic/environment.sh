# Shared by the scripts of this folder: those of training (tests/train/harness.sh), and processes by their environment. Sourced by bash.
. "$SOURCE/tests/train/harness.sh" || exit 1
unset MASTER_ADDR MASTER_PORT PLAIT_INSECURE PLAIT_SECRET PLAIT_JOB_SECRET PLAIT_ENCRYPT RANK WORLD_SIZE LOCAL_RANK PLAIT_RUN_ID

# workers ID: the processes of a job, found by what each was told
workers() { grep -lsz "^TORCHELASTIC_RUN_ID=$1\$" /proc/[0-9]*/environ 2>/dev/null | cut -d/ -f3; }
# worker ID RANK: the process that is this rank
worker() {
  local p
  for p in $(workers "$1"); do
    grep -qsz "^RANK=$2\$" "/proc/$p/environ" && echo "$p" && return
  done
}
# find_worker ID RANK: it is there, and victim is its process. To look through all processes takes a busy machine as long as many steps,
# so it is called before the step at which the worker is killed: the run could be over. Of the workers that the last victim had beside
# it, which may not have ended yet, it is none.
find_worker() {
  local start
  victim=$(worker "$1" "$2")
  start=$1,$(tr '\0' '\n' <"/proc/${victim:-none}/environ" | sed -n 's/^TORCHELASTIC_RESTART_COUNT=//p') 2>/dev/null
  [ -n "$victim" ] && [ "$start" != "$1," ] && [ "$start" != "${found_start-}" ] && found_start=$start
}
no_workers() { [ -z "$(workers "$1")" ]; }
# lines NUMBER FILE: it has that number at least
lines() { [ "$(wc -l <"$2")" -ge "$1" ]; }
