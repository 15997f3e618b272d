// The state of a job as JSON.
#include "elastic/job_state.h"
#include "base/error.h"
#include "base/fault.h"
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

typedef enum Type { INTEGER, LONG, FLAG, TEXT } Type;
// least, most: of an INTEGER. Whoever reads a state uses some as an index and adds others up.
typedef struct Field { const char *name; Type type; size_t offset, size; int least, most; } Field;
#define INTEGER_OF(s, f, least, most) {#f, INTEGER, offsetof(s, f), sizeof(int), least, most}
#define FLAG_OF(s, f) {#f, FLAG, offsetof(s, f), sizeof(bool), 0, 0}
#define TEXT_OF(s, f) {#f, TEXT, offsetof(s, f), sizeof((s *)0)->f, 0, 0}
#define END_OF_FIELDS {NULL, INTEGER, 0, 0, 0, 0}
enum { ROUNDS = 1 << 30, RANKS = 1 << 20, PORT = 65535, STATUS = 255, SIGNAL = 64, WEIGHT = 3, WORDS = 1023 }; // most

static const Field machine_fields[] = {
    TEXT_OF(Machine, id),
    TEXT_OF(Machine, host),
    TEXT_OF(Machine, address),
    INTEGER_OF(Machine, pid, 0, INT_MAX),
    INTEGER_OF(Machine, nproc, 0, RANKS),
    INTEGER_OF(Machine, port, 0, PORT),
    INTEGER_OF(Machine, node_rank, -1, INT_MAX),
    INTEGER_OF(Machine, first, 0, JOB_MACHINES * RANKS),
    INTEGER_OF(Machine, ranks, 0, RANKS),
    INTEGER_OF(Machine, copies_port, 0, PORT),
    FLAG_OF(Machine, ended),
    FLAG_OF(Machine, finished),
    FLAG_OF(Machine, leaving),
    END_OF_FIELDS};

static const Field failure_fields[] = {
    INTEGER_OF(JobFailure, round, -1, ROUNDS),
    INTEGER_OF(JobFailure, weight, 0, WEIGHT),
    INTEGER_OF(JobFailure, rank, -1, JOB_MACHINES * RANKS),
    INTEGER_OF(JobFailure, status, 0, STATUS),
    INTEGER_OF(JobFailure, blamed, -1, JOB_MACHINES * RANKS),
    INTEGER_OF(JobFailure, text, 0, WORDS),
    FLAG_OF(JobFailure, wrong_input),
    FLAG_OF(JobFailure, counted),
    TEXT_OF(JobFailure, machine),
    TEXT_OF(JobFailure, host),
    TEXT_OF(JobFailure, blamed_host),
    TEXT_OF(JobFailure, how),
    TEXT_OF(JobFailure, words),
    END_OF_FIELDS};

static const Field state_fields[] = {
    {"changes", LONG, offsetof(JobState, changes), sizeof(int64_t), 0, 0},
    TEXT_OF(JobState, job),
    TEXT_OF(JobState, secret),
    TEXT_OF(JobState, recipe),
    TEXT_OF(JobState, version),
    INTEGER_OF(JobState, phase, JOB_GATHERS, JOB_DONE),
    INTEGER_OF(JobState, ending, ENDING_NONE, ENDING_FAILED),
    INTEGER_OF(JobState, round, -1, ROUNDS),
    INTEGER_OF(JobState, restarts, 0, ROUNDS),
    INTEGER_OF(JobState, lost, 0, JOB_MACHINES),
    TEXT_OF(JobState, lost_host),
    INTEGER_OF(JobState, stop, 0, SIGNAL),
    INTEGER_OF(JobState, status, 0, STATUS),
    TEXT_OF(JobState, cause),
    FLAG_OF(JobState, asked),
    END_OF_FIELDS};

static json_t *print(const Field *fields, const void *object) {
  json_t *o = json_object();
  for (const Field *f = fields; f->name; f++) {
    const char *at = (const char *)object + f->offset;
    json_int_t number = 0;
    if (f->type == INTEGER) number = *(const int *)(const void *)at;
    if (f->type == LONG) number = *(const int64_t *)(const void *)at;
    json_t *value = f->type == TEXT   ? json_string(at)
                    : f->type == FLAG ? json_boolean(*(const bool *)at)
                                      : json_integer(number);
    if (!value) value = json_string("(not text)"); // a sentence that is not UTF-8
    json_object_set_new(o, f->name, value);
  }
  return o;
}

