// Who holds what: parameters by layer, their shards, and the ranks shown, for the page of plait explain --play.
#include "cmd/play/play.h"
#include "op/op.h"
#include "sharding/placement.h"
#include <string.h>

enum { MOST_RANKS = 8 }; // of a pipeline rank; the page says how many are left out

int play_set(Play *play, uint32_t axes) {
  const Mesh *mesh = &play->program->mesh;
  int i = 0;
  char name[256];
  size_t n = 0;
  while (i < play->axes->count && play->axes->data[i] != axes) i++;
  if (i < play->axes->count) return i;
  vec_push(play->axes, axes);
  *name = 0;
  for (int a = 0; a < mesh->naxis && n < sizeof name; a++)
    if (axes >> a & 1 && mesh->axis[a].size > 1)
      n += (size_t)snprintf(name + n, sizeof name - n, "%s%s", n ? " " : "", mesh->axis[a].name);
  json_array_append_new(play->sets,
                        json_pack("{s:s, s:i, s:{}}", "name", name, "ranks", mesh_size(mesh, axes), "index"));
  return i;
}

// ---- parameters and who holds them ----------------------------------------------------------------------------------

// The parameter of every tensor that is one, or was gathered, cut or copied from one.
static void find_values(Play *play) {
  const Graph *g = play->program->graph;
  for (int t = 0; t < g->tensor.count; t++) {
    int v = graph_tensor(g, t)->variable;
    const Variable *of = v >= 0 ? &g->variable.data[v] : NULL;
    play->parameter[t] = of && variable_is_weight(of) ? of->parameter : -1;
  }
  for (int i = 0; i < g->node.count; i++) {
    const Node *n = &g->node.data[i];
    if (!op_def(n->op)->communicates && !node_is(n, ROLE_COPY)) continue;
    for (int k = 0; k < n->noutput && k < n->ninput; k++)
      if (play->parameter[n->output[k]] < 0 && n->input[k] >= 0)
        play->parameter[n->output[k]] = play->parameter[n->input[k]];
  }
}

// A parameter belongs to the first layer of this pipeline rank that computes with it.
void play_find_parameters(Play *play) {
  find_values(play);
  const Program *p = play->program;
  const Graph *g = p->graph;
  for (int v = 0; v < g->variable.count; v++) play->group[v] = -1;
  for (int i = 0; i < g->node.count; i++) {
    const Node *n = &g->node.data[i];
    if (n->region != REGION_MICRO || !program_runs(p, n->stage) || op_def(n->op)->communicates) continue;
    for (int k = 0; k < n->ninput; k++) {
      int v = n->input[k] < 0 ? -1 : play->parameter[n->input[k]], group = play_layer_group(play, n->layer);
      if (v >= 0 && (play->group[v] < 0 || play->group[v] > group)) play->group[v] = group;
    }
  }
}

// Adds what is held of a Variable's storage or Copy to a list of [bytes of the whole, set of axes that cut it, set of
// axes of its owners (-1: every rank has its part), owner].
static void add_section(Play *play, json_t *list, const Placement *at, double bytes) {
  int cut = play_set(play, placement_axes(at)), owners = at->owner_axes ? play_set(play, at->owner_axes) : -1;
  for (size_t i = 0; i < json_array_size(list); i++) {
    json_t *s = json_array_get(list, i);
    if (json_integer_value(json_array_get(s, 1)) != cut || json_integer_value(json_array_get(s, 2)) != owners ||
        (owners >= 0 && json_integer_value(json_array_get(s, 3)) != at->owner))
      continue;
    json_array_set_new(s, 0, json_real(json_real_value(json_array_get(s, 0)) + bytes));
    return;
  }
  json_array_append_new(list, json_pack("[f, i, i, i]", bytes, cut, owners, at->owner));
}

static const char *form_of(const Variable *v) {
  switch (variable_memory(v)) {
  case MEMORY_OF_VERSIONS: return "versions";
  case MEMORY_OF_PARAMETERS: return "parameters";
  case MEMORY_OF_GRADIENTS: return "gradients";
  case MEMORY_OF_OPTIMIZER: return "optimizer";
  default: return NULL;
  }
}

