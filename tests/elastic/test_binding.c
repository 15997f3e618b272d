// tier 1
// Which nodes of a machine's memory belong to a worker's cores.
#include "base/file.h"
#include "elastic/binding.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

// A machine whose node n has the cores of lists[n]; NULL: it has no such node.
static void machine(char *folder, const char *const *lists, int n) {
  Error error = {0};
  strcpy(folder, "/tmp/plait-binding-XXXXXX");
  assert_non_null(mkdtemp(folder));
  for (int i = 0; i < n; i++) {
    if (!lists[i]) continue;
    char *node = xformat("%s/node%d", folder, i), *path = xformat("%s/cpulist", node);
    assert_int_equal(folder_create(node, &error), 0);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fprintf(file, "%s\n", lists[i]);
    fclose(file);
    free(path);
    free(node);
  }
}

static void removed(const char *folder) {
  char *command = xformat("rm -rf %s", folder);
  assert_int_equal(system(command), 0);
  free(command);
}

static cpu_set_t cores(int first, int last) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (int c = first; c <= last; c++) CPU_SET(c, &set);
  return set;
}

static int nodes_of(const char *folder, int first, int last, unsigned char nodes[BINDING_NODES]) {
  cpu_set_t set = cores(first, last);
  return binding_nodes(folder, &set, nodes);
}

static void nodes(void **state) {
  static const char *const lists[] = {"0-3,16-19", "4-7,20-23", NULL, "8", ""};
  char folder[40];
  unsigned char found[BINDING_NODES];
  machine(folder, lists, 5);
  assert_int_equal(nodes_of(folder, 0, 3, found), 1);
  assert_true(found[0] && !found[1] && !found[3] && !found[4]);
  assert_int_equal(nodes_of(folder, 17, 17, found), 1);
  assert_true(found[0]);
  assert_int_equal(nodes_of(folder, 3, 4, found), 2);
  assert_true(found[0] && found[1] && !found[3]);
  assert_int_equal(nodes_of(folder, 8, 8, found), 1);
  assert_true(found[3] && !found[0]);
  assert_int_equal(nodes_of(folder, 30, 31, found), 0); // of no node
  removed(folder);
}

static void nothing_to_choose(void **state) {
  static const char *const one[] = {"0-7"}, *const two[] = {"0-3", "4-7"};
  char folder[40];
  unsigned char found[BINDING_NODES];
  machine(folder, one, 1);
  assert_int_equal(nodes_of(folder, 0, 1, found), 0);
  removed(folder);
  machine(folder, two, 2);
  assert_int_equal(nodes_of(folder, 0, 7, found), 0);
  removed(folder);
  assert_int_equal(nodes_of("/nowhere", 0, 7, found), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(nodes), cmocka_unit_test(nothing_to_choose)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
