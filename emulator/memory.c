// Memory of devices, whose addresses nobody may follow, and pinned memory of the host.
#include "emulator.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

// Device memory has two mappings: one that nobody may touch, whose address is handed out, and one of the emulator's own,
// between pages that nobody may touch either.
typedef struct Allocation {
  struct Allocation *next;
  CudaContext context; // NULL: pinned memory of the host
  char *address, *own; // of the host's, the same
  size_t bytes, mapped;
  int registered; // pinned memory of the host's that is not the emulator's
} Allocation;

enum { PAGE = 1 << 16, HOST_PAGE = 4096 };
static Allocation *allocations;
static size_t registered; // bytes of all

static char *reserve(const char *call, size_t bytes) {
  char *at = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) wrong(call, "the host has no %zu bytes of address space left", bytes);
  return at;
}

// The list's link to the allocation that begins there; NULL: none does.
static Allocation **find(const void *address, int of_device, int is_registered) {
  for (Allocation **a = &allocations; *a; a = &(*a)->next)
    if ((*a)->address == address && !(*a)->context == !of_device && (*a)->registered == is_registered) return a;
  return NULL;
}

static Allocation *holds(const char *address) {
  for (Allocation *a = allocations; a; a = a->next)
    if (address >= a->address && address < a->address + a->mapped) return a;
  return NULL;
}

// One that begins after this address, within these bytes.
static Allocation *begins_in(const char *address, size_t bytes) {
  for (Allocation *a = allocations; a; a = a->next)
    if (a->address > address && a->address < address + bytes) return a;
  return NULL;
}

static size_t device_memory(void) {
  const char *text = getenv("PLAIT_EMULATED_MEMORY");
  return text ? (size_t)atoll(text) : (size_t)4 << 30;
}

char *device_bytes(const char *call, CudaPointer address, size_t bytes) {
  char *at = (char *)(uintptr_t)address;
  const Allocation *a = holds(at);
  if (!a || !a->context) wrong(call, "%p is not an address in a device's memory", (void *)at);
  size_t offset = (size_t)(at - a->address);
  if (offset > a->bytes || bytes > a->bytes - offset)
    wrong(call, "%zu bytes from byte %zu on reach beyond an allocation of %zu bytes", bytes, offset, a->bytes);
  return a->own + offset;
}

char *host_bytes(const char *call, const void *memory, size_t bytes) {
  char *at = (char *)(uintptr_t)memory;
  const Allocation *a = holds(at);
  if (!at) wrong(call, "the host's address is NULL");
  if (begins_in(at, bytes)) wrong(call, "%zu bytes reach from memory of one kind into another", bytes);
  if (!a) return at;
  if (a->context) wrong(call, "%p is an address of a device's, and stands for one of the host's", (void *)at);
  if (bytes > a->bytes - (size_t)(at - a->address))
    wrong(call, "%zu bytes reach beyond %zu bytes of pinned memory", bytes, a->bytes);
  return at;
}

int is_pinned(const void *memory) { return holds(memory) != NULL; }

int is_device_address(const void *address) {
  const Allocation *a = holds(address);
  return a && a->context;
}

CudaResult cuMemGetInfo_v2(size_t *available, size_t *total) {
  CudaContext context;
  CudaResult result = enter(__func__, NEEDS_CONTEXT, &context);
  *total = device_memory();
  *available = *total - context->used;
  return leave(result);
}

static void *add(const char *call, CudaContext context, size_t bytes) {
  Allocation *a = calloc(1, sizeof *a);
  size_t mapped = (bytes + PAGE - 1) / PAGE * PAGE;
  *a = (Allocation){.next = allocations, .context = context, .bytes = bytes, .mapped = mapped};
  char *own = reserve(call, mapped + 2 * PAGE) + PAGE;
  if (mprotect(own, mapped, PROT_READ | PROT_WRITE)) wrong(call, "the host has no %zu bytes of memory left", mapped);
  a->own = own;
  a->address = context ? reserve(call, mapped) : own;
  if (context) context->used += bytes;
  memset(own, 0xff, bytes); // NaN: memory is as somebody has left it
  allocations = a;
  return a->address;
}

