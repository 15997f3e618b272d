// A device: where the tensors of a rank lie, and what computes on them.
//
// Its *description* is what the planner, the passes and the memory plan read; it is always compiled in, so that a
// machine without a GPU can plan for one. Its *implementation* allocates, copies and computes. Everyone else who wants
// to see or change a rank's memory uses device_copy, or for Variables state_read and state_write (runtime/state.h).
//
//   cpu        the kernels of src/device/cpu; an op for which it has none runs by its reference kernel
//   reference  reference kernels only
//   far        the kernels of another device, but memory that the host cannot touch, and queues that run by
//              themselves: for tests
//   mirror     as far, but communicators of the host cannot reach its memory either: for tests
//   null       another device's description, without memory, and kernels that do nothing: for planning, and for tests
//              of thousands of ranks
#pragma once
#include "base/team.h"
#include "base/vec.h"
#include "op/op.h"

typedef struct Device Device;

typedef enum DeviceKind {
#define DEVICE(id, name, shares) DEVICE_##id,
#include "device/devices.def"
  DEVICE_KINDS,
  DEVICE_AUTO = DEVICE_KINDS // the host's own
} DeviceKind;

// Description --------------------------------------------------------------------------------------------------------

// Memory in which tensors may lie. Its addresses are the device's own.
enum { DEVICE_MOST_SPACES = 3 };
typedef struct DeviceSpace {
  int is_host;       // host memory: its addresses are pointers of the host's, and kernels can read all of that
  int64_t page;      // allocations are multiples of this many bytes
  int64_t alignment; // bytes; of every tensor
} DeviceSpace;

// Work that kernels can take over from a neighbour, for pass fuse: sums, Copies, and activations.
enum {
  DEVICE_FUSES_ACCUMULATE = 1, // into Variables
  DEVICE_FUSES_BIAS = 2,
  DEVICE_FUSES_NARROW_ACCUMULATE = 4,
  DEVICE_FUSES_SUM = 8,      // of what several nodes make: each adds to what the one before has made
  DEVICE_FUSES_NORM_SUM = 16, // of two tensors, which a norm reads
  DEVICE_FUSES_COPY = 32,     // an update writes the Copy of what it updates
  DEVICE_FUSES_ACTIVATION = 64, // a product applies an activation, or multiplies by its slope
  DEVICE_FUSES_ROW_SUM = 128 // the gradient of a norm sums its rows, for the gradient of a bias
};

enum { DEVICE_OPTIONAL_OPERANDS = 3 };

// The kernel with which a device computes a node.
typedef struct DeviceKernel {
  Op op;            // by device_kernel: what was asked for
  Dtype dtype;
  Kernel host;      // a function that the CPU runs; NULL: the implementation has its own
  int is_reference; // the op's reference kernel, for lack of a faster one
  int on_host;      // the device has none: operands are copied to the host, where the CPU's kernel runs, and back
  // Bytes of workspace for one call, from local shapes; NULL: none. An upper bound over `threads` threads. Reads
  // operands that the node may lack: input and output end with DEVICE_OPTIONAL_OPERANDS empty ones.
  size_t (*workspace)(const Operand *input, const Operand *output, const void *attr, int threads);
} DeviceKernel;

typedef struct DeviceImplementation DeviceImplementation;

struct Device {
  DeviceKind kind;
  const char *name;
  const char *variant; // which instructions it uses, "avx512_bf16"; NULL: not told
  // The first is that in which kernels read and write, and of which communicators have pointers. In the others
  // Variables may lie (Variable.space), which MOVE nodes bring to kernels and back.
  int spaces;
  DeviceSpace space[DEVICE_MOST_SPACES];
  unsigned dtypes;    // set of those that it computes in
  unsigned fast_dtypes; // of them, narrow ones that it computes clearly faster in than in fp32
  unsigned fuses;     // set of DEVICE_FUSES_…
  int bounds_rows;    // kernels of experts count rows themselves, and store 0 in those that no token has
  int widens_weights; // fp32 kernels read weights in bf16 (OpDef.widens_weight)
  int panel_bytes;    // of a row of panels, in the dtype in which products compute (OpDef.panels); 0: it wants rows
  int sends_by_rings; // collectives between such devices are NCCL's, over rings; 0: plait's own, between processes
  // The kernel of an op whose first floating-point operand (input, else output) has this dtype: 1 and *kernel, or 0: it
  // has none.
  int (*find)(const Device *device, Op op, Dtype dtype, DeviceKernel *kernel);
  // FLOP/s of products of a dtype, as measured here and now with about 50 ms of products, 0 where unknown. (What a call
  // costs is the op's: op_work.)
  double (*peak_flops)(const Device *device, Dtype dtype, Team *team);
  const void *own;    // of the device: a level of SIMD, or the device that it imitates
  const DeviceImplementation *implementation; // NULL: plans can be made for it, but this build cannot run it
};

