// The memory plan of real Programs: each rank's list is gone along with all that it reads and writes. What is read has
// not been written over, nothing touches what collectives and messages under way work on, and all of it fits.
#include "op/op.h"
#include "program/memory.h"
#include "runtime/state.h"
#include "runtime/job.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
// cmocka wants the four above first
#include <cmocka.h>

static const char gpt[] =
    "{\"model_type\": \"gpt2\", \"n_layer\": 4, \"n_embd\": 24, \"n_head\": 4, \"n_positions\": 20, \"n_inner\": 40,"
    " \"vocab_size\": 61, \"activation_function\": \"gelu_new\", \"resid_pdrop\": 0.1, \"embd_pdrop\": 0.1,"
    " \"attn_pdrop\": 0.1}";
static const char llama[] =
    "{\"model_type\": \"llama\", \"hidden_size\": 20, \"intermediate_size\": 28, \"num_hidden_layers\": 4,"
    " \"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"head_dim\": 6, \"max_position_embeddings\": 64,"
    " \"vocab_size\": 53, \"rms_norm_eps\": 1e-5, \"hidden_act\": \"silu\", \"tie_word_embeddings\": false}";

typedef struct Range { int64_t from, to; int tensor; } Range; // bytes
typedef Vec(Range) Ranges;

static int64_t bytes_of(const Tensor *t) {
  int64_t n = 1;
  for (int d = 0; d < t->shape.rank; d++) n *= t->local_[d];
  assert_true(t->allocated_ >= n);
  return t->allocated_ * (int64_t)dtype_size(t->dtype);
}

static void check_apart(const Program *p, const Ranges *r, int64_t limit) {
  for (int i = 0; i < r->count; i++) {
    const Range *a = &r->data[i];
    assert_true(a->from >= 0 && a->from % p->device->space[0].alignment == 0 && a->to <= limit);
    for (int k = 0; k < i; k++) {
      const Range *b = &r->data[k];
      if (a->from < b->to && b->from < a->to)
        fail_msg("%%%d and %%%d lie on each other", a->tensor, b->tensor);
    }
  }
}

// ---- the working memory: what a rank would read and write, byte range by byte range --------------------------------

// Something that has been written and not been written over: a tensor for one microbatch, or for END.
typedef struct Holder { int tensor, number, made, used; int64_t from, to; } Holder;
// What a collective or message under way reads or writes. Of a body: until its instruction `until` with this number; of
// a SEND: until the walk waits for it.
typedef struct Lock { const Body *body; int number, until, send; int64_t from, to; } Lock;

typedef struct Rank {
  const Program *p;
  int rank, now, owners; // now: events so far; owners: some tensors are single ranks'
  Vec(Holder) holder, past;
  Vec(Lock) lock;
} Rank;

static int has(Rank *r, int tensor) {
  const Placement *at = graph_tensor(r->p->graph, tensor)->placement;
  Area area = r->p->place[tensor].area;
  if (area == AREA_VARIABLE || area == AREA_INPUT) return 0;
  if (at && at->owner_axes) r->owners = 1;
  return !at || placement_here(&r->p->mesh, at, r->rank);
}

static Holder range_of(const Rank *r, int tensor, int number) {
  int64_t from = program_place(r->p, tensor, number, 0).offset;
  return (Holder){tensor, number, r->now, r->now, from, from + bytes_of(graph_tensor(r->p->graph, tensor))};
}

// Whatever lay there is gone, and nothing that is under way may lie there.
static void write_over(Rank *r, int64_t from, int64_t to, const char *who) {
  if (from < 0 || to > r->p->arena_bytes || from % r->p->device->space[0].alignment)
    fail_msg("%s writes %lld to %lld of %lld", who, (long long)from, (long long)to, (long long)r->p->arena_bytes);
  for (int i = 0; i < r->lock.count; i++)
    if (r->lock.data[i].from < to && from < r->lock.data[i].to)
      fail_msg("%s writes what is still under way (event %d)", who, r->now);
  for (int i = 0; i < r->holder.count; i++) {
    if (r->holder.data[i].from >= to || from >= r->holder.data[i].to) continue;
    vec_push(&r->past, r->holder.data[i]);
    r->holder.data[i--] = r->holder.data[--r->holder.count];
  }
}

