// The thread of a machine that talks to the store.
#include "elastic/member.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/thread.h"
#include "elastic/job_store.h"
#include "elastic/job_what.h"
#include "elastic/port.h"
#include <errno.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

static const double tick_seconds = 0.1, first_round_seconds = 3, folder_seconds = 5, least_quiet_seconds = 6,
                    first_hold_seconds = 5, longest_hold_seconds = 60;
static const char state_key[] = "state", what_key[] = "what";

typedef struct Wish {
  bool busy, leave, failing, ended, gone;
  int stop, failing_round;
  JobRoundEnd how; // they ended
} Wish;

struct Member {
  const MemberOptions *options;
  pthread_t thread;
  int event;
  char id[JOB_ID];
  pthread_mutex_t mutex; // of what follows, up to the line
  Wish wish;
  JobState *state;       // the newest
  int code;              // the job cannot continue here: why
  Error error;
  bool quit, connected, serves, keeps, over;
  int status;            // over: of the job, which has ended with this machine
  char waits[300], at[80]; // at: where the store was found last
  // ---- the thread's
  Machine self;
  JobStore place;        // where the job's store is
  uint64_t version;
  bool present;          // its key is set with the lease
  bool joined;           // it was in the state once
  double lost_at;        // when the store was lost
  double gather_at;      // since when the first round could begin; 0: it could not
  double folder_at;      // since when run.dir lacks the lease that it should have; 0: it does not
  bool has_lost;         // machines, and since then there are too few
  double way_at, hold;   // from when on it gives the store up for them (again); seconds for which it has it until then
};

static void lock(Member *m) { pthread_mutex_lock(&m->mutex); }
static void unlock(Member *m) { pthread_mutex_unlock(&m->mutex); }

static void ring(Member *m) {
  uint64_t one = 1;
  ssize_t ignored = write(m->event, &one, sizeof one);
  (void)ignored;
}

static void give_up(Member *m, int code, const Error *error) {
  lock(m);
  if (!m->code) m->code = code, m->error = *error;
  unlock(m);
  ring(m);
}

static void say_waits(Member *m, const char *text) {
  lock(m);
  bool is_new = strcmp(m->waits, text) != 0;
  snprintf(m->waits, sizeof m->waits, "%s", text);
  m->connected = !*text;
  unlock(m);
  if (is_new) ring(m);
}

static void publish(Member *m, const JobState *s) {
  JobState *copy = job_state_copy(s);
  lock(m);
  bool is_new = !m->state || m->state->changes != s->changes;
  free(m->state);
  m->state = copy;
  unlock(m);
  if (is_new) ring(m);
}

// The store -----------------------------------------------------------------------------------------------------------

static void note_place(Member *m) {
  lock(m);
  m->serves = m->place.server != NULL;
  m->keeps = job_store_keeps(&m->place);
  memcpy(m->at, m->place.at, sizeof m->at);
  unlock(m);
}

static double time_now(const Member *m) { return job_store_now(&m->place); }

static void leave_store(Member *m) {
  job_store_leave(&m->place);
  m->present = false;
  m->version = 0;
  m->lost_at = time_now(m);
  note_place(m);
}

static JobState *new_state(const Member *m) {
  JobState *s = xcalloc(1, sizeof *s);
  s->round = -1;
  s->failure.round = -1;
  memcpy(s->job, m->place.folder.job, sizeof s->job);
  if (!*s->job) job_make_name(s->job, sizeof s->job);
  if (!secret_is_users()) UNLESS_FAULT(launch_draws_no_secret) secret_draw(s->secret);
  snprintf(s->recipe, sizeof s->recipe, "%s", m->options->recipe);
  snprintf(s->version, sizeof s->version, "%s", PLAIT_VERSION);
  snprintf(s->cause, sizeof s->cause, "start");
  return s;
}

static int set_state(Member *m, JobState *s, uint64_t version, bool *done, Error *error) {
  char *text = job_state_print(s);
  int code = job_store_set(&m->place, state_key, version, text, 0, done, error);
  free(text);
  return code;
}

