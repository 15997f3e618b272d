// The host's memory and processor as an implementation of devices: what is put into a queue is done at once, by the
// caller and its team.
#pragma once
#include "device/device.h"

extern const DeviceImplementation device_host;

enum { HOST_PAGE = 2 << 20, HOST_ALIGNMENT = 64 };

// Parts of it, for devices that differ in others: kernels that are functions of the host's, and queues that do
// everything at once.
int host_bind(const Device *device, const DeviceKernel *kernel, const KernelCall *call, Arena *arena,
              DeviceBound *bound, Error *error);
int host_queue_create(const Device *device, Team *team, DeviceQueue **queue, Error *error);
void host_queue_destroy(DeviceQueue *queue);
DeviceEvent host_record(DeviceQueue *queue);
void host_follow(DeviceQueue *queue, DeviceEvent event);
int host_wait(DeviceEvent event, Error *error);
void *host_pointer(const Device *device, void *address);

// `bytes` at `*address`, aligned to 2 MiB, huge pages asked for, every page touched, all zero. within NULL: anywhere;
// else there, where the caller has reserved room.
int host_map(char *within, int64_t bytes, char **address, Error *error);
// Aligned like it, for host memory of which perhaps only parts will be used: pages are taken when they are touched.
int host_reserve(int64_t bytes, char **address, Error *error);
void host_release(char *address, int64_t bytes); // NULL is fine