static void hold(Rank *r, int tensor, int number, const char *who) {
  Holder h = range_of(r, tensor, number);
  write_over(r, h.from, h.to, who);
  vec_push(&r->holder, h);
}

static Holder *find(Rank *r, int tensor, int number) {
  for (int i = 0; i < r->holder.count; i++)
    if (r->holder.data[i].tensor == tensor && r->holder.data[i].number == number) return &r->holder.data[i];
  return NULL;
}

static Holder look(Rank *r, int tensor, int number, const char *who) {
  Holder *h = find(r, tensor, number);
  if (!h) fail_msg("%s reads %%%d of microbatch %d, which is not there any more", who, tensor, number);
  h->used = r->now;
  return *h;
}

static int reads(Rank *r, const Node *n, int k) {
  // A term of a sum that another pipeline rank has; see exec.
  return n->input[k] >= 0 && has(r, n->input[k]) &&
         (n->region == REGION_MICRO ||
          mesh_runs_stages(&r->p->mesh, r->p->coordinate,
                           graph_stages(r->p->graph, graph_tensor(r->p->graph, n->input[k])->stages)));
}

// An output may lie where an input does only where the op says so, and then just there.
static void check_operands(Rank *r, const Node *n, const Instruction *x, int number) {
  const OpDef *op = op_def(n->op);
  int pairs = node_calls(n, COMM_REDUCE) ? n->noutput : op->in_place, sum = op->accumulated ? op->accumulated(n) : -1;
  int64_t scratch = x->count ? r->p->offset[x->first + number % x->count] : -1;
  for (int o = 0; o < n->noutput; o++) {
    if (!has(r, n->output[o])) continue;
    Holder out = range_of(r, n->output[o], number);
    if (scratch >= 0 && scratch < out.to && out.from < scratch + x->scratch)
      fail_msg("%s has scratch in its result", n->name);
    for (int k = 0; k < n->ninput; k++) {
      if (!reads(r, n, k)) continue;
      Holder in = range_of(r, n->input[k], number);
      int may = (k == o && k < pairs) || (o == sum && k == n->ninput - 1);
      if (in.from < out.to && out.from < in.to && !(may && in.from == out.from))
        fail_msg("%s writes result %d over its operand %d", n->name, o, k);
      if (scratch >= 0 && scratch < in.to && in.from < scratch + x->scratch)
        fail_msg("%s has scratch in an operand", n->name);
    }
    for (int k = 0; k < o; k++) {
      if (!has(r, n->output[k])) continue;
      Holder other = range_of(r, n->output[k], number);
      if (other.from < out.to && out.from < other.to) fail_msg("%s writes two results to one place", n->name);
    }
  }
  if (scratch >= 0) write_over(r, scratch, scratch + x->scratch, n->name);
}

static void lock_operands(Rank *r, const Body *body, const Node *n, int number, int until) {
  for (int k = 0; k < n->ninput + n->noutput; k++) {
    int t = k < n->ninput ? n->input[k] : n->output[k - n->ninput];
    if (k < n->ninput ? !reads(r, n, k) : !has(r, t)) continue;
    Holder h = range_of(r, t, number);
    vec_push(&r->lock, (Lock){body, number, until, -1, h.from, h.to});
  }
}

// What was under way has been needed until now.
static void end_lock(Rank *r, int i) {
  for (int k = 0; k < r->holder.count; k++)
    if (r->holder.data[k].from == r->lock.data[i].from) r->holder.data[k].used = r->now;
  r->lock.data[i] = r->lock.data[--r->lock.count];
}

static void unlock(Rank *r, const Body *body, int number, int until) {
  for (int i = r->lock.count - 1; i >= 0; i--)
    if (r->lock.data[i].body == body && r->lock.data[i].number == number && r->lock.data[i].until == until)
      end_lock(r, i);
}

static int index_in(const Body *body, int node) {
  int i = 0;
  while (i < body->count && body->instruction[i].node != node) i++;
  return i;
}

