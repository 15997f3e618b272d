// A cuDNN without a card, stricter than the real one: descriptors, and plans of attention and its gradient, which run in the order of
// the emulated driver's streams. See ../README.md.
#include "cudnn.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MARK_HANDLE = 0x68616e64, MARK_DESCRIPTOR = 0x64657363, DEAD = 0 };
enum { WORKSPACE = 1 << 12, WORKSPACE_ALIGNED = 256, MOST_VALUES = 64, MOST_ATTRIBUTES = 8 };

struct DnnHandle_s { int mark; CudaStream stream; };

// Calls that were put into a stream, for tests.
extern long long emulated_cudnn;
long long emulated_cudnn;

// Attributes of descriptors: a value of this type, `least` to `most` of them. part: of which kind a descriptor is that it names.
typedef struct Rule { DnnKind kind; DnnAttribute attribute; DnnType type; int least, most, needed; DnnKind part; } Rule;
#define PART(kind, attribute, part) {kind, attribute, DNN_IS_DESCRIPTOR, 1, 1, 1, part}
static const Rule rules[] = {
    {DNN_TENSOR, DNN_TENSOR_DTYPE, DNN_IS_DTYPE, 1, 1, 1, 0},
    {DNN_TENSOR, DNN_TENSOR_SIZES, DNN_IS_INT64, DIMS, DIMS, 1, 0},
    {DNN_TENSOR, DNN_TENSOR_STRIDES, DNN_IS_INT64, DIMS, DIMS, 1, 0},
    {DNN_TENSOR, DNN_TENSOR_NUMBER, DNN_IS_INT64, 1, 1, 1, 0},
    {DNN_TENSOR, DNN_TENSOR_ALIGNMENT, DNN_IS_INT64, 1, 1, 1, 0},
    {DNN_TENSOR, DNN_TENSOR_IS_VIRTUAL, DNN_IS_BOOLEAN, 1, 1, 0, 0},
    {DNN_TENSOR, DNN_TENSOR_IS_VALUE, DNN_IS_BOOLEAN, 1, 1, 0, 0},
    {DNN_POINTWISE, DNN_POINTWISE_MODE, DNN_IS_POINTWISE_MODE, 1, 1, 1, 0},
    {DNN_POINTWISE, DNN_POINTWISE_COMPUTES, DNN_IS_DTYPE, 1, 1, 1, 0},
    {DNN_POINTWISE, DNN_POINTWISE_AXIS, DNN_IS_INT64, 1, 1, 0, 0},
    PART(DNN_DO_POINTWISE, DNN_DO_POINTWISE_HOW, DNN_POINTWISE),
    PART(DNN_DO_POINTWISE, DNN_DO_POINTWISE_X, DNN_TENSOR),
    {DNN_DO_POINTWISE, DNN_DO_POINTWISE_B, DNN_IS_DESCRIPTOR, 1, 1, 0, DNN_TENSOR},
    {DNN_DO_POINTWISE, DNN_DO_POINTWISE_T, DNN_IS_DESCRIPTOR, 1, 1, 0, DNN_TENSOR},
    PART(DNN_DO_POINTWISE, DNN_DO_POINTWISE_Y, DNN_TENSOR),
    {DNN_MATMUL, DNN_MATMUL_COMPUTES, DNN_IS_DTYPE, 1, 1, 1, 0},
    PART(DNN_DO_MATMUL, DNN_DO_MATMUL_HOW, DNN_MATMUL),
    PART(DNN_DO_MATMUL, DNN_DO_MATMUL_A, DNN_TENSOR),
    PART(DNN_DO_MATMUL, DNN_DO_MATMUL_B, DNN_TENSOR),
    PART(DNN_DO_MATMUL, DNN_DO_MATMUL_C, DNN_TENSOR),
    {DNN_REDUCTION, DNN_REDUCTION_OPERATOR, DNN_IS_REDUCTION, 1, 1, 1, 0},
    {DNN_REDUCTION, DNN_REDUCTION_COMPUTES, DNN_IS_DTYPE, 1, 1, 1, 0},
    PART(DNN_DO_REDUCTION, DNN_DO_REDUCTION_HOW, DNN_REDUCTION),
    PART(DNN_DO_REDUCTION, DNN_DO_REDUCTION_X, DNN_TENSOR),
    PART(DNN_DO_REDUCTION, DNN_DO_REDUCTION_Y, DNN_TENSOR),
    PART(DNN_DO_RESHAPE, DNN_DO_RESHAPE_X, DNN_TENSOR),
    PART(DNN_DO_RESHAPE, DNN_DO_RESHAPE_Y, DNN_TENSOR),
    {DNN_GRAPH, DNN_GRAPH_OPERATIONS, DNN_IS_DESCRIPTOR, 1, MOST_STEPS, 1, 0},
    {DNN_GRAPH, DNN_GRAPH_HANDLE, DNN_IS_HANDLE, 1, 1, 1, 0},
    PART(DNN_HEURISTIC, DNN_HEURISTIC_GRAPH, DNN_GRAPH),
    {DNN_HEURISTIC, DNN_HEURISTIC_MODE, DNN_IS_HEURISTIC_MODE, 1, 1, 1, 0},
    {DNN_PLAN, DNN_PLAN_HANDLE, DNN_IS_HANDLE, 1, 1, 1, 0},
    PART(DNN_PLAN, DNN_PLAN_CONFIGURATION, DNN_CONFIGURATION),
    {DNN_PACK, DNN_PACK_NUMBERS, DNN_IS_INT64, 1, MOST_VALUES, 1, 0},
    {DNN_PACK, DNN_PACK_POINTERS, DNN_IS_POINTER, 1, MOST_VALUES, 1, 0},
    {DNN_PACK, DNN_PACK_WORKSPACE, DNN_IS_POINTER, 1, 1, 1, 0},
};
enum { RULES = sizeof rules / sizeof *rules };