static bool is_other_start(const JobState *a, const JobState *b) {
  return FAULT(starts_are_one, strcmp(a->job, b->job) != 0, false);
}

// A store that somebody serves who has come only now begins with round -1. Where another start of the job has begun a
// round, that of `a` is over.
static bool is_newer(const JobState *a, const JobState *b) {
  if (b->round >= 0 && is_other_start(a, b)) return false;
  return a->round != b->round ? a->round > b->round : a->changes > b->changes;
}

// Before the state of the job is there: what it runs, after the number that the state has of it.
static int tell_what(Member *m, Error *error) {
  StoreValue now = {0};
  bool done;
  if (!m->options->what) return PLAIT_OK;
  char *text = xformat("%s\n%s", m->options->recipe, m->options->what);
  int code = m->place.store->get(m->place.store, what_key, &now, error);
  if (!code) code = job_store_set(&m->place, what_key, now.version, text, 0, &done, error);
  store_value_free(&now);
  free(text);
  return code;
}

// Tells the store that part of the state which it does not know yet: all of it where it is new, or changes that its
// predecessor had.
static int remind_once(Member *m, bool *done, Error *error) {
  StoreValue now = {0};
  int code = m->place.store->get(m->place.store, state_key, &now, error);
  JobState *theirs = !code && now.version ? job_state_parse(now.data, now.bytes) : NULL, *made = NULL;
  lock(m);
  JobState *mine = m->state;
  unlock(m);
  if (!code && !mine && !now.version && job_store_begins(&m->place)) mine = made = new_state(m);
  if (!code && !mine && FAULT(unread_state_is_awaited, now.version && !theirs, false))
    code = error_set(error, PLAIT_BAD_INPUT,
                     "--rdzv-id %.60s: what the store at %.100s has of the job is not a state that plait %s writes",
                     m->options->id, m->place.where, PLAIT_VERSION);
  bool sets = !code && mine && (!theirs || is_newer(mine, theirs));
  if (sets) code = tell_what(m, error);
  if (sets && !code)
    code = set_state(m, mine, now.version, done, error);
  store_value_free(&now);
  free(theirs);
  free(made);
  return code;
}

// Again where another machine has changed it meanwhile.
static int remind(Member *m, Error *error) {
  int code;
  bool done;
  do {
    done = true;
    code = remind_once(m, &done, error);
  } while (!code && !done);
  return code;
}

// The job has ended while this machine was cut off from its store: the state has no machines any more.
static bool learn_end(Member *m) {
  lock(m);
  JobState *s = m->state ? job_state_copy(m->state) : NULL;
  unlock(m);
  int status = s ? job_folder_status(&m->place.folder, s->job) : -1;
  if (status < 0) return free(s), false;
  s->changes++;
  s->phase = JOB_DONE;
  s->status = status;
  s->count = 0;
  publish(m, s);
  free(s);
  say_waits(m, "");
  return true;
}

// Seconds to rest before it is tried again.
static double find_store(Member *m) {
  Error error = {0};
  if (learn_end(m)) return tick_seconds;
  double lost_at = m->lost_at; // a try that fails ends a connection, too
  int found = job_store_find(&m->place, &error);
  if (found > 0) {
    m->folder_at = 0;
    note_place(m);
    int code = remind(m, &error);
    if (!code) return say_waits(m, ""), 0;
    leave_store(m);
    found = code == PLAIT_BAD_INPUT ? code : 0;
  }
  m->lost_at = lost_at;
  double seconds = time_now(m) - m->lost_at;
  if (found < 0) return give_up(m, found, &error), 0;
  char text[sizeof m->waits];
  snprintf(text, sizeof text, "no store answers at %.200s", m->place.where);
  if (*error.message) snprintf(text, sizeof text, "%.290s", error.message);
  if (seconds > 2 || m->place.reached) say_waits(m, text);
  if (seconds > m->options->patience) {
    Error last = {0};
    error_set(&last, PLAIT_FAILED, "%s within %.0f s; is %s running there?", text, m->options->patience,
              m->place.kind->server);
    return give_up(m, PLAIT_FAILED, &last), 0;
  }
  return tick_seconds;
}