static void run_body(Rank *r, const Body *body, const Action *a) {
  int number = a->microbatch, end = a->to ? a->to : body->count;
  for (int i = a->from; i < end; i++, r->now++) {
    const Instruction *x = &body->instruction[i];
    const Node *n = &r->p->graph->node.data[x->node];
    unlock(r, body, number, i);
    for (int k = 0; k < n->ninput; k++)
      if (reads(r, n, k)) look(r, n->input[k], number, n->name);
    check_operands(r, n, x, number);
    for (int k = 0; k < n->noutput; k++) {
      if (!has(r, n->output[k])) continue;
      if (r->p->place[n->output[k]].area == AREA_COMM) look(r, n->output[k], number, n->name); // a REDUCE's
      else hold(r, n->output[k], number, n->name);
    }
    if (x->wait > i) lock_operands(r, body, n, number, x->wait);
  }
  if (end == body->count) unlock(r, body, number, end);
}

static int visit(void *context, const WalkStep *step) {
  Rank *r = context;
  const Program *p = r->p;
  const Action *a = step->action;
  if (step->kind == WALK_WAIT)
    for (int i = r->lock.count - 1; i >= 0; i--)
      if (r->lock.data[i].send == step->send && r->lock.data[i].number == step->microbatch) end_lock(r, i);
  r->now++;
  if (step->kind != WALK_RUN) return 1;
  if (a->kind == ACTION_BEGIN) run_body(r, &p->begin, a);
  else if (a->kind == ACTION_END) run_body(r, &p->end, a);
  else if (action_runs_body(a)) run_body(r, &p->micro[a->stage][action_phase(a)], a);
  else if (a->kind == ACTION_RECV) hold(r, a->tensor, a->microbatch, "RECV");
  else if (a->kind == ACTION_SEND) {
    Holder h = look(r, a->tensor, a->microbatch, "SEND");
    vec_push(&r->lock, (Lock){NULL, a->microbatch, -1, (int)(a - p->actions.data), h.from, h.to});
  } else if (a->kind == ACTION_REDUCE) {
    const Node *n = &p->graph->node.data[a->node];
    for (int k = 0; k < n->noutput; k++)
      if (has(r, n->output[k])) hold(r, n->output[k], 0, n->name);
    lock_operands(r, &p->end, n, 0, index_in(&p->end, a->node));
  }
  return 1;
}

// The most bytes between a write and the last read of it. What an op makes in place of an operand counts twice here.
static int64_t most_needed(const Rank *r) {
  int64_t *change = xcalloc((size_t)r->now + 2, sizeof *change), now = 0, most = 0;
  for (int i = 0; i < r->past.count; i++) {
    const Holder *h = &r->past.data[i];
    int64_t bytes = round_up(h->to - h->from, r->p->device->space[0].alignment);
    change[h->made] += bytes, change[h->used + 1] -= bytes;
  }
  for (int i = 0; i <= r->now; i++) {
    now += change[i];
    if (now > most) most = now;
  }
  free(change);
  return most;
}

typedef struct Counts { int in_bodies, reductions, plans, tight; } Counts;

static void check_working_memory(const Program *p, int rank, Counts *seen) {
  Rank r = {.p = p, .rank = rank};
  WalkPlan plan = program_walk(p);
  Walk *walk = walk_create(&plan);
  int64_t scratch = 0;
  walk_run(walk, visit, &r);
  walk_destroy(walk);
  assert_int_equal(r.lock.count, 0);
  for (int i = 0; i < r.holder.count; i++) vec_push(&r.past, r.holder.data[i]);
  const MemoryPlan *m = &p->memory;
  const Body *bodies[2] = {&p->begin, &p->end};
  for (int b = 0; b < 2; b++)
    for (int i = 0; i < bodies[b]->count; i++)
      if (bodies[b]->instruction[i].scratch > scratch) scratch = bodies[b]->instruction[i].scratch;
  for (int s = 0; s < p->graph->stages; s++)
    for (int phase = 0; phase < PHASE_COUNT; phase++)
      for (int i = 0; i < p->micro[s][phase].count; i++)
        if (p->micro[s][phase].instruction[i].scratch > scratch) scratch = p->micro[s][phase].instruction[i].scratch;
  // The plan takes no more for needed than is.
  int64_t most = most_needed(&r) + round_up(scratch, p->device->space[0].alignment);
  if (!r.owners && p->packed && m->live > most)
    fail_msg("the plan says that %lld bytes are needed at once, of at most %lld", (long long)m->live, (long long)most);
  seen->plans++;
  seen->tight += p->arena_bytes <= m->live + m->live / 100;
  vec_free(&r.holder);
  vec_free(&r.past);
  vec_free(&r.lock);
}