typedef struct Attribute { const Rule *rule; int64_t count; union { int64_t whole; void *pointer; unsigned value; } at[MOST_VALUES]; } Attribute;
typedef struct Descriptor {
  int mark, finalized, attributes;
  DnnKind kind;
  Attribute *attribute[MOST_ATTRIBUTES];
  Program *program; // of a graph, of what was proposed for it, and of a plan
  struct Descriptor *next;
} Descriptor;
static Descriptor *dead; // kept, so that who uses one is told

static size_t size_of(DnnType type) {
  return type == DNN_IS_BOOLEAN ? 1 : type == DNN_IS_INT64 || type == DNN_IS_HANDLE || type == DNN_IS_POINTER || type == DNN_IS_DESCRIPTOR ? 8 : 4;
}

static Descriptor *alive(const char *call, DnnDescriptor descriptor) {
  Descriptor *d = descriptor;
  if (!d || d->mark != MARK_DESCRIPTOR) wrong(call, "%p is not a descriptor that is alive", descriptor);
  return d;
}

static Descriptor *finalized(const char *call, DnnDescriptor descriptor, DnnKind kind) {
  Descriptor *d = alive(call, descriptor);
  if (d->kind != kind) wrong(call, "a descriptor of kind %u stands for one of kind %u", d->kind, kind);
  if (!d->finalized) wrong(call, "a descriptor of kind %u is not finalized", d->kind);
  return d;
}

static DnnHandle check_handle(const char *call, DnnHandle handle) {
  if (!handle || handle->mark != MARK_HANDLE) wrong(call, "%p is not a handle that is alive", (void *)handle);
  return handle;
}

static const Attribute *attribute_of(const Descriptor *d, DnnAttribute attribute) {
  for (int i = 0; i < d->attributes; i++)
    if (d->attribute[i]->rule->attribute == attribute) return d->attribute[i];
  return NULL;
}
static int64_t whole(const Descriptor *d, DnnAttribute attribute, int64_t otherwise) {
  const Attribute *a = attribute_of(d, attribute);
  return a ? a->at[0].whole : otherwise;
}
static Descriptor *part(const Descriptor *d, DnnAttribute attribute) {
  const Attribute *a = attribute_of(d, attribute);
  return a ? a->at[0].pointer : NULL;
}

