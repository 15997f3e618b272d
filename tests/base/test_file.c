// Files: a new content is there whole or not at all, whoever dies or reads meanwhile; limits, maps, folders.
#include "base/file.h"
#include "base/map_guard.h"
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <dirent.h>
#include <cmocka.h>

static char folder[64];

static char *in(const char *name) {
  static char paths[4][128];
  static int next;
  char *path = paths[next++ % 4];
  snprintf(path, sizeof paths[0], "%s/%s", folder, name);
  return path;
}

static int entries(const char *path) {
  int n = 0;
  DIR *d = opendir(path);
  assert_non_null(d);
  while (readdir(d)) n++;
  closedir(d);
  return n - 2;
}

static void write_whole(const char *path, const char *text) {
  Error error = {0};
  AtomicFile file;
  assert_int_equal(file_begin(&file, path, &error), PLAIT_OK);
  fputs(text, file.stream);
  assert_int_equal(file_commit(&file, &error), PLAIT_OK);
}

static void assert_content(const char *path, const char *text) {
  Error error = {0};
  char *data;
  size_t size;
  assert_int_equal(file_read(path, 1 << 20, &data, &size, &error), PLAIT_OK);
  assert_int_equal(size, strlen(text));
  assert_string_equal(data, text);
  free(data);
}

static int set_up(void **state) {
  strcpy(folder, "/tmp/plait-test-XXXXXX");
  return mkdtemp(folder) ? 0 : -1;
}
static int tear_down(void **state) { return folder_remove(folder, NULL); }

static void commit_and_abandon(void **state) {
  Error error = {0};
  AtomicFile file;
  write_whole(in("a"), "first");
  assert_int_equal(file_begin(&file, in("a"), &error), PLAIT_OK);
  fputs("second", file.stream);
  fflush(file.stream);
  assert_content(in("a"), "first"); // nothing is seen before the commit
  file_abandon(&file);
  file_abandon(&file);
  assert_content(in("a"), "first");
  assert_int_equal(entries(folder), 1); // no temporary file stays
  write_whole(in("a"), "second");
  assert_content(in("a"), "second");
  assert_int_equal(entries(folder), 1);
  assert_int_equal(file_begin(&file, in("missing/a"), &error), PLAIT_FAILED);
  assert_non_null(strstr(error.message, "missing/a"));
  file_abandon(&file);
  error = (Error){0};
  assert_int_equal(file_check_writable(in("missing/a"), &error), PLAIT_FAILED);
  error = (Error){0};
  assert_int_equal(file_check_writable(in("."), &error), PLAIT_BAD_INPUT);
  assert_int_equal(file_check_writable(in("never"), NULL), PLAIT_OK);
  assert_false(file_exists(in("never")));
}

static void write_large(size_t size, const char *data) {
  Error error = {0};
  AtomicFile file;
  char *found;
  size_t found_size;
  assert_int_equal(file_begin_large(&file, in("large"), &error), PLAIT_OK);
  for (size_t at = 0, n = 1; at < size; at += n, n = n * 7 + 4095) {
    if (n > size - at) n = size - at;
    assert_int_equal(file_write(&file, data + at, n), 0);
  }
  assert_int_equal(file_commit(&file, &error), PLAIT_OK);
  assert_int_equal(file_read(in("large"), 1 << 24, &found, &found_size, &error), PLAIT_OK);
  assert_int_equal(found_size, size);
  assert_memory_equal(found, data, size);
  free(found);
  assert_int_equal(entries(folder), 1);
}

// In blocks, whatever the size of what is written at a time; a file need not end with one.
static void large_files(void **state) {
  enum { MOST = 9 << 20 };
  static const size_t size[] = {0, 1, 4096, 2 << 20, 4 << 20, (4 << 20) + 1, (8 << 20) - 1, MOST};
  char *data = malloc(MOST);
  for (int i = 0; i < MOST; i++) data[i] = (char)(i * 2654435761u >> 13);
  for (size_t i = 0; i < sizeof size / sizeof *size; i++) write_large(size[i], data);
  free(data);
}

// The child has ended well, and the file that it could not write is as before.
static void nothing_is_lost(pid_t child) {
  int status;
  waitpid(child, &status, 0);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 0);
  assert_content(in("a"), "old");
  assert_int_equal(entries(folder), 1);
}

