// Costs by ranks.
#include "machine/rank_costs.h"
#include "op/op.h"
#include <string.h>

// Only some ranks of a coordinate do what others leave to them.
static int has_owners(const Program *p) {
  for (int i = 0; i < p->graph->node.count; i++)
    if (node_owner(p->graph, &p->graph->node.data[i])) return 1;
  return 0;
}

static int crosses(const Program *p, uint32_t axes) {
  int pp = mesh_pipeline(&p->mesh);
  return pp >= 0 && axes >> pp & 1;
}

static int same_links(const GroupOnLinks *a, const GroupOnLinks *b) {
  return a->ranks == b->ranks && !memcmp(a->span, b->span, sizeof a->span) &&
         !memcmp(a->sharing, b->sharing, sizeof a->sharing);
}

// Those of an earlier rank of the coordinate whose groups have the same links and which is the same device; or NULL.
static Costs *alike(const RankCosts *costs, const Program *p, const Cluster *c, int rank) {
  Costs *found = NULL;
  GroupOnLinks *links = NULL;
  for (int i = 0; i < costs->made.count && !found; i++) {
    Costs *made = costs->made.data[i];
    if (made->program != p || made->device.data[0] != cluster_device(c, rank)) continue;
    int n = made->group.count, k = 0;
    for (int g = 0; g < n && !links; g += n) { // the groups of a Program are the same, in the same order
      links = xcalloc((size_t)n, sizeof *links);
      for (int j = 0; j < n; j++) {
        const CostGroup *group = &made->group.data[j];
        links[j] = machine_group_of(c, &p->mesh, group->axes,
                                    crosses(p, group->axes) ? &group->coordinates : NULL, rank);
      }
    }
    while (k < n && same_links(&links[k], &made->group.data[k].links)) k++;
    if (k == n) found = made;
  }
  free(links);
  return found;
}

int rank_costs_create(Program *const *programs, const Cluster *c, int all_ranks, RankCosts *out, Error *error) {
  const Mesh *mesh = &programs[0]->mesh;
  int coordinates = programs[0]->schedule->map.coordinates, code = PLAIT_OK;
  *out = (RankCosts){.ranks = all_ranks ? mesh->ranks : coordinates, .stride = 1};
  for (int a = mesh->naxis - 1; all_ranks && a > mesh_pipeline(mesh); a--) out->stride *= mesh->axis[a].size;
  if (mesh_pipeline(mesh) < 0) out->stride = 1;
  out->of_rank = xcalloc((size_t)out->ranks, sizeof *out->of_rank);
  for (int r = 0; r < out->ranks && !code; r++) {
    const Program *p = programs[r / out->stride % coordinates];
    if (all_ranks && !has_owners(p)) out->of_rank[r] = alike(out, p, c, r);
    if (out->of_rank[r]) continue;
    code = costs_create(p, c, all_ranks ? r : -1, &out->of_rank[r], error);
    if (!code) vec_push(&out->made, out->of_rank[r]);
  }
  if (code) rank_costs_free(out);
  return code;
}

void rank_costs_free(RankCosts *costs) {
  for (int i = 0; i < costs->made.count; i++) costs_free(costs->made.data[i]);
  vec_free(&costs->made);
  free(costs->of_rank);
  *costs = (RankCosts){0};
}