// Descriptors ----------------------------------------------------------------------------------------------------------

size_t cudnnGetVersion(void) {
  const char *text = getenv("PLAIT_EMULATED_DNN_VERSION");
  return text ? (size_t)atoll(text) : 91400;
}
size_t cudnnGetCudartVersion(void) { return 12000; }

const char *cudnnGetErrorString(DnnStatus status) {
  return status == DNN_OK ? "CUDNN_STATUS_SUCCESS" : status == DNN_BAD_VALUE ? "CUDNN_STATUS_BAD_PARAM" : "CUDNN_STATUS_NOT_SUPPORTED";
}

DnnStatus cudnnCreate(DnnHandle *handle) {
  leave(enter(__func__, NEEDS_CONTEXT, NULL));
  *handle = calloc(1, sizeof **handle);
  (*handle)->mark = MARK_HANDLE;
  return DNN_OK;
}

DnnStatus cudnnDestroy(DnnHandle handle) {
  check_handle(__func__, handle)->mark = DEAD;
  free(handle);
  return DNN_OK;
}

DnnStatus cudnnSetStream(DnnHandle handle, CudaStream stream) {
  check_handle(__func__, handle)->stream = stream;
  return DNN_OK;
}

DnnStatus cudnnBackendCreateDescriptor(DnnKind kind, DnnDescriptor *descriptor) {
  int known = kind == DNN_CONFIGURATION;
  for (int i = 0; i < RULES; i++) known |= rules[i].kind == kind;
  if (!known) wrong(__func__, "descriptors of kind %u are not emulated", kind);
  Descriptor *d = calloc(1, sizeof *d);
  d->mark = MARK_DESCRIPTOR;
  d->kind = kind;
  *descriptor = d;
  return DNN_OK;
}

DnnStatus cudnnBackendDestroyDescriptor(DnnDescriptor descriptor) {
  Descriptor *d = alive(__func__, descriptor);
  for (int i = 0; i < d->attributes; i++) free(d->attribute[i]);
  free(d->program);
  d->mark = DEAD;
  d->next = __atomic_load_n(&dead, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(&dead, &d->next, d, 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED)) continue;
  return DNN_OK;
}

static const Rule *rule_of(const char *call, const Descriptor *d, DnnAttribute attribute, DnnType type, int64_t count) {
  for (int i = 0; i < RULES; i++) {
    const Rule *r = &rules[i];
    if (r->kind != d->kind || r->attribute != attribute) continue;
    if (r->type != type) wrong(call, "attribute %u is of type %u, not %u", attribute, r->type, type);
    if (count < r->least || count > r->most)
      wrong(call, "attribute %u has %lld values, and takes %d to %d", attribute, (long long)count, r->least, r->most);
    return r;
  }
  wrong(call, "descriptors of kind %u have no attribute %u", d->kind, attribute);
}

DnnStatus cudnnBackendSetAttribute(DnnDescriptor descriptor, DnnAttribute attribute, DnnType type, int64_t count, const void *values) {
  Descriptor *d = alive(__func__, descriptor);
  const Rule *r = rule_of(__func__, d, attribute, type, count);
  if (d->finalized) wrong(__func__, "attribute %u is set after its descriptor was finalized", attribute);
  if (attribute_of(d, attribute)) wrong(__func__, "attribute %u is set twice", attribute);
  Attribute *a = calloc(1, sizeof *a);
  a->rule = r;
  a->count = count;
  for (int64_t i = 0; i < count; i++) {
    memcpy(&a->at[i], (const char *)values + (size_t)i * size_of(type), size_of(type));
    if (type == DNN_IS_DESCRIPTOR && d->kind != DNN_GRAPH) finalized(__func__, a->at[i].pointer, r->part);
    if (type == DNN_IS_HANDLE) check_handle(__func__, a->at[i].pointer);
  }
  d->attribute[d->attributes++] = a;
  return DNN_OK;
}

