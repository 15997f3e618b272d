// Reads /proc/self/cgroup (which group) and /proc/self/mountinfo (where its hierarchy is mounted).
#include "base/control_group.h"
#include "base/file.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

// "cpu,memory" has the word "memory".
static int has_word(const char *list, const char *word) {
  size_t length = strlen(word);
  for (const char *at = list; (at = strstr(at, word)); at += length)
    if ((at == list || at[-1] == ',') && (at[length] == ',' || !at[length])) return 1;
  return 0;
}

// Calls `parse` for every line of a file until it returns 1.
static int any_line(const char *root, const char *path, int (*parse)(char *line, void *argument), void *argument) {
  char *name = xformat("%s%s", root, path), *line = NULL;
  FILE *f = fopen(name, "re");
  size_t capacity = 0;
  int found = 0;
  while (f && !found && getline(&line, &capacity, f) >= 0) {
    line[strcspn(line, "\n")] = 0;
    found = parse(line, argument);
  }
  if (f) fclose(f);
  free(line);
  free(name);
  return found;
}

typedef struct Search {
  const char *controller; // NULL: the hierarchy of version 2, which has all
  char group[CONTROL_GROUP_PATH];
  char mount[CONTROL_GROUP_PATH], top[CONTROL_GROUP_PATH]; // a folder, and the group that it shows
} Search;

// "4:cpu,memory:/docker/17ab" of version 1, "0::/user.slice" of version 2
static int parse_group(char *line, void *argument) {
  Search *s = argument;
  char *list = strchr(line, ':'), *path = list ? strchr(list + 1, ':') : NULL;
  if (!path) return 0;
  *path++ = 0;
  if (s->controller ? !has_word(list + 1, s->controller) : list[1] != 0) return 0;
  snprintf(s->group, sizeof s->group, "%s", path);
  return 1;
}

// "35 31 0:32 TOP MOUNT rw,relatime … - cgroup source rw,memory"
static int parse_mount(char *line, void *argument) {
  Search *s = argument;
  char *kind = strstr(line, " - "), options[256] = "";
  if (!kind) return 0;
  *kind = 0;
  if (sscanf(kind + 3, s->controller ? "cgroup %*s %255s" : "cgroup2 %255s", options) != 1) return 0;
  if (s->controller && !has_word(options, s->controller)) return 0;
  return sscanf(line, "%*s %*s %*s %1023s %1023s", s->top, s->mount) == 2;
}

// In a container what is mounted may be the container's own group, while /proc tells the path from the machine's root.
static const char *below_mount(const Search *s) {
  size_t length = strcmp(s->top, "/") ? strlen(s->top) : 0;
  int inside =
      !strncmp(s->group, s->top, length) && (s->group[length] == '/' || !s->group[length]) && !strstr(s->group, "/..");
  return inside && strcmp(s->group + length, "/") ? s->group + length : "";
}

static int find(const char *root, Search *s, ControlGroup *g) {
  if (!any_line(root, "/proc/self/cgroup", parse_group, s) || !any_line(root, "/proc/self/mountinfo", parse_mount, s))
    return 0;
  g->version = s->controller ? 1 : 2;
  g->mount = snprintf(g->folder, sizeof g->folder, "%s%s", root, s->mount);
  if (g->mount >= CONTROL_GROUP_PATH) return 0;
  char *end = g->folder + g->mount;
  int length = snprintf(end, sizeof g->folder - (size_t)g->mount, "%s", below_mount(s));
  if (g->mount + length >= CONTROL_GROUP_PATH || !file_exists(g->folder)) *end = 0;
  return 1;
}

int control_group_find(const char *root, const char *controller, ControlGroup *g) {
  return find(root, &(Search){.controller = controller}, g) || find(root, &(Search){0}, g);
}

int control_group_up(ControlGroup *g) {
  char *slash = strrchr(g->folder + g->mount, '/');
  if (!slash) return 0;
  *slash = 0;
  return 1;
}

void control_group_text(const ControlGroup *g, const char *file, char *text, size_t size) {
  char path[CONTROL_GROUP_PATH + 64];
  snprintf(path, sizeof path, "%s/%s", g->folder, file);
  file_peek(path, text, size);
}

int64_t control_group_number(const ControlGroup *g, const char *file, const char *key) {
  char text[8192];
  control_group_text(g, file, text, sizeof text);
  const char *at = text;
  if (key) {
    size_t length = strlen(key);
    while (at && (strncmp(at, key, length) || at[length] != ' ')) at = (at = strchr(at, '\n')) ? at + 1 : NULL;
    if (!at) return -1;
    at += length + 1;
  }
  return isdigit((unsigned char)*at) ? (int64_t)strtoll(at, NULL, 10) : -1;
}

const char *control_group_name(const ControlGroup *g) { return g->folder[g->mount] ? g->folder + g->mount : "/"; }
