// Drawing who holds what of a parameter. See tensor_picture.h.
#include "program/tensor_picture.h"
#include "base/nearest.h"
#include "sharding/shard.h"
#include <stdlib.h>
#include <string.h>

enum {
  LEFT = 24,
  TOP = 112,
  NAME_WIDTH = 190, // "rank 3   pp 0  dp 1  tp 1"
  ROW = 50,
  CELL = 104, // of a column; the drawing of the tensor inside it is at most DRAWN wide and TALL high
  DRAWN = 84,
  TALL = 38,
  MOST_RANKS = 32,
  MOST_FORMS = 6,
  MOST_COLOURS = 16,
  MOST_LINES = 40,
  LINE = 17,
  LINE_CHARACTERS = 96, // a longer line continues on the next
};

// A line of the Program as it is drawn: the head of a body, an instruction, or the rest of one that is too long.
typedef enum LineKind { LINE_BODY, LINE_INSTRUCTION, LINE_REST } LineKind;
typedef struct Line {
  char *text;
  LineKind kind;
  int moves; // of an instruction that communicates
} Line;

// A parameter in one of its forms: storage of a Variable (copy -1), or the compute copy of it.
typedef struct Form { const char *title; int variable, copy; } Form;

typedef struct Picture {
  Program *const *programs;
  const Graph *graph;
  const Mesh *mesh;
  int parameter, forms, ranks;
  Form form[MOST_FORMS];
  Box seen[MOST_COLOURS]; // parts met so far: ranks that hold the same part have the same colour
  int colours;
  Line line[MOST_LINES];
  int lines, left_out;
  FILE *out;
} Picture;

int tensor_picture_find(const Graph *graph, const char *name, int *parameter, Error *error) {
  const char **names = xcalloc((size_t)graph->variable.count + 1, sizeof *names);
  int count = 0;
  *parameter = -1;
  for (int v = 0; v < graph->variable.count; v++) {
    if (!variable_is_counted(&graph->variable.data[v])) continue;
    names[count++] = graph->variable.data[v].name;
    if (!strcmp(graph->variable.data[v].name, name)) *parameter = v;
  }
  const char *nearest = nearest_word(name, names, count);
  int code = PLAIT_OK;
  if (*parameter < 0)
    code = error_set(error, PLAIT_BAD_INPUT, "the model has no parameter named %.100s; %s %.100s", name,
                     nearest ? "the nearest name is" : "one that it has is",
                     nearest ? nearest : count ? names[0] : "none");
  free(names);
  return code;
}

// ---- what is drawn --------------------------------------------------------------------------------------------------

static void add_form(Picture *p, const char *title, int variable, int copy) {
  if (p->forms < MOST_FORMS) p->form[p->forms++] = (Form){title, variable, copy};
}

static void find_forms(Picture *p) {
  const Graph *g = p->graph;
  const Variable *w = &g->variable.data[p->parameter];
  add_form(p, w->copies ? "master" : "parameter", p->parameter, -1);
  if (w->copies) add_form(p, "compute copy", p->parameter, 0);
  for (int pass = 0; pass < 2; pass++) // the gradient before the optimizer's states
    for (int v = 0; v < g->variable.count; v++) {
      const Variable *other = &g->variable.data[v];
      if (v == p->parameter || other->parameter != p->parameter || other->shape.rank != w->shape.rank) continue;
      if (other->kind == (pass ? VARIABLE_OPTIMIZER : VARIABLE_GRADIENT)) add_form(p, NULL, v, -1);
    }
}

static int box_same(const Box *a, const Box *b) {
  if (a->rank != b->rank) return 0;
  for (int d = 0; d < a->rank; d++)
    if (a->offset[d] != b->offset[d] || a->local[d] != b->local[d]) return 0;
  return 1;
}

static const char *colour_of(Picture *p, const Box *box) {
  static const char *const colours[MOST_COLOURS] = {"#2c74b8", "#d9720e", "#3a923a", "#b83a4b", "#7d54a8", "#8c613c",
                                                    "#d584bd", "#7f7f7f", "#b5bd00", "#17a2b8", "#9ecae9", "#ffbf79",
                                                    "#88d27a", "#ff9d98", "#c5b0d5", "#c49c94"};
  int at = 0;
  while (at < p->colours && !box_same(&p->seen[at], box)) at++;
  if (at == p->colours && at < MOST_COLOURS) p->seen[p->colours++] = *box;
  return colours[at % MOST_COLOURS];
}

static int lives_on(const Picture *p, int variable, int rank) {
  const StageSet *stages = graph_stages(p->graph, p->graph->variable.data[variable].stages);
  return mesh_runs_stages(p->mesh, mesh_pipeline_coordinate(p->mesh, rank), stages);
}

// ---- the program's lines --------------------------------------------------------------------------------------------