// Graphs ---------------------------------------------------------------------------------------------------------------

static void finalize_tensor(const Descriptor *d) {
  const Attribute *sizes = attribute_of(d, DNN_TENSOR_SIZES), *strides = attribute_of(d, DNN_TENSOR_STRIDES);
  const int64_t dtype = whole(d, DNN_TENSOR_DTYPE, -1), alignment = whole(d, DNN_TENSOR_ALIGNMENT, 0);
  for (int i = 0; i < DIMS; i++)
    if (sizes->at[i].whole < 1 || strides->at[i].whole < 1) wrong("cudnnBackendFinalize", "a tensor has sizes or strides below 1");
  if (dtype != DNN_F32 && dtype != DNN_BF16 && dtype != DNN_F16 && dtype != DNN_I32 && dtype != DNN_BOOLEAN)
    wrong("cudnnBackendFinalize", "dtype %lld is not emulated", (long long)dtype);
  if (alignment < 16 || alignment & (alignment - 1)) wrong("cudnnBackendFinalize", "a tensor is aligned to %lld bytes", (long long)alignment);
  if (whole(d, DNN_TENSOR_IS_VALUE, 0) && whole(d, DNN_TENSOR_IS_VIRTUAL, 0)) wrong("cudnnBackendFinalize", "a tensor is virtual and by value");
}

static int tensor_of(Program *p, const Descriptor *d) {
  if (!d) return NO_TENSOR;
  View v = {.number = whole(d, DNN_TENSOR_NUMBER, 0), .alignment = whole(d, DNN_TENSOR_ALIGNMENT, 0), .dtype = (DnnDtype)whole(d, DNN_TENSOR_DTYPE, 0),
            .is_virtual = (int)whole(d, DNN_TENSOR_IS_VIRTUAL, 0), .is_value = (int)whole(d, DNN_TENSOR_IS_VALUE, 0)};
  for (int i = 0; i < DIMS; i++) {
    v.size[i] = attribute_of(d, DNN_TENSOR_SIZES)->at[i].whole;
    v.stride[i] = attribute_of(d, DNN_TENSOR_STRIDES)->at[i].whole;
  }
  for (int i = 0; i < p->tensors; i++) {
    if (p->tensor[i].number != v.number) continue;
    if (memcmp(&p->tensor[i], &v, sizeof v)) wrong("cudnnBackendFinalize", "two tensors have the number %lld", (long long)v.number);
    return i;
  }
  if (p->tensors == MOST_TENSORS) wrong("cudnnBackendFinalize", "a graph has more than %d tensors", MOST_TENSORS);
  p->tensor[p->tensors] = v;
  return p->tensors++;
}

static Step step_of(Program *p, const Descriptor *d) {
  Step s = {.kind = d->kind, .axis = -1, .b = NO_TENSOR, .t = NO_TENSOR};
  if (d->kind == DNN_DO_POINTWISE) {
    const Descriptor *how = part(d, DNN_DO_POINTWISE_HOW);
    s.mode = (unsigned)whole(how, DNN_POINTWISE_MODE, 0), s.axis = whole(how, DNN_POINTWISE_AXIS, -1);
    s.x = tensor_of(p, part(d, DNN_DO_POINTWISE_X)), s.b = tensor_of(p, part(d, DNN_DO_POINTWISE_B));
    s.t = tensor_of(p, part(d, DNN_DO_POINTWISE_T)), s.y = tensor_of(p, part(d, DNN_DO_POINTWISE_Y));
  } else if (d->kind == DNN_DO_MATMUL) {
    s.x = tensor_of(p, part(d, DNN_DO_MATMUL_A)), s.b = tensor_of(p, part(d, DNN_DO_MATMUL_B)), s.y = tensor_of(p, part(d, DNN_DO_MATMUL_C));
  } else if (d->kind == DNN_DO_REDUCTION) {
    s.mode = (unsigned)whole(part(d, DNN_DO_REDUCTION_HOW), DNN_REDUCTION_OPERATOR, 0);
    s.x = tensor_of(p, part(d, DNN_DO_REDUCTION_X)), s.y = tensor_of(p, part(d, DNN_DO_REDUCTION_Y));
  } else s.x = tensor_of(p, part(d, DNN_DO_RESHAPE_X)), s.y = tensor_of(p, part(d, DNN_DO_RESHAPE_Y));
  return s;
}

