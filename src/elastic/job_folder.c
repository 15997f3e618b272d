// Claiming and renewing the lease file.
#include "elastic/job_folder.h"
#include "base/fault.h"
#include "base/file.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static const char prefix[] = "rendezvous-";
// In place of the count of renewals: the holder has left and the job goes on; it has ended, with status ENDED - beats.
enum { GIVEN_UP = -1, ENDED = -2 };

void job_folder_open(JobFolder *f, const char *path) { *f = (JobFolder){.path = path, .fd = -1}; }

// Processes of one start of one host and one namespace of process numbers can look whether the other lives. Of clones
// of a machine the host's name may be the same.
static void name_here(char *text, size_t size) {
  char host[64] = "", space[64] = "", boot[40] = "";
  gethostname(host, sizeof host - 1);
  file_peek("/proc/sys/kernel/random/boot_id", boot, sizeof boot);
  boot[strcspn(boot, "\n")] = 0;
  ssize_t n = readlink("/proc/self/ns/pid", space, sizeof space - 1);
  snprintf(text, size, "%s/%s/%s", host, n > 0 ? space : "", boot);
}

// The number of the newest lease, 0 where there is none, -1 where the folder cannot be read.
static int newest(const char *path) {
  DIR *d = opendir(path);
  int epoch = 0;
  for (struct dirent *e; d && (e = readdir(d));) {
    char *end;
    if (strncmp(e->d_name, prefix, sizeof prefix - 1)) continue;
    long number = strtol(e->d_name + sizeof prefix - 1, &end, 10);
    if (!*end && number > epoch && number < 1 << 30) epoch = (int)number;
  }
  if (d) closedir(d);
  return d ? epoch : -1;
}

static char *name_of(const JobFolder *f, int epoch) { return xformat("%s/%s%d", f->path, prefix, epoch); }

static int look(const JobFolder *f, int epoch, char *text, size_t size) {
  char *path = name_of(f, epoch);
  int why = file_peek(path, text, size);
  text[strcspn(text, "\n")] = 0;
  free(path);
  return why;
}

// The status that a job has ended with, when its store had the lease; -1: it may go on, or it is another job.
static int status_of(const char *text, const char *job) {
  char theirs[20];
  long beats = 0;
  if (sscanf(text, "%19s %ld", theirs, &beats) != 2 || (job && strcmp(theirs, job))) return -1;
  return beats <= ENDED ? (int)(ENDED - beats) : -1;
}

// A process that has died and that its parent has not waited for has died all the same.
static bool has_died(long pid) {
  char path[40], text[512] = "";
  if (kill((pid_t)pid, 0)) return errno == ESRCH;
  snprintf(path, sizeof path, "/proc/%ld/stat", pid);
  file_peek(path, text, sizeof text);
  const char *behind_name = strrchr(text, ')'); // "PID (NAME) STATE …"
  return behind_name && behind_name[1] == ' ' && (behind_name[2] == 'Z' || behind_name[2] == 'X');
}

// Its holder has given it up, or has died on this machine.
static int is_given_up(const char *text) {
  char job[20], here[180], mine[180];
  long beats = 0, pid = 0;
  name_here(mine, sizeof mine);
  if (sscanf(text, "%19s %ld %ld %179s", job, &beats, &pid, here) != 4) return 0;
  return beats < 0 || (!strcmp(mine, here) && FAULT(zombies_hold_leases, has_died(pid), kill((pid_t)pid, 0)));
}

// It is of another job: at an endpoint that this machine was not told of, or under another name.
static int is_strange(const char *text, const char *job, const char *endpoints) {
  char theirs[20], endpoint[80];
  if (sscanf(text, "%19s %*d %*d %*s %79s", theirs, endpoint) != 2) return 0;
  if (!endpoints) return strcmp(theirs, job) != 0;
  size_t length = strlen(endpoint);
  for (const char *at = endpoints; (at = strstr(at, endpoint)); at++)
    if ((at == endpoints || at[-1] == ',') && (!at[length] || at[length] == ',')) return 0;
  return 1;
}

static bool write_beat(JobFolder *f) {
  char here[180], line[340];
  name_here(here, sizeof here);
  int n = snprintf(line, sizeof line, "%s %ld %ld %s %s\n", f->job, f->beats, (long)getpid(), here, f->endpoint);
  return pwrite(f->fd, line, (size_t)n, 0) == n && !ftruncate(f->fd, n) && !fsync(f->fd);
}

static int make(JobFolder *f, int epoch, Error *error) {
  char *path = name_of(f, epoch), *temporary = xformat("%s/%stmp.%s.%ld", f->path, prefix, f->endpoint, (long)getpid());
  int made = 0;
  for (char *c = temporary + strlen(f->path) + 1; *c; c++) // an endpoint may be etcd://HOST
    if (*c == '/') *c = '_';
  f->beats = 0;
  f->fd = file_open(temporary, O_RDWR | O_CREAT | O_TRUNC);
  if (f->fd < 0 || !write_beat(f)) made = file_write_failed(temporary, errno, 0, error);
  else if (!link(temporary, path)) made = 1;
  else if (errno != EEXIST) made = file_write_failed(path, errno, 0, error);
  unlink(temporary);
  if (made == 1) f->epoch = epoch;
  else if (f->fd >= 0) close(f->fd), f->fd = -1;
  free(temporary);
  free(path);
  return made;
}

