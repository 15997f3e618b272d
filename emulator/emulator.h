// An emulated CUDA driver, see README.md. One lock guards all of it: each entry begins with enter and ends with leave.
#pragma once
#include "device/cuda/abi.h"
#include <stdint.h>

#define CUDA_ENTRY(name, parameters) name##_entry name;
#include "device/cuda/entries.def"
#undef CUDA_ENTRY

enum { MOST_DEVICES = 64 };

// A device's primary context.
struct CUctx_st {
  int device;
  CudaResult failed; // what every call returns from then on; CUDA_OK: nothing has failed
  size_t used;       // bytes of device memory
};

// A place in a stream: done when all that was put into it before is. Events and streams that wait hold it.
typedef struct Marker { int done, holders; double at; } Marker; // at: its stream's clock

typedef struct Launch Launch; // kernels.c

// A call of an emulated library's, with operands in device memory; run gets their addresses in the emulator's own memory.
enum { LIBRARY_OPERANDS = 16 };
typedef struct LibraryCall {
  int operands;
  CudaOperand operand[LIBRARY_OPERANDS];
  char *own[LIBRARY_OPERANDS];
  double milliseconds; // how long it takes, by the stream's clock
  void (*run)(const struct LibraryCall *call);
  _Alignas(16) char arguments[512];
} LibraryCall;

typedef enum WorkKind { WORK_COPY, WORK_FILL, WORK_LAUNCH, WORK_CALL, WORK_MARK, WORK_FOLLOW } WorkKind;
typedef struct Work {
  struct Work *next;
  WorkKind kind;
  char *to, *from; // pointers that may be followed
  size_t bytes;
  int byte;        // FILL
  char *early;     // COPY: what the driver has read when it was called; freed with this
  Launch *launch;  // LAUNCH; freed with this
  LibraryCall *call; // CALL; freed with this
  Marker *marker;  // MARK, FOLLOW
  int fails;
} Work;

struct CUstream_st {
  CudaStream next;
  CudaContext context;
  int alive;
  Work *first, *last;
  double clock; // milliseconds, of calls of libraries alone
};

struct CUevent_st {
  CudaEvent next;
  CudaContext context;
  int alive, has_time;
  Marker *marker; // of the newest record; NULL: never
};

// Ends the program with a sentence that names the call.
_Noreturn void wrong(const char *call, const char *format, ...) __attribute__((format(printf, 2, 3)));

typedef enum Needs { NEEDS_NOTHING, NEEDS_INIT, NEEDS_CONTEXT } Needs;
// Checks who calls; what it returns, other than CUDA_OK, the entry returns. context: the thread's; NULL: not wanted.
CudaResult enter(const char *call, Needs needs, CudaContext *context);
CudaResult leave(CudaResult result);
CudaContext primary_context(CudaDevice device);
void set_current(CudaContext context);
int check_device(const char *call, CudaDevice device); // its number
int emulated_devices(void);
uint64_t draw(uint64_t below);
uint64_t emulated_seed(void);
// Whether this is the call that PLAIT_EMULATED_FAILS names: "copy 3" is the third.
int fails_now(const char *kind);

// Counts a call of this kind, for the file that PLAIT_EMULATED_COUNTS names. The name stays.
void count_call(const char *kind);
int skips_kernels(void); // PLAIT_EMULATED_SKIPS

// memory.c: bytes of the device's memory as a pointer; ends the program where they are not all of one allocation.
char *device_bytes(const char *call, CudaPointer address, size_t bytes);
char *host_bytes(const char *call, const void *memory, size_t bytes);
int is_pinned(const void *memory);
int is_device_address(const void *address);
int memory_leaks(char *text, size_t size); // how many; the first in words

// streams.c
int pending_in(const char *memory, size_t bytes); // whether work waits that reads or writes there
int stream_leaks(char *text, size_t size);
CudaResult enter_stream(const char *call, CudaStream stream); // as enter, of a live stream of the current context
void put_launch(CudaStream stream, Launch *launch);
// For emulated libraries: `call`, which is copied, runs when the stream comes to it. Ends the program where an operand is
// not in one allocation of the device's.
CudaResult emulated_library_call(const char *name, CudaStream stream, const LibraryCall *call);

// kernels.c
int launch_touches(const Launch *launch, const char *memory, size_t bytes); // of the emulator's own
void launch_run(Launch *launch);
