// A comparison as JSON: what the table has, and the advice below it.
#include "foresight/advice.h"
#include "foresight/compare.h"
#include <jansson.h>
#include <string.h>

static const char *const part_names[MEMORY_PARTS] = {"parameters", "gradients", "optimizer", "activations", "rest"};

static json_t *numbers_json(const Comparison *c, const CompareNumbers *n) {
  json_t *memory = json_object(), *sent = json_object();
  for (int i = 0; i < MEMORY_PARTS; i++) json_object_set_new(memory, part_names[i], json_real(n->memory[i]));
  for (int i = 0; i < c->cluster->levels; i++)
    json_object_set_new(sent, c->cluster->level[i].name, json_real(n->sent[i]));
  return json_pack("{s:f, s:f, s:f, s:f, s:f, s:b, s:f, s:f, s:o, s:o}", "step_seconds", n->step, "tokens_per_s",
                   n->tokens_per_s, "bubble", n->bubble, "exposed", n->exposed, "tp_exposed", n->tp_exposed, "fits",
                   n->fits, "memory_bytes", n->bytes, "room_bytes", n->room, "memory", memory, "sent_bytes", sent);
}

static void add_change(const CompareRow *row, json_t *object) {
  const CompareNumbers *n = &row->changed;
  if (*row->change)
    json_object_set_new(object, "change",
                        json_pack("{s:s, s:s, s:b, s:f, s:f}", "name", row->change, "settings", row->change_settings,
                                  "fits", n->fits, "step_seconds", n->step, "memory_bytes", n->bytes));
}

static json_t *row_json(const Comparison *c, Strategy strategy) {
  const CompareRow *row = &c->row[strategy];
  json_t *object = json_pack("{s:s, s:s}", "strategy", strategy_names[strategy], "settings", row->settings);
  if (*row->why) {
    json_object_set_new(object, "cannot_be", json_string(row->why));
    return object;
  }
  json_object_update_new(object, json_pack("{s:i, s:i, s:i, s:i, s:i}", "pp", row->pp, "dp", row->dp, "cp", row->cp,
                                           "tp", row->tp, "zero", row->zero));
  json_object_update_new(object, numbers_json(c, &row->number));
  if (row->limit.gain > 0)
    json_object_set_new(object, "limit",
                        json_pack("{s:s, s:f}", "resource", row->limit.resource, "gain", row->limit.gain));
  add_change(row, object);
  return object;
}

static json_t *rows_json(const Comparison *c) {
  json_t *rows = json_array();
  for (int i = 0; i < STRATEGIES; i++)
    if (*c->row[i].why || comparison_has(c, (Strategy)i)) json_array_append_new(rows, row_json(c, (Strategy)i));
  for (const NotBuilt *n = strategies_not_built; n->name; n++)
    json_array_append_new(rows, json_pack("{s:s, s:s}", "strategy", n->name, "not_built", n->what));
  return rows;
}

static json_t *advice_json(const Comparison *c) {
  Advice advice[ADVICES];
  json_t *all = json_array();
  int n = advice_of(c, advice);
  for (int i = 0; i < n; i++)
    json_array_append_new(all, json_pack("{s:s, s:s, s:s, s:s}", "name", advice_names[advice[i].rule], "told",
                                         advice_told[advice[i].rule], "verdict", advice_verdict_name(advice[i].verdict),
                                         "text", advice[i].text));
  return all;
}

int comparison_json(const Comparison *c, FILE *out, Error *error) {
  json_t *object = json_pack("{s:s, s:i, s:i, s:f, s:o, s:o}", "cluster", c->cluster->name, "ranks", c->size.ranks,
                             "ranks_in_node", c->size.node, "parameters", c->parameters, "strategies", rows_json(c),
                             "advice", advice_json(c));
  int failed = !object || json_dumpf(object, out, JSON_INDENT(2)) || fputs("\n", out) == EOF;
  json_decref(object);
  return failed ? error_set(error, PLAIT_FAILED, "the comparison cannot be written as JSON") : PLAIT_OK;
}
