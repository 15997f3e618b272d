// Reads the lines of views, and lays out the pieces of each tensor.
#include "checkpoint/huggingface_views.h"
#include "base/fault.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_PARTS = 8 };

// A line: "TENSOR[^T] = PART [|DIM] PART …".
typedef struct Line {
  char tensor[160], part[MOST_PARTS][120];
  int transposed, parts, dim; // dim: in which the parts follow each other
  int by_layer, by_row;       // has N, has E
} Line;

// --- lines -----------------------------------------------------------------------------------------------------------

// The word `placeholder` between dots, or NULL.
static const char *find_placeholder(const char *name, char placeholder) {
  for (const char *p = name; (p = strchr(p, placeholder)); p++)
    if ((p == name || p[-1] == '.') && (!p[1] || p[1] == '.')) return p;
  return NULL;
}

// The name with a number in place of the word, where it has it.
static const char *fill_in(Arena *arena, const char *name, char placeholder, int64_t number) {
  const char *at = find_placeholder(name, placeholder);
  if (!at) return name;
  return arena_format(arena, "%.*s%lld%s", (int)(at - name), name, (long long)number, at + 1);
}

static int bad_line(const char *text, const char *why, Error *error) {
  return error_set(error, PLAIT_FAILED, "view \"%.*s\": %s", (int)strcspn(text, "\n"), text, why);
}

// The next word of the line, of fewer than `size` characters; 0 where there is none.
static int next_word(const char **text, char *word, size_t size) {
  while (**text == ' ') ++*text;
  size_t n = strcspn(*text, " \n");
  if (!n || n >= size) return 0;
  memcpy(word, *text, n);
  word[n] = 0;
  *text += n;
  return 1;
}

static int read_line(const char *text, Line *line, Error *error) {
  const char *at = text;
  char word[16];
  *line = (Line){0};
  if (!next_word(&at, line->tensor, sizeof line->tensor)) return bad_line(text, "no tensor", error);
  size_t n = strlen(line->tensor);
  line->transposed = n > 2 && !strcmp(line->tensor + n - 2, "^T");
  if (line->transposed) line->tensor[n - 2] = 0;
  if (!next_word(&at, word, sizeof word) || strcmp(word, "="))
    return bad_line(text, "no \"=\" after the tensor", error);
  for (;;) {
    if (line->parts == MOST_PARTS) return bad_line(text, "too many parts", error);
    if (!next_word(&at, line->part[line->parts++], sizeof *line->part))
      return bad_line(text, "a Variable is missing", error);
    if (!next_word(&at, word, sizeof word)) break;
    int dim = isdigit((unsigned char)word[1]) ? word[1] - '0' : 0;
    if (word[0] != '|' || (word[1] && (!isdigit((unsigned char)word[1]) || word[2])))
      return bad_line(text, "Variables are separated by | or |DIM", error);
    if (line->parts > 1 && dim != line->dim) return bad_line(text, "parts follow each other in one dim", error);
    line->dim = dim;
  }
  if (*at && *at != '\n') return bad_line(text, "a name is too long", error);
  line->by_layer = find_placeholder(line->tensor, 'N') != NULL;
  line->by_row = find_placeholder(line->tensor, 'E') != NULL;
  for (int i = 0; i < line->parts; i++)
    if (line->by_layer != (find_placeholder(line->part[i], 'N') != NULL))
      return bad_line(text, "N stands on one side only", error);
  return PLAIT_OK;
}

// --- layout ----------------------------------------------------------------------------------------------------------

static int is_of_heads(DimName dim) { return dim == DIM_KV_HEADS || dim == DIM_GROUP || dim == DIM_HEAD_DIM; }

// Dims of a tensor that one Variable would be alone: group[d] is the tensor's dim in which the Variable's dim d lies.
typedef struct Grouping {
  int rank, group[MAX_RANK];
  int64_t size[MAX_RANK];
} Grouping;

static Grouping group_dims(const Shape *s, int from) {
  Grouping g = {0};
  for (int d = from; d < s->rank; d++) {
    if (d > from && is_of_heads(s->dim[d]) && is_of_heads(s->dim[d - 1])) {
      g.size[g.rank - 1] *= s->size[d];
    } else {
      g.size[g.rank++] = s->size[d];
    }
    g.group[d] = g.rank - 1;
  }
  return g;
}