static void check_variables(const Program *p) {
  const Graph *g = p->graph;
  Ranges live = {0};
  for (int i = 0; i < g->variable.count; i++) {
    const Variable *v = &g->variable.data[i];
    assert_int_equal(p->variable_place[i].offset >= 0,
                     mesh_runs_stages(&p->mesh, p->coordinate, graph_stages(p->graph, v->stages)));
    if (p->variable_place[i].offset < 0) continue;
    int64_t from = p->variable_place[i].offset;
    vec_push(&live, (Range){from, from + variable_allocated(g, v, -1) * (int64_t)dtype_size(v->dtype), -i});
    for (int c = 0; c < v->copies; c++) {
      from = p->copy_place[i][c].offset;
      vec_push(&live, (Range){from, from + variable_allocated(g, v, c) * (int64_t)dtype_size(v->copy[c].dtype), -i});
    }
  }
  check_apart(p, &live, p->state_bytes[0]);
  for (int i = 0; i < g->tensor.count; i++) { // a tensor that is bound fits into what it is bound to
    const Tensor *t = graph_tensor(g, i);
    if (t->variable < 0) continue;
    const Variable *v = &g->variable.data[t->variable];
    assert_true(bytes_of(t) <= (t->copy < 0
                                    ? variable_allocated(g, v, -1) * (int64_t)dtype_size(v->dtype)
                                    : variable_allocated(g, v, t->copy) * (int64_t)dtype_size(v->copy[t->copy].dtype)));
  }
  vec_free(&live);
}

// Instructions [from, to) must not touch what a collective in flight writes, nor write what it reads.
static void check_untouched(const Program *p, const Body *body, int from, int to, const Node *collective) {
  const Graph *g = p->graph;
  for (int i = from; i < to; i++) {
    const Node *n = &g->node.data[body->instruction[i].node];
    for (int k = 0; k < n->ninput; k++)
      for (int c = 0; c < collective->noutput; c++)
        if (n->input[k] == collective->output[c])
          fail_msg("instruction %d (%s) reads a result of %s, which is in flight", i, n->name, collective->name);
    for (int k = 0; k < n->noutput; k++)
      for (int c = 0; c < collective->ninput; c++) {
        int written = graph_tensor(g, n->output[k])->variable;
        if (written >= 0 && written == graph_tensor(g, collective->input[c])->variable)
          fail_msg("instruction %d (%s) writes what %s reads in flight", i, n->name, collective->name);
      }
  }
}

// How many collectives of a body are in flight while others run.
static int check_in_flight(const Program *p, const Body *body) {
  int count = 0;
  for (int i = 0; i < body->count; i++) {
    if (!body->instruction[i].wait) continue;
    check_untouched(p, body, i + 1, body->instruction[i].wait, &p->graph->node.data[body->instruction[i].node]);
    count++;
  }
  return count;
}

// The same of what a REDUCE starts, until END waits for it. Returns how many there are.
static int check_reductions(const Program *p) {
  int count = 0;
  for (int i = 0; i < p->actions.count; i++) {
    if (p->actions.data[i].kind != ACTION_REDUCE) continue;
    for (int k = i + 1; k < p->actions.count; k++) {
      const Action *a = &p->actions.data[k];
      if (!action_runs_body(a)) continue;
      const Body *body = &p->micro[a->stage][action_phase(a)];
      check_untouched(p, body, a->from, a->to, &p->graph->node.data[p->actions.data[i].node]);
    }
    count++;
  }
  return count;
}

