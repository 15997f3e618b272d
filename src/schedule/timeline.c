// Drawing a replayed schedule.
#include "schedule/timeline.h"
#include <math.h>

double timeline_bubble(const Schedule *s, const ScheduleSpans *spans) {
  return spans->total > 0 ? 1 - spans->busy / (s->map.coordinates * spans->total) : 0;
}

// ---- SVG -----------------------------------------------------------------------------------------------------------

enum {
  LEFT = 64,
  TOP = 110,
  LEGEND = 58,
  RIGHT = 24,
  ROW = 34,
  BOX = 28,
  NARROWEST = 960,
  WIDEST = 12000,
  BOX_WIDTH = 14,
  DIGIT_WIDTH = 10
};

// Forward blue, backward orange, weights green; a rank's later stages darker, so that a microbatch can be followed
// down.
static void print_colour(Phase phase, int turn, int turns, FILE *out) {
  static const int light[PHASE_COUNT][3] = {{0xb8, 0xd8, 0xf5}, {0xfd, 0xd5, 0xa5}, {0xc2, 0xe6, 0xb9}},
                   dark[PHASE_COUNT][3] = {{0x2c, 0x74, 0xb8}, {0xd9, 0x72, 0x0e}, {0x3a, 0x8f, 0x3c}};
  double at = turns > 1 ? (double)turn / (turns - 1) : 0.25;
  const int *from = light[phase], *to = dark[phase];
  fputc('#', out);
  for (int k = 0; k < 3; k++) fprintf(out, "%02x", (unsigned)lround(from[k] + at * (to[k] - from[k])));
}

static Phase phase_of(const ScheduleSpan *span) { return (Phase)(span->kind - ACTION_FORWARD); }

// Whether anything ran in a phase.
static int shows(const ScheduleSpans *spans, Phase phase) {
  for (int i = 0; i < spans->span.count; i++)
    if (phase_of(&spans->span.data[i]) == phase) return 1;
  return 0;
}

static int is_dark(int turn, int turns) { return turns > 1 && 2 * turn > turns - 1; }

static int digits(int n) { return n < 10 ? 1 : n < 100 ? 2 : n < 1000 ? 3 : 4; }

static void svg_box(const Schedule *s, const ScheduleSpan *span, double scale, FILE *out) {
  int turns = s->stages / s->map.coordinates, turn = span->stage / s->map.coordinates;
  double x = LEFT + span->start * scale, width = (span->end - span->start) * scale, y = TOP + span->coordinate * ROW;
  if (width < 1) width = 1; // a segment without FLOPs
  fprintf(out,
          "<g><title>%s of stage %d, microbatch %d, on pipeline rank %d</title><rect x=\"%.2f\" y=\"%.0f\" "
          "width=\"%.2f\" height=\"%d\" fill=\"",
          phase_name(phase_of(span)), span->stage, span->microbatch, span->coordinate, x, y,
          width, BOX);
  print_colour(phase_of(span), turn, turns, out);
  fputs("\"/>", out);
  if (width >= 6.5 * digits(span->microbatch) + 2)
    fprintf(out, "<text x=\"%.2f\" y=\"%.0f\" text-anchor=\"middle\" stroke=\"none\"%s>%d</text>", x + width / 2,
            y + BOX / 2 + 4, is_dark(turn, turns) ? " fill=\"#fff\"" : "", span->microbatch);
  fputs("</g>\n", out);
}

static void svg_legend(const Schedule *s, const ScheduleSpans *spans, FILE *out) {
  int turns = s->stages / s->map.coordinates, x = LEFT;
  for (int phase = 0; phase < PHASE_COUNT; phase++) {
    if (!shows(spans, (Phase)phase)) continue;
    int shown = turns < 8 ? turns : 8;
    for (int k = 0; k < shown; k++, x += 18) {
      fprintf(out, "<rect x=\"%d\" y=\"%d\" width=\"18\" height=\"14\" fill=\"", x, LEGEND);
      print_colour((Phase)phase, shown > 1 ? k * (turns - 1) / (shown - 1) : 0, turns, out);
      fputs("\"/>", out);
    }
    x += 6;
    fprintf(out, "<text x=\"%d\" y=\"%d\">%s</text>\n", x, LEGEND + 11, phase_name((Phase)phase));
    x += 80;
  }
  // On the next line: three phases of eight stages leave no room beside them.
  fprintf(out, "<text x=\"%d\" y=\"%d\">numbers: microbatches%s</text>\n", LEFT, LEGEND + 30,
          turns > 1 ? "; darker: a rank's later stages" : "");
}

static void svg_axis(int rows, double width, FILE *out) {
  double bottom = TOP + rows * ROW - (ROW - BOX) + 6;
  for (int i = 0; i <= 10; i++) {
    double x = LEFT + width * i / 10;
    fprintf(out, "<line x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%.0f\" stroke=\"#ccc\"/>", x, TOP - 6, x, bottom);
    fprintf(out, "<text x=\"%.1f\" y=\"%.0f\" text-anchor=\"middle\" fill=\"#666\">%d %%</text>\n", x, bottom + 15,
            i * 10);
  }
}

