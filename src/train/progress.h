// Progress lines: one every run.log_every steps, which stays; on the user's own terminal also a live line of the steps
// between, rewritten in place, and colours (unless NO_COLOR is set).
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef struct Progress {
  FILE *out;
  bool terminal, utf8, colour;
  int64_t first, total, log_every;
  double started, last_step, last_draw; // seconds, monotonic
  double tokens_per_second;             // smoothed
  double seconds_per_step;              // smoothed
  int64_t timed_steps;                  // steps in the smoothed values
  bool live;                            // a live line is on the screen
} Progress;

// The values of a step that are shown. NAN means not known: values that follow from it are left out.
typedef struct ProgressStep {
  int64_t step;  // steps done, so that the last is `total`
  int64_t tokens; // of this step, all ranks
  double loss, grad_norm, lr;
  double flops_per_token; // model FLOPs
  double peak_flops;      // of all ranks together, FLOP/s
  double load_peak;       // largest over mean load of an expert; 0: the model has none
  double dropped;         // share of the choices of experts that capacity has dropped
  int64_t memory;         // bytes; 0: left out
  bool loader_waited;     // the data loader was the bottleneck
} ProgressStep;

// first: steps done before this run; total: schedule.steps; log_every: steps between lines that stay (>= 1).
void progress_start(Progress *progress, FILE *out, int64_t first, int64_t total, int64_t log_every);
void progress_step(Progress *progress, const ProgressStep *step);
// Evaluation line, stays on the screen. tokens: of which the loss is the mean; bits_per_byte may be NAN (left out).
void progress_eval(Progress *progress, int64_t step, double loss, double tokens, double bits_per_byte,
                   const char *measured);
// Any other line that stays (a checkpoint was saved, a warning).
void progress_note(Progress *progress, const char *format, ...) __attribute__((format(printf, 2, 3)));
// Time spent outside steps (evaluation, checkpoints) does not count against tokens/s: call when a step begins again.
void progress_resume_clock(Progress *progress);
void progress_finish(Progress *progress); // leaves the last live line, moves below it

// Smoothed tokens per second of the steps so far (0 before the second), and MFU in [0, 1] or NAN.
double progress_tokens_per_second(const Progress *progress);
double progress_mfu(const Progress *progress, const ProgressStep *step);
