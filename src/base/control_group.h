// The control groups (cgroups of version 1 or 2) of this process, from its own up to the root, and what they allow.
#pragma once
#include <stddef.h>
#include <stdint.h>

enum { CONTROL_GROUP_PATH = 1024 };

typedef struct ControlGroup {
  int version;                     // 1 or 2: files and keys have other names
  char folder[CONTROL_GROUP_PATH]; // below the root that was given, as "/sys/fs/cgroup/memory/docker/17ab"
  int mount;                       // length of its part that is the mount point, where the way up ends
} ControlGroup;

// The group of this process in the hierarchy that has the controller ("memory", "pids", "cpu"): 1, or 0 where there is
// none. root is put before the paths of /proc and of mount points: "" is the machine, tests have their own folder.
int control_group_find(const char *root, const char *controller, ControlGroup *group);
// Its parent: 1, or 0 at the root of the hierarchy.
int control_group_up(ControlGroup *group);
// The contents of a file of the group; "" where there is none.
void control_group_text(const ControlGroup *group, const char *file, char *text, size_t size);
// The number in a file of the group, or after "KEY " in a file of such lines; -1 where there is none (also for "max").
int64_t control_group_number(const ControlGroup *group, const char *file, const char *key);
// Its name for users: its path below the mount point, "/docker/17ab"; "/" at the root.
const char *control_group_name(const ControlGroup *group);
