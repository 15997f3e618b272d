// Traces: a buffer of spans on each rank, written as Chrome's trace event format (JSON), which Perfetto reads too.
#include "runtime/trace.h"
#include "comm/comm.h"
#include "base/file.h"
#include "runtime/observer.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

Trace *trace_create(int rank, const char *title, int64_t first, int64_t steps, int capacity) {
  Trace *t = xcalloc(1, sizeof *t);
  *t = (Trace){.rank = rank, .first = first, .last = first + steps - 1, .zero = clock_seconds(), .capacity = capacity};
  snprintf(t->title, sizeof t->title, "%s", title);
  t->span = xcalloc((size_t)capacity, sizeof *t->span);
  memset(t->span, 1, sizeof *t->span * (size_t)capacity); // touched now, not in the steps that are measured
  return t;
}

void trace_destroy(Trace *t) {
  if (!t) return;
  free(t->span);
  free(t);
}

int trace_align(Trace *t, PlaitComm *world, bool one_machine, Error *error) {
  PlaitBuffer zero = {&t->zero, &t->zero, 1};
  if (!world || plait_comm_size(world) == 1) return PLAIT_OK;
  int failed = plait_barrier(world, NULL, NULL);
  t->zero = clock_seconds();
  if (!failed && one_machine) failed = plait_broadcast(world, &zero, 1, PLAIT_FP64, 0, NULL, NULL);
  return failed ? plait_comm_failure(world, error) : PLAIT_OK;
}

int trace_turn(Trace *t, int64_t step) {
  t->on = step >= t->first && step <= t->last;
  return step > t->last && t->count && !t->written;
}

void trace_add(Trace *t, const TraceSpan *span) {
  if (t->count == t->capacity) t->dropped++;
  else t->span[t->count++] = *span;
}

// Observing ----------------------------------------------------------------------------------------------------------

// Each instruction, and each once more in flight.
static int body_spans(const Body *b, const Action *a) { return 2 * ((a->to ? a->to : b->count) - a->from); }

int trace_program_spans(const Program *p) {
  int n = 0;
  for (int i = 0; i < p->actions.count; i++) {
    const Action *a = &p->actions.data[i];
    n += 2; // the action, and what a REDUCE starts
    if (a->kind == ACTION_BEGIN) n += body_spans(&p->begin, a);
    if (a->kind == ACTION_END || a->kind == ACTION_SUMS) n += body_spans(&p->end, a);
    if (action_runs_body(a)) n += body_spans(&p->micro[a->stage][action_phase(a)], a);
  }
  return n;
}

static void add_instruction(Trace *t, const Observation *o) {
  const Node *n = o->node;
  const OpDef *op = op_def(n->op);
  TraceSpan span = {op_name(n->op), n->name, op->communicates ? "communication" : "kernel", t->instruction,
                    clock_seconds(), -1, -1, NULL, 0, 0};
  if (!op->communicates) {
    const OpWork work = op_work(op, o->input, o->ninput, o->output, n->noutput, n->attr);
    span.flops = work.matrix + work.vector;
    span.bytes = work.read + work.written;
  }
  trace_add(t, &span);
}

static void see(void *self, const Observation *o) {
  Trace *t = self;
  const Action *a = o->action;
  const Node *n = o->node;
  if (!t->on) return;
  switch (o->event) {
  case OBSERVE_ACTION: t->action = clock_seconds(); break;
  case OBSERVE_INSTRUCTION: t->instruction = clock_seconds(); break;
  case OBSERVE_ACTION_END: {
    int in_slot = a->kind != ACTION_BEGIN && a->kind != ACTION_END && a->kind != ACTION_SUMS &&
                  a->kind != ACTION_REDUCE;
    trace_end(t, t->action, action_name(a->kind), NULL, "action", in_slot ? a->stage : -1,
              in_slot ? a->microbatch : -1);
    break;
  }
  case OBSERVE_INSTRUCTION_END:
    if (!o->left_to_owner) add_instruction(t, o);
    break;
  case OBSERVE_LANDED: // until it was waited for; it may have been done before
    trace_add(t, &(TraceSpan){op_name(n->op), n->name, "in flight", o->issued, clock_seconds(), -1, -1,
                               o->on, 0, 0});
    break;
  default: break;
  }
}

const ObserverDef observer_trace = {"trace",
                                    OBSERVES(ACTION) | OBSERVES(ACTION_END) | OBSERVES(INSTRUCTION) |
                                        OBSERVES(INSTRUCTION_END) | OBSERVES(LANDED),
                                    0, see};

// Writing ------------------------------------------------------------------------------------------------------------

static void print_text(const char *text, FILE *out) {
  putc('"', out);
  for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
    if (*c == '"' || *c == '\\') fprintf(out, "\\%c", *c);
    else if (*c < 0x20) fprintf(out, "\\u%04x", *c);
    else putc(*c, out);
  }
  putc('"', out);
}