// The state -----------------------------------------------------------------------------------------------------------

// Another recipe, key, run.dir or option than the job at the store has: which, if the store says it.
static int refuse_other_recipe(Member *m, const JobState *s, Error *error) {
  const MemberOptions *o = m->options;
  StoreValue now = {0};
  Error ignored = {0};
  char text[700] = "";
  bool told = false;
  if (o->what && !m->place.store->get(m->place.store, what_key, &now, &ignored) && now.version) {
    const char *all = now.data, *end = strchr(all, '\n');
    bool of_this_job = end && (size_t)(end - all) == strlen(s->recipe) && !memcmp(all, s->recipe, strlen(s->recipe));
    told =
        of_this_job && FAULT(differences_are_not_named, job_what_differs(o->what, end + 1, text, sizeof text), false);
  }
  store_value_free(&now);
  if (told)
    return error_set(error, PLAIT_BAD_INPUT,
                     "--rdzv-id %.60s: the job at %.100s runs something else: %s; give all machines the same, or this "
                     "job another id and port",
                     o->id, m->place.where, text);
  return error_set(error, PLAIT_BAD_INPUT,
                   "--rdzv-id %.60s: the job at %.100s runs another recipe, other key=value or other --nnodes than "
                   "this one; give all machines the same, or this job another id and port",
                   o->id, m->place.where);
}

static int check_job(Member *m, const JobState *s, Error *error) {
  const MemberOptions *o = m->options;
  lock(m);
  bool is_other = m->state && is_other_start(m->state, s), is_over = is_other && m->state->round >= 0;
  unlock(m);
  if (is_over)
    return error_set(error, PLAIT_FAILED,
                     "--rdzv-id %.60s: the job was started again while this machine was cut off from it; what it has "
                     "taken part in is over. The same command joins the new start",
                     o->id);
  if (m->joined && !is_other) return PLAIT_OK;
  if (strcmp(s->version, PLAIT_VERSION))
    return error_set(error, PLAIT_BAD_INPUT, "--rdzv-id %.60s: the other machines run plait %s, and this is plait %s",
                     o->id, s->version, PLAIT_VERSION);
  if (FAULT(any_recipe_joins, strcmp(s->recipe, o->recipe), 0)) return refuse_other_recipe(m, s, error);
  if (s->phase == JOB_DONE)
    return error_set(error, PLAIT_FAILED, "--rdzv-id %.60s: the job has just ended, with status %d", o->id, s->status);
  return PLAIT_OK;
}

// Files of another machine may take seconds to be seen.
static int check_folder(Member *m, const JobState *s, double now, Error *error) {
  const JobStore *p = &m->place;
  if (p->folder.path && !p->epoch) return 0; // nobody holds its lease yet
  int sees = job_folder_sees(&p->folder, p->epoch, s->job);
  if (sees > 0) {
    m->folder_at = 0;
    return 1;
  }
  if (!m->folder_at) m->folder_at = now;
  if (now - m->folder_at < folder_seconds) return 0;
  if (sees < 0)
    return error_set(error, PLAIT_FAILED, "run.dir %s on %s: rendezvous-%d cannot be read: %s", m->options->folder,
                     m->self.host, p->epoch, strerror(-sees));
  return error_set(error, PLAIT_BAD_INPUT,
                   "run.dir %s on %s is not the folder that the other machines have under this name: it lacks the file "
                   "rendezvous-%d, which was written at the start; all machines must share it",
                   m->options->folder, m->self.host, p->epoch);
}

static int is_present(Member *m, const char *id, bool *present, Error *error) {
  char key[8 + JOB_ID];
  StoreValue now = {0};
  snprintf(key, sizeof key, "here/%s", id);
  int code = m->place.store->get(m->place.store, key, &now, error);
  *present = now.version != 0;
  store_value_free(&now);
  return code;
}

