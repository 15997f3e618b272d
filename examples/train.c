// Training by recipe from a program: prints what a recipe will take, then trains. All of plait/plait.h in use.
//
//   train RECIPE [key=value …]
#include <plait/plait.h>
#include <stdio.h>

int main(int argc, char **argv) {
  if (argc < 2) return fprintf(stderr, "usage: train RECIPE [key=value …]\n"), 2;
  const char *const *overrides = (const char *const *)argv + 2;
  PlaitError error = {0};
  printf("plait %s\n", plait_version());
  int code = plait_plan(argv[1], argc - 2, overrides, stdout, &error);
  if (!code) code = plait_train(argv[1], argc - 2, overrides, stdout, &error);
  if (code && code != PLAIT_INTERRUPTED) fprintf(stderr, "train: %s\n", error.message);
  return code == PLAIT_BAD_INPUT || code == PLAIT_INFEASIBLE ? 2 : code && code != PLAIT_INTERRUPTED ? 1 : 0;
}
