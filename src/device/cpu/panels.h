// Products of few rows by a matrix in panels (ir/graph.h, Panels): a panel is read in the order of memory, from
// there once, and each of its vectors meets several rows. Written for ELEMENT in memory and REAL in registers, as
// few_rows.h is, and the sums are the same: a chain of fused products over k from 0 in each block of the depth.

// Rows whose sums are in registers at a time, two vectors each beside two of the panel and a number of a row.
#define PANEL_MOST (LEVEL_BYTES == 64 ? 8 : 6)
#define PANEL_AHEAD 2048 // bytes of a panel that are fetched before they are needed
enum {
  TYPED(PANEL) = 2 * WIDTH, // columns: those of a register tile (gemm.h)
  TYPED(PANEL_ROWS) = 32    // with more rows, tiles of packed panels are faster
};

// One block of the depth of one or two panels.
typedef struct TYPED(PanelRows) {
  int64_t rows, depth;
  const ROW *a;
  int64_t a_row;
  const ELEMENT *b; // (depth, PANEL)
  int64_t panel;    // elements from one panel to the next
} TYPED(PanelRows);

// `rows` rows, from row `first` on, by `panels` panels (constants) → sums, FEW_COLUMNS from one row to the next.
INLINE void TYPED(panel_chains)(const TYPED(PanelRows) *q, int64_t first, REAL *sums, int rows, int panels) {
  V t[PANEL_MOST][4];
  const ROW *a = q->a + first * q->a_row;
  const ELEMENT *b = q->b;
  const int64_t a_row = q->a_row, panel = q->panel;
  UNROLL for (int r = 0; r < rows; r++)
    UNROLL for (int v = 0; v < 2 * panels; v++) t[r][v] = (V){0};
  for (int64_t k = 0; k < q->depth; k++, b += TYPED(PANEL)) {
    V line[4];
    UNROLL for (int p = 0; p < panels; p++) {
      __builtin_prefetch((const char *)(b + p * panel) + PANEL_AHEAD);
      line[2 * p] = TYPED(load)(b + p * panel);
      line[2 * p + 1] = TYPED(load)(b + p * panel + WIDTH);
    }
    UNROLL for (int r = 0; r < rows; r++) {
      V x = MATH(splat)(WIDEN_ROW(a[r * a_row + k]));
      UNROLL for (int v = 0; v < 2 * panels; v++) t[r][v] = MATH(fma)(x, line[v], t[r][v]);
    }
  }
  UNROLL for (int r = 0; r < rows; r++)
    UNROLL for (int v = 0; v < 2 * panels; v++)
      MATH(store)(sums + (first + r) * TYPED(FEW_COLUMNS) + v * WIDTH, t[r][v]);
}

#define NOINLINE_PANELS static __attribute__((noinline)) void
#define CHAINS(rows, panels)                                                                                           \
  NOINLINE_PANELS TYPED(panel_##rows##_##panels)(const TYPED(PanelRows) *q, int64_t first, REAL *sums) {               \
    TYPED(panel_chains)(q, first, sums, rows, panels);                                                                 \
  }
CHAINS(1, 1)
CHAINS(1, 2)
CHAINS(2, 1)
CHAINS(2, 2)
CHAINS(3, 1)
CHAINS(4, 1)
CHAINS(5, 1)
CHAINS(6, 1)
#if LEVEL_BYTES == 64
CHAINS(7, 1)
CHAINS(8, 1)
#endif
#undef CHAINS

// With one or two rows two panels at a time: the chains of one would wait for each other.
static void TYPED(panel_rows)(const TYPED(PanelRows) *q, int panels, REAL *sums) {
  typedef void Chains(const TYPED(PanelRows) *, int64_t, REAL *);
  static Chains *const pair[] = {TYPED(panel_1_2), TYPED(panel_2_2)};
  static Chains *const one[] = {TYPED(panel_1_1), TYPED(panel_2_1), TYPED(panel_3_1), TYPED(panel_4_1),
                                TYPED(panel_5_1), TYPED(panel_6_1),
#if LEVEL_BYTES == 64
                                TYPED(panel_7_1), TYPED(panel_8_1)
#endif
  };
  if (panels == 2 && q->rows <= 2) {
    pair[q->rows - 1](q, 0, sums);
    return;
  }
  for (int p = 0; p < panels; p++) {
    TYPED(PanelRows) panel = *q;
    panel.b += p * q->panel;
    for (int64_t r = 0, n; r < q->rows; r += n) {
      int64_t left = q->rows - r, passes = (left + PANEL_MOST - 1) / PANEL_MOST;
      n = (left + passes - 1) / passes;
      one[n - 1](&panel, r, sums + p * TYPED(PANEL));
    }
  }
}