// Removes machines whose lease has lapsed; *first: this machine is the first that is there. One before it does it, if
// there is one.
static int sweep(Member *m, JobState *s, bool *changed, bool *first, Error *error) {
  double now = time_now(m);
  int own = s->count, missing = 0, code = PLAIT_OK;
  bool here[JOB_MACHINES] = {false};
  for (int i = 0; i < s->count; i++)
    if (!strcmp(s->machine[i].id, m->id)) own = i;
  *first = false;
  for (int i = 0; i < s->count; i++) {
    if (i == own) here[i] = true;
    else if ((code = is_present(m, s->machine[i].id, &here[i], error))) return code;
    if (here[i] && i < own) return PLAIT_OK;
    missing += !here[i];
  }
  if (own == s->count && s->count) return PLAIT_OK;
  *first = own < s->count;
  if (now < m->place.reunion && missing > m->place.kind->lost_with_it)
    return *first = false, PLAIT_OK; // they look for the store
  for (int i = s->count - 1; i >= 0; i--)
    if (!here[i] && rounds_lose(s, s->machine[i].id)) *changed = m->has_lost = true;
  return PLAIT_OK;
}

// Of two halves of a network, too few machines are in the one that has the store: it may go to the other. Where there
// is nobody else, or nobody who has taken it in time, this machine takes it again, and keeps it for longer and longer.
static void give_way(Member *m, const JobState *s, double now) {
  bool others = m->place.folder.path && strchr(m->options->endpoints, ',');
  if (rounds_possible(s, &m->options->limits)) m->has_lost = false, m->way_at = m->hold = 0;
  if (!m->place.server || !m->has_lost || !others || s->phase != JOB_GATHERS || now < m->way_at) return;
  double back_at = now + fmax(least_quiet_seconds, 2 * m->options->silence);
  m->place.quiet_until = FAULT(small_half_keeps_the_store, back_at, 0);
  m->hold = fmin(longest_hold_seconds, fmax(first_hold_seconds, 2 * m->hold));
  m->way_at = back_at + FAULT(store_is_given_up_once, m->hold, INFINITY);
}

static bool is_over_3_seconds(Member *m, const JobState *s, double now) {
  if (s->round >= 0 || !rounds_possible(s, &m->options->limits)) return m->gather_at = 0, s->round >= 0;
  if (!m->gather_at) m->gather_at = now;
  return now - m->gather_at >= first_round_seconds;
}

static bool apply(Member *m, JobState *s, const Wish *w) {
  const RoundLimits *l = &m->options->limits;
  bool changed = false;
  if (w->gone || (w->leave && s->phase == JOB_GATHERS)) return rounds_lose(s, m->id);
  if (w->stop) changed |= rounds_stop(s, w->stop);
  if (w->failing) changed |= rounds_failing(s, m->id, w->failing_round);
  if (w->ended) changed |= rounds_ended(s, m->id, &w->how);
  if (w->leave) changed |= rounds_leave(s, m->id);
  else if (!w->busy) changed |= rounds_join(s, l, &m->self);
  return changed;
}

static int keep_lease(Member *m, Error *error) {
  char key[8 + JOB_ID];
  Store *store = m->place.store;
  uint64_t *lease = &m->place.lease, before = *lease;
  int code = store->lease(store, lease, m->options->silence, error);
  if (!code && before && !*lease) {
    m->present = false;
    code = store->lease(store, lease, m->options->silence, error);
  }
  if (code || m->present) return code;
  snprintf(key, sizeof key, "here/%s", m->id);
  bool done;
  StoreValue now = {0};
  code = store->get(store, key, &now, error);
  if (!code) code = job_store_set(&m->place, key, now.version, m->self.host, *lease, &done, error);
  store_value_free(&now);
  m->present = !code && done;
  return code;
}