static void remove_at(const char *call, Allocation **link) {
  Allocation *a = *link;
  if (pending_in(a->own, a->bytes)) wrong(call, "%zu bytes are freed while a stream has not done what it does there", a->bytes);
  *link = a->next;
  munmap(a->own - PAGE, a->mapped + 2 * PAGE);
  if (a->context) munmap(a->address, a->mapped);
  if (a->context) a->context->used -= a->bytes;
  free(a);
}

CudaResult cuMemAlloc_v2(CudaPointer *address, size_t bytes) {
  CudaContext context;
  CudaResult result = enter(__func__, NEEDS_CONTEXT, &context);
  if (result) return leave(result);
  if (!bytes) return leave(CUDA_BAD_VALUE);
  if (fails_now("alloc") || bytes > device_memory() - context->used) return leave(CUDA_NO_MEMORY);
  *address = (CudaPointer)(uintptr_t)add(__func__, context, bytes);
  return leave(CUDA_OK);
}

CudaResult cuMemFree_v2(CudaPointer address) {
  CudaResult result = enter(__func__, NEEDS_CONTEXT, NULL);
  Allocation **a = find((void *)(uintptr_t)address, 1, 0);
  if (!a) wrong(__func__, "%p is not where device memory begins, or was freed before", (void *)(uintptr_t)address);
  remove_at(__func__, a);
  return leave(result);
}

CudaResult cuMemHostAlloc(void **memory, size_t bytes, unsigned flags) {
  CudaResult result = enter(__func__, NEEDS_CONTEXT, NULL);
  if (result) return leave(result);
  if (flags & ~(unsigned)CUDA_HOST_FOR_ALL) wrong(__func__, "flags %#x are not emulated", flags);
  if (!bytes) return leave(CUDA_BAD_VALUE);
  *memory = add(__func__, NULL, bytes);
  return leave(CUDA_OK);
}

CudaResult cuMemFreeHost(void *memory) {
  CudaResult result = enter(__func__, NEEDS_CONTEXT, NULL);
  Allocation **a = find(memory, 0, 0);
  if (!a) wrong(__func__, "%p is not where pinned memory begins, or was freed before", memory);
  remove_at(__func__, a);
  return leave(result);
}

// PLAIT_EMULATED_LOCKED: bytes that may be registered at a time, as ulimit -l has it.
CudaResult cuMemHostRegister_v2(void *memory, size_t bytes, unsigned flags) {
  CudaResult result = enter(__func__, NEEDS_CONTEXT, NULL);
  const char *most = getenv("PLAIT_EMULATED_LOCKED");
  if (result) return leave(result);
  if (flags & ~(unsigned)CUDA_REGISTERED_FOR_ALL) wrong(__func__, "flags %#x are not emulated", flags);
  if ((uintptr_t)memory % HOST_PAGE || bytes % HOST_PAGE) wrong(__func__, "%p and %zu bytes are not whole pages", memory, bytes);
  if (!bytes) return leave(CUDA_BAD_VALUE);
  if (holds(memory) || begins_in(memory, bytes)) wrong(__func__, "some of %zu bytes at %p are pinned already", bytes, memory);
  if (msync(memory, bytes, MS_ASYNC)) wrong(__func__, "%p is not the host's memory", memory);
  if (most && registered + bytes > (size_t)atoll(most)) return leave(CUDA_NO_MEMORY);
  Allocation *a = calloc(1, sizeof *a);
  *a = (Allocation){.next = allocations, .address = memory, .own = memory, .bytes = bytes, .mapped = bytes, .registered = 1};
  allocations = a;
  registered += bytes;
  return leave(CUDA_OK);
}

CudaResult cuMemHostUnregister(void *memory) {
  CudaResult result = enter(__func__, NEEDS_CONTEXT, NULL);
  Allocation **link = find(memory, 0, 1), *a = link ? *link : NULL;
  if (!a) wrong(__func__, "%p is not where registered memory begins, or was unregistered before", memory);
  if (pending_in(a->own, a->bytes)) wrong(__func__, "%zu bytes are unregistered while a stream copies there", a->bytes);
  *link = a->next;
  registered -= a->bytes;
  free(a);
  return leave(result);
}

int memory_leaks(char *text, size_t size) {
  int count = 0;
  for (const Allocation *a = allocations; a; a = a->next, count++)
    snprintf(text, size, "%zu bytes of %s memory", a->bytes, a->context ? "device" : a->registered ? "registered" : "pinned");
  return count;
}