// Where the file cannot grow, the first block that does not fit says so; what was there stays.
static void large_file_on_a_full_disk(void **state) {
  write_whole(in("a"), "old");
  pid_t child = fork();
  if (!child) {
    static char data[5 << 20];
    Error error = {0};
    AtomicFile file;
    struct rlimit limit = {3 << 20, 3 << 20};
    signal(SIGXFSZ, SIG_IGN);
    if (setrlimit(RLIMIT_FSIZE, &limit) || file_begin_large(&file, in("a"), &error)) _exit(1);
    int why = file_write(&file, data, sizeof data);
    file_abandon(&file);
    _exit(why == EFBIG ? 0 : 2);
  }
  nothing_is_lost(child);
}

// A writer that is killed in the middle leaves the old content.
static void killed(void **state) {
  write_whole(in("a"), "old");
  pid_t child = fork();
  if (!child) {
    AtomicFile file;
    if (file_begin(&file, in("a"), NULL)) _exit(1);
    fputs("new", file.stream);
    fflush(file.stream);
    raise(SIGKILL);
  }
  int status;
  waitpid(child, &status, 0);
  assert_true(WIFSIGNALED(status));
  assert_content(in("a"), "old");
}

// A disk that is full (here: a limit on file sizes) is an error with the old content kept.
static void full_disk(void **state) {
  write_whole(in("a"), "old");
  pid_t child = fork();
  if (!child) {
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &(struct rlimit){4096, 4096});
    Error error = {0};
    AtomicFile file;
    if (file_begin(&file, in("a"), &error)) _exit(1);
    for (int i = 0; i < 100000; i++) fputc('x', file.stream);
    int code = file_commit(&file, &error);
    _exit(code == PLAIT_UNWRITABLE && strstr(error.message, "cannot be written") ? 0 : 2);
  }
  nothing_is_lost(child);
}

// A full file system is named, with what is free and what the file needs, also where the reason of the failed write was
// lost.
static void full_file_system(void **state) {
  char *disk = strdup(in("disk")), sentence[300];
  Error error = {0};
  AtomicFile file;
  assert_int_equal(folder_create(disk, &error), PLAIT_OK);
  if (mount("tmpfs", disk, "tmpfs", 0, "size=64k")) {
    printf("  skipped: no right to mount a small tmpfs (%s)\n", strerror(errno));
    free(disk);
    skip();
  }
  char *deeper = xformat("%s/a/b", disk), *path = xformat("%s/file", deeper), *real = realpath(disk, NULL);
  assert_int_equal(folder_create(deeper, &error), PLAIT_OK);
  assert_int_equal(file_begin(&file, path, &error), PLAIT_OK);
  for (int i = 0; i < 200000; i++) fputc('x', file.stream);
  errno = 0;
  assert_int_equal(file_commit(&file, &error), PLAIT_UNWRITABLE);
  snprintf(sentence, sizeof sentence, "%s: cannot be written: No space left on device; the file system at %s has ",
           path, real);
  if (strncmp(error.message, sentence, strlen(sentence)) || !strstr(error.message, " free; the file needs at least "))
    fail_msg("%s", error.message);
  error = (Error){0};
  assert_int_equal(file_write_failed(path, EDQUOT, 3e6, &error), PLAIT_UNWRITABLE);
  assert_non_null(strstr(error.message, "Disk quota exceeded; the file system at "));
  assert_non_null(strstr(error.message, "; the file needs at least 3.00 MB"));
  error = (Error){0};
  assert_int_equal(file_write_failed(path, EIO, 3e6, &error), PLAIT_FAILED);
  error = (Error){0};
  assert_int_equal(file_write_failed(path, EACCES, 3e6, &error), PLAIT_UNWRITABLE);
  assert_null(strstr(error.message, "file system"));
  assert_int_equal(umount(disk), 0);
  error = (Error){0};
  file_write_failed(path, 0, 0, &error); // a file system with space, and no reason
  assert_non_null(strstr(error.message, "Input/output error"));
  free(disk);
  free(deeper);
  free(path);
  free(real);
}

