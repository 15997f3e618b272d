// Cluster files: the text; after a NUL a change; after another one the file of measurements. What loads is written as a
// file that loads and is written as the same again, before the change and after it.
#include "fuzz.h"
#include "machine/cluster.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// What stands before the next NUL, as text that the caller frees.
static char *next_part(const uint8_t **data, size_t *size) {
  const uint8_t *nul = *size ? memchr(*data, 0, *size) : NULL;
  size_t n = nul ? (size_t)(nul - *data) : *size;
  char *text = xcalloc(n + 1, 1);
  if (n) memcpy(text, *data, n);
  *data += n + (nul != NULL), *size -= n + (nul != NULL);
  return text;
}

static void look(const Cluster *cluster) {
  Error error = {0};
  Cluster *again;
  CHECK(cluster_devices(cluster) >= 1);
  FILE *out = fopen("/dev/null", "w");
  CHECK(out);
  cluster_print(cluster, out);
  fclose(out);
  CHECK(!cluster_write(cluster, "fuzz", "written.yaml", &error), "%s", error.message);
  size_t size, second_size;
  const void *written = fuzz_file_data("written.yaml", &size);
  char *text = xcalloc(size + 1, 1);
  memcpy(text, written, size);
  CHECK(!cluster_parse(text, "written.yaml", &again, &error), "%s in\n%s", error.message, text);
  CHECK(!cluster_write(again, "fuzz", "second.yaml", &error));
  const void *second = fuzz_file_data("second.yaml", &second_size);
  CHECK(size == second_size && !memcmp(text, second, size), "not the same when written:\n%s", text);
  cluster_free(again);
  free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  char *text = next_part(&data, &size), *change = next_part(&data, &size);
  fuzz_file("m.csv", data, size);
  Cluster *cluster;
  Error error = {0};
  int code = cluster_parse(text, "c.yaml", &cluster, &error);
  fuzz_check(code, &error);
  CHECK((cluster != NULL) == !code);
  if (cluster) {
    look(cluster);
    code = cluster_change(cluster, change, &error);
    fuzz_check(code, &error);
    look(cluster);
  }
  cluster_free(cluster);
  fuzz_files_clear();
  free(text);
  free(change);
  return 0;
}
