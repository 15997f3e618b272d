// A temporary folder for one test program.
#include "scratch.h"
#include "base/error.h"
#include "base/file.h"
#include <stdlib.h>
#include <string.h>

const char *scratch_create(char path[64]) {
  strcpy(path, "/tmp/plait-test-XXXXXX");
  CHECK(mkdtemp(path));
  return path;
}

void scratch_remove(const char *path) {
  Error error = {0};
  CHECK(folder_remove(path, &error) == PLAIT_OK, "%s", error.message);
}

char *scratch_path(const char *path, const char *name) { return xformat("%s/%s", path, name); }