static json_t *section_list(json_t *forms, const char *form) {
  json_t *list = json_object_get(forms, form);
  if (!list) json_object_set_new(forms, form, list = json_array());
  return list;
}

static void add_variable(Play *play, const Variable *v, json_t *forms) {
  double elements = (double)shape_elements(&v->shape);
  add_section(play, section_list(forms, form_of(v)), v->storage, elements * (double)variable_bits(v, -1) / 8);
  for (int c = 0; c < v->copies; c++)
    add_section(play, section_list(forms, "copies"), v->copy[c].placement,
                elements * (double)variable_bits(v, c) / 8);
}

json_t *play_groups(Play *play) {
  const Program *p = play->program;
  const Graph *g = p->graph;
  json_t *groups = json_array();
  for (int group = 0; group <= 1 + g->layers; group++) {
    json_t *forms = json_object();
    for (int i = 0; i < g->variable.count; i++) {
      const Variable *v = &g->variable.data[i];
      if (v->parameter < 0 || play->group[v->parameter] != group || !form_of(v)) continue;
      if (mesh_runs_stages(&p->mesh, p->coordinate, graph_stages(g, v->stages))) add_variable(play, v, forms);
    }
    if (json_object_size(forms)) json_array_append_new(groups, json_pack("{s:i, s:o}", "group", group, "forms", forms));
    else json_decref(forms);
  }
  return groups;
}

// Which of the ranks of a coordinate are shown: those of the first places on every axis, with data axes first, and
// enough of them that all axes show something. limit: (axes).
static void choose_ranks(const Mesh *mesh, int *limit) {
  static const AxisRole order[] = {AXIS_DATA, AXIS_TENSOR, AXIS_CONTEXT, AXIS_EXPERT};
  int shown = 1;
  for (int a = 0; a < mesh->naxis; a++) limit[a] = mesh->axis[a].role == AXIS_PIPELINE ? mesh->axis[a].size : 1;
  for (int more = 1; more;) {
    more = 0;
    for (size_t r = 0; r < sizeof order / sizeof *order; r++)
      for (int a = 0; a < mesh->naxis; a++) {
        if (mesh->axis[a].role != order[r] || limit[a] == mesh->axis[a].size) continue;
        if (shown / limit[a] * (limit[a] + 1) > MOST_RANKS) continue;
        shown = shown / limit[a] * (limit[a] + 1);
        limit[a]++;
        more = 1;
      }
  }
}

static int is_chosen(const Mesh *mesh, const int *limit, int rank) {
  for (int a = 0; a < mesh->naxis; a++)
    if (mesh_coordinate(mesh, rank, a) >= limit[a]) return 0;
  return 1;
}

json_t *play_ranks(const Program *p) {
  const Mesh *mesh = &p->mesh;
  int limit[MAX_AXES];
  json_t *ranks = json_array();
  choose_ranks(mesh, limit);
  for (int rank = 0; rank < mesh->ranks; rank++) {
    char text[256] = "";
    size_t n = 0;
    if (mesh_pipeline_coordinate(mesh, rank) != p->coordinate || !is_chosen(mesh, limit, rank)) continue;
    for (int a = 0; a < mesh->naxis && n < sizeof text; a++)
      if (mesh->axis[a].size > 1 && mesh->axis[a].role != AXIS_PIPELINE)
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%s %d", n ? " " : "", mesh->axis[a].name,
                              mesh_coordinate(mesh, rank, a));
    json_array_append_new(ranks, json_pack("[i, s]", rank, text));
  }
  return ranks;
}

void play_index_sets(const Play *play, const json_t *coordinates) {
  size_t c, r;
  json_t *coordinate, *rank;
  json_array_foreach(coordinates, c, coordinate) json_array_foreach(json_object_get(coordinate, "ranks"), r, rank) {
    int number = (int)json_integer_value(json_array_get(rank, 0));
    char key[16];
    snprintf(key, sizeof key, "%d", number);
    for (int s = 0; s < play->axes->count; s++)
      json_object_set_new(json_object_get(json_array_get(play->sets, (size_t)s), "index"), key,
                          json_integer(mesh_index(&play->program->mesh, number, play->axes->data[s])));
  }
}