// A character for each kind of operation. cuDNN recognises a graph as attention by the sequence of its operations; sums over the
// heads of a group do not count in it.
static char letter_of(const Program *p, const Step *s) {
  static const struct { unsigned mode; char letter; } letters[] = {
      {DNN_ADD, '+'}, {DNN_MUL, '*'}, {DNN_DIV, '/'}, {DNN_SUB, '-'}, {DNN_EXP, 'e'}, {DNN_LOG, 'l'},
      {DNN_COPY, '='}, {DNN_IS_AT_LEAST, '>'}, {DNN_INDEX, 'i'}, {DNN_SELECT, '?'}};
  if (s->kind == DNN_DO_MATMUL) return 'p';
  if (s->kind == DNN_DO_RESHAPE) return 't';
  if (s->kind == DNN_DO_REDUCTION) return p->tensor[s->x].size[1] != p->tensor[s->y].size[1] ? 0 : s->mode == DNN_MAXIMUM ? 'm' : 's';
  for (size_t i = 0; i < sizeof letters / sizeof *letters; i++)
    if (letters[i].mode == s->mode) return letters[i].letter;
  wrong("cudnnBackendFinalize", "pointwise operations of mode %u are not emulated", s->mode);
}

static void check_is_attention(const Program *p) {
  static const char *const known[] = {"p*i>?ii>?m-esl+/p", "*s*p*-i>?ii>?etpp-**tptp=", "*s*p*-i>?ii>?etpp-**tptp",
                                      "p*ii>?m-esl+/p", "*s*p*-ii>?etpp-**tptp=", "*s*p*-ii>?etpp-**tptp"};
  char text[MOST_STEPS + 1] = "";
  size_t n = 0;
  for (int i = 0; i < p->steps; i++) {
    const char letter = letter_of(p, &p->step[i]);
    if (letter) text[n++] = letter;
  }
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (!strcmp(text, known[i])) return;
  wrong("cudnnBackendFinalize", "a graph of these operations has no plan: %s", text);
}

static void finalize_graph(Descriptor *d) {
  const Attribute *operations = attribute_of(d, DNN_GRAPH_OPERATIONS);
  Program *p = d->program = calloc(1, sizeof *p);
  int made[MOST_TENSORS] = {0}, used[MOST_TENSORS] = {0};
  for (int64_t i = 0; i < operations->count; i++) {
    const Descriptor *o = alive("cudnnBackendFinalize", operations->at[i].pointer);
    if (o->kind != DNN_DO_POINTWISE && o->kind != DNN_DO_MATMUL && o->kind != DNN_DO_REDUCTION && o->kind != DNN_DO_RESHAPE)
      wrong("cudnnBackendFinalize", "a descriptor of kind %u is not an operation", o->kind);
    Step s = p->step[p->steps++] = step_of(p, finalized("cudnnBackendFinalize", operations->at[i].pointer, o->kind));
    const int read[] = {s.x, s.b, s.t};
    check_step(p, &s);
    for (int k = 0; k < 3; k++) {
      if (read[k] < 0) continue;
      used[read[k]] = 1;
      if (p->tensor[read[k]].is_virtual && !made[read[k]])
        wrong("cudnnBackendFinalize", "tensor %lld lies in no memory, and is read before it is made", (long long)p->tensor[read[k]].number);
    }
    if (made[s.y]++) wrong("cudnnBackendFinalize", "tensor %lld is made twice", (long long)p->tensor[s.y].number);
    if (p->tensor[s.y].is_value) wrong("cudnnBackendFinalize", "tensor %lld is a value, and is made", (long long)p->tensor[s.y].number);
  }
  for (int i = 0; i < p->tensors; i++)
    if (p->tensor[i].is_virtual && !used[i]) wrong("cudnnBackendFinalize", "tensor %lld is not used", (long long)p->tensor[i].number);
  check_is_attention(p);
}

