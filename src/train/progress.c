// Drawing of progress lines: fields in a fixed order, the least important ones left out where the width is short.
#include "train/progress.h"
#include "base/clock.h"
#include "base/locale_utf8.h"
#include "base/units.h"
#include "comm/launcher.h"
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

enum { BAR = 16, FIELDS = 11 };
static const double REDRAW = 0.1;  // seconds between live lines
static const double SMOOTH = 0.05; // weight of the newest step, once there are 20

typedef struct Field {
  const char *label;
  char text[64]; // a bar is BAR × 3 bytes
  int columns;  // on the screen, of text
  int priority; // 0 stays longest
} Field;

// Is this the terminal of the person who started plait, for sure? mpirun gives a process a pseudo-terminal as stdout,
// wherever its own goes; it is not the controlling one, as a rule, and other processes could not know of a line that is
// still open. srun --pty has one task.
static bool is_users_terminal(FILE *out) {
  const char *term = getenv("TERM");
  Launcher launcher = launcher_find();
  bool by_hand = !launcher.variable || (launcher.tasks == 1 && !strncmp(launcher.variable, "SLURM_", 6));
  return by_hand && term && strcmp(term, "dumb") && isatty(fileno(out)) && tcgetsid(fileno(out)) == getsid(0);
}

void progress_start(Progress *progress, FILE *out, int64_t first, int64_t total, int64_t log_every) {
  memset(progress, 0, sizeof *progress);
  progress->out = out;
  progress->terminal = is_users_terminal(out);
  progress->utf8 = locale_is_utf8();
  progress->colour = progress->terminal && !(getenv("NO_COLOR") && *getenv("NO_COLOR"));
  progress->first = first;
  progress->total = total;
  progress->log_every = log_every > 0 ? log_every : 1;
  progress->started = progress->last_step = clock_seconds();
}

void progress_resume_clock(Progress *progress) { progress->last_step = clock_seconds(); }

double progress_tokens_per_second(const Progress *progress) { return progress->tokens_per_second; }

double progress_mfu(const Progress *progress, const ProgressStep *step) {
  if (!(step->peak_flops > 0) || !(step->flops_per_token > 0) || progress->tokens_per_second <= 0) return NAN;
  return progress->tokens_per_second * step->flops_per_token / step->peak_flops;
}

// A running mean at first, then an exponential one. The first step warms caches up and is not counted when more follow.
static void measure(Progress *progress, const ProgressStep *step) {
  double t = clock_seconds(), seconds = t - progress->last_step;
  progress->last_step = t;
  if (seconds <= 0) seconds = 1e-9;
  int64_t n = progress->timed_steps++;
  if (n < 2) {
    progress->seconds_per_step = seconds;
  } else {
    double weight = 1.0 / (double)n > SMOOTH ? 1.0 / (double)n : SMOOTH;
    progress->seconds_per_step += weight * (seconds - progress->seconds_per_step);
  }
  progress->tokens_per_second = (double)step->tokens / progress->seconds_per_step;
}

static int columns_of(const char *utf8) {
  int columns = 0;
  for (; *utf8; utf8++) columns += (*utf8 & 0xc0) != 0x80;
  return columns;
}