static void check_program(const Program *p, Counts *seen) {
  check_variables(p);
  for (int rank = 0; rank < p->mesh.ranks; rank++)
    if (mesh_coordinate(&p->mesh, rank, mesh_pipeline(&p->mesh)) == p->coordinate) check_working_memory(p, rank, seen);
  for (int s = 0; s < p->graph->stages; s++)
    for (int phase = 0; phase < PHASE_COUNT; phase++) seen->in_bodies += check_in_flight(p, &p->micro[s][phase]);
  seen->reductions += check_reductions(p);
  const MemoryPlan *m = &p->memory;
  assert_true(m->parameters + m->gradients + m->optimizer + m->other == p->state_bytes[0]);
  assert_true(m->activations + m->workspace + m->communication == m->live + p->input_bytes);
  assert_true(m->live + m->gaps == p->arena_bytes && m->gaps >= 0 && m->kept >= m->activations);
  assert_true(m->total == p->state_bytes[0] + p->arena_bytes + p->input_bytes);
  assert_true(m->total == p->state_bytes[0] + program_work_bytes(p));
}

static const struct { int pp, dp, tp, zero, micro; const char *schedule; int virtual_stages;
} layouts[] = {{1, 1, 1, 0, 16, "gpipe", 1},      {1, 1, 1, 0, 2, "1f1b", 1},  {1, 2, 1, 0, 4, "1f1b", 1},
               {1, 4, 1, 1, 2, "1f1b", 1},        {1, 1, 2, 0, 4, "gpipe", 1}, {2, 1, 1, 0, 2, "gpipe", 1},
               {4, 1, 1, 0, 2, "1f1b", 1},        {2, 2, 2, 1, 2, "1f1b", 1},  {2, 2, 2, 0, 1, "gpipe", 1},
               {2, 2, 1, 2, 1, "interleaved", 2}, {2, 1, 1, 0, 2, "naive", 1},
               {2, 1, 2, 0, 2, "zb-h1", 1},       {2, 2, 1, 2, 2, "zb-v", 2}};

static void check_model(const char *json, Dtype precision, int64_t bucket) {
  Counts seen = {0};
  for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
    ModelConfig config = {0};
    Error error = {0};
    StepParallel parallel = parallel_default(layouts[i].pp, layouts[i].dp, layouts[i].tp, layouts[i].zero);
    parallel.overlap.bucket_bytes = bucket;
    parallel.schedule = schedule_by_name(layouts[i].schedule);
    parallel.stages_per_rank = layouts[i].virtual_stages;
    CompileOptions o = {
        .mode = MODEL_TRAIN,
        .device = device_cpu(),
        .step = {.parallel = parallel,
                 .batch.seq = 17,
                 .precision = precision,
                 .update = {
                     .optimizer = OP_ADAMW, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .decay = 0.1, .clip = 1.0}}};
    o.parallel = parallel_create(&o.step, &(StepModel){.size = {[DIM_KV_HEADS] = layouts[i].tp}});
    compile_set_batch(&o, 16, layouts[i].micro);
    JobOptions run = {.threads = 2, .seed = 1, .evaluate_samples = 16};
    Job *job = NULL;
    if (model_config_parse(&config, json, strlen(json), "tiny", &error)) fail_msg("%s", error.message);
    int code = job_create(&config, &o, &run, &job, &error);
    if (code) fail_msg("layout %zu: %s", i, error.message);
    for (int c = 0; c < layouts[i].pp; c++) {
      check_program(job_train(job)->program[c], &seen);
      check_program(job_find(job, &role_evaluate)->program[c], &seen);
      assert_true(job->work_bytes[c] >= program_work_bytes(job_train(job)->program[c]) &&
                  job->work_bytes[c] >= program_work_bytes(job_find(job, &role_evaluate)->program[c]));
    }
    job_destroy(job);
    model_config_free(&config);
  }
  assert_true(seen.in_bodies > 0 && seen.reductions > 0);
  print_message("%d of %d plans are within 1%% of what is needed\n", seen.tight, seen.plans);
  assert_true(100 * seen.tight >= 90 * seen.plans);
}