// Removes what only a debugger needs, numbers of tensors and offsets, and calls the parameter W. A shape of no dims,
// (), is left out after a name; a number of the working memory, which has none, is called a scalar.
static char *plain_line(const char *line, const char *name) {
  char *text = xcalloc(strlen(line) + 1, 1);
  size_t n = 0, length = strlen(name);
  for (const char *c = line; *c && strncmp(c, "   # ", 5); c++) {
    if (*c == ' ' && n && text[n - 1] == ' ') continue;
    if (!strncmp(c, name, length)) {
      text[n++] = 'W';
      c += length - 1;
      continue;
    }
    if (*c == '%') {
      while (*c && *c != '=' && *c != '(' && *c != ' ') c++;
      if (*c != '=') c--;
      continue;
    }
    if (!strncmp(c, "()", 2) && n) {
      if (n >= 4 && !strncmp(text + n - 4, "work", 4)) n += (size_t)sprintf(text + n - 4, "scalar") - 4;
      c++;
      continue;
    }
    if (*c == '+' && n) { // work+1024(…)
      while (c[1] >= '0' && c[1] <= '9') c++;
      continue;
    }
    text[n++] = *c == '#' ? '.' : *c; // W#copy
  }
  while (n && text[n - 1] == ' ') n--;
  text[n] = 0;
  return text;
}

// Adds a line, cut at spaces into as many as it needs, and frees the text.
static void add_line(Picture *p, LineKind kind, char *text) {
  int moves = kind == LINE_INSTRUCTION && strstr(text, " over ");
  const char *rest = text;
  for (; *rest && p->lines < MOST_LINES; kind = LINE_REST) {
    size_t n = strlen(rest), most = kind == LINE_REST ? LINE_CHARACTERS - 2 : LINE_CHARACTERS;
    if (n > most) {
      n = most;
      while (n && rest[n] != ' ') n--;
      if (!n) n = most; // one long word
    }
    p->line[p->lines++] = (Line){xformat("%.*s", (int)n, rest), kind, moves};
    rest += n;
    rest += *rest == ' ';
  }
  p->left_out += *rest != 0;
  free(text);
}

// The instructions that name the parameter in one of its forms, as plait explain --only lists them, by bodies.
static void find_lines(Picture *p, const Program *program) {
  const char *name = p->graph->variable.data[p->parameter].name;
  char *text = NULL, *save = NULL, *names = xformat("*%s*", name);
  size_t size = 0;
  FILE *memory = open_memstream(&text, &size);
  CHECK(memory, "open_memstream");
  program_print(program, names, memory);
  fclose(memory);
  int inside = 0; // of the bodies, which come after the actions
  for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
    int heading = !strncmp(line, "body ", 5);
    inside |= heading;
    if (heading) add_line(p, LINE_BODY, xstrdup(line + 5));
    else if (inside) add_line(p, LINE_INSTRUCTION, plain_line(line + strspn(line, " 0123456789"), name));
  }
  free(names);
  free(text);
}

// ---- drawing --------------------------------------------------------------------------------------------------------

static void print_escaped(const char *text, FILE *out) {
  for (; *text; text++)
    if (*text == '<') fputs("&lt;", out);
    else if (*text == '>') fputs("&gt;", out);
    else if (*text == '&') fputs("&amp;", out);
    else fputc(*text, out);
}

// The whole tensor as an outline, rows its first dim and columns its last, and in it what this rank holds.
static void draw_cell(Picture *p, const Form *f, int rank, double x, double y) {
  const Variable *v = &p->graph->variable.data[f->variable];
  int last = v->shape.rank - 1;
  double rows = (double)v->shape.size[0], columns = last > 0 ? (double)v->shape.size[last] : 1, width = DRAWN,
         height = TALL;
  if (rows > columns * 2.5) width = TALL * 1.4;
  if (columns > rows * 4) height = TALL * 0.6;
  y += (TALL - height) / 2;
  fprintf(p->out,
          "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"#fff\" stroke=\"#bbb\"%s/>", x, y, width,
          height, lives_on(p, f->variable, rank) ? "" : " stroke-dasharray=\"2 3\"");
  if (!lives_on(p, f->variable, rank)) return;
  ShardBoxes boxes = {.shard = shard_of(p->mesh, variable_placement(v, f->copy), &v->shape, rank)};
  while (shard_next(&boxes)) {
    const Box *b = &boxes.box;
    double y0 = height * (double)b->offset[0] / rows, h = height * (double)b->local[0] / rows,
           x0 = last > 0 ? width * (double)b->offset[last] / columns : 0,
           w = last > 0 ? width * (double)b->local[last] / columns : width;
    fprintf(p->out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"%s\"/>", x + x0, y + y0, w, h,
            colour_of(p, b));
  }
}

static void draw_rank(Picture *p, int rank) {
  double y = TOP + rank * ROW;
  fprintf(p->out, "<text x=\"%d\" y=\"%.0f\" font-weight=\"bold\">rank %d</text><text x=\"%d\" y=\"%.0f\">", LEFT,
          y + 24, rank, LEFT + 64, y + 24);
  for (int a = 0; a < p->mesh->naxis; a++)
    if (p->mesh->axis[a].size > 1)
      fprintf(p->out, "%s %d &#160;", p->mesh->axis[a].name, mesh_coordinate(p->mesh, rank, a));
  fputs("</text>", p->out);
  for (int f = 0; f < p->forms; f++) draw_cell(p, &p->form[f], rank, LEFT + NAME_WIDTH + f * CELL, y);
  fputc('\n', p->out);
}