static int add_field(Field *fields, int count, int priority, const char *label, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
static int add_field(Field *fields, int count, int priority, const char *label, const char *format, ...) {
  Field *field = &fields[count];
  field->label = label;
  field->priority = priority;
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(field->text, sizeof field->text, format, arguments);
  va_end(arguments);
  field->columns = columns_of(field->text);
  return count + 1;
}

static void draw_bar(const Progress *progress, double done, char *text, size_t size) {
  int full = (int)(done * BAR + 0.5);
  text[0] = 0;
  for (int i = 0; i < BAR; i++)
    strncat(text, i < full ? (progress->utf8 ? "█" : "#") : (progress->utf8 ? "░" : "."), size - strlen(text) - 1);
}

static int fill_fields(const Progress *progress, const ProgressStep *step, bool with_bar, Field *fields) {
  double done = progress->total > 0 ? (double)step->step / (double)progress->total : 1;
  double rest = progress->seconds_per_step * (double)(progress->total - step->step);
  char total[24];
  int n = 0, digits = snprintf(total, sizeof total, "%lld", (long long)progress->total);
  n = add_field(fields, n, 0, "step", "%*lld/%s", digits, (long long)step->step, total);
  if (with_bar) {
    char bar[BAR * 3 + 1];
    draw_bar(progress, done < 0 ? 0 : done > 1 ? 1 : done, bar, sizeof bar);
    n = add_field(fields, n, 8, "", "%s", bar);
    fields[n - 1].columns = columns_of(bar);
  }
  if (isnan(step->loss)) n = add_field(fields, n, 1, "loss", "n/a");
  else n = add_field(fields, n, 1, "loss", "%-6.4f", step->loss);
  n = add_field(fields, n, 5, "grad", "%-5.3g", isnan(step->grad_norm) ? NAN : step->grad_norm); // not "-nan"
  n = add_field(fields, n, 4, "lr", "%.2e", step->lr);
  n = add_field(fields, n, 2, "tok/s", "%5s", units_count(progress->tokens_per_second).s);
  double mfu = progress_mfu(progress, step);
  if (!isnan(mfu)) n = add_field(fields, n, 6, "MFU", "%.1f%%", 100 * mfu);
  if (step->load_peak > 0) n = add_field(fields, n, 6, "load", "%.2f", step->load_peak);
  if (step->load_peak > 0 && step->dropped > 0) n = add_field(fields, n, 7, "dropped", "%.1f%%", 100 * step->dropped);
  if (step->memory > 0) n = add_field(fields, n, 7, "mem", "%s", units_bytes((double)step->memory).s);
  if (step->step < progress->total)
    n = add_field(fields, n, 3, "ETA", "%s%s", units_duration(rest).s, step->loader_waited ? " (data)" : "");
  return n;
}

static int field_width(const Field *field) {
  return 2 + field->columns + (*field->label ? 1 + (int)strlen(field->label) : 0);
}

// Leaves out fields until the line fits; the step stays.
static int fit(Field *fields, int count, int width) {
  for (;;) {
    int sum = -2, worst = 0;
    for (int i = 0; i < count; i++) {
      sum += field_width(&fields[i]);
      if (fields[i].priority > fields[worst].priority) worst = i;
    }
    if (sum <= width || count == 1) return count;
    memmove(&fields[worst], &fields[worst + 1], sizeof *fields * (size_t)(count - worst - 1));
    count--;
  }
}

static int screen_width(const Progress *progress) {
  struct winsize size;
  if (ioctl(fileno(progress->out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col - 1;
  return 79;
}

static void print_fields(const Progress *progress, const Field *fields, int count) {
  const char *dim = progress->colour ? "\033[2m" : "", *normal = progress->colour ? "\033[0m" : "";
  for (int i = 0; i < count; i++) {
    const char *gap = i ? "  " : "";
    if (*fields[i].label) fprintf(progress->out, "%s%s%s%s %s", gap, dim, fields[i].label, normal, fields[i].text);
    else fprintf(progress->out, "%s%s", gap, fields[i].text);
  }
}

// A line that stays: over the live one, if there is one.
static void print_line(Progress *progress, const ProgressStep *step) {
  Field fields[FIELDS];
  int count = fill_fields(progress, step, false, fields);
  if (progress->terminal) count = fit(fields, count, screen_width(progress));
  if (progress->terminal) fputc('\r', progress->out);
  print_fields(progress, fields, count);
  fputs(progress->terminal ? "\033[K\n" : "\n", progress->out);
  fflush(progress->out);
  progress->live = false;
}

// The line of the steps between, rewritten in place.
static void draw_live(Progress *progress, const ProgressStep *step) {
  if (progress->last_step - progress->last_draw < REDRAW) return;
  progress->last_draw = progress->last_step;
  Field fields[FIELDS];
  int count = fit(fields, fill_fields(progress, step, true, fields), screen_width(progress));
  fputc('\r', progress->out);
  print_fields(progress, fields, count);
  fputs("\033[K", progress->out);
  fflush(progress->out);
  progress->live = true;
}

void progress_step(Progress *progress, const ProgressStep *step) {
  measure(progress, step);
  bool stays = step->step % progress->log_every == 0 || step->step == progress->first + 1 ||
               step->step >= progress->total;
  if (stays) print_line(progress, step);
  else if (progress->terminal) draw_live(progress, step);
}

static void clear_live(Progress *progress) {
  if (progress->live) fputs("\r\033[K", progress->out);
  progress->live = false;
  progress->last_draw = 0; // the next step draws at once
}

void progress_note(Progress *progress, const char *format, ...) {
  clear_live(progress);
  va_list arguments;
  va_start(arguments, format);
  vfprintf(progress->out, format, arguments);
  va_end(arguments);
  fputc('\n', progress->out);
  fflush(progress->out);
}

void progress_eval(Progress *progress, int64_t step, double loss, double tokens, double bits_per_byte,
                   const char *measured) {
  const char *bold = progress->colour ? "\033[1m" : "", *normal = progress->colour ? "\033[0m" : "";
  char bits[64] = "";
  if (!isnan(bits_per_byte)) snprintf(bits, sizeof bits, "  %.4f bits per byte", bits_per_byte);
  progress_note(progress, "%sheld-out at step %lld: loss %.4f%s  (%.0f tokens in %s)%s", bold, (long long)step, loss,
                bits, tokens, measured, normal);
}

void progress_finish(Progress *progress) {
  if (progress->live) fputc('\n', progress->out);
  progress->live = false;
  fflush(progress->out);
}