static Program *copy_of(const Program *p) { return memcpy(malloc(sizeof *p), p, sizeof *p); }

DnnStatus cudnnBackendFinalize(DnnDescriptor descriptor) {
  Descriptor *d = alive(__func__, descriptor);
  if (d->finalized) wrong(__func__, "a descriptor of kind %u is finalized twice", d->kind);
  for (int i = 0; i < RULES; i++)
    if (rules[i].kind == d->kind && rules[i].needed && !attribute_of(d, rules[i].attribute))
      wrong(__func__, "a descriptor of kind %u lacks attribute %u", d->kind, rules[i].attribute);
  if (d->kind == DNN_TENSOR) finalize_tensor(d);
  if (d->kind == DNN_GRAPH) finalize_graph(d);
  if (d->kind == DNN_HEURISTIC && whole(d, DNN_HEURISTIC_MODE, 0) != DNN_MODE_A) wrong(__func__, "only heuristics of mode A are emulated");
  if (d->kind == DNN_PLAN) d->program = copy_of(part(d, DNN_PLAN_CONFIGURATION)->program);
  if (d->kind == DNN_PACK && attribute_of(d, DNN_PACK_NUMBERS)->count != attribute_of(d, DNN_PACK_POINTERS)->count)
    wrong(__func__, "there are %lld numbers of tensors, and %lld pointers", (long long)attribute_of(d, DNN_PACK_NUMBERS)->count,
          (long long)attribute_of(d, DNN_PACK_POINTERS)->count);
  d->finalized = 1;
  return DNN_OK;
}

// "2 4 64 16": graphs of two samples, four heads, 64 queries and 16 columns. Their first operand of these dims is dout or q.
static int is_named(const char *variable, const Program *p) {
  const char *text = getenv(variable);
  long long n[DIMS];
  const int64_t *size = p->tensor[p->step[0].x].size;
  return text && sscanf(text, "%lld %lld %lld %lld", &n[0], &n[1], &n[2], &n[3]) == 4 && n[0] == size[0] && n[1] == size[1] && n[2] == size[2] && n[3] == size[3];
}

static int64_t workspace_of(void) {
  const char *text = getenv("PLAIT_EMULATED_DNN_WORKSPACE");
  return text ? atoll(text) : WORKSPACE;
}

static int is_supported(const Program *p) {
  const int64_t *size = p->tensor[p->step[0].x].size;
  return size[3] % 8 == 0 && size[3] <= 256 && !is_named("PLAIT_EMULATED_DNN_REFUSES", p);
}

DnnStatus cudnnBackendGetAttribute(const DnnDescriptor descriptor, DnnAttribute attribute, DnnType type, int64_t most, int64_t *count, void *values) {
  Descriptor *d = alive(__func__, descriptor);
  if (d->kind == DNN_HEURISTIC && attribute == DNN_HEURISTIC_RESULTS && type == DNN_IS_DESCRIPTOR && most > 0) {
    const Program *p = part(finalized(__func__, d, DNN_HEURISTIC), DNN_HEURISTIC_GRAPH)->program;
    Descriptor *first = alive(__func__, *(DnnDescriptor *)values);
    if (first->kind != DNN_CONFIGURATION) wrong(__func__, "a descriptor of kind %u stands for a configuration", first->kind);
    *count = is_supported(p);
    if (*count) first->program = copy_of(p), first->finalized = 1;
  } else if (d->kind == DNN_PLAN && attribute == DNN_PLAN_WORKSPACE && type == DNN_IS_INT64 && most == 1) {
    finalized(__func__, d, DNN_PLAN);
    *count = 1;
    *(int64_t *)values = workspace_of();
  } else wrong(__func__, "attribute %u of a descriptor of kind %u is not emulated", attribute, d->kind);
  return DNN_OK;
}

// Plans ----------------------------------------------------------------------------------------------------------------