// One tensor of a line: its parts, and which row of them (-1: all of them).
typedef struct FileLayout {
  const char *text;
  const Line *line;
  int variable[MOST_PARTS];
  int64_t row;
} FileLayout;

// The dims of the tensor before ^T, of all parts together.
static int whole_dims(const HuggingfaceViews *v, const FileLayout *l, Grouping *whole, Error *error) {
  int dim = l->line->dim;
  for (int i = 0; i < l->line->parts; i++) {
    Grouping one = group_dims(&v->graph->variable.data[l->variable[i]].shape, l->row >= 0);
    if (dim >= one.rank && l->line->parts > 1) return bad_line(l->text, "the Variables have no such dim", error);
    if (l->line->transposed && one.rank < 2) return bad_line(l->text, "^T needs two dims", error);
    if (!i) {
      *whole = one;
      continue;
    }
    if (one.rank != whole->rank) return bad_line(l->text, "parts differ in their number of dims", error);
    for (int d = 0; d < one.rank; d++)
      if (d != dim && one.size[d] != whole->size[d]) return bad_line(l->text, "parts differ in another dim", error);
    whole->size[dim] += one.size[dim];
  }
  return PLAIT_OK;
}

static void add_piece(HuggingfaceViews *v, HuggingfacePiece piece) {
  int *link = &v->of_variable.data[piece.variable];
  while (*link >= 0) link = &v->piece.data[*link].next;
  *link = v->piece.count;
  vec_push(&v->piece, piece);
}

// The tensor's shape, and of each dim of `whole` its stride in the tensor.
static void lay_out(HuggingfaceTensor *t, const Grouping *whole, int transposed, int64_t *stride) {
  int order[MAX_RANK], last = whole->rank - 1;
  int64_t step = 1;
  t->rank = whole->rank;
  for (int k = 0; k <= last; k++) order[k] = k; // of the tensor's dims, which of `whole` it is
  if (transposed) order[last - 1] = last, order[last] = last - 1;
  for (int k = last; k >= 0; k--) {
    t->dims[k] = whole->size[order[k]];
    stride[order[k]] = step;
    step *= t->dims[k];
  }
}

// A part of a tensor with these strides: Variable `variable`, or a row of it.
static HuggingfacePiece piece_of(const HuggingfaceViews *v, int variable, int64_t row, const int64_t *stride) {
  const Shape *s = &v->graph->variable.data[variable].shape;
  Grouping g = group_dims(s, row >= 0);
  HuggingfacePiece p = {.variable = variable, .tensor = v->tensor.count, .next = -1, .box = {.rank = s->rank}};
  if (row >= 0) p.box.offset[0] = FAULT(view_of_the_first_expert, row, 0), p.box.local[0] = 1;
  for (int d = s->rank - 1; d >= (row >= 0); d--) {
    int inner = d + 1 < s->rank && g.group[d + 1] == g.group[d];
    p.box.local[d] = s->size[d];
    p.stride[d] = inner ? p.stride[d + 1] * s->size[d + 1] : stride[g.group[d]];
  }
  return p;
}

static int add_tensor(HuggingfaceViews *v, const char *name, const FileLayout *l, Error *error) {
  Grouping whole = {0};
  int64_t stride[MAX_RANK], start = 0;
  int code = whole_dims(v, l, &whole, error), parts = l->line->parts, dim = l->line->dim;
  if (code) return code;
  HuggingfaceTensor t = {.name = name, .piece = v->piece.count, .pieces = parts};
  lay_out(&t, &whole, l->line->transposed, stride);
  for (int i = 0; i < parts; i++) {
    HuggingfacePiece p = piece_of(v, l->variable[i], l->row, stride);
    Grouping one = group_dims(&v->graph->variable.data[p.variable].shape, l->row >= 0);
    if (parts > 1) p.first = start * stride[dim]; // alone, it may have fewer dims than that
    if (parts > 1) start += FAULT(view_of_a_part, one.size[dim], whole.size[dim] / parts);
    add_piece(v, p);
  }
  vec_push(&v->tensor, t);
  return PLAIT_OK;
}