// A reader beside a writer sees one of the contents, never a mixture or nothing.
static void reader_beside_writer(void **state) {
  enum { SIZE = 20000, ROUNDS = 40 };
  static char text[SIZE + 1];
  memset(text, 'a', SIZE);
  write_whole(in("a"), text);
  pid_t child = fork();
  if (!child) {
    for (int i = 0; i < ROUNDS; i++) {
      AtomicFile file;
      if (file_begin(&file, in("a"), NULL)) _exit(1);
      for (int k = 0; k < SIZE; k++) fputc('a' + i % 26, file.stream);
      if (file_commit(&file, NULL)) _exit(1);
    }
    _exit(0);
  }
  int status, reads = 0, torn = 0;
  do {
    Error error = {0};
    char *data;
    size_t size;
    torn += file_read(in("a"), 1 << 20, &data, &size, &error) != PLAIT_OK || size != SIZE || data[0] != data[SIZE - 1];
    free(data);
    reads++;
  } while (!waitpid(child, &status, WNOHANG));
  assert_int_equal(status, 0);
  assert_int_equal(torn, 0);
  assert_true(reads > 0);
}

static void read_limits(void **state) {
  Error error = {0};
  char *data;
  size_t size;
  write_whole(in("a"), "12345");
  assert_int_equal(file_read(in("a"), 5, &data, &size, &error), PLAIT_OK);
  assert_int_equal(data[5], 0);
  free(data);
  assert_int_equal(file_read(in("a"), 4, &data, &size, &error), PLAIT_BAD_INPUT);
  assert_null(data);
  assert_non_null(strstr(error.message, "/a"));
  error = (Error){0};
  assert_int_equal(file_read(in("none"), 4, &data, &size, &error), PLAIT_BAD_INPUT);
  error = (Error){0};
  assert_int_equal(file_read(folder, 4, &data, &size, &error), PLAIT_BAD_INPUT);
  write_whole(in("empty"), "");
  assert_int_equal(file_read(in("empty"), 0, &data, &size, NULL), PLAIT_OK);
  assert_int_equal(size, 0);
  assert_string_equal(data, "");
  free(data);
}

static void maps(void **state) {
  Error error = {0};
  FileMap map;
  write_whole(in("a"), "12345");
  assert_int_equal(file_map(in("a"), &map, &error), PLAIT_OK);
  assert_int_equal(map.size, 5);
  assert_memory_equal(map.data, "12345", 5);
  file_unmap(&map);
  assert_null(map.data);
  file_unmap(&map);
  write_whole(in("empty"), "");
  assert_int_equal(file_map(in("empty"), &map, &error), PLAIT_OK);
  assert_null(map.data);
  file_unmap(&map);
  assert_int_equal(file_map(folder, &map, &error), PLAIT_BAD_INPUT);
  error = (Error){0};
  assert_int_equal(file_map(in("none"), &map, &error), PLAIT_BAD_INPUT);
}

static void folders(void **state) {
  Error error = {0};
  assert_int_equal(folder_create(in("x/y//z/"), &error), PLAIT_OK);
  assert_int_equal(folder_create(in("x/y"), &error), PLAIT_OK);
  write_whole(in("x/y/z/file"), "text");
  write_whole(in("outside"), "text");
  assert_int_equal(symlink(in("outside"), in("x/link")), 0);
  assert_int_equal(folder_create(in("outside"), &error), PLAIT_FAILED);
  error = (Error){0};
  assert_int_equal(folder_create(in("outside/below"), &error), PLAIT_FAILED);
  error = (Error){0};
  assert_int_equal(folder_create("", &error), PLAIT_FAILED);
  error = (Error){0};
  assert_int_equal(folder_remove(in("x"), &error), PLAIT_OK);
  assert_false(file_exists(in("x")));
  assert_true(file_exists(in("outside"))); // what a link points to is not ours
  assert_int_equal(folder_remove(in("x"), &error), PLAIT_OK);
  assert_int_equal(folder_sync(in("x"), &error), PLAIT_FAILED);
}

// A link to a folder: the link goes, the folder and what is in it stay.
static void remove_link(void **state) {
  Error error = {0};
  assert_int_equal(folder_create(in("theirs"), &error), PLAIT_OK);
  write_whole(in("theirs/file"), "text");
  assert_int_equal(symlink(in("theirs"), in("to-theirs")), 0);
  assert_int_equal(folder_remove(in("to-theirs"), &error), PLAIT_OK);
  struct stat st;
  assert_int_equal(lstat(in("to-theirs"), &st), -1);
  assert_content(in("theirs/file"), "text");
  assert_int_equal(folder_remove(in("theirs"), &error), PLAIT_OK);
}