typedef struct Run { Program *program; int workspace; } Run;

static void run(const LibraryCall *call) {
  const Run *r = (const Run *)(const void *)call->arguments;
  memset(call->own[r->workspace], 0xff, call->operand[r->workspace].bytes); // nothing of anybody's is there
  program_run(r->program, call->own);
  free(r->program);
}

static int is_made(const Program *p, int tensor) {
  for (int i = 0; i < p->steps; i++)
    if (p->step[i].y == tensor) return 1;
  return 0;
}

static void bind(LibraryCall *call, Program *p, int tensor, void *pointer) {
  static const char *const name = "cudnnBackendExecute";
  const View *v = &p->tensor[tensor];
  if (v->is_value) {
    if (is_device_address(pointer)) wrong(name, "tensor %lld is a value, and lies in the device's memory", (long long)v->number);
    p->value[tensor] = *(const float *)pointer;
    return;
  }
  if ((uintptr_t)pointer % (uintptr_t)v->alignment) wrong(name, "tensor %lld lies at %p", (long long)v->number, pointer);
  p->operand[tensor] = call->operands;
  if (call->operands == LIBRARY_OPERANDS - 1) wrong(name, "there are too many operands");
  call->operand[call->operands++] = (CudaOperand){is_made(p, tensor) ? "an output" : "an input", (CudaPointer)(uintptr_t)pointer,
                                                  (size_t)view_extent(v) * dtype_bytes(v->dtype), is_made(p, tensor) ? CUDA_WRITES : CUDA_READS};
}

static void check_apart(const LibraryCall *call) {
  for (int i = 0; i < call->operands; i++)
    for (int k = 0; k < i; k++) {
      const CudaOperand *x = &call->operand[i], *y = &call->operand[k];
      if ((x->mode | y->mode) & CUDA_WRITES && x->at < y->at + y->bytes && y->at < x->at + x->bytes)
        wrong("cudnnBackendExecute", "%s lies in the memory of %s", x->name, y->name);
    }
}

DnnStatus cudnnBackendExecute(DnnHandle handle, DnnDescriptor plan, DnnDescriptor pack) {
  check_handle(__func__, handle);
  const Descriptor *d = finalized(__func__, plan, DNN_PLAN), *with = finalized(__func__, pack, DNN_PACK);
  const Attribute *numbers = attribute_of(with, DNN_PACK_NUMBERS), *pointers = attribute_of(with, DNN_PACK_POINTERS);
  void *workspace = attribute_of(with, DNN_PACK_WORKSPACE)->at[0].pointer;
  LibraryCall call = {.run = run};
  Program *p = copy_of(d->program);
  if (!handle->stream) wrong(__func__, "the handle has no stream");
  if ((uintptr_t)workspace % WORKSPACE_ALIGNED) wrong(__func__, "the workspace lies at %p", workspace);
  int64_t bound = 0;
  for (int i = 0; i < p->tensors; i++) {
    if (p->tensor[i].is_virtual) continue;
    int found = 0;
    for (int64_t k = 0; k < numbers->count; k++)
      if (numbers->at[k].whole == p->tensor[i].number) found++, bind(&call, p, i, pointers->at[k].pointer);
    if (found != 1) wrong(__func__, "tensor %lld has %d pointers", (long long)p->tensor[i].number, found);
    bound++;
  }
  if (bound != numbers->count) wrong(__func__, "there are pointers of %lld tensors that the graph does not have", (long long)(numbers->count - bound));
  call.operand[call.operands++] = (CudaOperand){"the workspace", (CudaPointer)(uintptr_t)workspace, (size_t)workspace_of(), CUDA_WRITES};
  check_apart(&call);
  p->spoiled = is_named("PLAIT_EMULATED_DNN_SPOILS", p);
  const Run r = {p, call.operands - 1};
  memcpy(call.arguments, &r, sizeof r);
  emulated_cudnn++;
  if (!emulated_library_call(__func__, handle->stream, &call)) return DNN_OK;
  free(p);
  return DNN_BAD_VALUE;
}