// The descriptions of devices.def. device_cpu: the portable and SIMD kernels of src/device/cpu; picks by the machine at
// run time (PLAIT_SIMD=reference|portable|avx2|avx512|avx512_bf16|amx); its memory lies where PLAIT_SPACE says.
// device_cuda: a GPU that runs CUDA (docs/cuda.md); a description needs none, and asks no driver.
#define DEVICE(id, name, shares) const Device *device_##name(void);
#include "device/devices.def"
// Reference kernels only; PLAIT_SPACE counts here too.
const Device *device_reference(void);
// A device like another one, which must stay, that has no memory and computes nothing.
Device device_null(const Device *of);
// A device like another one, which must stay, whose memory lies in a space of spaces.def.
#define SPACE(name) Device device_in_##name(const Device *of);
#include "device/spaces.def"
// One with such far memory as a second space beside its own: for tests.
Device device_beside_far(const Device *of);
// The number of PLAIT_SPACE among them; -1: it is none of these, and the sentence that says so in `text`.
int device_space_wish(char *text, size_t size);

// The description of a kind; of DEVICE_AUTO that of the kind that it stands for here.
const Device *device_describe(DeviceKind kind);
// The same, but that it only fuses what libraries of products do by themselves: biases, and sums with what was there.
// For predictions of other systems; no instance of it runs.
const Device *device_describe_apart(DeviceKind kind);
const char *device_kind_name(DeviceKind kind);
// Whether it is the processor of the host, whose ranks share its cores and memory.
int device_shares_host(DeviceKind kind);

// The kernel of a node; PLAIT_INFEASIBLE, with a sentence that names the op, where the device has none.
int device_kernel(const Device *device, Op op, Dtype dtype, const char *node, DeviceKernel *kernel, Error *error);

// Bytes at the end of the workspace of a kernel that calls a library, which are the library's.
enum { DEVICE_LIBRARY_WORKSPACE = 64 << 20 };

// A choice among several algorithms of a library: `key` says for which call; `value` is "" where none was made.
typedef struct DeviceChoice { char *key, *value; } DeviceChoice;
// Devices of one kind, a card with a library's version, can take each other's. kind NULL: there are none.
typedef struct DeviceChoices { char *kind; Vec(DeviceChoice) list; } DeviceChoices;

// Implementation -----------------------------------------------------------------------------------------------------

// Work is done in the order in which it was put into a queue, and all of it when device_drain returns.
struct DeviceQueue {
  const Device *device;
  Team *team; // the rank's threads, with which the CPU's kernels compute; NULL: only the caller's
  int believes; // calls of others' libraries are used as they are: check compares none (run.verify: off)
};

// The state of a queue when it was recorded: done when all that had been put into it is.
typedef struct DeviceEvent { DeviceQueue *queue; uint64_t number; } DeviceEvent;

// Which devices of the kind ranks take in turn; count 0: all that there are.
enum { DEVICE_MOST_NUMBERS = 64 };
typedef struct DeviceNumbers { int count, number[DEVICE_MOST_NUMBERS]; } DeviceNumbers;
static inline int device_number(const DeviceNumbers *numbers, int rank) {
  return numbers->count ? numbers->number[rank % numbers->count] : rank;
}

typedef enum DeviceCopy { DEVICE_FROM_HOST, DEVICE_TO_HOST } DeviceCopy;
enum { DEVICE_HOST = -1 }; // in the place of a space's number: an address is a pointer of the host's

// A node bound to a device. Made once; what changes from call to call stands in the KernelCall. own: in the arena that
// bind was given.
typedef struct DeviceBound { Kernel host; void *own; } DeviceBound;

