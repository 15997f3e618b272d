// The memory plan of real Programs, checked by brute force: what lives at the same time lies apart, all of it fits, and
// nothing touches what a collective in flight works on.
#include "runtime/state.h"
#include "runtime/job.h"
#include <limits.h>
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

typedef struct Range { int64_t from, to; int first, last, tensor; } Range; // bytes; instructions in which it is needed
typedef Vec(Range) Ranges;

static int64_t bytes_of(const Tensor *t) {
  int64_t n = 1;
  for (int d = 0; d < t->shape.rank; d++) n *= t->local[d];
  assert_true(t->allocated >= n);
  return t->allocated * (int64_t)dtype_size(t->dtype);
}

static void check_apart(const Program *p, const Ranges *r, int64_t limit) {
  for (int i = 0; i < r->count; i++) {
    const Range *a = &r->data[i];
    assert_true(a->from >= 0 && a->from % p->device->space.alignment == 0 && a->to <= limit);
    for (int k = 0; k < i; k++) {
      const Range *b = &r->data[k];
      if (a->first <= b->last && b->first <= a->last && a->from < b->to && b->from < a->to)
        fail_msg("%%%d and %%%d lie on each other", a->tensor, b->tensor);
    }
  }
}

// The bytes of a body's temporaries from its instruction list alone. What is read must have been written in this body.
static void check_body(const Program *p, const Body *body) {
  const Graph *g = p->graph;
  Ranges live = {0};
  int *at = xcalloc((size_t)g->tensor.count, sizeof(int));
  int64_t most = 0, foreign = 0;
  for (int i = 0; i < body->count; i++) {
    const Node *n = &g->node.data[body->instruction[i].node];
    assert_true(body->instruction[i].scratch <= p->scratch_bytes);
    for (int k = 0; k < n->ninput; k++) {
      int t = n->input[k];
      if (t < 0 || p->place[t].area != AREA_WORK) continue;
      // A term of a sum that another pipeline rank has; see exec.
      if (!at[t] && n->region != REGION_MICRO &&
          !mesh_runs_stages(&p->mesh, p->coordinate, graph_stages(g, graph_tensor(g, t)->stages))) {
        foreign++;
        continue;
      }
      if (!at[t]) fail_msg("instruction %d (%s) reads %%%d, which nothing in its body has written", i, n->name, t);
      int last = body->instruction[i].wait > i ? body->instruction[i].wait : i; // of a collective in flight
      if (last > live.data[at[t] - 1].last) live.data[at[t] - 1].last = last;
    }
    for (int k = 0; k < n->noutput; k++) {
      int t = n->output[k];
      if (p->place[t].area != AREA_WORK) continue;
      assert_int_equal(at[t], 0);
      vec_push(&live, (Range){p->place[t].offset, p->place[t].offset + bytes_of(graph_tensor(g, t)), i,
                                body->instruction[i].wait > i ? body->instruction[i].wait : i, t});
      at[t] = live.count;
    }
  }
  check_apart(p, &live, p->work_bytes);
  for (int i = 0; i < body->count; i++) {
    int64_t now = 0;
    for (int k = 0; k < live.count; k++)
      if (live.data[k].first <= i && i <= live.data[k].last)
        now += round_up(live.data[k].to - live.data[k].from, p->device->space.alignment);
    if (now > most) most = now;
  }
  int64_t end = 0;
  for (int k = 0; k < live.count; k++) end = live.data[k].to > end ? live.data[k].to : end;
  assert_true(end <= most + most / 2 + (foreign + 1) * p->device->space.alignment); // holes between buffers stay small
  free(at);
  vec_free(&live);
}

static int is_here(const Program *p, const Tensor *t) {
  if (graph_tensor(p->graph, t->id)->producer >= 0 &&
      mesh_runs_stages(&p->mesh, p->coordinate, graph_stages(p->graph, t->stages)))
    return 1;
  for (int s = 0; s < p->graph->stages; s++)
    for (int phase = 0; phase < PHASE_COUNT; phase++)
      for (int k = 0; k < p->segments->micro[s][phase].receive.count; k++)
        if (p->segments->micro[s][phase].receive.data[k].tensor == t->id) return 1;
  return 0;
}

