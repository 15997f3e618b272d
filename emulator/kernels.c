// Modules and launches. Kernels are those of src/device/cuda/kernels, compiled into this library; a module is the text
// that plait has in the place of code for cards, and its functions are this library's own.
//
// Each launch comes with a table of its operands. They are copied to pages of their own before the kernel runs, whose end
// or beginning touches a page that nobody may touch, and what it writes is copied back.
#include "emulator.h"
#include "fibers.h"
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGE = 4096, KEPT = 16, MOST_OPERANDS = 320, MOST_ARGUMENTS = 4096 };

struct CUmod_st { CudaContext context; int alive; CudaModule next; };
struct CUfunc_st {
  CudaFunction next;
  char name[64];
  void (*kernel)(const void *arguments);
  size_t bytes; // of its arguments
};
static CudaFunction functions;

// The operands that plait offers before a launch; of the calling thread.
static _Thread_local CudaOperand offered[MOST_OPERANDS];
static _Thread_local int offers;

void emulated_operands(const CudaOperand *operand, int count);
void emulated_operands(const CudaOperand *operand, int count) {
  if (count > MOST_OPERANDS) wrong(__func__, "%d operands are more than %d", count, MOST_OPERANDS);
  memcpy(offered, operand, (size_t)count * sizeof *operand);
  offers = count;
}

// Modules ------------------------------------------------------------------------------------------------------------

static CudaModule modules; // all that were ever loaded: one that is used after its end is known

CudaResult cuModuleLoadData(CudaModule *module, const void *image) {
  CudaContext context;
  CudaResult result = enter(__func__, NEEDS_CONTEXT, &context);
  if (result) return leave(result);
  if (strncmp(image, CUDA_EMULATED_IMAGE, strlen(CUDA_EMULATED_IMAGE))) return leave(CUDA_BAD_IMAGE);
  *module = calloc(1, sizeof **module);
  **module = (struct CUmod_st){context, 1, modules};
  modules = *module;
  return leave(CUDA_OK);
}

CudaResult cuModuleUnload(CudaModule module) {
  CudaResult result = enter(__func__, NEEDS_CONTEXT, NULL);
  if (!module->alive) wrong(__func__, "the module was unloaded before");
  module->alive = 0;
  return leave(result);
}

CudaResult cuModuleGetFunction(CudaFunction *function, CudaModule module, const char *name) {
  char bytes_name[80];
  Dl_info info;
  CudaResult result = enter(__func__, NEEDS_CONTEXT, NULL);
  if (result) return leave(result);
  if (!module->alive) wrong(__func__, "the module was unloaded");
  for (CudaFunction f = functions; f; f = f->next)
    if (!strcmp(f->name, name)) return *function = f, leave(CUDA_OK);
  if (!dladdr((void *)(uintptr_t)cuModuleGetFunction, &info)) wrong(__func__, "the emulator does not find itself");
  void *library = dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  snprintf(bytes_name, sizeof bytes_name, "%s_bytes", name);
  void *kernel = library ? dlsym(library, name) : NULL;
  const size_t *bytes = library ? dlsym(library, bytes_name) : NULL;
  if (!kernel || !bytes) return leave(CUDA_NOT_FOUND);
  CudaFunction f = calloc(1, sizeof *f);
  *f = (struct CUfunc_st){.next = functions, .kernel = (void (*)(const void *))(uintptr_t)kernel, .bytes = *bytes};
  snprintf(f->name, sizeof f->name, "%s", name);
  *function = functions = f;
  return leave(CUDA_OK);
}

// Launches -----------------------------------------------------------------------------------------------------------

// Operands that overlap lie in one stretch of device memory; `own` is the copy that the kernel sees.
typedef struct Stretch { char *from, *to, *device, *pages, *own; size_t mapped; } Stretch;

struct Launch {
  CudaFunction function;
  CudaOperand operand[MOST_OPERANDS];
  int operands, stretches;
  Stretch stretch[MOST_OPERANDS];
  unsigned grid, threads;
  uint64_t number;
  _Alignas(16) char arguments[MOST_ARGUMENTS];
};

static const Launch *current; // for faults

static char *first_byte(const CudaOperand *x) { return (char *)(uintptr_t)x->at; }

static int by_address(const void *a, const void *b) {
  const char *x = first_byte(a), *y = first_byte(b);
  return x < y ? -1 : x > y;
}