// The Variables of a line for one layer: 1 where the graph has them, 0 where it has none of them.
static int find_parts(HuggingfaceViews *v, FileLayout *l, int64_t layer, Error *error) {
  int found = 0;
  for (int i = 0; i < l->line->parts; i++) {
    l->variable[i] = graph_find_variable(v->graph, fill_in(&v->graph->arena, l->line->part[i], 'N', layer));
    found += l->variable[i] >= 0;
  }
  if (found && found < l->line->parts) return bad_line(l->text, "the graph has some of the Variables only", error);
  for (int i = 0; i < l->line->parts && found; i++) {
    int twice = v->of_variable.data[l->variable[i]] >= 0;
    for (int k = 0; k < i; k++) twice |= l->variable[k] == l->variable[i];
    if (twice) return bad_line(l->text, "another line has the Variable, or this one twice", error);
  }
  return found > 0;
}

static int add_layer(HuggingfaceViews *v, const char *text, const Line *line, int64_t layer, Error *error) {
  FileLayout l = {.text = text, .line = line, .row = -1};
  Arena *arena = &v->graph->arena;
  const char *name = arena_strdup(arena, fill_in(arena, line->tensor, 'N', layer));
  if (line->parts == 1 && !strcmp(line->part[0], "head")) v->head = name;
  int code = find_parts(v, &l, layer, error);
  if (code <= 0) return code;
  if (!line->by_row) return add_tensor(v, name, &l, error);
  int64_t rows = v->graph->variable.data[l.variable[0]].shape.size[0];
  for (int i = 0; i < line->parts; i++) {
    const Shape *s = &v->graph->variable.data[l.variable[i]].shape;
    if (s->rank < 2 || s->size[0] != rows)
      return bad_line(text, "E needs Variables with the same first dim, and another one", error);
  }
  code = PLAIT_OK;
  for (l.row = 0; l.row < rows && !code; l.row++) code = add_tensor(v, fill_in(arena, name, 'E', l.row), &l, error);
  return code;
}

// Is every parameter in a tensor? Lines cannot have it twice, and have all of what they have.
static int check_parameters(const HuggingfaceViews *v, Error *error) {
  for (int i = 0; i < v->graph->variable.count; i++) {
    const Variable *p = &v->graph->variable.data[i];
    if (variable_is_loaded(p) && v->of_variable.data[i] < 0)
      return error_set(error, PLAIT_FAILED, "no view has the Variable %s", p->name);
  }
  return PLAIT_OK;
}

static const char *after_line(const char *text) {
  text += strcspn(text, "\n");
  return *text ? text + 1 : text;
}

typedef struct Lines {
  Vec(Line) line;
  Vec(const char *) text;
} Lines;

static int read_lines(const char *text, Lines *lines, Error *error) {
  int code = PLAIT_OK;
  for (; *text && !code; text = after_line(text)) {
    Line line;
    code = read_line(text, &line, error);
    vec_push(&lines->line, line);
    vec_push(&lines->text, text);
  }
  return code;
}

// The lines [from, to): one without N, or some with N, layer by layer.
static int add_lines(HuggingfaceViews *v, const Lines *lines, int from, int to, Error *error) {
  int64_t layers = lines->line.data[from].by_layer ? v->graph->layers : 1;
  int code = PLAIT_OK;
  for (int64_t layer = 0; layer < layers && !code; layer++)
    for (int i = from; i < to && !code; i++)
      code = add_layer(v, lines->text.data[i], &lines->line.data[i], layer, error);
  return code;
}

int huggingface_views_create(HuggingfaceViews *v, const char *text, Graph *graph, Error *error) {
  Lines lines = {0};
  *v = (HuggingfaceViews){.graph = graph};
  for (int i = 0; i < graph->variable.count; i++) vec_push(&v->of_variable, -1);
  int code = read_lines(text, &lines, error);
  for (int from = 0, to; from < lines.line.count && !code; from = to) {
    to = from + 1;
    while (lines.line.data[from].by_layer && to < lines.line.count && lines.line.data[to].by_layer) to++;
    code = add_lines(v, &lines, from, to, error);
  }
  vec_free(&lines.line);
  vec_free(&lines.text);
  if (!code) code = check_parameters(v, error);
  if (code) huggingface_views_free(v);
  return code;
}

void huggingface_views_free(HuggingfaceViews *v) {
  vec_free(&v->tensor);
  vec_free(&v->piece);
  vec_free(&v->of_variable);
  graph_destroy(v->graph);
  *v = (HuggingfaceViews){0};
}