// Of a tensor in a slot of a stage whose backward is split: the first and the last instruction of its bodies, one
// behind the other, that touch it. What another stage or rank reads lives as long as the slot, what comes from there
// from the beginning.
static void life_in_slot(const Program *p, int stage, Range *r) {
  int time = 0, made = 0;
  r->first = 0, r->last = 0;
  for (int s = 0; s < p->graph->stages; s++)
    for (int phase = 0; phase < PHASE_COUNT; phase++) {
      const Body *body = &p->micro[s][phase];
      for (int i = 0; i < body->count; i++, time += s == stage) {
        const Node *n = &p->graph->node.data[body->instruction[i].node];
        for (int k = 0; k < n->ninput + n->noutput; k++) {
          if ((k < n->ninput ? n->input[k] : n->output[k - n->ninput]) != r->tensor) continue;
          if (s != stage) r->last = INT_MAX;
          else if (k >= n->ninput) r->first = time, made = 1;
          if (s == stage && r->last < time) r->last = time;
        }
      }
      for (int i = 0; i < p->segments->micro[s][phase].send.count; i++) {
        const Crossing *c = &p->segments->micro[s][phase].send.data[i];
        if (c->tensor == r->tensor && !program_runs(p, c->stage)) r->last = INT_MAX;
      }
    }
  if (!made) r->first = 0;
}

// What crosses bodies in a slot, and results of collectives that run beside them: all live at once, but in the slot of
// a stage whose backward is split.
static void check_lasting(const Program *p) {
  Ranges results = {0};
  int64_t slots = 0;
  for (int s = 0; s < p->graph->stages; s++) {
    Ranges live = {0};
    for (int i = 0; i < p->graph->tensor.count; i++) {
      const Tensor *t = graph_tensor(p->graph, i);
      if ((p->place[i].area == AREA_SLOT || p->place[i].area == AREA_STAGING) && p->place[i].stage == s)
        assert_true(is_here(p, t));
      if (p->place[i].area != AREA_SLOT || p->place[i].stage != s) continue;
      vec_push(&live, (Range){p->place[i].offset, p->place[i].offset + bytes_of(t), 0, 0, i});
      if (p->micro[s][PHASE_WEIGHT].count) life_in_slot(p, s, &live.data[live.count - 1]);
    }
    check_apart(p, &live, p->slots[s].bytes);
    vec_free(&live);
    assert_int_equal(p->slots[s].count, program_runs(p, s) ? p->schedule->slots[s] : 0);
    if (p->slots[s].count) assert_true(p->slots[s].offset == slots);
    slots += p->slots[s].count * p->slots[s].bytes;
  }
  assert_true(p->slot_bytes == slots);
  for (int s = 0; s < p->graph->stages; s++)
    for (int phase = 0; phase < PHASE_COUNT; phase++) {
      Ranges live = {0};
      for (int i = 0; i < p->graph->tensor.count; i++) {
        const Place *place = &p->place[i];
        if (place->area == AREA_STAGING && place->stage == s && (int)place->phase == phase)
          vec_push(&live, (Range){place->offset, place->offset + bytes_of(graph_tensor(p->graph, i)), 0, 0, i});
      }
      check_apart(p, &live, p->staging[s][phase].bytes);
      vec_free(&live);
      if (p->staging[s][phase].count) assert_true(p->staging[s][phase].offset == slots);
      slots += p->staging[s][phase].count * p->staging[s][phase].bytes;
    }
  assert_true(p->slot_bytes + p->staging_bytes == slots);
  for (int i = 0; i < p->graph->tensor.count; i++) {
    const Tensor *t = graph_tensor(p->graph, i);
    if (p->place[i].area == AREA_COMM)
      vec_push(&results, (Range){p->place[i].offset, p->place[i].offset + bytes_of(t), 0, 0, i});
  }
  check_apart(p, &results, p->comm_bytes);
  vec_free(&results);
}

