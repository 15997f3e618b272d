// Parser of factor rules.
#include "sharding/rule.h"
#include "sharding/placement.h"
#include "op/op.h"
#include <ctype.h>
#include <string.h>

static const char *skip(const char *p) {
  while (*p == ' ') p++;
  return p;
}

// One operand's letters, up to ',', '-', ';' or the end.
static const char *parse_operand(Rule *r, const Graph *g, const Node *node, const char *p, int tensor, int8_t *factor) {
  int d = 0;
  for (p = skip(p); islower((unsigned char)*p); p = skip(p + 1)) {
    CHECK(d < MAX_RANK, "rule of %s names too many dims", op_name(node->op));
    factor[d++] = (int8_t)(*p - 'a');
  }
  if (tensor < 0) return p;
  const Shape *s = &graph_tensor(g, tensor)->shape;
  CHECK(d == s->rank, "rule of %s (%s): operand has %d dims, the rule names %d", op_name(node->op), node->name, s->rank,
        d);
  for (int i = 0; i < d; i++) {
    int64_t *size = &r->size[(int)factor[i]];
    int64_t large = *size > s->size[i] ? *size : s->size[i], small = *size && *size < s->size[i] ? *size : s->size[i];
    CHECK(!*size || large == small || (r->parts >> factor[i] & 1 && large % small == 0),
          "rule of %s (%s): factor %c has sizes %lld and %lld", op_name(node->op), node->name, 'a' + factor[i],
          (long long)*size, (long long)s->size[i]);
    *size = small;
  }
  return p;
}

static uint32_t parse_factors(const char **p) {
  uint32_t set = 0;
  for (*p = skip(*p); islower((unsigned char)**p) && !islower((unsigned char)(*p)[1]); *p = skip(*p + 1))
    set |= 1u << (**p - 'a');
  return set;
}

// Reads n factors, one letter each.
static const char *parse_letters(const char *p, int *const *factor, int n) {
  for (int i = 0; i < n; i++) {
    p = skip(p);
    CHECK(islower((unsigned char)*p), "a clause of a rule lacks a factor before \"%s\"", p);
    *factor[i] = *p++ - 'a';
  }
  return p;
}

static void parse_clauses(Rule *r, const Node *node, const char *p) {
  while (*(p = skip(p)) == ';') {
    p = skip(p + 1);
    if (!strncmp(p, "linear", 6)) {
      uint8_t group = 0;
      p = skip(p + 6);
      for (int joined = 0; isdigit((unsigned char)*p);) {
        int i = (int)strtol(p, (char **)&p, 10);
        CHECK(i < r->ninput, "rule of %s: linear input %d does not exist", op_name(node->op), i);
        r->linear[i] = joined ? group : ++group;
        joined = *p == '+';
        p = skip(p + joined);
      }
    } else if (!strncmp(p, "parts", 5)) {
      p += 5;
      r->parts |= parse_factors(&p);
    } else if (!strncmp(p, "whole", 5)) {
      p += 5;
      r->whole |= parse_factors(&p);
    } else if (!strncmp(p, "complete", 8)) {
      for (p = skip(p + 8); isdigit((unsigned char)*p);) {
        int k = (int)strtol(p, (char **)&p, 10);
        CHECK(k < r->noutput, "rule of %s: output %d does not exist", op_name(node->op), k);
        r->complete[k] |= parse_factors(&p);
      }
    } else if (!strncmp(p, "lower", 5)) {
      p += 5;
      r->lower |= parse_factors(&p);
    } else if (!strncmp(p, "move", 4)) {
      p = parse_letters(p + 4, (int *[]){&r->move, &r->to[0], &r->to[1]}, 3);
    } else if (!strncmp(p, "tie", 3)) {
      p = parse_letters(p + 3, (int *[]){&r->tied, &r->tied_to}, 2);
    } else if (!strncmp(p, "home", 4)) {
      for (p = skip(p + 4); isdigit((unsigned char)*p); p = skip(p)) r->home |= 1u << strtol(p, (char **)&p, 10);
    } else {
      break;
    }
  }
  CHECK(!*p, "rule of %s: unexpected \"%s\"", op_name(node->op), p);
}

Rule rule_of(Arena *arena, const Graph *g, const Node *node) {
  Rule r = {.ninput = node->ninput,
            .noutput = node->noutput,
            .move = -1,
            .to = {-1, -1},
            .tied = -1,
            .tied_to = -1};
  r.input = arena_alloc(arena, sizeof *r.input * (size_t)(node->ninput + 1));
  r.output = arena_alloc(arena, sizeof *r.output * (size_t)(node->noutput + 1));
  r.complete = arena_array(arena, uint32_t, node->noutput + 1);
  r.linear = arena_alloc(arena, (size_t)node->ninput + 1);
  size_t size = 256 + 24 * (size_t)(node->ninput + node->noutput);
  char *text = arena_alloc(arena, size);
  op_def(node->op)->rule(g, node, text, size);
  const char *p = skip(text), *parts = strstr(text, "; parts");
  if (parts) parse_clauses(&r, node, parts); // operands are read by it
  for (int k = 0; k < node->ninput; k++) {
    p = parse_operand(&r, g, node, p, node->input[k], r.input[k]);
    if (*p == ',') p++;
    else
      CHECK(k + 1 == node->ninput, "rule of %s (\"%s\") names fewer than %d inputs", op_name(node->op), text,
            node->ninput);
  }
  p = skip(p);
  CHECK(p[0] == '-' && p[1] == '>', "rule of %s: \"%s\" has no ->", op_name(node->op), text);
  p += 2;
  for (int k = 0; k < node->noutput; k++) {
    p = parse_operand(&r, g, node, p, node->output[k], r.output[k]);
    if (*p == ',') p++;
  }
  parse_clauses(&r, node, p);
  const Algorithm *algorithm = algorithm_of_node(node);
  if (algorithm) parse_clauses(&r, node, algorithm->clauses);
  return r;
}

int rule_is_sum(const Rule *r) {
  if (r->ninput < 2 || !r->linear[0]) return 0;
  for (int k = 1; k < r->ninput; k++)
    if (r->linear[k] != r->linear[0]) return 0;
  return 1;
}

uint32_t rule_lower_axes(const Graph *g, const Node *n) {
  Arena scratch = {0};
  Rule r = rule_of(&scratch, g, n);
  uint32_t axes = 0;
  for (int k = 0; k < n->ninput; k++) {
    if (n->input[k] < 0) continue;
    for (int d = 0; d < node_want(n, k)->rank; d++) {
      if (!(r.lower >> r.input[k][d] & 1)) continue;
      for (int i = 0; i < node_want(n, k)->dim[d].n; i++) axes |= 1u << node_want(n, k)->dim[d].axis[i];
    }
  }
  arena_free(&scratch);
  return axes;
}
