// Whole-file reads, maps and atomic writes.
#include "base/file.h"
#include "base/fault.h"
#include "base/map_guard.h"
#include "base/units.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

int file_read(const char *path, size_t max_bytes, char **data, size_t *size, Error *error) {
  *data = NULL;
  FILE *f = fopen(path, "rb");
  if (!f) return error_set(error, PLAIT_BAD_INPUT, "%s: cannot be read: %s", path, strerror(errno));
  size_t n = 0, capacity = 64 << 10;
  char *p = xcalloc(capacity + 1, 1);
  for (;;) {
    size_t got = fread(p + n, 1, capacity - n, f);
    n += got;
    if (n > max_bytes || n < capacity) break;
    p = xrealloc(p, (capacity *= 2) + 1);
  }
  int failed = ferror(f);
  int why = errno;
  fclose(f);
  if (failed || n > max_bytes) {
    free(p);
    return failed ? error_set(error, PLAIT_BAD_INPUT, "%s: cannot be read: %s", path, strerror(why))
                  : error_set(error, PLAIT_BAD_INPUT, "%s: larger than the %zu bytes allowed here", path, max_bytes);
  }
  p[n] = 0;
  *data = p;
  if (size) *size = n;
  return PLAIT_OK;
}

int file_peek(const char *path, char *text, size_t size) {
  int fd = open(path, O_RDONLY | O_CLOEXEC), why = fd < 0 ? -errno : 0;
  size_t n = 0;
  ssize_t got = 0;
  while (fd >= 0 && n < size - 1 && (got = read(fd, text + n, size - 1 - n)) > 0) n += (size_t)got;
  if (got < 0) why = -errno;
  if (fd >= 0) close(fd);
  text[n] = 0;
  return why;
}

int file_map(const char *path, FileMap *map, Error *error) {
  *map = (FileMap){0};
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return error_set(error, PLAIT_BAD_INPUT, "%s: cannot be opened: %s", path, strerror(errno));
  struct stat st;
  if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
    close(fd);
    return error_set(error, PLAIT_BAD_INPUT, "%s: not a regular file", path);
  }
  if (st.st_size > 0) {
    void *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED) {
      int why = errno;
      close(fd);
      return error_set(error, PLAIT_FAILED, "%s: cannot be mapped: %s", path, strerror(why));
    }
    map->data = p;
    map->size = (size_t)st.st_size;
    map_guard_add(path, p, map->size);
  }
  close(fd);
  return PLAIT_OK;
}

void file_unmap(FileMap *map) {
  if (map->data) {
    map_guard_remove(map->data);
    munmap((void *)map->data, map->size);
  }
  *map = (FileMap){0};
}

int file_open(const char *path, int flags) {
  int fd = open(path, flags | O_CLOEXEC, 0666);
  if (fd < 0 || fd > STDERR_FILENO) return fd;
  int higher = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1), why = errno;
  close(fd);
  errno = why;
  return higher;
}

int file_open_standard(Error *error) {
  for (int fd = 0; fd <= STDERR_FILENO; fd++) {
    if (fcntl(fd, F_GETFD) >= 0) continue;
    if (open("/dev/null", O_RDWR) != fd) // the lowest that is free
      return error_set(error, PLAIT_FAILED, "descriptor %d is closed, and /dev/null cannot be opened in its place: %s",
                       fd, strerror(errno));
  }
  return PLAIT_OK;
}

static char *parent_of(const char *path) {
  char *copy = xstrdup(path), *slash = strrchr(copy, '/');
  if (!slash) strcpy(copy, ".");
  else if (slash == copy) slash[1] = 0;
  else *slash = 0;
  return copy;
}

// Where the file system of a folder begins: the highest folder above it that is still on the same one.
static char *mount_point(const char *folder) {
  struct stat here, above;
  char *path = realpath(folder, NULL), *slash;
  if (!path || stat(path, &here)) return path;
  while ((slash = strrchr(path, '/')) && path[1]) {
    char *parent = slash == path ? xstrdup("/") : xformat("%.*s", (int)(slash - path), path);
    int same = !stat(parent, &above) && above.st_dev == here.st_dev;
    if (same) strcpy(path, parent);
    free(parent);
    if (!same) break;
  }
  return path;
}

enum { NOTHING_LEFT = 1 << 16 }; // bytes: a file system with less is taken to be full where the reason was lost

static bool is_full(int why) { return why == ENOSPC || why == EDQUOT; }

// A full disk or a missing right lasts until somebody changes it; an error of a device may pass.
static int code_of_write(int why) {
  bool lasts = is_full(why) || why == EFBIG || why == EACCES || why == EPERM || why == EROFS;
  return FAULT(full_disks_are_tried_again, lasts, false) ? PLAIT_UNWRITABLE : PLAIT_FAILED;
}