// One look at the state, and what follows from it. Below 0: the store does not answer.
static int look_once(Member *m, Error *error) {
  StoreValue now = {0};
  Error why = {0};
  bool done = true, changed = false, first = false;
  Store *store = m->place.store;
  int code = keep_lease(m, error);
  if (!code) code = store->get(store, state_key, &now, error);
  if (code) return code;
  JobState *s = now.version ? job_state_parse(now.data, now.bytes) : NULL;
  uint64_t version = now.version;
  store_value_free(&now);
  if (!s) return error_set(error, PLAIT_FAILED, "the store has lost the job");
  if (strcmp(m->place.job, s->job)) m->place.beat_at = 0; // run.dir's lease tells the job's name
  memcpy(m->place.job, s->job, sizeof s->job);
  int good = check_job(m, s, &why);
  if (!good) good = check_folder(m, s, time_now(m), &why);
  if (good < 0) give_up(m, good, &why);
  if (good > 0) {
    lock(m);
    Wish wish = m->wish;
    unlock(m);
    if (!*m->self.address) {
      if (m->options->address) snprintf(m->self.address, sizeof m->self.address, "%s", m->options->address);
      else store->own_address(store, m->self.address, sizeof m->self.address);
    }
    if (!m->self.port) m->self.port = port_free(m->self.address, m->id);
    if (m->options->copies && !m->self.copies_port)
      m->self.copies_port = port_after(m->self.address, m->self.port);
    if (m->present) changed = apply(m, s, &wish);
    code = sweep(m, s, &changed, &first, error);
    double time = time_now(m);
    if (s->round < 0 && time < m->place.hold_until) first = false;
    if (!code && first && !wish.gone) changed |= rounds_advance(s, &m->options->limits, is_over_3_seconds(m, s, time));
    if (!code && changed) {
      s->changes++;
      code = set_state(m, s, version, &done, error);
    }
    if (!code && done) {
      m->joined |= job_machine(s, m->id) != NULL;
      publish(m, s);
      give_way(m, s, time_now(m));
    }
  }
  if (!code && done) code = store->wait(store, state_key, changed ? 0 : version, tick_seconds, &now, error);
  store_value_free(&now);
  free(s);
  return code;
}

bool member_turn(Member *m, double *rest) {
  Error error = {0};
  *rest = 0;
  lock(m);
  bool quit = m->quit || m->code;
  unlock(m);
  if (quit) return false;
  int kept = job_store_keep(&m->place, time_now(m), &error);
  if (kept < 0) give_up(m, kept, &error);
  else if (!kept) leave_store(m);
  note_place(m);
  if (kept < 0) return true;
  if (!m->place.store) *rest = find_store(m);
  else if (look_once(m, &error) || (m->place.server && time_now(m) < m->place.quiet_until)) leave_store(m);
  return true;
}

static void *run(void *argument) {
  Member *m = argument;
  StoreNetwork *n = m->place.network;
  for (double rest; member_turn(m, &rest);)
    if (rest > 0) n->rest(n, rest);
  return NULL;
}

// The caller's side ---------------------------------------------------------------------------------------------------

Member *member_make(const MemberOptions *options, StoreNetwork *network) {
  Member *m = xcalloc(1, sizeof *m);
  m->options = options;
  m->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  job_make_name(m->id, sizeof m->id);
  m->self = (Machine){.pid = (int)getpid(), .nproc = options->nproc, .node_rank = options->node_rank};
  memcpy(m->self.id, m->id, sizeof m->id);
  if (gethostname(m->self.host, sizeof m->self.host - 1) || !*m->self.host) strcpy(m->self.host, "unknown host");
  job_store_open(&m->place, options, network);
  m->lost_at = time_now(m);
  pthread_mutex_init(&m->mutex, NULL);
  return m;
}

