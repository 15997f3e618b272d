// Products by AMX tiles of an A whose rows are contiguous. A thread packs a group of B's panels into its own memory,
// where they stay in its level 2 cache while all of A passes by, one tile ahead by prefetches. Nothing packed is shared
// between threads or read again from further away. Sums over k are those of `product`: blocks do not change their
// order.

#if LEVEL_BF16 == 2
enum {
  GROUP_BYTES =
      1200 << 10,     // of packed B: of the 2 MiB level 2 cache that every CPU with AMX has; tiles of A need the rest
  GROUP_DEPTH = 4096, // the greatest k: a deeper panel would leave too few in a group
  GROUP_SUM = 1024,   // k of a sum in registers
  GROUP_TILES = 8     // tiles of A that a thread takes at a time
};

typedef struct GroupJob {
  const Product *g;
  int64_t panels, groups, most; // most: panels of a group
  int64_t tiles, chunks, depth; // tiles of A; depth of a sum in registers
  char *slots;
  size_t slot_bytes;
  atomic_int *taken;  // (groups) chunks of A that have been taken
} GroupJob;

static int groups_fit(const Product *g) {
  return g->a_column == 1 && !g->wide && g->k > 0 && g->k % STEP == 0 && g->k <= GROUP_DEPTH;
}

// For `size` threads.
static GroupJob groups_of_product(const Product *g, int size) {
  GroupJob job = {.g = g, .panels = (g->n + NR - 1) / NR, .tiles = (g->m + MR - 1) / MR};
  int64_t sums = (g->k + GROUP_SUM - 1) / GROUP_SUM, room = GROUP_BYTES / (g->k * NR * (int64_t)sizeof(Packed));
  job.depth = step_up((g->k + sums - 1) / sums);
  job.groups = (job.panels + room - 1) / room;
  job.groups = (job.groups + size - 1) / size * size; // as much work for each thread
  if (job.groups > job.panels) job.groups = job.panels;
  if (job.groups < 1) job.groups = 1;
  job.most = (job.panels + job.groups - 1) / job.groups;
  job.chunks = (job.tiles + GROUP_TILES - 1) / GROUP_TILES;
  job.slot_bytes = sizeof(Packed) * (size_t)(job.most * NR * g->k + MR * (g->k + STEP)) +
                   sizeof(float) * (size_t)(job.most * MR * NR);
  return job;
}

static size_t groups_workspace(const Product *g, int slots) {
  GroupJob fewest = groups_of_product(g, 1); // the largest
  return (size_t)slots * fewest.slot_bytes + sizeof(atomic_int) * (size_t)(fewest.groups + slots) + 64;
}

// Panels [p0, p0 + panels) by one tile of A. sum: (panels, MR, NR).
static void group_tile(const GroupJob *job, int64_t tile, int64_t p0, int64_t panels, const Packed *b, Packed *last,
                       float *sum) {
  const Product *g = job->g;
  int64_t i = tile * MR, rows = g->m - i < MR ? g->m - i : MR, row = g->a_row;
  const uint16_t *a = g->a + i * g->a_row;
  Ahead ahead = {.a_row = g->a_row, .a_step = 1};
  if (rows < MR) { // rows that do not fill a tile
    row = g->k + STEP;
    memset(last, 0, sizeof *last * (size_t)(MR * row));
    for (int64_t r = 0; r < rows; r++) memcpy(last + r * row, a + r * g->a_row, sizeof *a * (size_t)g->k);
    a = last;
  }
  int64_t next = i + 2 * MR <= g->m ? (MR + panels - 1) / panels : 0; // rows of the next tile that one panel fetches
  for (int64_t k = 0; k < g->k; k += job->depth) {
    int64_t depth = g->k - k < job->depth ? g->k - k : job->depth;
    for (int64_t p = 0; p < panels; p++) {
      int64_t j = (p0 + p) * NR, columns = g->n - j < NR ? g->n - j : NR, from = p * next;
      uint16_t *c = (uint16_t *)g->c + i * g->c_row + j;
      ahead.rows = from + next <= MR ? next : from < MR ? MR - from : 0;
      ahead.a = g->a + (i + MR + from) * g->a_row + k;
      ahead.c = (Lines){k + depth == g->k ? c : NULL, g->c_row * (int64_t)sizeof *c, rows, 1};
      micro_ahead(depth, a + k, row, b + (p * g->k + k) * NR, sum + p * MR * NR, NR, k > 0, &ahead);
      for (int64_t r = 0; k + depth == g->k && r < rows; r++)
        narrow_tile_row(c + r * g->c_row, sum + (p * MR + r) * NR, g->bias ? g->bias + j : NULL, g->add, columns);
    }
  }
}

// Takes chunks of A for one group while there are any.
static void group_run(GroupJob *job, int64_t group, char *memory) {
  const Product *g = job->g;
  int64_t p0 = job->panels * group / job->groups, panels = job->panels * (group + 1) / job->groups - p0, packed = 0;
  int64_t columns = g->n - p0 * NR < panels * NR ? g->n - p0 * NR : panels * NR;
  Packed *b = (Packed *)(void *)memory, *last = b + job->most * NR * g->k;
  float *sum = (float *)(void *)(last + MR * (g->k + STEP));
  for (int64_t chunk; (chunk = atomic_fetch_add_explicit(&job->taken[group], 1, memory_order_relaxed)) < job->chunks;
       packed = 1) {
    if (!packed) pack_b(b, g->b + p0 * NR * g->b_column, g->b_row, g->b_column, g->k, columns);
    for (int64_t tile = chunk * GROUP_TILES; tile < (chunk + 1) * GROUP_TILES && tile < job->tiles; tile++)
      group_tile(job, tile, p0, panels, b, last, sum);
  }
}

// A group; the units past the last group help those that are late.
static void group_task(void *argument, int slot, int64_t unit) {
  GroupJob *job = argument;
  char *memory = job->slots + (size_t)slot * job->slot_bytes;
  tiles_begin();
  for (int64_t q = unit < job->groups ? unit : 0; q < (unit < job->groups ? unit + 1 : job->groups); q++)
    if (atomic_load_explicit(&job->taken[q], memory_order_relaxed) < job->chunks) group_run(job, q, memory);
  tiles_end();
}

// team NULL: in the calling thread. workspace: groups_workspace(g, team slots) bytes.
static void product_by_groups(const Product *g, void *workspace, Team *team) {
  int size = team_size(team);
  GroupJob job = groups_of_product(g, size);
  job.slots = (char *)(((uintptr_t)workspace + 63) & ~(uintptr_t)63);
  job.taken = (atomic_int *)(void *)(job.slots + (size_t)team_slots(team) * job.slot_bytes);
  for (int64_t q = 0; q < job.groups; q++) atomic_init(&job.taken[q], 0);
  team_each(team, job.groups + size - 1, group_task, &job);
}
#else
static int groups_fit(const Product *g) { return 0; }
static size_t groups_workspace(const Product *g, int slots) { return 0; }
static void product_by_groups(const Product *g, void *workspace, Team *team) {}
#endif