static void draw_titles(Picture *p) {
  const Variable *w = &p->graph->variable.data[p->parameter];
  fprintf(p->out, "<text x=\"%d\" y=\"34\" font-size=\"18\" font-weight=\"bold\">W = %s (", LEFT, w->name);
  for (int d = 0; d < w->shape.rank; d++)
    fprintf(p->out, "%s%s %lld", d ? " × " : "", dim_name(w->shape.dim[d]), (long long)w->shape.size[d]);
  fputs(") on a mesh of", p->out);
  for (int a = 0, said = 0; a < p->mesh->naxis; a++)
    if (p->mesh->axis[a].size > 1)
      fprintf(p->out, "%s %s %d", said++ ? " ×" : "", p->mesh->axis[a].name, p->mesh->axis[a].size);
  fprintf(p->out,
          "</text>\n<text x=\"%d\" y=\"58\" fill=\"#555\">What each rank holds: equal colours are equal parts; dashed: "
          "nothing, the layer is on another pipeline stage.%s</text>\n",
          LEFT, p->ranks < p->mesh->ranks ? " Only the first ranks are drawn." : "");
  for (int f = 0; f < p->forms; f++) {
    const Variable *v = &p->graph->variable.data[p->form[f].variable];
    const char *dot = strstr(v->name, w->name);
    int prefix = dot && dot > v->name ? (int)(dot - v->name) - 1 : 0;
    double x = LEFT + NAME_WIDTH + f * CELL;
    if (p->form[f].title) fprintf(p->out, "<text x=\"%.0f\" y=\"%d\">%s</text>", x, TOP - 26, p->form[f].title);
    else fprintf(p->out, "<text x=\"%.0f\" y=\"%d\">%.*s</text>", x, TOP - 26, prefix, v->name);
    fprintf(p->out, "<text x=\"%.0f\" y=\"%d\" fill=\"#777\" font-size=\"11\">%s</text>\n", x, TOP - 10,
            dtype_name(p->form[f].copy < 0 ? v->dtype : v->copy[p->form[f].copy].dtype));
  }
}

static void draw_lines(Picture *p, int coordinate) {
  double x = LEFT + NAME_WIDTH + p->forms * CELL + 16, y = TOP - 26;
  fprintf(p->out,
          "<text x=\"%.0f\" y=\"%.0f\">pipeline rank %d's Program where it touches W, shapes as on one rank; "
          "orange: communication</text>\n",
          x, y, coordinate);
  fputs("<g font-family=\"ui-monospace, Menlo, Consolas, monospace\" font-size=\"12\">\n", p->out);
  for (int i = 0; i < p->lines; i++) {
    const Line *line = &p->line[i];
    y += line->kind == LINE_BODY ? LINE * 1.5 : LINE;
    fprintf(p->out, "<text x=\"%.0f\" y=\"%.0f\"%s>",
            x + (line->kind == LINE_BODY   ? 0
                 : line->kind == LINE_REST ? 28
                                           : 14),
            y,
            line->kind == LINE_BODY ? " font-weight=\"bold\""
            : line->moves           ? " fill=\"#b8470e\""
                                    : "");
    print_escaped(line->text, p->out);
    fputs("</text>\n", p->out);
  }
  if (p->left_out) fprintf(p->out, "<text x=\"%.0f\" y=\"%.0f\">… and %d more</text>\n", x, y + LINE, p->left_out);
  fputs("</g>\n", p->out);
}

void tensor_picture_svg(Program *const *programs, int parameter, FILE *out) {
  const Program *first = programs[0];
  Picture p = {.programs = programs, .graph = first->graph, .mesh = &first->mesh, .parameter = parameter, .out = out};
  p.ranks = p.mesh->ranks < MOST_RANKS ? p.mesh->ranks : MOST_RANKS;
  int rank = 0, coordinate;
  while (rank < p.mesh->ranks - 1 && !lives_on(&p, parameter, rank)) rank++;
  coordinate = mesh_pipeline_coordinate(p.mesh, rank);
  find_forms(&p);
  find_lines(&p, programs[coordinate]);
  int height = TOP + p.ranks * ROW + 24, text_height = TOP + (p.lines + 6) * LINE + 24,
      width = LEFT + NAME_WIDTH + p.forms * CELL + 24 + LINE_CHARACTERS * 7 + 60;
  if (text_height > height) height = text_height;
  fprintf(out,
          "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" "
          "font-family=\"sans-serif\" font-size=\"13\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
          width, height, width, height);
  draw_titles(&p);
  for (int r = 0; r < p.ranks; r++) draw_rank(&p, r);
  draw_lines(&p, coordinate);
  fputs("</svg>\n", out);
  for (int i = 0; i < p.lines; i++) free(p.line[i].text);
}
