// Launches of updates whose moments are codes of 8 bits.
#include "device/cuda/launch.h"
#include "op/state_update.h"

static int optimizer_of(const StateAttr *attr) {
  return attr->op == OP_ADAMW           ? STATES_OF_ADAMW
         : attr->op == OP_SGD           ? STATES_OF_SGD
         : attr->op == OP_LION          ? STATES_OF_LION
         : attr->op == OP_MUON_MOMENTUM ? STATES_OF_MUON_MOMENTUM
                                        : -1;
}

// All moments are codes of 8 bits, and computed as wide as the kernel does.
int fits_states(const KernelCall *call, Dtype dtype) {
  const StateAttr *attr = call->attr;
  const int optimizer = optimizer_of(attr);
  return optimizer >= 0 && attr->encoding == ENCODING_8BIT && (Dtype)attr->dtype == sum_dtype(dtype) &&
         state_moments_of_call(call).count == (optimizer == STATES_OF_ADAMW ? 2 : 1) &&
         call->input[0].rank <= SLICE_RANK && (optimizer == STATES_OF_MUON_MOMENTUM || call->input[0].dtype == dtype);
}

static void name_numbers(StateNumbers *to, Encoding encoding) {
  StateCode code;
  state_code(encoding, &code);
  *to = (StateNumbers){.positive = code.positive};
  memcpy(to->least, code.least, sizeof to->least);
  memcpy(to->base, code.base, sizeof to->base);
}

// Dims that are whole here are counted with the one before them.
static void find_dims(StateArguments *a, const Operand *x, int lead) {
  for (int d = 0; d < x->rank; d++) {
    RowMap m = launch_map(&x->map[d]);
    if (d != 0 && d != lead && index_is_whole(&x->map[d])) {
      const int64_t n = x->size[d], last = a->dims - 1;
      RowMap *before = &a->map[last];
      a->size[last] *= n;
      a->global[last] *= n;
      before->valid *= n;
      for (int r = 0; r < 2; r++) before->local[r] *= n, before->global[r] *= n;
      continue;
    }
    a->size[a->dims] = x->size[d];
    a->global[a->dims] = x->map[d].global;
    a->map[a->dims++] = m;
    a->leads += d < lead;
  }
}

static void launch_states(Launch *l, int only_scales) {
  const KernelCall *call = l->call;
  const StateAttr *attr = call->attr;
  const StateMoments s = state_moments_of_call(call);
  const Operand *x = &call->input[s.moment[0].input];
  const int optimizer = optimizer_of(attr), given = !only_scales && call->ninput > attr->ninput + s.count;
  const PhiloxKey key = philox_key(call->parameters->seed, call->parameters->step, attr->stream);
  int64_t global[MAX_RANK], rows = 1;
  for (int d = 0; d < x->rank; d++) global[d] = x->map[d].global;
  const EncodingBlocks blocks = encoding_blocks((Encoding)attr->encoding, x->rank, global);
  StateArguments a = {.optimizer = optimizer, .moments = s.count, .only_scales = only_scales, .tail = blocks.tail,
                      .blocks = blocks.blocks, .key = {key.k[0], key.k[1]}};
  Operand output[STATE_MOST];
  KernelCall inner = state_inner_call(call, call->input, output);
  inner.noutput = only_scales ? 0 : attr->noutput;
  memcpy(output, call->output, sizeof *output * (size_t)inner.noutput);
  l->call = &inner;
  if (optimizer == STATES_OF_MUON_MOMENTUM) launch_momentum_operands(l, &a.update);
  else launch_update_operands(l, &a.update, s.count);
  l->call = call;
  find_dims(&a, x, blocks.lead);
  for (int d = 0; d < blocks.lead; d++) rows *= x->size[d];
  for (int i = 0; i < s.count; i++) {
    name_numbers(&a.code[i], s.moment[i].encoding);
    a.scales[i] = launch_operand(l, "scales", &call->input[attr->ninput + i], CUDA_READS);
    if (given) a.given[i] = launch_operand(l, "given scales", &call->input[attr->ninput + s.count + i], CUDA_READS);
    a.new_scales[i] = launch_operand(l, "new scales", &call->output[only_scales ? i : attr->noutput + i], CUDA_WRITES);
  }
  launch_kernel(l, CUDA_KERNEL_states, rows * blocks.blocks, BLOCK_THREADS, &a);
}

void launch_state_update(Launch *l) { launch_states(l, 0); }
void launch_state_scales(Launch *l) { launch_states(l, 1); }
