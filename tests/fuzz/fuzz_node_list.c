// Slurm's lists of machines: any text gives names that, written with commas, read back as the same names.
#include "base/node_list.h"
#include "fuzz.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  char *text = xcalloc(size + 1, 1);
  memcpy(text, data, size);
  NodeList list, again;
  Error error = {0};
  int code = node_list_parse("SLURM_JOB_NODELIST", text, &list, &error);
  fuzz_check(code, &error);
  CHECK(code ? !list.count && !list.name : list.count > 0);
  if (!code && list.count < 1000) {
    char *joined = xcalloc((size_t)list.count, NODE_NAME_MOST + 1), *at = joined;
    for (int i = 0; i < list.count; i++) at += sprintf(at, "%s%s", i ? "," : "", list.name[i]);
    CHECK(!node_list_parse("names", joined, &again, &error) && again.count == list.count, "%s", error.message);
    for (int i = 0; i < list.count; i++) CHECK(!strcmp(list.name[i], again.name[i]));
    node_list_free(&again);
    free(joined);
  }
  node_list_free(&list);
  free(text);
  return 0;
}