static void find_stretches(Launch *l) {
  qsort(l->operand, (size_t)l->operands, sizeof *l->operand, by_address);
  for (int i = 0; i < l->operands; i++) {
    char *from = first_byte(&l->operand[i]), *to = from + l->operand[i].bytes;
    Stretch *last = l->stretches ? &l->stretch[l->stretches - 1] : NULL;
    if (last && from < last->to) {
      if (to > last->to) last->to = to;
    } else l->stretch[l->stretches++] = (Stretch){.from = from, .to = to};
  }
}

int launch_touches(const Launch *l, const char *memory, size_t bytes) {
  for (int i = 0; i < l->stretches; i++)
    if (l->stretch[i].device < memory + bytes && memory < l->stretch[i].device + (l->stretch[i].to - l->stretch[i].from))
      return 1;
  return 0;
}

static const Stretch *stretch_of(const Launch *l, const char *at) {
  for (int i = 0; i < l->stretches; i++)
    if (at >= l->stretch[i].from && at < l->stretch[i].to) return &l->stretch[i];
  return NULL;
}

static char *own_bytes(const Launch *l, const CudaOperand *x) {
  const Stretch *s = stretch_of(l, first_byte(x));
  return s->own + (first_byte(x) - s->from);
}

// Pages with one on either side that nobody may touch; the copy ends or begins beside one, as nearly as its address
// modulo KEPT lets it.
static void map_stretch(Stretch *s, int at_end) {
  size_t bytes = (size_t)(s->to - s->from), offset = (uintptr_t)s->from % KEPT;
  s->mapped = (bytes + 2 * KEPT + PAGE - 1) / PAGE * PAGE;
  char *all = mmap(NULL, s->mapped + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (all == MAP_FAILED || mprotect(all + PAGE, s->mapped, PROT_READ | PROT_WRITE))
    wrong("cuLaunchKernel", "the host has no memory left");
  s->pages = all + PAGE;
  size_t last = s->mapped - bytes;
  s->own = s->pages + (at_end ? last - (last + KEPT - offset) % KEPT : offset);
  memset(s->pages, 0xff, s->mapped);
}

static int is_blank(const char *from, const char *to) {
  while (from < to && *from == (char)0xff) from++;
  return from >= to;
}

static int is_written(const Launch *l, const CudaOperand *x) {
  for (int i = 0; i < l->operands; i++) {
    const CudaOperand *y = &l->operand[i];
    if (y->mode & CUDA_WRITES && first_byte(y) < first_byte(x) + x->bytes && first_byte(x) < first_byte(y) + y->bytes)
      return 1;
  }
  return 0;
}

static void copy_in(Launch *l) {
  for (int i = 0; i < l->stretches; i++) map_stretch(&l->stretch[i], l->number % 2 == 0);
  for (int i = 0; i < l->operands; i++) {
    const CudaOperand *x = &l->operand[i];
    if (!x->bytes || !(x->mode & CUDA_READS)) continue;
    const Stretch *s = stretch_of(l, first_byte(x));
    memcpy(own_bytes(l, x), s->device + (first_byte(x) - s->from), x->bytes);
  }
}

static void copy_out(Launch *l) {
  for (int i = 0; i < l->stretches; i++) {
    const Stretch *s = &l->stretch[i];
    if (!is_blank(s->pages, s->own) || !is_blank(s->own + (s->to - s->from), s->pages + s->mapped))
      wrong("cuLaunchKernel", "kernel %s has written just outside of an operand of %zu bytes", l->function->name,
            (size_t)(s->to - s->from));
  }
  for (int i = 0; i < l->operands; i++) {
    const CudaOperand *x = &l->operand[i];
    if (!x->bytes) continue;
    const Stretch *s = stretch_of(l, first_byte(x));
    char *device = s->device + (first_byte(x) - s->from);
    if (x->mode & CUDA_WRITES) memcpy(device, own_bytes(l, x), x->bytes);
    else if (!is_written(l, x) && memcmp(device, own_bytes(l, x), x->bytes))
      wrong("cuLaunchKernel", "kernel %s has changed its operand %s, which it only reads", l->function->name, x->name);
  }
  for (int i = 0; i < l->stretches; i++) munmap(l->stretch[i].pages - PAGE, l->stretch[i].mapped + 2 * PAGE);
}

// Addresses of the device among the arguments become those of the copies.
static void translate(Launch *l) {
  for (size_t at = 0; at + sizeof(char *) <= l->function->bytes; at += sizeof(char *)) {
    char *word;
    memcpy(&word, l->arguments + at, sizeof word);
    const Stretch *s = stretch_of(l, word);
    if (s) {
      word = s->own + (word - s->from);
      memcpy(l->arguments + at, &word, sizeof word);
    } else if (is_device_address(word))
      wrong("cuLaunchKernel", "kernel %s: byte %zu of its arguments is an address in a device's memory outside of its operands",
            l->function->name, at);
  }
}

static void on_fault(int signal_number, siginfo_t *info, void *unused) {
  char where[128] = "";
  const char *at = info->si_addr;
  if (!current || !fibers_where(where, sizeof where)) {
    signal(signal_number, SIG_DFL);
    return;
  }
  for (int i = 0; i < current->operands; i++) {
    const CudaOperand *x = &current->operand[i];
    const char *own = x->bytes ? own_bytes(current, x) : NULL;
    if (own && at >= own - PAGE - KEPT && at < own + x->bytes + PAGE + KEPT)
      wrong("cuLaunchKernel", "%s: reads or writes %lld bytes %s operand %s, which has %zu", where,
            (long long)(at < own ? own - at : at - own - (ptrdiff_t)x->bytes), at < own ? "before" : "past", x->name, x->bytes);
  }
  wrong("cuLaunchKernel", "%s: reads or writes at %p, which belongs to none of its operands and shared arrays", where, (const void *)at);
}

void launch_run(Launch *l) {
  struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO}, before[2];
  copy_in(l);
  translate(l);
  current = l;
  sigaction(SIGSEGV, &action, &before[0]);
  sigaction(SIGBUS, &action, &before[1]);
  fibers_run(l->function->name, l->function->kernel, l->arguments, l->grid, (int)l->threads);
  sigaction(SIGSEGV, &before[0], NULL);
  sigaction(SIGBUS, &before[1], NULL);
  current = NULL;
  copy_out(l);
}