int member_open(const MemberOptions *options, Member **member, Error *error) {
  Member *m = *member = member_make(options, &store_network);
  int code = m->event < 0 ? error_set(error, PLAIT_FAILED, "no event: %s", strerror(errno)) : PLAIT_OK;
  if (!code && !m->place.kind->at_once)
    code = thread_start(&m->thread, run, m, error, "the thread that talks to the store");
  if (!code) return ring(m), code;
  m->thread = 0;
  member_close(m);
  *member = NULL;
  return code;
}

void member_close(Member *m) {
  if (!m) return;
  lock(m);
  m->quit = true;
  int status = m->over ? m->status : !m->state ? 0 : m->state->phase == JOB_DONE ? m->state->status : -1;
  unlock(m);
  if (m->thread) pthread_join(m->thread, NULL);
  job_store_close(&m->place, status);
  if (m->event >= 0) close(m->event);
  pthread_mutex_destroy(&m->mutex);
  free(m->state);
  free(m);
}

int member_event(const Member *m) { return m->event; }
const char *member_id(const Member *m) { return m->id; }

static bool take_ring(Member *m) {
  uint64_t news;
  return read(m->event, &news, sizeof news) == sizeof news;
}

// Until nothing follows any more from what is wanted.
static void turn_to_rest(Member *m) {
  double rest;
  int64_t before;
  do before = m->state ? m->state->changes : -1;
  while (member_turn(m, &rest) && (!m->state || m->state->changes != before));
  take_ring(m);
}

int member_look(Member *m, JobState **state, Machine **here, Error *error) {
  if (take_ring(m) && m->place.kind->at_once) turn_to_rest(m);
  lock(m);
  int code = m->code;
  if (code) *error = m->error;
  *state = m->state ? job_state_copy(m->state) : NULL;
  unlock(m);
  *here = *state ? job_machine(*state, m->id) : NULL;
  return code;
}

bool member_waits(Member *m, char *text, size_t size) {
  lock(m);
  snprintf(text, size, "%s", m->waits);
  unlock(m);
  return *text != 0;
}

void member_store(Member *m, char *text, size_t size) {
  lock(m);
  snprintf(text, size, "%s", m->at);
  unlock(m);
}

bool member_serves(Member *m) {
  lock(m);
  bool serves = m->serves;
  unlock(m);
  return serves;
}

bool member_keeps(Member *m) {
  lock(m);
  bool keeps = m->keeps;
  unlock(m);
  return keeps;
}

// Without a thread the caller is to look again at once.
static void note_wish(Member *m) {
  unlock(m);
  if (m->place.kind->at_once) ring(m);
}

#define WISH(m, ...) do { lock(m); __VA_ARGS__; note_wish(m); } while (0)
void member_set_busy(Member *m, bool busy) { WISH(m, m->wish.busy = busy); }
void member_leave(Member *m) { WISH(m, m->wish.leave = true); }
void member_stop(Member *m, int signal) { WISH(m, m->wish.stop = signal); }
void member_failing(Member *m, int round) { WISH(m, m->wish.failing = true, m->wish.failing_round = round); }

void member_end_job(Member *m, int status) { WISH(m, m->over = true, m->status = status); }

void member_ended(Member *m, const JobRoundEnd *how) { WISH(m, m->wish.ended = true, m->wish.how = *how); }

void member_finish(Member *m, int stop) {
  bool alone = false, waits = true;
  WISH(m, m->wish.gone = true);
  for (double until = clock_seconds() + 5; waits;) {
    Machine *here;
    Error error = {0};
    JobState *s;
    int code = member_look(m, &s, &here, &error);
    alone = !s || s->count == 0 || code;
    // Where the store cannot move, the others need it here.
    bool needed = s && s->phase != JOB_DONE && member_serves(m) && !strchr(m->options->endpoints, ',');
    waits = !alone && (needed || (clock_seconds() < until && (here || (member_serves(m) && s->phase == JOB_DONE))));
    free(s);
    struct pollfd p[2] = {{m->event, POLLIN, 0}, {stop, POLLIN, 0}};
    if (waits) poll(p, 2, (int)(1000 * tick_seconds));
    if (waits && p[1].revents) return;
  }
}
