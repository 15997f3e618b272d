// How close memory plans come to the most bytes that are needed at one time, and how long they take: of any job's
// Programs. For bench_plans and test_parity_plans.
#pragma once
#include "runtime/job.h"
#include <stdio.h>

typedef struct PlanSizes {
  int plans, tight; // those within 1% of the bound
  double worst, slowest, seconds; // the largest ratio, the longest plan, all of them
  char slowest_name[256];
} PlanSizes;

// Plans the memory of each Program of a job again, and adds it up. Prints a line of each one that is more than 1% above
// its bound, with `all` of every one. folder (may be NULL): gets the packing problems as files for bench_pack.
void plan_sizes_of_job(const Job *job, const char *name, int all, const char *folder, FILE *out, PlanSizes *sizes);
void plan_sizes_print(const PlanSizes *sizes, FILE *out);
