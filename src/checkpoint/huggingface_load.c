// Import of Hugging Face folders.
#include "checkpoint/huggingface_folder.h"
#include <string.h>

static int load_one(const HuggingfaceFolder *f, const CheckpointTensor *w, Error *error) {
  const HuggingfaceViews *v = &f->views;
  int variable = graph_find_variable(v->graph, w->name);
  if (variable < 0 || v->of_variable.data[variable] < 0)
    return error_set(error, PLAIT_FAILED, "%s: a %s model has no parameter %s", f->path,
                     model_family_name(f->config->family), w->name);
  const Shape *s = &v->graph->variable.data[variable].shape;
  Box wanted = checkpoint_box(w), both;
  if (w->rank != s->rank || !dims_equal(s->rank, w->global, s->size) || !box_inside(&wanted, w->global) ||
      !dtype_is_float(w->dtype))
    return error_set(error, PLAIT_FAILED, "%s: the shape or dtype of %s here is not what the config says", f->path,
                     w->name);
  for (int i = v->of_variable.data[variable]; i >= 0; i = v->piece.data[i].next) {
    const HuggingfacePiece *p = &v->piece.data[i];
    const SafetensorsEntry *e = huggingface_folder_find(f, &v->tensor.data[p->tensor]);
    if (!box_intersect(&wanted, &p->box, &both)) continue;
    const char *source = (const char *)e->data + p->first * (int64_t)dtype_size((Dtype)e->dtype);
    checkpoint_tensor_put(w, &both, source, &p->box, p->stride, (Dtype)e->dtype);
  }
  return PLAIT_OK;
}

int huggingface_load(const char *folder, const ModelConfig *config, const CheckpointTensor *wanted, int count,
                     Error *error) {
  HuggingfaceFolder f;
  int code = huggingface_folder_open(&f, folder, config, error);
  if (code) return code;
  for (int i = 0; i < count && !code; i++) code = load_one(&f, &wanted[i], error);
  huggingface_folder_close(&f);
  return code;
}

// Of a tensor as it is written, whatever layout the folder has: of the tensor that holds its first elements there.
static int dtype_of(const HuggingfaceFolder *f, const HuggingfaceViews *written, const HuggingfaceTensor *t) {
  const HuggingfacePiece *p = &written->piece.data[t->piece];
  Box both;
  int i = f->views.of_variable.data[p->variable];
  while (!box_intersect(&p->box, &f->views.piece.data[i].box, &both)) i = f->views.piece.data[i].next;
  return huggingface_folder_find(f, &f->views.tensor.data[f->views.piece.data[i].tensor])->dtype;
}

int huggingface_dtypes(const char *folder, const ModelConfig *config, json_t **dtypes, Error *error) {
  HuggingfaceFolder f;
  HuggingfaceViews written;
  int frequency[DTYPE_COUNT] = {0}, most = DTYPE_F32;
  *dtypes = NULL;
  int code = huggingface_folder_open(&f, folder, config, error);
  if (code) return code;
  huggingface_views_of(&written, config, 0);
  for (int i = 0; i < written.tensor.count; i++) frequency[dtype_of(&f, &written, &written.tensor.data[i])]++;
  for (int d = 0; d < DTYPE_COUNT; d++)
    if (frequency[d] > frequency[most]) most = d;
  *dtypes = json_pack("{s:s}", "*", dtype_file_name((Dtype)most));
  for (int i = 0; i < written.tensor.count; i++) {
    const HuggingfaceTensor *t = &written.tensor.data[i];
    int dtype = dtype_of(&f, &written, t);
    if (dtype != most) json_object_set_new(*dtypes, t->name, json_string(dtype_file_name((Dtype)dtype)));
  }
  huggingface_views_free(&written);
  huggingface_folder_close(&f);
  return PLAIT_OK;
}