static bool parse_integer(const json_t *value, const Field *f, char *at) {
  if (!json_is_integer(value)) return false;
  json_int_t number = json_integer_value(value);
  if (f->type == LONG) *(int64_t *)(void *)at = number;
  else *(int *)(void *)at = (int)number;
  if (f->type == LONG) return number >= 0 && number < INT64_MAX;
  return FAULT(states_are_cut_to_ints, number >= f->least && number <= f->most, true);
}

static bool parse(const json_t *o, const Field *fields, void *object) {
  for (const Field *f = fields; f->name; f++) {
    const json_t *value = json_object_get(o, f->name);
    char *at = (char *)object + f->offset;
    if (f->type == TEXT) {
      if (!json_is_string(value) || json_string_length(value) >= f->size) return false;
      memcpy(at, json_string_value(value), json_string_length(value) + 1);
    } else if (f->type == FLAG) {
      if (!json_is_boolean(value)) return false;
      *(bool *)at = json_is_true(value);
    } else if (!parse_integer(value, f, at)) return false;
  }
  return true;
}

char *job_state_print(const JobState *s) {
  json_t *o = print(state_fields, s), *machines = json_array();
  json_object_set_new(o, "failure", print(failure_fields, &s->failure));
  for (int i = 0; i < s->count; i++) json_array_append_new(machines, print(machine_fields, &s->machine[i]));
  json_object_set_new(o, "machines", machines);
  char *text = json_dumps(o, JSON_COMPACT);
  json_decref(o);
  CHECK(text);
  return text;
}

static bool parse_state(const json_t *o, const json_t *machines, JobState *s) {
  bool good = parse(o, state_fields, s) && parse(json_object_get(o, "failure"), failure_fields, &s->failure);
  for (size_t i = 0; i < json_array_size(machines) && good; i++)
    good = parse(json_array_get(machines, i), machine_fields, &s->machine[s->count++]);
  return good;
}

JobState *job_state_parse(const char *text, size_t bytes) {
  json_t *o = json_loadb(text, bytes, 0, NULL), *machines = json_object_get(o, "machines");
  JobState *s = NULL;
  if (json_is_array(machines) && json_array_size(machines) <= JOB_MACHINES) {
    s = xcalloc(1, sizeof *s);
    if (!parse_state(o, machines, s)) free(s), s = NULL;
  }
  json_decref(o);
  return s;
}

JobState *job_state_copy(const JobState *s) {
  JobState *copy = xcalloc(1, sizeof *copy);
  size_t used = offsetof(JobState, machine) + sizeof *s->machine * (size_t)s->count;
  memcpy(copy, s, used);
  return copy;
}

Machine *job_machine(JobState *s, const char *id) {
  for (int i = 0; i < s->count; i++)
    if (!strcmp(s->machine[i].id, id)) return &s->machine[i];
  return NULL;
}

int job_members(const JobState *s) {
  int members = 0;
  for (int i = 0; i < s->count; i++) members += s->machine[i].ranks > 0;
  return members;
}

int job_ranks(const JobState *s) {
  int ranks = 0;
  for (int i = 0; i < s->count; i++) ranks += s->machine[i].ranks;
  return ranks;
}

const Machine *job_next(const JobState *s, const Machine *machine) {
  const Machine *first = NULL, *next = NULL;
  for (int i = 0; i < s->count; i++) {
    const Machine *m = &s->machine[i];
    if (!m->ranks) continue;
    if (!first || m->first < first->first) first = m;
    if (m->first > machine->first && (!next || m->first < next->first)) next = m;
  }
  return next ? next : first;
}

void job_make_name(char *text, size_t size) {
  uint64_t random = 0;
  if (getrandom(&random, sizeof random, 0) != sizeof random) random = (uint64_t)getpid();
  snprintf(text, size, "%016llx", (unsigned long long)random);
}