static void print_event(const Trace *t, const TraceSpan *s, const char *phase, double at, FILE *out) {
  fprintf(out, ",\n{\"ph\":\"%s\",\"pid\":%d,\"tid\":0,\"ts\":%.3f,\"cat\":", phase, t->rank, 1e6 * (at - t->zero));
  print_text(s->category, out);
  fputs(",\"name\":", out);
  print_text(s->name, out);
}

// Two events begin and end a span in flight, under a separate id: it need not nest in what the thread did.
static void print_span(const Trace *t, int i, FILE *out) {
  const TraceSpan *s = &t->span[i];
  print_event(t, s, s->stream ? "b" : "X", s->begin, out);
  if (s->stream) fprintf(out, ",\"id\":\"%d.%d\"", t->rank, i);
  else fprintf(out, ",\"dur\":%.3f", 1e6 * (s->end - s->begin));
  fputs(",\"args\":{", out);
  const char *comma = "";
  if (s->detail) fputs("\"node\":", out), print_text(s->detail, out), comma = ",";
  if (s->stage >= 0) fprintf(out, "%s\"stage\":%d", comma, s->stage), comma = ",";
  if (s->microbatch >= 0) fprintf(out, "%s\"microbatch\":%d", comma, s->microbatch), comma = ",";
  if (s->stream) fprintf(out, "%s\"stream\":", comma), print_text(s->stream, out), comma = ",";
  if (s->bytes > 0) fprintf(out, "%s\"flops\":%.0f,\"bytes\":%.0f", comma, s->flops, s->bytes);
  fputs("}}", out);
  if (!s->stream) return;
  print_event(t, s, "e", s->end, out);
  fprintf(out, ",\"id\":\"%d.%d\"}", t->rank, i);
}

void trace_print_head(int ranks, FILE *out) {
  fprintf(out, "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"ranks\":%d},\"traceEvents\":[", ranks);
}

void trace_print_end(FILE *out) { fputs("\n]}\n", out); }

void trace_print_rank(const Trace *t, bool first, FILE *out) {
  fprintf(out,
          "%s{\"ph\":\"M\",\"pid\":%d,\"tid\":0,\"name\":\"process_name\",\"args\":{\"name\":", first ? "\n" : ",\n",
          t->rank);
  print_text(t->title, out);
  fprintf(out, "}},\n{\"ph\":\"M\",\"pid\":%d,\"tid\":0,\"name\":\"process_sort_index\",\"args\":{\"sort_index\":%d}}",
          t->rank, t->rank);
  for (int i = 0; i < t->count; i++) print_span(t, i, out);
  if (!t->dropped) return;
  fprintf(out, ",\n{\"ph\":\"i\",\"pid\":%d,\"tid\":0,\"ts\":%.3f,\"s\":\"p\",\"name\":\"%lld spans did not fit\"}",
          t->rank, 1e6 * (t->span[t->count - 1].end - t->zero), (long long)t->dropped);
}

// Rank 0 receives the others' texts one by one into the file; each is as long as its rank said first.
static int gather_texts(PlaitComm *world, int rank, char *text, size_t size, FILE *out) {
  int ranks = plait_comm_size(world), failed = 0;
  int64_t mine = (int64_t)size, *sizes = xcalloc((size_t)ranks, sizeof *sizes);
  PlaitBuffer buffer = {&mine, sizes, 1};
  failed = plait_all_gather(world, &buffer, 1, PLAIT_INT64, NULL, NULL);
  if (!failed && rank) {
    buffer = (PlaitBuffer){text, NULL, size};
    failed = plait_send(world, &buffer, 1, PLAIT_UINT8, 0, NULL, NULL);
  }
  for (int r = 1; r < ranks && !rank && !failed; r++) {
    char *other = xcalloc((size_t)sizes[r], 1);
    buffer = (PlaitBuffer){NULL, other, (size_t)sizes[r]};
    failed = plait_recv(world, &buffer, 1, PLAIT_UINT8, r, NULL, NULL);
    if (!failed) fwrite(other, 1, (size_t)sizes[r], out);
    free(other);
  }
  free(sizes);
  return failed;
}

int trace_write(Trace *t, PlaitComm *world, const char *path, Error *error) {
  AtomicFile file = {0};
  char *text = NULL;
  size_t size = 0;
  t->written = true;
  int code = t->rank ? PLAIT_OK : file_begin(&file, path, error), gathers = world && plait_comm_size(world) > 1;
  if (code) return code;
  if (t->rank == 0) {
    trace_print_head(world ? plait_comm_size(world) : 1, file.stream);
    trace_print_rank(t, true, file.stream);
  }
  FILE *memory = t->rank ? open_memstream(&text, &size) : NULL;
  if (memory) trace_print_rank(t, false, memory), fclose(memory);
  if (gathers && gather_texts(world, t->rank, text, size, file.stream))
    code = plait_comm_failure(world, error);
  if (t->rank == 0 && !code) {
    trace_print_end(file.stream);
    code = file_commit(&file, error);
  } else if (t->rank == 0) {
    file_abandon(&file);
  }
  free(text);
  return code;
}