int file_write_failed(const char *path, int why, double bytes, Error *error) {
  struct statvfs space;
  struct stat st;
  char *folder = parent_of(path), *mount = mount_point(folder), needs[64] = "";
  int known = mount && !statvfs(folder, &space), device = !stat(path, &st) && !S_ISREG(st.st_mode);
  double left = known ? (double)space.f_bavail * (double)space.f_frsize : INFINITY;
  if (!why) why = left < NOTHING_LEFT ? ENOSPC : EIO;
  if (bytes > 0) snprintf(needs, sizeof needs, "; the file needs at least %s", units_bytes(bytes).s);
  int code = code_of_write(why);
  if (known && !device && is_full(why))
    error_set(error, code, "%s: cannot be written: %s; the file system at %s has %s free%s", path, strerror(why), mount,
              units_bytes(left).s, needs);
  else error_set(error, code, "%s: cannot be written: %s", path, strerror(why));
  free(mount);
  free(folder);
  return code;
}

int file_begin(AtomicFile *file, const char *path, Error *error) {
  *file = (AtomicFile){.path = xstrdup(path), .temporary = xformat("%s.tmp.%ld", path, (long)getpid())};
  int fd = file_open(file->temporary, O_WRONLY | O_CREAT | O_TRUNC);
  file->stream = fd < 0 ? NULL : fdopen(fd, "wb");
  if (file->stream) return PLAIT_OK;
  int code = file_write_failed(path, errno, 0, error);
  if (fd >= 0) close(fd);
  file_abandon(file);
  return code;
}

enum { BLOCK = 2 << 20, BLOCK_ALIGNMENT = 4096 }; // bytes; alignment for the disks that there are

int file_begin_large(AtomicFile *file, const char *path, Error *error) {
  int code = file_begin(file, path, error);
  if (code) return code;
  file->block = aligned_alloc(BLOCK_ALIGNMENT, BLOCK); // NULL: as other files
#if defined(__linux__)
  int fd = fileno(file->stream), flags = fcntl(fd, F_GETFL);
  if (file->block && flags >= 0) fcntl(fd, F_SETFL, flags | O_DIRECT); // some file systems refuse it
#endif
  return PLAIT_OK;
}

static void leave_direct(AtomicFile *file) {
#if defined(__linux__)
  int fd = fileno(file->stream), flags = fcntl(fd, F_GETFL);
  if (flags >= 0) fcntl(fd, F_SETFL, flags & ~O_DIRECT);
#endif
}

// Writes the filled block. A file system may still refuse O_DIRECT here (EINVAL), or write only a part.
static int write_block(AtomicFile *file) {
  int refused = 0;
  for (size_t done = 0; done < file->filled;) {
    ssize_t n = write(fileno(file->stream), file->block + done, file->filled - done);
    if (n < 0 && errno == EINTR) continue;
    if (!n || (n < 0 && (errno != EINVAL || refused))) return n ? errno : EIO;
    if (n < 0) refused = 1;
    if (n % BLOCK_ALIGNMENT) leave_direct(file);
    if (n > 0) done += (size_t)n;
  }
  file->filled = 0;
  return 0;
}

int file_write(AtomicFile *file, const void *data, size_t bytes) {
  const char *from = data;
  errno = 0;
  if (!file->block) return fwrite(data, 1, bytes, file->stream) == bytes ? 0 : errno ? errno : EIO;
  while (bytes) {
    size_t n = BLOCK - file->filled < bytes ? BLOCK - file->filled : bytes;
    memcpy(file->block + file->filled, from, n);
    file->filled += n, from += n, bytes -= n;
    int why = file->filled == BLOCK ? write_block(file) : 0;
    if (why) return why;
  }
  return 0;
}

// The end of a large file is seldom a whole block, as O_DIRECT wants it: it is written as other files are.
static void write_rest(AtomicFile *file) {
  if (!file->block) return;
  leave_direct(file);
  fwrite(file->block, 1, FAULT(large_files_lose_the_rest, file->filled, 0), file->stream); // commit sees an error
}

int file_commit(AtomicFile *file, Error *error) {
  errno = 0; // of an earlier write that failed the reason is lost
  write_rest(file);
  int bad = ferror(file->stream) | fflush(file->stream);
  if (!bad) bad = fsync(fileno(file->stream));
  int why = errno;
  double bytes = (double)ftello(file->stream);
  if (fclose(file->stream) && (!bad || !why)) bad = 1, why = errno;
  file->stream = NULL;
  if (!bad && rename(file->temporary, file->path)) bad = 1, why = errno;
  if (bad) {
    int code = file_write_failed(file->path, why, bytes, error);
    file_abandon(file);
    return code;
  }
  char *folder = parent_of(file->path);
  int code = folder_sync(folder, error);
  free(folder);
  free(file->temporary);
  file->temporary = NULL;
  file_abandon(file);
  return code;
}

void file_abandon(AtomicFile *file) {
  if (file->stream) fclose(file->stream);
  if (file->temporary) unlink(file->temporary);
  free(file->temporary);
  free(file->path);
  free(file->block);
  *file = (AtomicFile){0};
}