static void remove_older(const JobFolder *f) {
  for (int epoch = f->epoch - 1; epoch > 0; epoch--) {
    char *path = name_of(f, epoch);
    int gone = unlink(path);
    free(path);
    if (gone) return;
  }
}

// Notes when the newest lease was first seen as it is now. true: it has changed since the last look.
static bool has_changed(JobFolder *f, int epoch, const char text[sizeof f->seen], double now) {
  if (epoch == f->seen_epoch && !strcmp(text, f->seen)) return false;
  f->seen_epoch = epoch;
  f->seen_at = now;
  memcpy(f->seen, text, sizeof f->seen);
  return true;
}

void job_folder_watch(JobFolder *f, double now) {
  char text[sizeof f->seen] = "";
  int epoch = f->path ? newest(f->path) : 0;
  if (epoch <= 0) return;
  look(f, epoch, text, sizeof text);
  has_changed(f, epoch, text, now);
}

int job_folder_claim(JobFolder *f, const char *job, const char *endpoint, const char *endpoints, double silence,
                     double now, Error *error) {
  char text[sizeof f->seen] = "";
  if (!f->path) return 1;
  int code = folder_create_given(f->path, error), epoch = newest(f->path);
  if (code) return error_prefix(error, "run.dir");
  if (epoch < 0) return 0;
  if (epoch) look(f, epoch, text, sizeof text);
  bool is_over = epoch && status_of(text, NULL) >= 0, strange = epoch && !is_over && is_strange(text, job, endpoints);
  if (is_over && status_of(text, job) >= 0) return 0; // this machine was cut off meanwhile
  // What a machine gave up is for its job's next machine at once; another job has to see first that none comes.
  if (epoch && (FAULT(strangers_take_leases, strange, false) || !is_given_up(text))) {
    bool known = epoch == f->seen_epoch;
    if (has_changed(f, epoch, text, now)) {
      if (known && strange)
        return error_set(error, PLAIT_BAD_INPUT,
                         "run.dir %s is in use by another job, whose store is at %.79s; set another run.dir, or give "
                         "that endpoint to --rdzv",
                         f->path, strrchr(text, ' ') ? strrchr(text, ' ') + 1 : "");
      return 0;
    }
    if (now - f->seen_at < silence) return 0;
  }
  snprintf(f->job, sizeof f->job, "%s", job);
  snprintf(f->endpoint, sizeof f->endpoint, "%s", endpoint);
  int made = make(f, epoch + 1, error);
  if (made == 1) remove_older(f);
  return made;
}

// Somebody has emptied run.dir. Who finds no lease there would begin with the first epoch, and yields to this one.
static void make_again(JobFolder *f) {
  Error ignored = {0};
  int lost = f->fd, made = make(f, f->epoch, &ignored);
  if (made == 1) close(lost);
  else f->fd = lost;
}

bool job_folder_renew(JobFolder *f) {
  if (!f->path) return true;
  int now = newest(f->path);
  if (f->fd < 0 || FAULT(store_is_not_fenced, now > f->epoch, 0)) return false;
  if (now >= 0 && FAULT(removed_leases_stay_away, now < f->epoch, 0)) make_again(f);
  f->beats++;
  write_beat(f); // a full disk is no reason to end the job
  return true;
}

int job_folder_status(const JobFolder *f, const char *job) {
  char text[sizeof f->seen] = "";
  int epoch = f->path ? newest(f->path) : 0;
  if (epoch > 0) look(f, epoch, text, sizeof text);
  return status_of(text, job);
}

void job_folder_release(JobFolder *f, int status) {
  if (!f->path || f->fd < 0) return;
  f->beats = FAULT(job_end_is_not_kept, status < 0, true) ? GIVEN_UP : ENDED - status;
  write_beat(f);
  close(f->fd);
  f->fd = -1;
}

bool job_folder_was_at(const JobFolder *f, const char *endpoint) {
  char text[sizeof f->seen] = "", last[80];
  int epoch = f->path ? newest(f->path) : 0;
  if (epoch > 0) look(f, epoch, text, sizeof text);
  return sscanf(text, "%*s %*d %*d %*s %79s", last) == 1 && status_of(text, NULL) < 0 && !strcmp(last, endpoint);
}

int job_folder_sees(const JobFolder *f, int epoch, const char *job) {
  char text[sizeof f->seen], theirs[20];
  if (!f->path) return 1;
  int why = look(f, epoch, text, sizeof text);
  if (FAULT(unreadable_leases_are_lacking, why && why != -ENOENT, false)) return why;
  return sscanf(text, "%19s", theirs) == 1 && !strcmp(theirs, job);
}
