#!/bin/bash
# tier 2 3
# Random faults in a job of one machine: workers are killed by any signal, at any moment, or end with any status, one or two at a time,
# and the supervisor is told to stop. Restarts are counted exactly, against a model: a round that a fault has hit uses up one of
# --max-restarts, whatever hits it besides. SEED: which faults; FAULTS: how many.
. "$SOURCE/tests/elastic/environment.sh" || exit 1

# A worker says who it is when it can be hit, and lives until then. USR2: it ends with the status that a file has.
cat >worker <<'BASH'
end() { read -r status <"end.$RANK.$TORCHELASTIC_RESTART_COUNT"; exit "$status"; }
trap end USR2
[ "$STOPS" = well ] && trap 'exit 0' INT TERM USR1 HUP XCPU
echo "$TORCHELASTIC_RESTART_COUNT $RANK $$" >>"$JOB"
while :; do sleep 1000 & wait; done
BASH

faults=${FAULTS:-$([ "$tier" -ge 3 ] && echo 200 || echo 10)}
python3 - "$PLAIT" "$faults" "${SEED:-$(date +%s%N)}" "$patience" <<'PYTHON' || fail "restarts are not counted exactly"
import os, random, re, resource, signal, subprocess, sys, time
from signal import Signals as S

plait, faults, seed, patience = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
print(f"SEED={seed} FAULTS={faults}")
draw = random.Random(seed)
WORKERS = 3
DEADLY = [S.SIGKILL, S.SIGTERM, S.SIGSEGV, S.SIGABRT, S.SIGBUS, S.SIGFPE, S.SIGILL, S.SIGHUP, S.SIGUSR1, S.SIGPIPE, S.SIGXCPU]
STOPS = {S.SIGINT: 130, S.SIGTERM: 143, S.SIGUSR1: 75, S.SIGUSR2: 75, S.SIGHUP: 129, S.SIGXCPU: 75} # base/signals.def
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def as_from_a_terminal():
    for number in STOPS:
        signal.signal(number, signal.SIG_DFL) # who runs tests in the background may have ignored some


class Job:
    number = 0

    def __init__(self, most, dies="by the signal"):
        Job.number += 1
        self.most, self.restarts, self.stopped, self.said = most, 0, False, f"said.{Job.number}"
        open(self.said, "w").close()
        self.log = open(f"log.{Job.number}", "w+")
        command = [plait, "launch", "--nproc-per-node", str(WORKERS), "--max-restarts", str(most), "--", "bash", "worker"]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, preexec_fn=as_from_a_terminal,
                                        env={**os.environ, "JOB": self.said, "STOPS": dies})

    def workers(self):
        """Those of this round that can be hit, by rank."""
        lines = [line.split() for line in open(self.said) if line.endswith("\n")]
        return {int(rank): int(pid) for restart, rank, pid in lines if int(restart) == self.restarts}

    def wait_for(self, what):
        end = time.monotonic() + 30 * patience
        while not what():
            if time.monotonic() > end or self.process.poll() is not None:
                self.die(f"in vain: status {self.process.poll()}")
            time.sleep(0.001)

    def die(self, why):
        self.log.seek(0)
        print(f"job {Job.number}, {self.restarts} of {self.most} restarts: {why}\n{self.log.read()}")
        self.process.kill()
        sys.exit(1)

    def hit(self, rank):
        """Returns the status that it gives the job, where none is left."""
        pid, how = self.workers()[rank], draw.randrange(4)
        if how == 0:
            status = draw.randint(1, 255)
            with open(f"end.{rank}.{self.restarts}", "w") as end:
                end.write(f"{status}\n")
            number = S.SIGUSR2
        else:
            number = draw.choice(DEADLY)
            status = 128 + number
            if how == 1:
                number = S.SIGKILL
                status = 137
                self.send(pid, S.SIGSTOP)
        self.send(pid, number)
        return status

    def send(self, pid, number):
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass # the round has ended because of the worker before

    def ends(self, statuses):
        try:
            status = self.process.wait(30 * patience)
        except subprocess.TimeoutExpired:
            self.die("it does not end")
        if status not in statuses:
            self.die(f"status {status}, not {statuses}")
        self.log.seek(0)
        text = self.log.read()
        told = [(int(k), int(most)) for k, most in re.findall(r"starting all 3 workers again \(restart (\d+) of (\d+)\)$", text, re.M)]
        if told != [(k, self.most) for k in range(1, self.restarts + 1)]:
            self.die(f"it tells of {told}")
        last = max((int(line.split()[0]) for line in open(self.said)), default=0)
        if last != self.restarts:
            self.die(f"the workers' last number is {last}")
        if len(re.findall("^plait launch: ", text, re.M)) != self.restarts + (not self.stopped):
            self.die("not one sentence for each failure")

    def stops(self, number):
        self.stopped = True
        self.process.send_signal(number)
        self.ends([STOPS[number]])


# A signal to the supervisor: its status, whether workers die of it or end well.
for number in STOPS:
    for dies in "by the signal", "well":
        if number == S.SIGUSR2:
            continue # the workers here have another use for it
        job = Job(2, dies)
        job.wait_for(lambda: len(job.workers()) == WORKERS)
        job.stops(number)

job, done = Job(draw.randrange(13)), 0
while done < faults:
    first = draw.randrange(WORKERS)
    job.wait_for(lambda: first in job.workers())
    time.sleep(draw.choice([0, 0, draw.random() * 0.03, draw.random() * 0.2]))
    done += 1
    if draw.randrange(12) == 0:
        job.stops(draw.choice([S.SIGTERM, S.SIGUSR1, S.SIGXCPU]))
        job = Job(draw.randrange(13))
        continue
    statuses = [job.hit(first)]
    if draw.randrange(3) == 0: # another one, at the same time or while all are ended
        time.sleep(draw.choice([0, 0, draw.random() * 0.15]))
        for second in job.workers():
            if second != first:
                statuses.append(job.hit(second))
                done += 1
                break
    if job.restarts < job.most:
        job.restarts += 1
    else:
        job.ends(statuses)
        job = Job(draw.randrange(13))
job.wait_for(lambda: len(job.workers()) == WORKERS)
job.stops(S.SIGTERM)
print(f"{done} faults in {Job.number} jobs")
PYTHON
finish