static void plans_of_gpt(void **state) {
  check_model(gpt, DTYPE_F32, 4000);
  check_model(gpt, DTYPE_F64, 1 << 20);
}
static void plans_of_llama(void **state) {
  check_model(llama, DTYPE_F32, 1);
  check_model(llama, DTYPE_F64, 4000);
}

// Models that are nearly all one feed-forward layer. `kept`: its wide tensors that backward reads, which forward makes.
static const struct { const char *json; int kept; } wide[] = {
    {"{\"model_type\": \"gpt2\", \"n_layer\": 1, \"n_embd\": 8, \"n_head\": 1, \"n_positions\": 32, \"n_inner\": 2048,"
     " \"vocab_size\": 16, \"activation_function\": \"gelu_new\", \"resid_pdrop\": 0, \"embd_pdrop\": 0,"
     " \"attn_pdrop\": 0}",
     1},
    {"{\"model_type\": \"llama\", \"hidden_size\": 8, \"intermediate_size\": 2048, \"num_hidden_layers\": 1,"
     " \"num_attention_heads\": 1, \"num_key_value_heads\": 1, \"max_position_embeddings\": 32, \"vocab_size\": 16,"
     " \"rms_norm_eps\": 1e-5, \"hidden_act\": \"silu\", \"tie_word_embeddings\": false}",
     2},
    {"{\"model_type\": \"mixtral\", \"hidden_size\": 8, \"intermediate_size\": 2048, \"num_hidden_layers\": 1,"
     " \"num_attention_heads\": 1, \"num_key_value_heads\": 1, \"max_position_embeddings\": 32, \"vocab_size\": 16,"
     " \"num_local_experts\": 2, \"num_experts_per_tok\": 1, \"rms_norm_eps\": 1e-5, \"hidden_act\": \"silu\","
     " \"tie_word_embeddings\": false}",
     2}};

// Bytes of the wide activation that backward makes again: the largest that one pass makes of what is kept.
static int64_t activation_bytes(const Program *p) {
  int64_t most = 0;
  for (int i = 0; i < p->graph->node.count; i++) {
    const Node *n = &p->graph->node.data[i];
    if (n->region != REGION_MICRO || n->phase != PHASE_BACKWARD || !op_def(n->op)->one_pass) continue;
    int64_t bytes = memory_tensor_bytes(p, graph_tensor(p->graph, n->output[0]));
    if (bytes > most) most = bytes;
  }
  return most;
}

// The activation that backward makes again for the gradient of the matrix after it is gone before its own gradient,
// which is as wide, is made: backward has one wide tensor beside what forward kept. Reference kernels have no
// workspace.
static void activations_are_gone_before_their_gradients(void **state) {
  for (size_t i = 0; i < sizeof wide / sizeof *wide; i++) {
    ModelConfig config = {0};
    Error error = {0};
    CompileOptions o = {
        .mode = MODEL_TRAIN,
        .device = device_reference(),
        .step = {.parallel = parallel_default(1, 1, 1, 0),
                 .batch.seq = 32,
                 .precision = DTYPE_F32,
                 .update = {
                     .optimizer = OP_ADAMW, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .decay = 0.1, .clip = 1.0}}};
    o.parallel = parallel_create(&o.step, &(StepModel){.size = {[DIM_KV_HEADS] = 1}});
    compile_set_batch(&o, 8, 8);
    JobOptions run = {.threads = 1, .seed = 1, .evaluate_samples = 8};
    Job *job = NULL;
    if (model_config_parse(&config, wide[i].json, strlen(wide[i].json), "wide", &error)) fail_msg("%s", error.message);
    if (job_create(&config, &o, &run, &job, &error)) fail_msg("model %zu: %s", i, error.message);
    const Program *p = job_train(job)->program[0];
    double width = (double)activation_bytes(p), widths = (double)p->memory.live / width;
    assert_true(width >= 8 * 32 * 2048 * 4.0);
    print_message("model %zu: %.2f wide tensors at one time\n", i, widths);
    assert_true(widths >= wide[i].kept + 1 && widths < wide[i].kept + 1.5);
    job_destroy(job);
    model_config_free(&config);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(plans_of_gpt), cmocka_unit_test(plans_of_llama),
                                     cmocka_unit_test(activations_are_gone_before_their_gradients)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