static void print_title(const Schedule *s, const TimelineText *text, FILE *out) {
  int turns = s->stages / s->map.coordinates;
  fprintf(out, "%s on %d pipeline rank%s", text->name, s->map.coordinates, s->map.coordinates > 1 ? "s" : "");
  if (turns > 1) fprintf(out, " × %d stages", turns);
  fprintf(out, ", %d microbatch%s", s->microbatches, s->microbatches > 1 ? "es" : "");
  if (s->streams) fprintf(out, ", %d step%s", s->steps, s->steps > 1 ? "s" : "");
}

static void print_bubble(const Schedule *s, const ScheduleSpans *spans, const TimelineText *text, FILE *out) {
  fprintf(out, "bubble %.1f %% of the %s by FLOPs, %.1f %% if all segments took the same time",
          100 * timeline_bubble(s, spans), s->streams ? "steps" : "step", 100 * text->unit_bubble);
}

void timeline_svg(const Schedule *s, const ScheduleSpans *spans, const TimelineText *text, FILE *out) {
  double boxes = (double)spans->span.count / s->map.coordinates / fmax(1e-3, 1 - timeline_bubble(s, spans));
  double width = fmin(WIDEST, fmax(NARROWEST, (BOX_WIDTH + DIGIT_WIDTH * digits(s->microbatches - 1)) * boxes)),
         scale = spans->total > 0 ? width / spans->total : 0;
  fprintf(out,
          "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%d\" viewBox=\"0 0 %.0f %d\" "
          "font-family=\"sans-serif\" font-size=\"11\">\n",
          LEFT + width + RIGHT, TOP + s->map.coordinates * ROW + 28, LEFT + width + RIGHT,
          TOP + s->map.coordinates * ROW + 28);
  fputs("<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n", out);
  fprintf(out, "<text x=\"%d\" y=\"26\" font-size=\"15\">", LEFT);
  print_title(s, text, out);
  fprintf(out, "</text>\n<text x=\"%d\" y=\"46\">", LEFT);
  print_bubble(s, spans, text, out);
  fprintf(out, "; the head's %s is part of its forward pass; transfers are not counted</text>\n",
          shows(spans, PHASE_WEIGHT) ? "gradient of its input" : "backward pass");
  svg_legend(s, spans, out);
  for (int c = 0; c < s->map.coordinates; c++) {
    fprintf(out, "<rect x=\"%d\" y=\"%d\" width=\"%.1f\" height=\"%d\" fill=\"#f2f2f2\"/>", LEFT, TOP + c * ROW, width,
            BOX);
    fprintf(out, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\" font-size=\"12\">pp %d</text>\n", LEFT - 8,
            TOP + c * ROW + BOX / 2 + 4, c);
  }
  svg_axis(s->map.coordinates, width, out);
  fputs("<g stroke=\"#fff\" stroke-width=\"0.6\">\n", out);
  for (int i = 0; i < spans->span.count; i++) svg_box(s, &spans->span.data[i], scale, out);
  fputs("</g>\n</svg>\n", out);
}

// ---- trace ---------------------------------------------------------------------------------------------------------

void timeline_json(const Schedule *s, const ScheduleSpans *spans, const TimelineText *text, FILE *out) {
  double scale = spans->busy > 0 ? 1000 * spans->span.count / spans->busy : 0; // microseconds
  fputs("{\"displayTimeUnit\":\"ms\",\"otherData\":{\"title\":\"", out);
  print_title(s, text, out);
  fputs(": ", out);
  print_bubble(s, spans, text, out);
  fputs("\"},\"traceEvents\":[\n{\"ph\":\"M\",\"pid\":0,\"tid\":0,\"name\":\"process_name\",\"args\":{\"name\":\"",
        out);
  print_title(s, text, out);
  fputs(": ", out);
  print_bubble(s, spans, text, out);
  fputs("\"}}", out);
  for (int c = 0; c < s->map.coordinates; c++)
    fprintf(out, ",\n{\"ph\":\"M\",\"pid\":0,\"tid\":%d,\"name\":\"thread_name\",\"args\":{\"name\":\"pp %d\"}}", c + 1,
            c);
  for (int i = 0; i < spans->span.count; i++) {
    const ScheduleSpan *span = &spans->span.data[i];
    fprintf(out,
            ",\n{\"ph\":\"X\",\"pid\":0,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,\"name\":\"%s%d\",\"cat\":\"%s\",\"args\":{"
            "\"stage\":%d,\"microbatch\":%d,\"step\":%d}}",
            span->coordinate + 1, span->start * scale, (span->end - span->start) * scale, action_name(span->kind),
            span->microbatch, phase_name(phase_of(span)), span->stage, span->microbatch, span->step);
  }
  fputs("\n]}\n", out);
}