struct DeviceImplementation {
  int at_once; // work is done by the calling thread before the call that puts it into a queue returns
  // Where a process may have several of the kind: the one for rank `number` among those of this machine, which stays
  // until the process ends. PLAIT_FAILED, with a sentence: there is none. NULL: the description is its only instance.
  int (*instance)(const Device *device, int number, const Device **instance, Error *error);
  // As device_present and device_ready; NULL: there is nothing to ask.
  int (*present)(Error *error);
  int (*ready)(const Device *device, const DeviceNumbers *numbers, Error *error);
  // Bytes of an instance's memory that are free, and all of them; NULL: it is the host's.
  int (*room)(const Device *instance, int64_t *available, int64_t *total, Error *error);
  // Memory of `bytes` in a space, a multiple of its page, all zero. PLAIT_NO_MEMORY with the reason.
  int (*allocate)(const Device *device, int space, int64_t bytes, char **address, Error *error);
  void (*release)(const Device *device, int space, char *address, int64_t bytes);
  int (*queue_create)(const Device *device, Team *team, DeviceQueue **queue, Error *error);
  void (*queue_destroy)(DeviceQueue *queue); // waits for what is in it
  // `call` as it will be, but for the data of its operands, its workspace and parameters. Other memory that it points
  // at must stay.
  int (*bind)(const Device *device, const DeviceKernel *kernel, const KernelCall *call, Arena *arena,
              DeviceBound *bound, Error *error);
  // Tries what a bound call will use of others' libraries, and compares it (unless the queue believes them), in `bytes`
  // of the first space of which nobody needs what is there; leaves zero there. PLAIT_FAILED: the device has failed.
  // NULL: there is nothing to try.
  int (*check)(DeviceQueue *queue, const DeviceBound *bound, const KernelCall *call, char *memory, int64_t bytes,
               Error *error);
  // Choices that calls which were checked leave open: the kind, and each key without a value. choose: the value of a
  // key by time, "" where there is none; the caller frees it. take: a value that was chosen, here or elsewhere. memory
  // as in check. NULL: there is nothing to choose.
  void (*choices)(DeviceQueue *queue, DeviceChoices *choices);
  char *(*choose)(DeviceQueue *queue, const char *key, char *memory, int64_t bytes);
  void (*take)(DeviceQueue *queue, const char *key, const char *value, char *memory, int64_t bytes);
  // These may return before the work is done, and are called by any thread. Host memory of a copy must stay until then;
  // the KernelCall, its operands and parameters need not.
  void (*run)(DeviceQueue *queue, const DeviceBound *bound, const KernelCall *call);
  // Between two of its spaces, or DEVICE_HOST.
  void (*copy)(DeviceQueue *queue, int to_space, void *to, int from_space, const void *from, int64_t bytes);
  void (*fill)(DeviceQueue *queue, void *at, int byte, int64_t bytes); // in the first space, as are run's operands
  DeviceEvent (*record)(DeviceQueue *queue);
  void (*follow)(DeviceQueue *queue, DeviceEvent event); // what is put into the queue from now on comes after the event
  int (*wait)(DeviceEvent event, Error *error); // the calling thread; PLAIT_FAILED: what was done before it has failed
  // Makes copies between its spaces and these pages of the host's memory direct, and as late as a queue comes to them;
  // 0: that is refused, and copies are as with any memory. NULL: all memory is the same to it.
  int (*pin)(const Device *device, char *memory, int64_t bytes);
  void (*unpin)(const Device *device, char *memory); // what began there; no copy is under way any more
  // The pointer by which communicators, which are the host's, reach an address of the first space; the queue that wrote
  // there has been waited for. NULL: there is none, and they reach a mirror of it (State.mirror).
  void *(*host_pointer)(const Device *device, void *address);
};

// Whether this machine has what it takes to run such a device, as far as can be asked by a process that will fork; and
// whether these devices are there and can be used, by the process that will use them. PLAIT_INFEASIBLE, with a
// sentence.
int device_present(const Device *device, Error *error);
int device_ready(const Device *device, const DeviceNumbers *numbers, Error *error);

// What rank `number` among those of this machine computes on: a device with the description of this one, to which
// memory and queues belong.
int device_instance(const Device *device, int number, const Device **instance,
                    Error *error); // PLAIT_INFEASIBLE: without an implementation
// NULL is fine for release and destroy.
int device_allocate(const Device *device, int space, int64_t bytes, char **address,
                    Error *error); // PLAIT_INFEASIBLE: without an implementation
void device_release(const Device *device, int space, char *address, int64_t bytes);
int device_queue_create(const Device *device, Team *team, DeviceQueue **queue, Error *error);
void device_queue_destroy(DeviceQueue *queue);
static inline void device_run(DeviceQueue *q, const DeviceBound *bound, const KernelCall *call) {
  q->device->implementation->run(q, bound, call);
}
static inline void device_move(DeviceQueue *q, int to_space, void *to, int from_space, const void *from,
                               int64_t bytes) {
  q->device->implementation->copy(q, to_space, to, from_space, from, bytes);
}
static inline void device_copy(DeviceQueue *q, DeviceCopy kind, int space, void *to, const void *from, int64_t bytes) {
  int from_host = kind == DEVICE_FROM_HOST;
  device_move(q, from_host ? space : DEVICE_HOST, to, from_host ? DEVICE_HOST : space, from, bytes);
}
static inline void device_fill(DeviceQueue *q, void *at, int byte, int64_t bytes) {
  q->device->implementation->fill(q, at, byte, bytes);
}
static inline DeviceEvent device_record(DeviceQueue *q) { return q->device->implementation->record(q); }
static inline void device_follow(DeviceQueue *q, DeviceEvent event) { q->device->implementation->follow(q, event); }
static inline int device_wait(DeviceEvent event, Error *error) {
  return event.queue->device->implementation->wait(event, error);
}
static inline int device_drain(DeviceQueue *q, Error *error) { return device_wait(device_record(q), error); }
static inline void *device_host_pointer(const Device *d, void *address) {
  return d->space[0].is_host ? address : d->implementation->host_pointer(d, address);
}

// Whether communicators of the host cannot reach the memory of its first space.
static inline int device_needs_mirror(const Device *d) {
  return !d->space[0].is_host && d->implementation && !d->implementation->host_pointer;
}

// For devices that imitate another one, `own`: its kernels and its speed.
int device_imitated_find(const Device *device, Op op, Dtype dtype, DeviceKernel *kernel);
double device_imitated_peak(const Device *device, Dtype dtype, Team *team);