static void check_sizes(const char *call, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                        unsigned block_y, unsigned block_z, unsigned shared_bytes) {
  enum { MOST_THREADS = 1024, MOST_SHARED = 48 << 10, MOST_Z = 64, MOST_GRID = 65535 };
  if (!grid_x || !grid_y || !grid_z || !block_x || !block_y || !block_z)
    wrong(call, "a grid of %u × %u × %u blocks of %u × %u × %u threads is empty", grid_x, grid_y, grid_z, block_x, block_y,
          block_z);
  if (grid_x > 0x7fffffff || grid_y > MOST_GRID || grid_z > MOST_GRID)
    wrong(call, "a grid of %u × %u × %u blocks is too large", grid_x, grid_y, grid_z);
  if (block_z > MOST_Z || (uint64_t)block_x * block_y * block_z > MOST_THREADS)
    wrong(call, "a block of %u × %u × %u threads is too large", block_x, block_y, block_z);
  if (shared_bytes > MOST_SHARED)
    wrong(call, "%u bytes of shared memory are more than the %d that a kernel has unasked", shared_bytes, MOST_SHARED);
}

static CudaFunction check_function(const char *call, CudaFunction function) {
  CudaFunction f = functions;
  while (f && f != function) f = f->next;
  if (!f) wrong(call, "%p is not a function: no module has given it", (void *)function);
  return f;
}

CudaResult cuLaunchKernel(CudaFunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                          unsigned block_y, unsigned block_z, unsigned shared_bytes, CudaStream stream,
                          void **parameters, void **extra) {
  static uint64_t launches;
  CudaResult result = enter_stream(__func__, stream);
  check_sizes(__func__, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes);
  CudaFunction f = check_function(__func__, function);
  if (result) return leave(result);
  if (grid_y > 1 || grid_z > 1 || block_y > 1 || block_z > 1 || shared_bytes || extra || f->bytes > MOST_ARGUMENTS)
    wrong(__func__, "kernel %s: only grids and blocks of one dim are emulated, without dynamic shared memory", f->name);
  count_call(f->name);
  if (skips_kernels()) return offers = 0, leave(CUDA_OK);
  if (!offers) wrong(__func__, "kernel %s is launched without a table of its operands", f->name);
  Launch *l = calloc(1, sizeof *l);
  l->function = f;
  l->grid = grid_x;
  l->threads = block_x;
  l->operands = offers;
  l->number = emulated_seed() + launches++;
  memcpy(l->operand, offered, (size_t)offers * sizeof *offered);
  memcpy(l->arguments, parameters[0], f->bytes);
  offers = 0;
  for (int i = 0; i < l->operands; i++) device_bytes(__func__, l->operand[i].at, l->operand[i].bytes);
  find_stretches(l);
  for (int i = 0; i < l->stretches; i++)
    l->stretch[i].device = device_bytes(__func__, (CudaPointer)(uintptr_t)l->stretch[i].from,
                                        (size_t)(l->stretch[i].to - l->stretch[i].from));
  put_launch(stream, l);
  return leave(CUDA_OK);
}
