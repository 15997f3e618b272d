// How much memory may still be taken: /proc and control groups of both versions, from fake files below a folder.
#include "base/control_group.h"
#include "base/file.h"
#include "base/memory_usage.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static const char machine[] = "MemTotal:       16000000 kB\nMemFree:         1000000 kB\nMemAvailable:    8000000 kB\n";
static const int64_t machine_bytes = 8000000ll * 1024;

static int make_root(void **state) {
  char *root = xstrdup("/tmp/plait-memory-XXXXXX");
  *state = mkdtemp(root);
  return !*state;
}

static int remove_root(void **state) {
  int code = folder_remove(*state, NULL);
  free(*state);
  return code;
}

static void put(const char *root, const char *path, const char *text) {
  char *name = xformat("%s%s", root, path), *slash = strrchr(name, '/');
  *slash = 0;
  assert_int_equal(folder_create(name, NULL), PLAIT_OK);
  *slash = '/';
  FILE *f = fopen(name, "w");
  assert_non_null(f);
  fputs(text, f);
  assert_int_equal(fclose(f), 0);
  free(name);
}

static void put_group(const char *root, const char *folder, const char *const *names, const char *limit,
                      const char *used, const char *stat) {
  const char *texts[] = {limit, used, stat};
  for (int i = 0; i < 3; i++) {
    char *path = xformat("%s/%s", folder, names[i]);
    put(root, path, texts[i]);
    free(path);
  }
}
static const char *const version_1[] = {"memory.limit_in_bytes", "memory.usage_in_bytes", "memory.stat"};
static const char *const version_2[] = {"memory.max", "memory.current", "memory.stat"};

// /a/b/c has no limit, /a/b leaves 3 GB (1 GB of what it uses is file cache), /a leaves 4 GB.
static void put_version_2(const char *root) {
  put(root, "/proc/meminfo", machine);
  put(root, "/proc/self/cgroup", "0::/a/b/c\n");
  put(root, "/proc/self/mountinfo",
      "22 1 0:20 / /proc rw - proc proc rw\n35 31 0:32 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 "
      "rw,nsdelegate\n");
  put_group(root, "/sys/fs/cgroup/a/b/c", version_2, "max\n", "900\n", "anon 900\n");
  put_group(root, "/sys/fs/cgroup/a/b", version_2, "5000000000\n", "3000000000\n",
            "anon 2000000000\nfile 900000000\nslab_reclaimable 100000000\ninactive_anon 7\nactive_file "
            "300000000\ninactive_file 600000000\n");
  put_group(root, "/sys/fs/cgroup/a", version_2, "7000000000\n", "3000000000\n", "anon 3000000000\n");
}

static void nested_groups(void **state) {
  put_version_2(*state);
  MemoryAvailable m = memory_usage_available_in(*state);
  assert_int_equal(m.bytes, 3000000000);
  assert_int_equal(m.limit, 5000000000);
  assert_string_equal(m.why, " under the limit of 5.00 GB of control group /a/b");
  put(*state, "/sys/fs/cgroup/a/memory.max", "4000000000\n"); // now 1 GB is left there
  m = memory_usage_available_in(*state);
  assert_int_equal(m.bytes, 1000000000);
  assert_string_equal(m.why, " under the limit of 4.00 GB of control group /a");
  put(*state, "/sys/fs/cgroup/a/memory.max", "2000000000\n"); // lowered below what is in use
  assert_int_equal(memory_usage_available_in(*state).bytes, 0);
  put(*state, "/sys/fs/cgroup/a/memory.max", "max\n");
  put(*state, "/sys/fs/cgroup/a/b/memory.max", "max\n");
  m = memory_usage_available_in(*state);
  assert_int_equal(m.bytes, machine_bytes);
  assert_int_equal(m.limit, 0);
  assert_string_equal(m.why, "");
}

static void machine_has_less(void **state) {
  put_version_2(*state);
  put(*state, "/sys/fs/cgroup/a/b/memory.max", "90000000000\n");
  put(*state, "/sys/fs/cgroup/a/memory.max", "80000000000\n");
  MemoryAvailable m = memory_usage_available_in(*state);
  assert_int_equal(m.bytes, machine_bytes);
  assert_int_equal(m.limit, 80000000000); // doctor says it
  assert_string_equal(m.why, "");         // but it is not why there is no more
  put(*state, "/proc/meminfo", "");
  assert_int_equal(memory_usage_available_in(*state).bytes, 77000000000);
}