int file_check_writable(const char *path, Error *error) {
  AtomicFile file = {0};
  if (file_is_folder(path))
    return error_set(error, PLAIT_BAD_INPUT, "%s: is a folder; give the name of a file in it", path);
  int code = file_begin(&file, path, error);
  file_abandon(&file);
  return code;
}

int file_is_folder(const char *path) {
  struct stat st;
  return !stat(path, &st) && S_ISDIR(st.st_mode);
}

int file_exists(const char *path) { return access(path, F_OK) == 0; }

// A file in the place of a folder that the user has named is wrong input, as is a missing right.
static int code_of(bool given, int why) {
  bool lasts = why == EEXIST || why == ENOTDIR || why == EACCES || why == EPERM || why == EROFS || why == ENOENT ||
               why == ELOOP || why == ENAMETOOLONG;
  return FAULT(folders_are_never_wrong_input, given && lasts, false) ? PLAIT_BAD_INPUT : code_of_write(why);
}

// given: the user has named it.
static int create_folder(const char *path, bool given, Error *error) {
  if (!*path) return error_set(error, code_of(given, ENOENT), "a folder without a name cannot be created");
  char *copy = xstrdup(path);
  for (char *p = copy + 1;; p++) {
    if (*p != '/' && *p != 0) continue;
    char keep = *p;
    *p = 0;
    if (mkdir(copy, 0777) && errno != EEXIST) {
      int why = errno, code = error_set(error, code_of(given, why), "%s: cannot be created: %s", copy, strerror(why));
      free(copy);
      return code;
    }
    *p = keep;
    if (!keep) break;
  }
  struct stat st;
  int bad = stat(copy, &st) || !S_ISDIR(st.st_mode);
  free(copy);
  return bad ? error_set(error, code_of(given, EEXIST), "%s: exists and is not a folder", path) : PLAIT_OK;
}

int folder_create(const char *path, Error *error) { return create_folder(path, false, error); }

int folder_create_given(const char *path, Error *error) {
  int code = create_folder(path, true, error);
  if (code || !access(path, W_OK | X_OK)) return code;
  int why = errno;
  return error_set(error, code_of(true, why), "%s: cannot be written: %s", path, strerror(why));
}

int folder_sync(const char *path, Error *error) {
  int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  int bad = fd < 0 || (fsync(fd) && errno != EINVAL);
  int why = errno;
  if (fd >= 0) close(fd);
  return bad ? error_set(error, code_of_write(why), "%s: cannot be synced: %s", path, strerror(why)) : PLAIT_OK;
}

int folder_remove(const char *path, Error *error) {
  struct stat st;
  if (!lstat(path, &st) && S_ISLNK(st.st_mode)) // what it points to is somebody else's
    return unlink(path) ? error_set(error, PLAIT_FAILED, "%s: cannot be removed: %s", path, strerror(errno)) : PLAIT_OK;
  DIR *d = opendir(path);
  if (!d)
    return errno == ENOENT ? PLAIT_OK
                           : error_set(error, PLAIT_FAILED, "%s: cannot be removed: %s", path, strerror(errno));
  int code = PLAIT_OK;
  for (struct dirent *e; (e = readdir(d)) && code == PLAIT_OK;) {
    if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
    char *child = xformat("%s/%s", path, e->d_name);
    if (lstat(child, &st) == 0 && S_ISDIR(st.st_mode)) code = folder_remove(child, error);
    else if (unlink(child)) code = error_set(error, PLAIT_FAILED, "%s: cannot be removed: %s", child, strerror(errno));
    free(child);
  }
  closedir(d);
  if (code == PLAIT_OK && rmdir(path))
    code = error_set(error, PLAIT_FAILED, "%s: cannot be removed: %s", path, strerror(errno));
  return code;
}

int folder_replace_slowly(const char *from, const char *to, Error *error) {
  char *aside = xformat("%s.old.%ld.tmp", to, (long)getpid());
  int code = PLAIT_OK;
  if (rename(to, aside))
    code = error_set(error, PLAIT_FAILED, "%s: cannot be renamed to %s: %s", to, aside, strerror(errno));
  else if (rename(from, to)) {
    int why = errno, back = !rename(aside, to);
    code = error_set(error, PLAIT_FAILED, "%s: cannot be renamed to %s: %s; %s%s", from, to, strerror(why),
                     back ? "the folder that was there is unchanged" : "the folder that was there is now ",
                     back ? "" : aside);
  } else folder_remove(aside, NULL);
  free(aside);
  return code;
}

int folder_replace(const char *from, const char *to, Error *error) {
#ifdef RENAME_EXCHANGE
  if (!renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_EXCHANGE)) {
    folder_remove(from, NULL);
    return PLAIT_OK;
  }
#endif
  return folder_replace_slowly(from, to, error);
}