static void check_variables(const Program *p) {
  const Graph *g = p->graph;
  Ranges live = {0};
  for (int i = 0; i < g->variable.count; i++) {
    const Variable *v = &g->variable.data[i];
    assert_int_equal(p->variable_offset[i] >= 0,
                     mesh_runs_stages(&p->mesh, p->coordinate, graph_stages(p->graph, v->stages)));
    if (p->variable_offset[i] < 0) continue;
    int64_t from = p->variable_offset[i];
    vec_push(&live, (Range){from, from + v->allocated * (int64_t)dtype_size(v->dtype), 0, 0, -i});
    for (int c = 0; c < v->copies; c++) {
      from = p->copy_offset[i][c];
      vec_push(&live, (Range){from, from + v->copy[c].allocated * (int64_t)dtype_size(v->copy[c].dtype), 0, 0, -i});
    }
  }
  check_apart(p, &live, p->state_bytes);
  for (int i = 0; i < g->tensor.count; i++) { // a tensor that is bound fits into what it is bound to
    const Tensor *t = graph_tensor(g, i);
    if (t->variable < 0) continue;
    const Variable *v = &g->variable.data[t->variable];
    assert_true(bytes_of(t) <= (t->copy < 0
                                    ? v->allocated * (int64_t)dtype_size(v->dtype)
                                    : v->copy[t->copy].allocated * (int64_t)dtype_size(v->copy[t->copy].dtype)));
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

// Of all Programs that were checked: collectives in flight, and those of them that a REDUCE started.
typedef struct InFlight { int in_bodies, reductions; } InFlight;

static void check_program(const Program *p, InFlight *seen) {
  check_variables(p);
  check_lasting(p);
  check_body(p, &p->begin);
  check_body(p, &p->end);
  for (int s = 0; s < p->graph->stages; s++)
    for (int phase = 0; phase < PHASE_COUNT; phase++) {
      check_body(p, &p->micro[s][phase]);
      seen->in_bodies += check_in_flight(p, &p->micro[s][phase]);
    }
  seen->reductions += check_reductions(p);
  const MemoryPlan *m = &p->memory;
  assert_true(m->parameters + m->gradients + m->optimizer + m->other == p->state_bytes);
  assert_true(m->activations == p->slot_bytes && m->communication == p->staging_bytes + p->comm_bytes &&
              m->workspace == p->work_bytes + p->scratch_bytes + p->input_bytes);
  assert_true(m->total == p->state_bytes + m->activations + m->workspace + m->communication);
  assert_true(m->total == p->state_bytes + program_work_bytes(p));
  assert_true(program_work_offset(p) == m->activations + m->communication &&
              program_scratch_offset(p) == program_work_offset(p) + p->work_bytes);
}

static const struct { int pp, dp, tp, zero, micro; const char *schedule; int virtual_stages;
} layouts[] = {{1, 1, 1, 0, 16, "gpipe", 1},      {1, 1, 1, 0, 2, "1f1b", 1},  {1, 2, 1, 0, 4, "1f1b", 1},
               {1, 4, 1, 1, 2, "1f1b", 1},        {1, 1, 2, 0, 4, "gpipe", 1}, {2, 1, 1, 0, 2, "gpipe", 1},
               {4, 1, 1, 0, 2, "1f1b", 1},        {2, 2, 2, 1, 2, "1f1b", 1},  {2, 2, 2, 0, 1, "gpipe", 1},
               {2, 2, 1, 2, 1, "interleaved", 2}, {2, 1, 1, 0, 2, "naive", 1},
               {2, 1, 2, 0, 2, "zb-h1", 1},       {2, 2, 1, 2, 2, "zb-v", 2}};

static void check_model(const char *json, Dtype precision, int64_t bucket) {
  InFlight seen = {0};
  for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
    ModelConfig config = {0};
    Error error = {0};
    ParallelOptions parallel = parallel_default(layouts[i].pp, layouts[i].dp, layouts[i].tp, layouts[i].zero);
    parallel.overlap.bucket_bytes = bucket;
    parallel.schedule = schedule_by_name(layouts[i].schedule);
    parallel.stages_per_rank = layouts[i].virtual_stages;
    CompileOptions o = {
        .mode = MODEL_TRAIN,
        .device = device_cpu(),
        .seq = 17,
        .precision = precision,
        .parallel = parallel_create(&parallel, &(Workload){.size = {[DIM_KV_HEADS] = layouts[i].tp}}),
        .update = {.optimizer = OP_ADAMW, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .decay = 0.1, .clip = 1.0}};
    compile_set_batch(&o, 16, layouts[i].micro);
    JobOptions run = {.threads = 2, .seed = 1, .evaluate_samples = 16};
    Job *job = NULL;
    if (model_config_parse(&config, json, strlen(json), "tiny", &error)) fail_msg("%s", error.message);
    int code = job_create(&config, &o, &run, &job, &error);
    if (code) fail_msg("layout %zu: %s", i, error.message);
    for (int c = 0; c < layouts[i].pp; c++) {
      check_program(job->train.program[c], &seen);
      check_program(job->evaluate.program[c], &seen);
      assert_true(job->work_bytes[c] >= program_work_bytes(job->train.program[c]) &&
                  job->work_bytes[c] >= program_work_bytes(job->evaluate.program[c]));
    }
    job_destroy(job);
    model_config_free(&config);
  }
  assert_true(seen.in_bodies > 0 && seen.reductions > 0);
}

static void plans_of_gpt(void **state) {
  check_model(gpt, DTYPE_F32, 4000);
  check_model(gpt, DTYPE_F64, 1 << 20);
}
static void plans_of_llama(void **state) {
  check_model(llama, DTYPE_F32, 1);
  check_model(llama, DTYPE_F64, 4000);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(plans_of_gpt), cmocka_unit_test(plans_of_llama)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