// Version 1: a hierarchy for each controller, a number beyond all memory for no limit, parents that need not count
// their children.
static void version_one(void **state) {
  put(*state, "/proc/meminfo", machine);
  put(*state, "/proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/job 7/step\n1:name=systemd:/\n0::/\n");
  put(*state, "/proc/self/mountinfo",
      "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - "
      "cgroup cgroup rw,cpu,cpuacct\n"
      "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n41 31 0:38 / /sys/fs/cgroup/unified "
      "rw - cgroup2 cgroup2 rw\n");
  put_group(*state, "/sys/fs/cgroup/memory", version_1, "9223372036854771712\n", "20000000000\n", "cache 1\n");
  put(*state, "/sys/fs/cgroup/memory/memory.use_hierarchy", "1\n");
  put_group(*state, "/sys/fs/cgroup/memory/job 7", version_1, "2000000000\n", "1500000000\n",
            "cache 9\nactive_file 1\ntotal_active_file 100000000\ntotal_inactive_file 200000000\n");
  put(*state, "/sys/fs/cgroup/memory/job 7/memory.use_hierarchy", "1\n");
  put_group(*state, "/sys/fs/cgroup/memory/job 7/step", version_1, "9223372036854771712\n", "1000000000\n",
            "cache 9\n");
  MemoryAvailable m = memory_usage_available_in(*state);
  assert_int_equal(m.bytes, 800000000);
  assert_string_equal(m.why, " under the limit of 2.00 GB of control group /job 7");
  put(*state, "/sys/fs/cgroup/memory/job 7/memory.use_hierarchy", "0\n");
  assert_int_equal(memory_usage_available_in(*state).bytes, machine_bytes);
  put(*state, "/sys/fs/cgroup/memory/job 7/step/memory.limit_in_bytes", "1700000000\n");
  assert_int_equal(memory_usage_available_in(*state).bytes, 700000000);
}

// A container sees its own group at the mount point; where /proc tells a path from elsewhere, that is all that can be
// known.
static void containers(void **state) {
  static const char *const groups[] = {"4:memory:/docker/17ab\n0::/\n", "4:memory:/\n", "4:memory:/../other\n",
                                       "4:memory:/docker/17abc\n", "4:memory:/docker/17ab/gone\n"};
  put(*state, "/proc/meminfo", machine);
  put(*state, "/proc/self/mountinfo",
      "35 31 0:32 /docker/17ab /sys/fs/cgroup/memory ro,relatime master:15 - cgroup cgroup rw,memory\n");
  put_group(*state, "/sys/fs/cgroup/memory", version_1, "1000000000\n", "400000000\n", "total_inactive_file 0\n");
  for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
    put(*state, "/proc/self/cgroup", groups[i]);
    MemoryAvailable m = memory_usage_available_in(*state);
    assert_int_equal(m.bytes, 600000000);
    assert_string_equal(m.why, " under the limit of 1.00 GB of this container");
  }
  put(*state, "/proc/self/cgroup", "4:memory:/docker/17ab/inner\n");
  put_group(*state, "/sys/fs/cgroup/memory/inner", version_1, "500000000\n", "400000000\n", "total_inactive_file 0\n");
  assert_string_equal(memory_usage_available_in(*state).why, " under the limit of 500 MB of control group /inner");
}

static void odd_files(void **state) {
  MemoryAvailable m = memory_usage_available_in(*state); // there is no /proc
  assert_int_equal(m.bytes, -1);
  assert_int_equal(m.limit, 0);
  put_version_2(*state);
  put(*state, "/proc/self/mountinfo", "no mounts\n35 31 0:32 - cgroup2\n - \n");
  assert_int_equal(memory_usage_available_in(*state).bytes, machine_bytes);
  put(*state, "/proc/self/cgroup", "rubbish\n:\n0:\n");
  assert_int_equal(memory_usage_available_in(*state).bytes, machine_bytes);
  put_version_2(*state);
  put(*state, "/sys/fs/cgroup/a/b/memory.max", "");
  put(*state, "/sys/fs/cgroup/a/memory.current", "what\n"); // unknown: all of the limit may be left
  assert_int_equal(memory_usage_available_in(*state).bytes, 7000000000);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(nested_groups, make_root, remove_root),
                                     cmocka_unit_test_setup_teardown(machine_has_less, make_root, remove_root),
                                     cmocka_unit_test_setup_teardown(version_one, make_root, remove_root),
                                     cmocka_unit_test_setup_teardown(containers, make_root, remove_root),
                                     cmocka_unit_test_setup_teardown(odd_files, make_root, remove_root)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