// In one step and in two: the new one is there and the old one is gone; when it fails, the old one is there.
static void replace_folder(void **state) {
  int (*const ways[])(const char *, const char *, Error *) = {folder_replace, folder_replace_slowly};
  for (int i = 0; i < 2; i++) {
    Error error = {0};
    assert_int_equal(folder_create(in("r/old"), &error), PLAIT_OK);
    write_whole(in("r/old/file"), "old");
    assert_int_equal(ways[i](in("r/new"), in("r/old"), &error), PLAIT_FAILED); // there is no new one
    assert_non_null(strstr(error.message, "r/new: cannot be renamed to "));
    assert_non_null(strstr(error.message, "No such file or directory; the folder that was there is unchanged"));
    assert_content(in("r/old/file"), "old");
    error = (Error){0};
    assert_int_equal(folder_create(in("r/new"), &error), PLAIT_OK);
    write_whole(in("r/new/file"), "new");
    assert_int_equal(ways[i](in("r/new"), in("r/old"), &error), PLAIT_OK);
    assert_content(in("r/old/file"), "new");
    assert_int_equal(entries(in("r")), 1);
    assert_int_equal(folder_remove(in("r"), &error), PLAIT_OK);
  }
}

// A mapped file is cut short: with the guard installed the process says which file it was, and ends with 1.
static void cut_short(void **state) {
  char *path = in("cut"), *other = in("other"), said[512] = "";
  write_whole(path, "some text");
  write_whole(other, "some text");
  int out[2];
  assert_int_equal(pipe(out), 0);
  pid_t child = fork();
  if (!child) {
    FileMap map, second;
    dup2(out[1], STDERR_FILENO);
    map_guard_install();
    if (file_map(other, &map, NULL) || file_map(path, &second, NULL)) _exit(9);
    file_unmap(&map);
    if (file_map(other, &map, NULL) || truncate(path, 0)) _exit(8);
    if (map.data[3] != 'e') _exit(7);
    _exit(*(volatile const uint8_t *)second.data);
  }
  close(out[1]);
  int status;
  waitpid(child, &status, 0);
  assert_true(read(out[0], said, sizeof said - 1) > 0);
  close(out[0]);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 1);
  assert_non_null(strstr(said, path));
  assert_non_null(strstr(said, "shorter while it was in use"));
  assert_ptr_equal(strchr(said, '\n') + 1, said + strlen(said)); // one line
}

// Where the descriptors 0 to 2 are closed, no file of ours takes their place: what is printed must not land in it.
static int without_descriptors(void) {
  AtomicFile file;
  for (int fd = 0; fd <= 2; fd++) close(fd);
  int fd = file_open(in("log"), O_WRONLY | O_CREAT);
  if (fd <= 2 || fcntl(0, F_GETFD) >= 0 || !(fcntl(fd, F_GETFD) & FD_CLOEXEC)) return 1;
  if (file_begin(&file, in("whole"), NULL) || fileno(file.stream) <= 2) return 2;
  if (file_open("/no/where", O_RDONLY) != -1 || errno != ENOENT) return 3;
  if (dup2(fd, 1) != 1 || file_open_standard(NULL)) return 4;
  struct stat standard[3], null;
  stat("/dev/null", &null);
  for (int i = 0; i < 3; i++) fstat(i, &standard[i]);
  if (standard[0].st_rdev != null.st_rdev || standard[2].st_rdev != null.st_rdev || !S_ISREG(standard[1].st_mode))
    return 5; // 1 was open
  return write(2, "x", 1) == 1 ? 0 : 6;
}

static void closed_descriptors(void **state) {
  pid_t child = fork();
  if (!child) _exit(without_descriptors());
  int status;
  waitpid(child, &status, 0);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
  const struct CMUnitTest tests[] = {TEST(commit_and_abandon),
                                     TEST(large_files),
                                     TEST(large_file_on_a_full_disk),
                                     TEST(killed),
                                     TEST(full_disk),
      TEST(full_file_system),
                                     TEST(reader_beside_writer),
                                     TEST(read_limits),
                                     TEST(maps),
                                     TEST(cut_short),
                                     TEST(closed_descriptors),
                                     TEST(folders),
                                     TEST(remove_link),
                                     TEST(replace_folder)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
